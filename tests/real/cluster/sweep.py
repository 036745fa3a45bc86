"""Removes what a cluster leaves on the machine once its processes have ended, however they ended.

Processes and mounts end with the namespaces, by the kernel. Control groups and files do not, and the network cable
has outlived the last process by more than a minute. This runs as a process of its own that waits for the supervisor's
end, so that nothing is left if the process that started the cluster, or the supervisor, is killed; and it is called
directly by those who stop a cluster in order.

Run as `python -m tests.real.cluster.sweep WORKDIR`, with the supervisor recorded in that folder.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.e2e.control_plane.processes import end_recorded, read_pid_file, wait_gone
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.real.cluster import cgroups
from tests.real.cluster.layout import HOST_LINK, cgroup_of

_FOLDERS = ("nodes", "etcd", "build")
_END_S = 20.0
RECORD = "supervisor.swept"


def sweep(workdir: Path) -> None:
    """End what the pid files of a folder name, and remove the control groups and the data; harmless when done twice.

    Raises:
        ControlPlaneError: control groups are still in use.
    """
    end_recorded(workdir / "run", _END_S)
    _cut(workdir)
    left = cgroups.remove(cgroup_of(workdir), _END_S)
    for name in _FOLDERS:
        shutil.rmtree(workdir / name, ignore_errors=True)
    if left:
        raise ControlPlaneError(f"still in use after {_END_S:g} s: {', '.join(map(str, left))}")


def _cut(workdir: Path) -> None:
    """Take away the cable between the host and this cluster; another cluster's stays."""
    alias = Path("/sys/class/net", HOST_LINK, "ifalias")
    with suppress(OSError):
        if alias.read_text().strip() == cgroup_of(workdir):
            cut = ["ip", "link", "delete", HOST_LINK]
            subprocess.run(cut, capture_output=True, check=False)


def main(arguments: Sequence[str]) -> int:
    """Wait for the end of the supervisor of the cluster at `arguments[0]`, then sweep."""
    workdir = Path(arguments[0])
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    supervisor = read_pid_file(workdir / "run" / RECORD)
    if supervisor is not None:
        wait_gone(supervisor, None)
    sweep(workdir)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
