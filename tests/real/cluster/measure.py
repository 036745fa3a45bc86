"""What a cluster costs the machine."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


def memory_bytes(first: int) -> int:
    """The proportional set size of every process in the PID namespace of a process, and in those below it."""
    return sum(_pss_bytes(pid) for pid in descendants(first))


def descendants(first: int) -> set[int]:
    """A process and everybody below it: a namespace's first process adopts every orphan in it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text()
            parents[int(folder.name)] = int(stat[stat.rindex(")") + 2 :].split()[1])
    found = {first}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _pss_bytes(pid: int) -> int:
    with suppress(OSError):
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
        return int(found.group(1)) * 1024 if found else 0
    return 0
