"""A trainer in step whose model is the list of the positions that it was trained on; a step takes 0.1 s.

The trainers exchange gradients through the folder /shared, which all of them see. In the container,
tests/worlds/in_step/lists.py lies beside this file.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path

from edl.worker import connect

STEP_S = 0.1


def main() -> None:
    """Train to the end of the job."""
    folder, lists = Path("/shared"), importlib.import_module("lists")
    replica = lists.ListReplica(lists.FolderWire(folder), folder)
    with connect() as job:
        loop = job.steps(replica, os.environ["POD_NAME"])
        began_s = time.monotonic()
        for _ in loop.pieces():
            time.sleep(max(0.0, began_s + STEP_S - time.monotonic()))
            began_s = time.monotonic()
    print(f"the model has {len(replica.model)} records, {len(set(replica.model))} of them distinct", flush=True)


if __name__ == "__main__":
    main()
