"""What must hold of the counts of a mix, wherever it is played. Nothing here imports the planner.

Sources: docs/plan.md, section "How jobs share".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations

from tests.worlds.mixes.random_mix import Member

DEAD_BAND = 0.1
"""A trainer changes hands if the job that gets it is then still more than this below the one that gave it."""


@dataclass
class Bounds:
    """Watches the number of trainers of each job all the time.

    Attributes:
        broken: a line for each change that broke a bound.
    """

    broken: list[str] = field(default_factory=list)
    _started: set[str] = field(default_factory=set)
    _last: dict[str, int] = field(default_factory=dict)

    def see(self, member: Member, live: int) -> None:
        """A job has so many trainers that are not on their way out."""
        before, self._last[member.name] = self._last.get(member.name), live
        if live >= member.low:
            self._started.add(member.name)
        if live == before:
            return
        if live > member.high:
            self.broken.append(f"{member.name} has {live} trainers, of at most {member.high}")
        if live < member.low and member.name in self._started:
            self.broken.append(f"{member.name} has {live} trainers, of at least {member.low}")


def unfair(counts: Mapping[Member, int], room: int) -> Iterator[str]:
    """Pairs of jobs whose shares are not within the dead band; all trainers are equal, so any could change hands.

    Args:
        counts: trainers of each job, at rest.
        room: how many pods of one cpu the nodes hold beside the serving pods.
    """
    for taker, giver in permutations(counts, 2):
        if counts[taker] >= _most(taker, room) or counts[giver] <= giver.low:
            continue
        after, left = _share(taker, counts[taker] + 1, room), _share(giver, counts[giver] - 1, room)
        if after < left - DEAD_BAND - 1e-6:
            yield (
                f"{_shown(taker, counts)} would have a share of {after:.2f} with one trainer of"
                f" {_shown(giver, counts)}, which would keep {left:.2f}"
            )


def _most(member: Member, room: int) -> int:
    """How many trainers the job would have alone."""
    return max(member.low, min(member.high, room - member.fixed))


def _share(member: Member, count: int, room: int) -> float:
    """The fulfilment: 0 at the minimum, 1 at the maximum."""
    span = _most(member, room) - member.low
    return 1.0 if span <= 0 else (count - member.low) / span


def _shown(member: Member, counts: Mapping[Member, int]) -> str:
    return f"{member.name} ({counts[member]} of {member.low} to {member.high})"
