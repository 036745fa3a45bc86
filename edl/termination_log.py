"""The last words of a container: what it leaves in its termination log, whence they come into the job's condition.

Standard library only: the launcher and a trainer's loop both have something to say there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

TERMINATION_LOG = "/dev/termination-log"


def write_termination_log(text: str, environment: Mapping[str, str]) -> None:
    """Add a last word of this container where the kubelet reads it; without such a place, nothing happens."""
    path = environment.get("EDL_TERMINATION_LOG") or TERMINATION_LOG
    with suppress(OSError):
        log = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(log, f"{text}\n".encode())
        finally:
            os.close(log)
