"""A test that must be alone is, and those that need not run side by side."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.side_by_side import turn

WAIT_S = 20.0


class Room:
    """Who is inside, by what each of them sees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.entered, self.leave = threading.Event(), threading.Event()
        self.is_left = False

    def stay(self, *, alone: bool) -> None:
        """Enter, and stay until told to go."""
        with turn(self._folder, alone=alone):
            self.entered.set()
            assert self.leave.wait(WAIT_S)
            self.is_left = True

    def pass_by(self, *, alone: bool) -> bool:
        """Whether the one who stays had left when this one came in."""
        with turn(self._folder, alone=alone):
            return self.is_left


def test_ordinary_tests_run_side_by_side(tmp_path: Path) -> None:
    room = Room(tmp_path)
    with ThreadPoolExecutor() as threads:
        staying = threads.submit(room.stay, alone=False)
        assert room.entered.wait(WAIT_S)
        assert not threads.submit(room.pass_by, alone=False).result(WAIT_S)
        room.leave.set()
        staying.result(WAIT_S)


def test_nobody_is_beside_a_test_that_must_be_alone_and_it_is_beside_nobody(tmp_path: Path) -> None:
    for first, second in ((True, False), (False, True), (True, True)):
        room = Room(tmp_path)
        with ThreadPoolExecutor() as threads:
            staying = threads.submit(room.stay, alone=first)
            assert room.entered.wait(WAIT_S)
            other = threads.submit(room.pass_by, alone=second)
            assert not other.done()
            room.leave.set()
            assert other.result(WAIT_S), "it came in only when the first had left"
            staying.result(WAIT_S)
