"""Trainers that join, leave and are killed in a fixed order, and what each of these changes costs.

A trainer trains; a second one joins and leaves, a third one joins and is killed; then the job ends. A pause is the
time from the last step before a change to the first one after it, less the median step of the world that begins.
"""

from __future__ import annotations

import itertools
import json
import signal
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.forked_trainers import ForkedTrainers

_LEFT, _TIMEOUT_S = 143, 600.0
_FIRST_STEPS, _STEPS = 5, 4


@dataclass(frozen=True)
class Pauses:
    """The pauses of one job.

    Attributes:
        step_s: the median step of one trainer.
        joins_s: the pauses of two joins.
        leave_s, kill_s: the pauses.
        repeated: steps that were computed and discarded.
        worlds: how many there were.
    """

    step_s: float
    joins_s: tuple[float, float]
    leave_s: float
    kill_s: float
    repeated: int
    worlds: int


class ChangingTrainers(ForkedTrainers, ABC):
    """A job whose trainers come and go; each writes `steps-NAME.jsonl` into the folder, a line for each step.

    A line has `start`, `size` and `generation` of the step's world, and `at_s`, when it was made. The processes of a
    trainer are named NAME, or NAME-0, NAME-1 and so on.
    """

    @abstractmethod
    def add(self) -> str:
        """Start a trainer; returns its name."""

    def play(self, end_job: Callable[[str], None]) -> Pauses:
        """Let trainers come and go.

        Args:
            end_job: gets the name of the first trainer, which has seen everything, and waits for its end.

        Raises:
            TimeoutError: no steps are made, or a trainer does not end.
        """
        self._wait_for_master()
        first = self.add()
        self._wait_for_steps(first, size=1, steps=_FIRST_STEPS)
        for number in (signal.SIGTERM, signal.SIGKILL):
            other = self.add()
            self._wait_for_steps(first, size=2, steps=_STEPS)
            self.end(other, number)
            self._wait_for_steps(first, size=1, steps=_STEPS)
        end_job(first)
        return self._pauses_of(self._steps(first))

    def end(self, name: str, number: int) -> None:
        """Send a signal to all processes of a trainer, as the end of its pod does, and wait for them."""
        for process_name in self._processes_of(name):
            process = self.forked[process_name]
            self.expected[process_name] = _LEFT if number == signal.SIGTERM else -number
            (process.terminate if number == signal.SIGTERM else process.kill)()
        self.join(name)

    def join(self, name: str) -> None:
        """Wait until all processes of a trainer have ended."""
        until_s = time.monotonic() + _TIMEOUT_S
        while self.live() and self._processes_of(name):
            if time.monotonic() > until_s:
                raise TimeoutError(f"{name} does not end; its logs are in {self.folder}")
            time.sleep(0.05)

    def _processes_of(self, name: str) -> list[str]:
        return [one for one in self.forked if one == name or one.startswith(f"{name}-")]

    def _wait_for_steps(self, name: str, *, size: int, steps: int) -> None:
        """Wait until the last world has that many trainers and has made some steps."""
        until_s = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < until_s:
            self.live()
            found = self._steps(name)
            last = [one for one in found if one["generation"] == found[-1]["generation"]] if found else []
            if len(last) >= steps and last[-1]["size"] == size:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{name} makes no steps in a world of {size}; its logs are in {self.folder}")

    def _steps(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / f"steps-{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @staticmethod
    def _pauses_of(steps: list[dict[str, Any]]) -> Pauses:
        worlds = [list(group) for _, group in itertools.groupby(steps, key=lambda one: one["generation"])]
        gaps = [
            after[0]["at_s"] - before[-1]["at_s"] - _median_step_s(after)
            for before, after in itertools.pairwise(worlds)
        ]
        repeated = len(steps) - len({one["start"] for one in steps})
        return Pauses(_median_step_s(worlds[0]), (gaps[0], gaps[2]), gaps[1], gaps[3], repeated, len(worlds))


def _median_step_s(steps: list[dict[str, Any]]) -> float:
    times_s = [float(one["at_s"]) for one in steps]
    return statistics.median(b - a for a, b in itertools.pairwise(times_s))
