"""The termination log of a container: the kubelet copies its text into the pod's status, and edl into the condition.

If a container failed and its termination log is empty, the kubelet takes the end of its log instead
(`terminationMessagePolicy: FallbackToLogsOnError`). Standard library only, because the launcher and the training loop
both write here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

TERMINATION_LOG = "/dev/termination-log"

MEANINGS = {
    1: "General Error",
    126: "Entrypoint Not Executable",
    127: "Entrypoint Not Found",
    134: "Program Abort",
    136: "Error Arithmetic Operation(Floating Point Exception)",
    137: "Killed: out of memory, or still running at the end of the grace period",
    139: "Segmentation Fault",
}
"""The name that the launcher gives an exit code."""
SIGNALLED = 128
"""The exit code of a process that signal n ended is 128 + n, as in shells."""
LAST_WORDS = "the entrypoint exited with code "
"""The beginning of the launcher's last line in a log."""


def write_termination_log(text: str, environment: Mapping[str, str]) -> None:
    """Append one line to the termination log; do nothing if the file does not exist.

    Args:
        text: the line, without its end.
        environment: `EDL_TERMINATION_LOG` names another file than /dev/termination-log.
    """
    path = environment.get("EDL_TERMINATION_LOG") or TERMINATION_LOG
    with suppress(OSError):
        log = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(log, f"{text}\n".encode())
        finally:
            os.close(log)
