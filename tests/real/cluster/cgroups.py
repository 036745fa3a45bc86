"""Makes the control groups below which the nodes' pods live, and removes them.

They are the one thing of a cluster that no namespace takes with it when it ends.
"""

from __future__ import annotations

import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
# What a kubelet asks for; a hierarchy without a controller (systemd's) holds processes only.
_WANTED = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
# Runc makes its groups in the second version's hierarchy too, where that is mounted beside the first's.
_SECOND = "unified"
_POLL_S = 0.05


def make(path: str) -> None:
    """Make one group in every hierarchy; a cpuset without cores could hold no process, so it has its parent's.

    Args:
        path: below each hierarchy's root, with a leading slash.
    """
    for name in _WANTED:
        hierarchy = ROOT / name
        if not hierarchy.is_dir():
            continue
        folder = hierarchy
        for part in Path(path).parts[1:]:
            folder = folder / part
            folder.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if name == "cpuset" and not (folder / setting).read_text().strip():
                    (folder / setting).write_text((folder.parent / setting).read_text())


def remove(path: str, timeout_s: float) -> list[Path]:
    """Remove a group and all below it from every hierarchy; one whose last process is ending takes a moment.

    Returns:
        What is still there after the time.
    """
    deadline = time.monotonic() + timeout_s
    while left := [top for top in present(path) if not _remove(top)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(_POLL_S)
    return []


def present(path: str) -> list[Path]:
    """The hierarchies' folders of a group."""
    folders = [ROOT / name / path.lstrip("/") for name in (*_WANTED, _SECOND)]
    return [folder for folder in folders if folder.is_dir()]


def _remove(top: Path) -> bool:
    """Remove a tree of groups from the leaves up; False where one is in use, or somebody else removes it just now."""
    try:
        folders = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
        for folder in [*folders, top]:
            folder.rmdir()
    except OSError:
        return False
    return True
