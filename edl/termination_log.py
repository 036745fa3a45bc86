"""The termination log of a container: the kubelet copies its text into the pod's status, and edl into the condition.

Standard library only, because the launcher and the training loop both write here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

TERMINATION_LOG = "/dev/termination-log"


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
