"""Learned headroom in one line: how much capacity there is for which pods, what it costs now, and why."""

from __future__ import annotations

from edl.model.headroom import KeptHeadroom
from edl.model.units import amounts, count


def headroom_line(kept: KeptHeadroom) -> str:
    """Write a line such as `capacity for 8 of 10 pods of 3 cores; 4 trainers deleted for it.

    98.5% of growths are no larger`.
    """
    if not kept.wanted:
        return f"no capacity is kept for pods of {amounts(kept.request)}; {kept.reason}"
    reserved = f"capacity for {kept.held} of {count(kept.wanted, 'pod')} of {amounts(kept.request)}"
    deleted = f"; {count(kept.deleted, 'trainer')} deleted for it" if kept.deleted else ""
    return f"{reserved}{deleted}; {kept.reason}"
