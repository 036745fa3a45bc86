"""`edl controller`."""

from __future__ import annotations

import asyncio

from edl.observability.logs import configure
from edl.processes.controller import serve
from edl.settings.controller import ControllerSettings


def controller(settings: ControllerSettings) -> int:
    """Run the controller until a signal, or for one plan.

    Returns:
        The exit code.
    """
    configure(settings.log_level, settings.log_format)
    return asyncio.run(serve(settings))
