"""A trainer in step as a process that stops itself in the middle of a step, as a hung one does.

    python -m tests.worlds.in_step.process URL NAME FOLDER RECORDS

It gets SIGSTOP once its model has so many records. After SIGCONT it goes on to the end of the job, and prints the
number of records of its model.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from edl.worker import connect
from tests.worlds.in_step.lists import FolderWire, ListReplica
from tests.worlds.master_server import TOKEN

BATCH = 16


def environment(name: str) -> dict[str, str]:
    """What edl sets for the pod of a trainer whose first world has two."""
    return {"POD_NAME": name, "POD_UID": f"uid-{name}", "TRAINERS": "2", "EDL_GLOBAL_BATCH": str(BATCH)}


def main(url: str, name: str, folder: str, records: int) -> None:
    """See the module."""
    replica, has_stopped = ListReplica(FolderWire(Path(folder)), Path(folder)), False
    with connect(url, token=TOKEN, environment=environment(name)) as job:
        loop = job.steps(replica, f"at-{name}")
        for _ in loop.pieces():
            if len(replica.model) >= records and not has_stopped:
                has_stopped = True
                os.kill(os.getpid(), signal.SIGSTOP)
    print(len(replica.model), loop.is_complete)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
