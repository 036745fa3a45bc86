"""`edl shadow`."""

from __future__ import annotations

import asyncio

import typer

from edl.observability.logs import configure
from edl.settings.shadow import ShadowSettings
from edl.shadow.process import serve


def shadow(settings: ShadowSettings) -> int:
    """Watch a cluster until the time is over or a signal comes; one line on stdout for each report.

    Returns:
        The exit code.

    Raises:
        ConfigError: a flag, a file, the kubeconfig or the folder cannot be used.
        EdlError: the cluster cannot be read.
    """
    configure(settings.log_level, settings.log_format)
    return asyncio.run(serve(settings, typer.echo))
