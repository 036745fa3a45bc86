"""Processes that are one trainer together: the first one talks to the master for all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from edl.errors import PermanentError, TemporaryError
from edl.worker.group import StepGroup
from edl.worker.siblings import SharedGroup
from tests.worlds.waiting import PATIENCE


class Threads:
    """Siblings that are threads."""

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=5 * PATIENCE)
        self.broken = set[int]()

    def of(self, rank: int) -> Thread:
        return Thread(self, rank)


class Thread:
    def __init__(self, threads: Threads, rank: int) -> None:
        self.threads, self.rank, self.size = threads, rank, len(threads.values)

    def _every(self, value: Any) -> list[Any]:
        self.threads.values[self.rank] = value
        self.threads.barrier.wait()
        found = list(self.threads.values)
        self.threads.barrier.wait()
        return found

    def share(self, value: Any) -> Any:
        return self._every(value)[0]

    def all(self, *, ok: bool) -> bool:
        return all(self._every(ok))

    def mark_broken(self, generation: int) -> None:
        self.threads.broken.add(generation)

    def is_broken(self, generation: int) -> bool:
        return generation in self.threads.broken


class Place:
    """The place at the master of the first process."""

    must_change = is_broken = True

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.on_broken: Callable[[int], None] = lambda _: None

    def stop(self, position: int, error: str) -> None:
        self.calls.append(f"stop {position} {error}")

    def leave(self) -> None:
        raise TemporaryError("the master is away")


def in_every(call: Callable[[SharedGroup], Any]) -> tuple[list[Any], Place]:
    """What a call returns, or raises, in two processes."""
    threads, place = Threads(2), Place()
    groups = [SharedGroup(threads.of(0), cast("StepGroup", place), lambda: True)]
    groups.append(SharedGroup(threads.of(1), None, lambda: False))

    def made(group: SharedGroup) -> Any:
        try:
            return call(group)
        except Exception as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(made, groups)), place


def test_the_first_process_decides_and_its_error_is_that_of_all() -> None:
    assert in_every(lambda group: group.is_leaving())[0] == [True, True]
    assert in_every(lambda group: group.must_change)[0] == [True, False]
    found, place = in_every(lambda group: group.stop(7, "an error"))
    assert (found, place.calls) == ([None, None], ["stop 7 an error"])
    found, _ = in_every(lambda group: group.leave())
    assert [type(error) for error in found] == [TemporaryError, PermanentError]
    assert [str(error) for error in found] == ["the master is away"] * 2


@pytest.mark.parametrize("fails", [None, 0, 1])
def test_a_checkpoint_counts_once_every_process_has_written_its_part(fails: int | None) -> None:
    committed: list[int] = []

    def save(group: SharedGroup) -> int:
        def write(number: int) -> None:
            if (group._inner is None) == fails:
                raise PermanentError(f"checkpoint {number}: the disk is full")

        return group.save(lambda: 5, write, committed.append)

    found, _ = in_every(save)
    if fails is None:
        assert (found, committed) == ([5, 5], [5])
    else:
        assert not committed
        assert sorted("disk is full" in str(error) for error in found) == [False, True]
