"""Pauses in the writes of a round: what cannot wait is answered in between, and the writing goes on after it.

A round of a large cluster writes for seconds before it may hand writes back. The cluster cannot be observed while
writes are under way, so the round lets those end, answers, and goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Set
from typing import Protocol, TypeVar

T = TypeVar("T")


class Pauses(Protocol):
    """Answers what cannot wait while no write is under way; see `early_answers`."""

    @property
    def left_alone(self) -> Set[str]:
        """UIDs of the jobs that were answered from a newer snapshot: this round writes nothing else of them."""

    def is_due(self) -> bool:
        """True if something has changed that cannot wait, and the round does not end soon."""

    async def answer(self, since_s: float | None = None) -> None:
        """Answer what has changed; no write of the round is under way.

        Args:
            since_s: the monotonic time since which the round has sent nothing; by default it has not had to wait.
        """

    async def beside(self, work: Awaitable[T]) -> T:
        """Wait for work that writes nothing, and answer what changes meanwhile."""


class NoPauses:
    """A round without pauses."""

    left_alone: frozenset[str] = frozenset()

    def is_due(self) -> bool:
        """Never."""
        return False

    async def answer(self, since_s: float | None = None) -> None:
        """Nothing is answered."""

    async def beside(self, work: Awaitable[T]) -> T:
        """Wait for the work."""
        return await work


NO_PAUSES = NoPauses()
