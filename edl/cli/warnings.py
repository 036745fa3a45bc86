"""Warnings of a command: a line on stderr for each."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from edl.printable import one_line


def warn(warnings: Iterable[object]) -> None:
    """Print each warning as one line."""
    for warning in warnings:
        typer.echo(one_line(f"edl: {warning}"), err=True)
