"""`edl sandbox`."""

from __future__ import annotations

import asyncio

from edl.sandbox.command import serve_sandbox
from edl.settings.sandbox import SandboxSettings


def sandbox(settings: SandboxSettings) -> int:
    """Run a cluster on this machine until a signal.

    Returns:
        The exit code.
    """
    return asyncio.run(serve_sandbox(settings))
