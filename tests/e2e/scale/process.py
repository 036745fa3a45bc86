"""What a process has used: CPU seconds and memory, as the kernel counts them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used so far.

    Attributes:
        cpu_s: CPU seconds, of all its threads.
        rss_mib: memory that it holds now.
        peak_mib: the most that it has held.
    """

    cpu_s: float
    rss_mib: float
    peak_mib: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Read it for a process that runs."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        held = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        rss, peak = (int(held[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
        return cls(ticks / os.sysconf("SC_CLK_TCK"), rss, peak)
