"""Several processes that are one trainer together, such as one for each device of a pod.

The first process alone talks to the master, and shares with the others what it learns. All of them make the same
calls in the same order; only whether a trainer is lost is asked at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from edl.errors import EdlError, PermanentError
from edl.worker.group import StepGroup, World

_T = TypeVar("_T")


class Siblings(Protocol):
    """The processes of one trainer, as one of them sees them.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
    """

    rank: int
    size: int

    def share(self, value: Any) -> Any:  # noqa: ANN401 - what can be pickled
        """Send a value from the first process to all; returns the value of the first process, in every process."""

    def all(self, *, ok: bool) -> bool:
        """Return in every process whether the argument is true in all of them."""

    def mark_broken(self, generation: int) -> None:
        """Tell all processes that a trainer of a world is gone; the first process may call this at any time."""

    def is_broken(self, generation: int) -> bool:
        """Return True if the first process has called `mark_broken` for that world."""


class SharedGroup:
    """`StepGroup` for a trainer of several processes: the first one talks to the master, and all get its answers.

    Args:
        siblings: the processes.
        inner: the place that the first process keeps at the master; None in the others.
        is_leaving: True once this process should leave; that of the first one decides.

    Attributes:
        world: the last one; None before the first.
    """

    def __init__(self, siblings: Siblings, inner: StepGroup | None, is_leaving: Callable[[], bool]) -> None:
        self._siblings, self._inner, self._is_leaving = siblings, inner, is_leaving
        self.world: World | None = None
        if inner is not None:
            inner.on_broken = siblings.mark_broken

    @property
    def must_change(self) -> bool:
        """True in the first process if the world should end with the next step."""
        return self._inner is not None and self._inner.must_change

    @property
    def is_broken(self) -> bool:
        """True if a trainer of the world is gone."""
        if self._inner is not None:
            return self._inner.is_broken
        return self.world is not None and self._siblings.is_broken(self.world.generation)

    def is_leaving(self) -> bool:
        """True in every process if the first one says that the trainer should leave."""
        return bool(self._siblings.share(self._is_leaving()))

    def enter(self, position: int | None, _: Callable[[], bool] = lambda: False) -> World | None:
        """Ask for the next world, and wait for it; all processes get the same one. See `StepGroup.enter`."""
        self.world = self.once(lambda inner: inner.enter(position, self._is_leaving))
        return self.world

    def report(self, position: int, *, now: bool = False) -> None:
        """Report how far this trainer's model is; see `StepGroup.report`."""
        if self._inner is not None:
            self._inner.report(position, now=now)

    def tell(self, goodput: dict[str, Any] | None) -> None:
        """Set the goodput that the next report carries; see `StepGroup.tell`."""
        if self._inner is not None:
            self._inner.tell(goodput)

    def wait_until_done(self, position: int) -> bool:
        """Wait until every trainer of the world has reported a step; see `StepGroup.wait_until_done`."""
        return self.once(lambda inner: inner.wait_until_done(position))

    def stop(self, position: int, error: str = "") -> None:
        """End the training of the job with the step that ends at a position; see `StepGroup.stop`."""
        self.once(lambda inner: inner.stop(position, error))

    def leave(self) -> None:
        """Leave after the last step of the world; see `StepGroup.leave`."""
        self.once(lambda inner: inner.leave())

    def close(self) -> None:
        """Stop watching the world; see `StepGroup.close`."""
        if self._inner is not None:
            self._inner.close()

    def once(self, call: Callable[[StepGroup], _T]) -> _T:
        """Make a call in the first process alone; every process gets its result, or raises its error.

        Raises:
            EdlError: the call failed.
        """
        found: _T | None = None
        own: EdlError | None = None
        if self._inner is not None:
            try:
                found = call(self._inner)
            except EdlError as error:
                own = error
        found, message = self._siblings.share((found, str(own) if own is not None else ""))
        if own is not None:
            raise own
        if message:
            raise PermanentError(message)
        return found

    def save(self, begin: Callable[[], int], save: Callable[[int], None], commit: Callable[[int], object]) -> int:
        """Save a model of which every process writes a part; the checkpoint counts once all parts are written.

        Args:
            begin: gets the number of the checkpoint from the master.
            save: writes the part of this process.
            commit: tells the master that the checkpoint can be loaded.

        Raises:
            PermanentError: a part cannot be written.
        """
        number = self.once(lambda _: begin())
        problem: PermanentError | None = None
        try:
            save(number)
        except PermanentError as error:
            problem = error
        if not self._siblings.all(ok=problem is None):
            raise problem or PermanentError(f"checkpoint {number}: another process of this trainer did not write it")
        self.once(lambda _: commit(number))
        return number
