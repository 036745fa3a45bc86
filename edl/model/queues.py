"""A queue whose team lends what it does not use, and borrows what others leave: the `Queue` resource as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Amounts = tuple[tuple[str, int], ...]
"""(resource, amount) sorted by resource, in the units of `Resources`."""


class Reclaim(StrEnum):
    """From which borrowers a queue takes back its quota when its own jobs need it."""

    NEVER = "Never"  # from nobody: it waits until the borrower no longer uses it
    LOWER_PRIORITY = "LowerPriority"  # from queues whose jobs all have a lower priority than its highest one
    ANY = "Any"


@dataclass(frozen=True, slots=True)
class Queue:
    """A Queue object.

    Attributes:
        nominal: what is its own; a resource that is not listed has no limit. Empty if the limits are unknown.
        weight: its part of what others leave, > 0, beside the weights of the other queues that want more.
        borrowing: the most that it may have beyond its own; a resource that is not listed has no such limit.
        cohort: it lends to the queues of the same cohort, and borrows from them; empty is a cohort too.
        uid: the UID of the object; empty for a hand-written one.
        generation: the version of its spec.
        problem: what is wrong with the object; the other fields are then those of its last valid version.
        best_effort: its jobs may have trainers that request neither cpu nor memory.
    """

    name: str
    nominal: Amounts
    weight: float = 1.0
    borrowing: Amounts = ()
    reclaim: Reclaim = Reclaim.ANY
    cohort: str = ""
    uid: str = ""
    generation: int = 1
    problem: str = ""
    best_effort: bool = False

    @property
    def is_unknown(self) -> bool:
        """True if edl knows no valid version of the Queue: its jobs keep what they have, and get no more."""
        return bool(self.problem) and not self.nominal


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The use and the share of a queue: `status` of a Queue.

    Attributes:
        used: what the pods of its jobs will use once the plan is carried out; every resource that it limits.
        borrowed: the part of it beyond its own; only resources of which it borrows.
        share: what it may use now.
        running: admitted jobs.
        pending: jobs that wait.
        message: why its share is not larger, in one line.
    """

    used: Amounts = ()
    borrowed: Amounts = ()
    share: Amounts = ()
    running: int = 0
    pending: int = 0
    message: str = ""
