"""What a global batch that follows the trainers and the noise of gradients is worth: seconds to an accuracy.

    python -m benchmarks.goodput              # the digits, five seeds, in a Python with PyTorch and scikit-learn
    python -m benchmarks.goodput --task text  # a small language model on texts of Python's documentation

Real trainers with a real master train in step. A trainer waits until a given time for each record is over, so that
each has a core of its own; exchanges of gradients, steps of the optimizer and changes of the count take the time that
they take.

    alone    one trainer, the base batch
    fixed    1, 2, then 4 trainers, the base batch
    growing  1, 2, then 4 trainers, and the job chooses its batch, with the rule of the task for the learning rate

Each run trains all of its epochs. The model is tested each time that 500 records more are trained; a time to a
target is that of the last of three tests in a row which reach it. Every record is in one committed step, by the
steps that the trainers wrote down and by the audit of the journal, or the run says BROKEN.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.forked_trainers import FORKS
from benchmarks.goodput_tasks import TASKS, Task
from benchmarks.serving_waves import Count
from benchmarks.time_to_accuracy import PlayedRun, Run

_TRAINER = "benchmarks.goodput_trainer"
TESTS = 3
KINDS = ("alone", "fixed", "growing")
COURSE = (Count(0.0, 1), Count(2.0, 2), Count(4.0, 4))


class Course(PlayedRun):
    """A job of one task."""

    def __init__(self, folder: Path, name: str, kind: str, seed: int, epochs: int) -> None:
        self._name, self._kind, self._task = name, kind, TASKS[name]
        course = COURSE[:1] if kind == "alone" else COURSE
        common: dict[str, Any] = {
            "seed": seed,
            "epochs": epochs,
            "record_s": self._task.record_s,
            "records": self._task.records,
        }
        super().__init__(folder, course=course, **common)

    def _add_trainer(self) -> None:
        name, task = self.new_name(), self._task
        environment = {
            "EDL_MASTER": self._url,
            "EDL_TOKEN_FILE": str(self.folder / "token"),
            "EDL_CHECKPOINTS": str(self.folder / "models"),
            "EDL_GLOBAL_BATCH": str(task.base),
            "OMP_NUM_THREADS": "1",
            "POD_NAME": name,
            "POD_UID": f"uid-{name}",
            "TRAINERS": "1",
        }
        if self._kind == "growing":
            environment["EDL_GLOBAL_BATCH_MAX"] = str(task.largest)
        self.fork(name, _train, environment, str(self.folder), self._name, self.plan.seed)


def _train(environment: dict[str, str], folder: str, task: str, seed: int) -> None:
    """The body of a trainer; only the server that forks trainers imports PyTorch."""
    importlib.import_module(_TRAINER).train(environment, folder, task, seed)


@dataclass(frozen=True)
class Found:
    """What one run has shown.

    Attributes:
        reached: seconds, core-seconds and steps until the target; None if it was never reached.
        ended: seconds and core-seconds to the end, the steps of the whole run, and the last test.
        batches: the first and the last batch, and the largest.
        noise: the noise scale at the end, in records; None if it is not known.
    """

    reached: tuple[float, float, int] | None
    ended: tuple[float, float, int, float]
    batches: tuple[int, int, int]
    noise: float | None
    problems: list[str]


def found_in(run: Run, target: float) -> Found:
    """What a run has shown."""
    good, reached = 0, None
    for count, step in enumerate(run.steps, 1):
        if step["accuracy"] is not None and reached is None:
            good = good + 1 if step["accuracy"] >= target else 0
            if good == TESTS:
                reached = step["at_s"], run.used(step["at_s"]), count
    batches = [step["batch"] for step in run.steps]
    last, end_s = run.tests[-1][1], run.steps[-1]["at_s"]
    ended = end_s, run.used(end_s), len(run.steps), last
    sizes = batches[0], batches[-1], max(batches)
    return Found(reached, ended, sizes, run.steps[-1]["noise"], run.problems)


def main() -> int:
    """Run each kind with each seed, and print what they show; returns 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description="Time to an accuracy with a batch that follows trainers and noise.")
    parser.add_argument("--task", choices=TASKS, default="digits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=0, help="instead of those of the task")
    chosen = parser.parse_args()
    task = TASKS[chosen.task]
    os.environ["OMP_NUM_THREADS"] = "1"
    FORKS.set_forkserver_preload([_TRAINER, "benchmarks.serving_waves"])
    runs: dict[str, list[Found]] = {kind: [] for kind in KINDS}
    for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
        for kind in KINDS:
            with (
                tempfile.TemporaryDirectory() as folder,
                Course(Path(folder), chosen.task, kind, seed, chosen.epochs or task.epochs) as job,
            ):
                found = found_in(job.measure(), task.target)
            runs[kind].append(found)
            print(f"{time.strftime('%H:%M:%S')} seed {seed}, {kind}: {found}", flush=True)
    return _report(runs, task)


def _report(runs: dict[str, list[Found]], task: Task) -> int:
    """Print the tables."""
    print(f"\n| to {abs(task.target):g} | seconds | core-seconds | steps |\n|---|---|---|---|")
    for kind, found in runs.items():
        every = [one.reached for one in found if one.reached is not None]
        cells = [_span([one[place] for one in every], digits, len(found)) for place, digits in enumerate((1, 1, 0))]
        print(f"| {kind} | {' | '.join(cells)} |")
    print("\n| whole run | seconds | core-seconds | steps | last test | last batch | noise scale |")
    print("|---|---|---|---|---|---|---|")
    for kind, found in runs.items():
        columns: list[tuple[Callable[[Found], float], int]] = [
            (lambda one: one.ended[0], 1),
            (lambda one: one.ended[1], 1),
            (lambda one: one.ended[2], 0),
            (lambda one: abs(one.ended[3]), 4),
            (lambda one: one.batches[1], 0),
        ]
        cells = [_span([get(one) for one in found], digits, len(found)) for get, digits in columns]
        noises = [one.noise for one in found if one.noise is not None]
        print(f"| {kind} | {' | '.join(cells)} | {_span(noises, 0, 0)} |")
    broken = [problem for found in runs.values() for one in found for problem in one.problems]
    print(f"load {os.getloadavg()[1]:.1f} over 5 minutes;", end=" ")
    print("BROKEN: " + "; ".join(broken) if broken else "every record is in one committed step of each run")
    return int(bool(broken))


def _span(values: list[float], digits: int, of: int) -> str:
    """The mean, the smallest and the largest."""
    if not values:
        return f"0 of {of} runs" if of else "not known"
    some = f"; {len(values)} of {of} runs" if len(values) < of else ""
    return f"{statistics.mean(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f}{some})"


if __name__ == "__main__":
    sys.exit(main())
