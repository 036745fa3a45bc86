"""A test that must be alone runs alone, and other tests run at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.side_by_side import turn

WAIT_S = 60.0


class Room:
    """Two tests that want to run, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.entered, self.leave = threading.Event(), threading.Event()
        self.is_left = False

    def stay(self, *, alone: bool) -> None:
        """Run the first test until `leave` is set."""
        with turn(self._folder, alone=alone):
            self.entered.set()
            assert self.leave.wait(WAIT_S)
            self.is_left = True

    def pass_by(self, *, alone: bool) -> bool:
        """Run the second test; return whether the first one had ended before it started."""
        with turn(self._folder, alone=alone):
            return self.is_left


def test_ordinary_tests_run_at_the_same_time(tmp_path: Path) -> None:
    room = Room(tmp_path)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(room.stay, alone=False)
        assert room.entered.wait(WAIT_S)
        assert not threads.submit(room.pass_by, alone=False).result(WAIT_S)
        room.leave.set()
        first.result(WAIT_S)


def test_a_test_that_must_be_alone_runs_beside_no_other(tmp_path: Path) -> None:
    for first, second in ((True, False), (False, True), (True, True)):
        room = Room(tmp_path)
        with ThreadPoolExecutor() as threads:
            staying = threads.submit(room.stay, alone=first)
            assert room.entered.wait(WAIT_S)
            other = threads.submit(room.pass_by, alone=second)
            assert not other.done()
            room.leave.set()
            assert other.result(WAIT_S), "it started only after the first had ended"
            staying.result(WAIT_S)
