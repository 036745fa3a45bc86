"""How much work a lease holds, and where a slow trainer's work is cut for one that has none.

Leases are sized by time, not by count: so much that a trainer needs 30 to 60 s for it, less and less towards the end
of an epoch, so that all trainers finish together. The tapering follows guided self-scheduling (Polychronopoulos and
Kuck, 1987): an equal share of half of what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edl.ledger.state import Lease, TrainerSession

_FIRST = 32  # positions, while nothing is known of a trainer's speed
_TAPER_S = 0.2  # a lease gets no shorter than this at the end: asking again costs too
_WINDOW_S = 0.5
_NEW_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """The times that a ledger keeps to.

    Attributes:
        ttl_s: a lease ends so long after its holder was last heard.
        target_s: how long a trainer should need for a lease.
        split_s: work that takes a trainer longer than this is split when others have none.
        stall_s: a lease that makes no progress for so long is taken back when others have no work; doubled each time,
            because some records are just slow.
        forget_s: a session without leases is forgotten after such silence.
        held: most leases of a session.
    """

    ttl_s: float = 30.0
    target_s: float = 45.0
    split_s: float = 10.0
    stall_s: float = 600.0
    forget_s: float = 3600.0
    held: int = 256


def lease_size(waiting: int, trainers: int, rate: float | None, shard_size: int | None, target_s: float) -> int:
    """How many positions to lease next.

    Args:
        waiting: positions to do, at least 1.
        trainers: live sessions, at least 1.
        rate: positions per second of the asking trainer; None while unknown.
        shard_size: the most that a lease may hold.
        target_s: how long the lease should last.

    Returns:
        At least 1, never more than `waiting` or `shard_size`.
    """
    if rate is None:
        wanted, least = shard_size or _FIRST, shard_size or 1
    else:
        wanted, least = math.ceil(rate * target_s), math.ceil(rate * _TAPER_S)
    share = math.ceil(waiting / (2 * trainers))
    size = min(wanted, max(share, least), waiting, shard_size or waiting)
    return max(1, size)


def measure(session: TrainerSession, positions: int, now_s: float) -> None:
    """Take into account that a session has consumed so many positions more."""
    session.counted += positions
    passed_s = now_s - session.mark_s
    if passed_s >= _WINDOW_S:
        rate = session.counted / passed_s
        session.rate = rate if session.rate is None else (1 - _NEW_WEIGHT) * session.rate + _NEW_WEIGHT * rate
        session.mark_s, session.counted = now_s, 0


def cuts(session: TrainerSession, split_s: float, now_s: float) -> list[tuple[Lease, int]]:
    """Where to cut a session's leases, so that it keeps half of what it has not consumed yet.

    Returns:
        (lease, its new end) for each lease that changes; none where the rest is short or was cut already.
    """
    leases = list(session.leases.values())
    left = sum(lease.end - lease.cursor for lease in leases)
    if left < 2 or any(lease.cut is not None for lease in leases):
        return []
    rest_s = left / session.rate if session.rate else now_s - leases[0].moved_s
    if rest_s <= split_s:
        return []
    keep, found = math.ceil(left / 2), []
    for lease in leases:
        end = min(lease.end, lease.cursor + keep)
        keep -= end - lease.cursor
        if end < lease.end:
            found.append((lease, end))
    return found
