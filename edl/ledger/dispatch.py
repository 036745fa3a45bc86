"""How many positions a lease holds, and where a slow trainer's leases are truncated for a trainer without work.

A lease is sized by time, not by count: a trainer needs 30 to 60 s for it. Leases become shorter towards the end of an
epoch, so that all trainers finish together. This follows guided self-scheduling (Polychronopoulos and Kuck, 1987): a
lease holds an equal share of half of what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edl.ledger.entries import Lease, TrainerSession

_FIRST_LEASE = 32  # positions, while the speed of the trainer is unknown
_SHORTEST_LEASE_S = 0.2  # a shorter lease costs more in requests than it gains
_RATE_WINDOW_S = 0.5
_RATE_WEIGHT = 0.5  # of a new measurement in the moving average


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """The time limits of a ledger.

    Attributes:
        ttl_s: a lease expires this long after the last request of its holder.
        target_s: a lease should keep a trainer busy this long.
        split_s: if other trainers have no work, leases that need longer than this are truncated.
        stall_s: if other trainers have no work, a lease without progress for this long is taken back. The limit
            doubles each time within an epoch, because some records are just slow.
        forget_s: a session without leases is forgotten after this long without a request.
        max_leases: the most leases of one session.
    """

    ttl_s: float = 30.0
    target_s: float = 45.0
    split_s: float = 10.0
    stall_s: float = 600.0
    forget_s: float = 3600.0
    max_leases: int = 256


def lease_size(available: int, trainers: int, rate: float | None, shard_size: int | None, target_s: float) -> int:
    """The number of positions of the next lease.

    Args:
        available: positions that nobody has leased, at least 1.
        trainers: live sessions, at least 1.
        rate: positions per second of the trainer that asks; None if unknown.
        shard_size: the most positions of one lease; None for no limit.
        target_s: how long the lease should keep the trainer busy, in seconds.

    Returns:
        At least 1, and never more than `available` or `shard_size`.
    """
    if rate is None:
        wanted, least = shard_size or _FIRST_LEASE, shard_size or 1
    else:
        wanted, least = math.ceil(rate * target_s), math.ceil(rate * _SHORTEST_LEASE_S)
    share = math.ceil(available / (2 * trainers))
    size = min(wanted, max(share, least), available, shard_size or available)
    return max(1, size)


def update_rate(session: TrainerSession, positions: int, now_s: float) -> None:
    """Add newly consumed positions to the measured rate of a session.

    Args:
        session: its rate changes once a window of 0.5 s is full.
        positions: how many it has consumed since the last call.
        now_s: monotonic seconds.
    """
    session.measured_positions += positions
    passed_s = now_s - session.measured_since_s
    if passed_s >= _RATE_WINDOW_S:
        rate = session.measured_positions / passed_s
        session.rate = rate if session.rate is None else (1 - _RATE_WEIGHT) * session.rate + _RATE_WEIGHT * rate
        session.measured_since_s, session.measured_positions = now_s, 0


def truncations(session: TrainerSession, split_s: float, now_s: float) -> list[tuple[Lease, int]]:
    """The ends to which to truncate the leases of a session so that it keeps half of its unconsumed positions.

    Returns:
        (lease, its new end) for each lease that changes. Empty if little is left, or if a truncation is still
        unacknowledged.
    """
    leases = list(session.leases.values())
    left = sum(lease.end - lease.cursor for lease in leases)
    if left < 2 or any(lease.truncate_at is not None for lease in leases):
        return []
    rest_s = left / session.rate if session.rate else now_s - leases[0].last_progress_s
    if rest_s <= split_s:
        return []
    keep, changed = math.ceil(left / 2), []
    for lease in leases:
        end = min(lease.end, lease.cursor + keep)
        keep -= end - lease.cursor
        if end < lease.end:
            changed.append((lease, end))
    return changed
