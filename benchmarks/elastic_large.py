"""What it costs PyTorch trainers of a large model that one joins, leaves or is killed.

    python -m benchmarks.elastic_large --millions 3 20 124

A trainer trains; a second one joins and leaves, a third one joins and is killed. A pause is the time from the last
step before a change to the first one after it, less the median step of the world that begins. The state of a model
with AdamW has 12 bytes for each parameter; it is copied within the pause of a join.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.elastic_large_trainer import train
from benchmarks.forked_trainers import ForkedTrainers
from example.fit_flights.local import Plan

_BATCH, _RECORDS, _LEFT, _TIMEOUT_S = 8, 1600, 143, 600.0
_BYTES = 12
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class LargeResult:
    """What one model has shown.

    Attributes:
        millions: of parameters.
        step_s: the median step of one trainer.
        joins_s: the pauses of two joins.
        leave_s, kill_s: the pauses.
        repeated: steps that were computed and discarded.
        worlds: how many there were.
    """

    millions: float
    step_s: float
    joins_s: tuple[float, float]
    leave_s: float
    kill_s: float
    repeated: int
    worlds: int

    @property
    def rate(self) -> float:
        """GB of state a second in the faster join."""
        return self.millions * _BYTES / 1e3 / max(1e-9, min(self.joins_s))


class LargeRun(ForkedTrainers):
    """A job of one large model.

    Args:
        folder: for its files.
        millions: of parameters.
        pace_s: a step takes at least so long.
    """

    def __init__(self, folder: Path, millions: float, pace_s: float = 0.1) -> None:
        place = {"EDL_CHECKPOINTS": str(folder / "models")}  # the last trainer that leaves saves its state
        self._environment = {"EDL_GLOBAL_BATCH": str(_BATCH), **_ONE_THREAD, **place}
        super().__init__(folder, Plan(1, 1, 0, records=_RECORDS, epochs=20, environment=self._environment))
        self._millions, self._pace_s = millions, pace_s

    def measure(self) -> LargeResult:
        """Let trainers come and go, then end the job."""
        self._wait_for_master()
        first = self._add()
        self._await(first, size=1, steps=5)
        second = self._add()
        self._await(first, size=2, steps=4)
        self._end(second, signal.SIGTERM)
        self._await(first, size=1, steps=4)
        third = self._add()
        self._await(first, size=2, steps=4)
        self._end(third, signal.SIGKILL)
        self._await(first, size=1, steps=4)
        self._end(first, signal.SIGTERM)
        return self._result(first)

    def _add(self) -> str:
        name = self.new_name()
        pod = {"POD_NAME": name, "POD_UID": f"uid-{name}", "EDL_MASTER": self._url}
        token = {"EDL_TOKEN_FILE": str(self.folder / "token")}
        self.fork(name, train, {**self._environment, **pod, **token}, str(self.folder), self._millions, self._pace_s)
        return name

    def _end(self, name: str, number: int) -> None:
        process = self.forked[name]
        self.expected[name] = _LEFT if number == signal.SIGTERM else -number
        (process.terminate if number == signal.SIGTERM else process.kill)()
        process.join(_TIMEOUT_S)
        self.live()

    def _steps(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / f"steps-{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _await(self, name: str, *, size: int, steps: int) -> None:
        """Wait until the last world has that many trainers and has made some steps."""
        until_s = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < until_s:
            self.live()
            found = self._steps(name)
            last = [one for one in found if one["generation"] == found[-1]["generation"]] if found else []
            if len(last) >= steps and last[-1]["size"] == size:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{name} makes no steps in a world of {size}; its log is in {self.folder}")

    def _result(self, name: str) -> LargeResult:
        steps = self._steps(name)
        worlds = [list(group) for _, group in itertools.groupby(steps, key=lambda one: one["generation"])]
        gaps = []
        for before, after in itertools.pairwise(worlds):
            step_s = statistics.median(b["at_s"] - a["at_s"] for a, b in itertools.pairwise(after))
            gaps.append(after[0]["at_s"] - before[-1]["at_s"] - step_s)
        step_s = statistics.median(b["at_s"] - a["at_s"] for a, b in itertools.pairwise(worlds[0]))
        repeated = len(steps) - len({one["start"] for one in steps})
        joins = (gaps[0], gaps[2])
        return LargeResult(self._millions, step_s, joins, gaps[1], gaps[3], repeated, len(worlds))


def main() -> None:
    """Measure some sizes, and print a line for each."""
    parser = argparse.ArgumentParser(description="What joins, leaves and kills cost trainers of a large model.")
    parser.add_argument("--millions", type=float, nargs="+", default=[3.0, 20.0])
    for millions in parser.parse_args().millions:
        with tempfile.TemporaryDirectory() as folder, LargeRun(Path(folder), millions) as job:
            found = job.measure()
        print(
            f"{millions:g} million parameters, {millions * _BYTES:.0f} MB of state: step {found.step_s:.2f} s; pause"
            f" of a join {found.joins_s[0]:.2f} and {found.joins_s[1]:.2f} s ({found.rate:.2f} GB/s), of a leave"
            f" {found.leave_s:.2f} s, of a kill {found.kill_s:.2f} s; {found.repeated} steps made twice",
            flush=True,
        )


if __name__ == "__main__":
    main()
