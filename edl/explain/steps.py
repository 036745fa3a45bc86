"""Long steps of a command, shown while they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def showing(step: str, console: Console | None = None) -> Iterator[None]:
    """Show a step with its seconds while it runs; nothing is left of it at the end.

    Args:
        step: what is done, such as `reading cluster.yaml`.
        console: a terminal; anything else shows nothing. By default stderr.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:  # a progress that is disabled would still print an empty line
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(step, total=None)
        yield
