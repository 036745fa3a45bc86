"""Trainers in step that hang: their process still exists, and the others train without them.

A trainer is lost for its world after a time limit (`edl.ledger.group`). Its process may still exist: somebody stopped
it, its node does not answer, or its loop hangs. It stays here until it asks for a world again, or until its pod is no
longer on the roster. Nothing of this is durable: after a restart of the master the time limits run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from edl.ledger.entries import TrainerSession


class HungTrainer(NamedTuple):
    """A trainer that hangs.

    Attributes:
        reason: `silent` or `stuck`.
        since_s: when the others went on without it, in monotonic seconds.
    """

    pod_uid: str
    name: str
    reason: str
    since_s: float


class HungTrainers:
    """The trainers of one job that hang.

    Args:
        may_train: True if the pod of a session may take part.
    """

    def __init__(self, may_train: Callable[[TrainerSession], bool]) -> None:
        self._may_train = may_train
        self._found: list[tuple[TrainerSession, HungTrainer]] = []

    def __iter__(self) -> Iterator[HungTrainer]:
        """Iterate over the hung trainers whose pods may still train, in the order in which they began to hang."""
        return (found for session, found in self._found if self._may_train(session))

    def add(self, session: TrainerSession, reason: str, now_s: float) -> None:
        """Note that a trainer hangs, and that the others continue without it."""
        found = HungTrainer(session.pod_uid, session.name, reason, now_s)
        self._found = [pair for pair in self._found if self._may_train(pair[0])]
        self._found.append((session, found))

    def discard(self, pod_uid: str) -> None:
        """Forget that the trainer of this pod hangs: one of its processes has asked for a world."""
        self._found = [pair for pair in self._found if pair[1].pod_uid != pod_uid]
