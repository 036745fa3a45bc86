"""`edl master` and `edl master status`."""

from __future__ import annotations

import asyncio
import json

import typer

from edl.master.status_client import fetch_status, status_text
from edl.observability.logs import configure
from edl.processes.master import read_token, serve_master
from edl.settings.master import MasterSettings, StatusSettings
from edl.settings.shared import TableOutput


def master(settings: MasterSettings) -> int:
    """Run the data master of one job until a signal.

    Returns:
        The exit code.
    """
    configure("info", "logfmt")
    return asyncio.run(serve_master(settings))


def status(settings: StatusSettings) -> None:
    """Print the state of a running data master.

    Raises:
        ConfigError: the token cannot be read.
        EdlError: the master does not answer, or refuses.
    """
    token = read_token(settings.token_file, "--token-file").decode(errors="replace")
    found = fetch_status(settings.url, token)
    typer.echo(json.dumps(found, indent=2) if settings.output is TableOutput.JSON else status_text(found))
