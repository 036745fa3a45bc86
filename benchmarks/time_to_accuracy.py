"""How soon a model is as good as wanted beside serving waves: elastic, with min trainers, and with max trainers.

    python -m benchmarks.time_to_accuracy               # three seeds, in a Python with PyTorch and scikit-learn
    python -m benchmarks.time_to_accuracy --seeds 1 --epochs 4

Real trainers with a real master train the digits of example/torch_elastic in step. How many there are at each moment
is what the production controller chooses beside the waves of `benchmarks.serving_waves`, twenty times as fast:

    elastic        a job of 1 to 4 trainers, which has what serving leaves
    static-min     a job of 1 trainer: it always fits
    static-max     a job of 4 trainers: it is stopped for each wave, and starts again, from its model, once 4 fit

A trainer holds one core from its start to its end. It waits until a given time for each record is over, so that four
trainers are four times as fast on any machine; sums of gradients and changes of the count take the time that they
take. The elastic run trains to the end of its epochs. The static runs train until they have used as many
core-seconds, or to that end. A time to an accuracy is that of the last of three tests in a row which reach it.
"""

from __future__ import annotations

import argparse
import bisect
import importlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.forked_trainers import FORKS, ForkedTrainers
from benchmarks.serving_waves import FEWEST, MOST, Count, counts
from example.fit_flights.local import Plan

RECORDS, BATCH = 1500, 60
FASTER, WAVES = 20.0, 20
LEAVES_WITH = 143
POLL_S, TRAINED_STEPS, TIMEOUT_S, TESTS = 0.05, 2, 1200.0, 3
JOBS = {"elastic": (FEWEST, MOST), "static-min": (FEWEST, FEWEST), "static-max": (MOST, MOST)}
_TRAINER = "benchmarks.time_to_accuracy_trainer"


@dataclass
class Run:
    """What one run has shown.

    Attributes:
        steps: those that count, in order, as the trainers wrote them down.
        held: (seconds since the start, core-seconds used until then), in order.
        repeated: how many of them were made a second time, because their result was lost.
        played: the counts that there were, with the seconds since the start at which each was set.
        late_s: by how much the latest change came after its time.
        problems: broken promises.
    """

    steps: list[dict[str, Any]]
    repeated: int
    held: list[tuple[float, float]]
    played: list[Count]
    late_s: float
    problems: list[str] = field(default_factory=list)

    @property
    def core_s(self) -> float:
        """Core-seconds of the whole run."""
        return self.held[-1][1]

    @property
    def tests(self) -> list[tuple[float, float]]:
        """(seconds since the start, accuracy) of each test."""
        return [(step["at_s"], step["accuracy"]) for step in self.steps if step["accuracy"] is not None]

    def reached_s(self, accuracy: float) -> float | None:
        """Seconds until the model had that accuracy in three tests in a row; None if it never had."""
        good = 0
        for at_s, found in self.tests:
            good = good + 1 if found >= accuracy else 0
            if good == TESTS:
                return at_s
        return None

    def used(self, at_s: float) -> float:
        """Core-seconds that were used until a moment."""
        return self.held[max(0, bisect.bisect_left(self.held, (at_s, 0.0)) - 1)][1]


class PlayedRun(ForkedTrainers):
    """A job whose number of trainers follows given counts.

    A change waits for its time, and until the trainers of the last one have trained: so each count is seen.

    Args:
        folder: for its files.
        seed: of the weights, of dropout and of the order of the records.
        epochs: how often the records are trained.
        record_s: how long a trainer takes for a record.
        course: the counts, in seconds since the start.
        core_s: the run ends once it has used so many core-seconds.
        records: of an epoch.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        epochs: int,
        record_s: float,
        course: Sequence[Count],
        core_s: float = float("inf"),
        records: int = RECORDS,
    ) -> None:
        super().__init__(folder, Plan(seed, 0, 0, 0, 0, records, epochs))
        self._end, self._record_s, self._course, self._core_s = records * epochs, record_s, list(course), core_s
        self._began_s = 0.0
        self._held: list[tuple[float, float]] = []
        self._played: list[Count] = []
        self._late_s = 0.0
        self._formed = self._position = 0

    def measure(self) -> Run:
        """Run to the end, or until the core-seconds are used.

        Raises:
            TimeoutError: the run takes too long.
            RuntimeError: a trainer failed.
        """
        server_is_ready = FORKS.Process(target=time.sleep, args=(0,))
        server_is_ready.start()
        server_is_ready.join()
        self.start()
        self._began_s = time.time()
        self._held.append((0.0, 0.0))
        while (status := self.ask("GET", "/v1/status"))["state"] == "running":
            live = self._count_cores()
            is_trained = self._is_trained(status["group"], live)
            at_s, core_s = self._held[-1]
            if is_trained and core_s >= self._core_s:
                self._end_trainers(live)
                break
            if self._course and is_trained and at_s >= self._course[0].at_s:
                self._play(self._course.pop(0), live)
            time.sleep(POLL_S)
        while self._count_cores():
            time.sleep(POLL_S)
        return self._result()

    def _count_cores(self) -> list[str]:
        """Count what was used since the last time; returns the names of the trainers that live."""
        live, at_s = self.live(), time.time() - self._began_s
        if at_s > TIMEOUT_S:
            raise TimeoutError(f"the run takes longer than {TIMEOUT_S:g} s")
        before_s, core_s = self._held[-1]
        self._held.append((at_s, core_s + (at_s - before_s) * len(live)))
        return live

    def _is_trained(self, group: dict[str, Any] | None, live: list[str]) -> bool:
        """True if the count of the last change was seen in steps."""
        wanted = self._played[-1].trainers if self._played else 0
        if len(live) != wanted or wanted == 0:
            return len(live) == wanted
        if group is None or sorted(group["members"]) != live:
            return False
        if group["generation"] > self._formed:
            self._formed, self._position = group["generation"], group["position"]
        return bool(group["position"] >= self._position + TRAINED_STEPS * BATCH)

    def _play(self, change: Count, live: list[str]) -> None:
        at_s = self._held[-1][0]
        self._late_s = max(self._late_s, at_s - change.at_s)
        self._played.append(Count(at_s, change.trainers))
        self._end_trainers(live[change.trainers :])
        for _ in range(change.trainers - len(live)):
            self._add_trainer()

    def _end_trainers(self, names: list[str]) -> None:
        for name in names:
            self.expected[name] = LEAVES_WITH
            os.kill(self.forked[name].pid or 0, signal.SIGTERM)

    def _add_trainer(self) -> None:
        name = self.new_name()
        environment = {
            "EDL_MASTER": self._url,
            "EDL_TOKEN_FILE": str(self.folder / "token"),
            "EDL_CHECKPOINTS": str(self.folder / "models"),
            "EDL_GLOBAL_BATCH": str(BATCH),
            "OMP_NUM_THREADS": "1",
            "POD_NAME": name,
            "POD_UID": f"uid-{name}",
            "TRAINERS": "1",
        }
        self.fork(name, _train, environment, str(self.folder), self.plan.seed, self._record_s)

    def _result(self) -> Run:
        lines = [
            json.loads(line)
            for path in sorted(self.folder.glob("steps-*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        applied: dict[int, dict[str, Any]] = {}
        worlds = {(line["start"], line["generation"]) for line in lines}
        # If a step was made again, the later world counts; of one world the trainer that tested the model.
        for line in sorted(lines, key=lambda line: (line["generation"], line["accuracy"] is not None)):
            applied[line["start"]] = {**line, "at_s": line["at_s"] - self._began_s}
        steps = [step for _, step in sorted(applied.items())]
        audit, problems = self._audit(), []
        if [step["start"] for step in steps] != [0, *(step["end"] for step in steps[:-1])]:
            problems.append("the steps are not a partition of the records")
        done, end = sum(epoch["done"] for epoch in audit["epochs"]), steps[-1]["end"]
        if not audit["ok"] or done != end or (end != self._end and self._core_s == float("inf")):
            problems.append(f"by the audit {done} records are done, by the steps {end} of {self._end}")
        return Run(steps, len(worlds) - len(steps), self._held, self._played, self._late_s, problems)


def course_of(name: str, waves: int = WAVES) -> list[Count]:
    """The counts of one of `JOBS`, in seconds of a run."""
    return [Count(at_s / FASTER, trainers) for at_s, trainers in counts(*JOBS[name], waves)]


def _train(environment: dict[str, str], folder: str, seed: int, record_s: float) -> None:
    """The body of a trainer; only the server that forks trainers imports PyTorch."""
    importlib.import_module(_TRAINER).train(environment, folder, seed, record_s)


def main() -> int:
    """Run each job with each seed, and print what they show; returns 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description="Time to an accuracy beside serving waves.")
    for name, default in (("seeds", 3), ("first-seed", 0), ("epochs", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--record-s", type=float, default=0.015, help="what a trainer takes for a record, at least")
    parser.add_argument("--accuracy", type=float, nargs="+", default=[0.9, 0.93], help="which are to be reached")
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    FORKS.set_forkserver_preload([_TRAINER, "benchmarks.serving_waves"])
    courses = {name: course_of(name) for name in JOBS}
    runs: dict[str, list[Run]] = {name: [] for name in JOBS}
    for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
        core_s = float("inf")
        for name, course in courses.items():
            common = {"seed": seed, "epochs": chosen.epochs, "record_s": chosen.record_s}
            with (
                tempfile.TemporaryDirectory() as folder,
                PlayedRun(Path(folder), course=course, core_s=core_s, **common) as job,
            ):
                runs[name].append(run := job.measure())
            core_s = runs["elastic"][-1].core_s
            print(f"seed {seed}, {name}: {_line(run, chosen.accuracy)}", flush=True)
    return _report(runs, chosen.accuracy)


def _line(run: Run, accuracies: list[float]) -> str:
    times = [(accuracy, run.reached_s(accuracy)) for accuracy in accuracies]
    reached = ", ".join(
        f"{accuracy:g} after {at_s:.1f} s and {run.used(at_s):.1f} core-s" if at_s else f"{accuracy:g} never"
        for accuracy, at_s in times
    )
    return (
        f"{reached}; {run.tests[-1][1]:.4f} at the end, after {run.steps[-1]['at_s']:.1f} s, {run.core_s:.1f} core-s"
        f" and {run.steps[-1]['end']} records, each in one step; {run.repeated} steps made again;"
        f" {len(run.played)} counts, at most {run.late_s:.1f} s late"
        f"{'; BROKEN: ' + '; '.join(run.problems) if run.problems else ''}"
    )


def _report(runs: dict[str, list[Run]], accuracies: list[float]) -> int:
    """Print the tables."""
    for accuracy in accuracies:
        print(f"\n| | seconds to {accuracy:g} | core-seconds to it |\n|---|---|---|")
        for name, found in runs.items():
            reached = [(run, at_s) for run in found if (at_s := run.reached_s(accuracy)) is not None]
            seconds = _span([at_s for _, at_s in reached], 1, of=len(found))
            print(f"| {name} | {seconds} | {_span([run.used(at_s) for run, at_s in reached], 1, of=len(found))} |")
    print("\n| | seconds to the end | core-seconds | records | accuracy at the end |\n|---|---|---|---|---|")
    for name, found in runs.items():
        cells = [
            _span([run.steps[-1]["at_s"] for run in found], 1),
            _span([run.core_s for run in found], 1),
            _span([run.steps[-1]["end"] for run in found], 0),
            _span([run.tests[-1][1] for run in found], 4),
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    late_s = max(run.late_s for found in runs.values() for run in found)
    broken = [problem for found in runs.values() for run in found for problem in run.problems]
    print(f"a change was at most {late_s:.1f} s late; load {os.getloadavg()[1]:.1f} over 5 minutes;", end=" ")
    print("; ".join(broken) or "every promise is kept")
    return int(bool(broken))


def _span(values: list[float], digits: int, *, of: int = 0) -> str:
    """The mean, the smallest and the largest."""
    if len(values) < of:
        return f"{len(values)} of {of} runs reach it"
    return f"{statistics.mean(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
