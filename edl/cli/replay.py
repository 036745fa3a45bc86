"""`edl replay`."""

from __future__ import annotations

import typer

from edl.cli.exit_codes import USAGE
from edl.errors import ConfigError
from edl.explain.plan_table import make_console
from edl.explain.steps import showing
from edl.observability.replay import exit_code, print_replays, replay_all, replays_json
from edl.settings.replay import ReplaySettings
from edl.settings.shared import TableOutput


def replay(settings: ReplaySettings) -> int:
    """Make each recorded decision again, and print the differences.

    Returns:
        The exit code of the worst record.

    Raises:
        ConfigError: there is no readable record.
    """
    with showing("making the decisions again"):
        replays = replay_all(settings.record_file)
    code = exit_code(replays)
    if settings.output is TableOutput.JSON:
        typer.echo(replays_json(replays))
    elif len(replays) == 1 and code == USAGE:
        raise ConfigError(f"{replays[0].file}: {replays[0].problem}")
    else:
        print_replays(replays, make_console())
    return code
