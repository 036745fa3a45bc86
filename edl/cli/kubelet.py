"""`edl kubelet`."""

from __future__ import annotations

import asyncio

from edl.observability.logs import configure
from edl.sandbox.kubelet.command import serve_kubelet
from edl.settings.kubelet import KubeletSettings


def kubelet(settings: KubeletSettings) -> int:
    """Run nodes until a signal.

    Returns:
        The exit code.
    """
    configure("info", "logfmt")
    return asyncio.run(serve_kubelet(settings))
