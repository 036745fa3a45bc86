"""Training in step with PyTorch under planned resizes and kills: what each costs, and whether the model is the same.

    python -m benchmarks.elastic_torch                      # 4 trainers, 100 planned resizes, 20 SIGKILLs
    python -m benchmarks.elastic_torch --resizes 5 --kills 2 --steps 400

One run without changes and one with the schedule train the same network on the same data with logical ranks. The
trainers write down each step that they apply; the lines of the steps that survive show the seconds between the last
step of a world and the first one of the next. The audit of the master's journal and these lines must both show every
record in exactly one step, and the weights of the two runs must be equal in every bit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from example.fit_flights.local import LocalJob, Plan

LOGICAL_RANKS = 4
BATCH = 64
RECORDS = 6400
LEAVES_WITH = 143
TIMEOUT_S = 3000.0
_STANDBY = 3


@dataclass
class Change:
    """A planned resize or a kill.

    Attributes:
        kind: join, leave, kill, or replace for the join after a kill.
        at_s: when it was asked for, in seconds since the epoch.
        name: of the trainer that leaves or is killed.
    """

    kind: str
    at_s: float
    name: str = ""


@dataclass
class Run:
    """What one run has shown.

    Attributes:
        weights: fingerprints of the models that reached the end.
        steps: (start, end, generation, when, trainers) of each step that counts, in order.
        repeated: steps that were computed and discarded, because their world failed.
        changes: in the order in which they were asked for.
    """

    weights: set[str]
    steps: list[tuple[int, int, int, float, int]]
    repeated: int
    changes: list[Change]
    audit: dict[str, Any]
    seconds: float
    problems: list[str] = field(default_factory=list)

    @property
    def step_s(self) -> float:
        """The median time of a step within a world."""
        pairs = itertools.pairwise(self.steps)
        return statistics.median(b[3] - a[3] for a, b in pairs if a[2] == b[2])

    def gaps(self) -> list[tuple[float, float]]:
        """(when, seconds beyond a step) of each place where the world changed."""
        pairs = itertools.pairwise(self.steps)
        return [(a[3], b[3] - a[3] - self.step_s) for a, b in pairs if a[2] != b[2]]


class ElasticRun(LocalJob):
    """A job on this machine whose trainers come and go after a schedule.

    Args:
        folder: for its files.
        steps: how many optimizer steps.
        resizes: how many planned ones, in turn a leave and a join.
        kills: how many trainers get SIGKILL.
        trainers: at most.
        seed: of the schedule.
        pace_s: a step takes at least so long, so that there is time for all changes.
    """

    def __init__(
        self, folder: Path, *, steps: int, resizes: int, kills: int, trainers: int, seed: int, pace_s: float
    ) -> None:
        epochs = max(1, round(steps * BATCH / RECORDS))
        environment = {"EDL_LOGICAL_RANKS": str(LOGICAL_RANKS), "STEP_LOG": str(folder), "OMP_NUM_THREADS": "1"}
        environment["EDL_CHECKPOINTS"] = str(folder / "checkpoints")
        environment |= {"TRAINERS": str(trainers), "STEP_AT_LEAST_S": str(pace_s)}
        super().__init__(
            folder,
            Plan(seed, trainers, 0, 0, 0, RECORDS, epochs, "benchmarks.elastic_torch_trainer", environment),
        )
        self._end = epochs * RECORDS
        self._draw = random.Random(seed)  # noqa: S311 - not a secret
        kinds = ["planned"] * resizes + ["kill"] * kills
        self._draw.shuffle(kinds)
        # Between the first and the last twentieth, evenly, so that each change finds a world that trains.
        self._schedule = [(0.05 + 0.9 * index / len(kinds), kind) for index, kind in enumerate(kinds)]
        self._changes: list[Change] = []
        self._expected: dict[str, int] = {}
        self._standby: list[str] = []
        self._is_short = False  # a killed trainer has to be replaced

    def measure(self) -> Run:
        """Run to the end.

        Raises:
            TimeoutError: the run takes too long.
            RuntimeError: a trainer failed.
        """
        started_s = time.monotonic()
        self.start()
        generation = 0
        for _ in range(_STANDBY if self._schedule else 0):
            self._add_standby()
        while self._live():
            if time.monotonic() - started_s > TIMEOUT_S:
                raise TimeoutError(f"the run takes longer than {TIMEOUT_S:g} s")
            self._collect()
            status = self.ask("GET", "/v1/status")
            group = status["group"]
            is_settled = (
                group is not None
                and group["generation"] > generation
                and len(group["members"]) == len(self._live())
                and any(map(self._is_ready, self._standby))
            )
            if is_settled and self._is_short:
                generation, self._is_short = group["generation"], False
                self._join("replace")
            elif self._schedule and is_settled and group["position"] >= self._schedule[0][0] * self._end:
                generation = group["generation"]
                self._change(self._schedule.pop(0)[1])
            time.sleep(0.02)
        return self._result(time.monotonic() - started_s)

    def _live(self) -> list[str]:
        """The trainers that run and are no standbys."""
        running = (name for name, process in self.trainers.items() if process.poll() is None)
        return [name for name in running if name not in self._standby]

    def _add_standby(self) -> None:
        """Start a process that has imported everything and waits: what a pod does while the others train."""
        name = f"trainer-{self._started}"
        self._started += 1
        self.trainers[name] = self._start(
            name, ["-m", self.plan.module], {"STANDBY": str(self.folder / f"{name}.go")}
        )
        self._standby.append(name)

    def _is_ready(self, name: str) -> bool:
        return (self.folder / f"{name}.go.ready").exists()

    def _join(self, kind: str) -> None:
        name = next(filter(self._is_ready, self._standby))
        (self.folder / f"{name}.go").touch()
        self._standby.remove(name)
        self._changes.append(Change(kind, time.time(), name))
        self._add_standby()

    def _change(self, kind: str) -> None:
        live = self._live()
        if kind == "planned":
            may_join, may_leave = len(live) < self.plan.trainers, len(live) > 1
            kind = self._draw.choice([*(["join"] if may_join else []), *(["leave"] if may_leave else [])])
        if kind == "join":
            self._join(kind)
            return
        name = self._draw.choice(live)
        self._expected[name] = -signal.SIGKILL if kind == "kill" else LEAVES_WITH
        self._changes.append(Change(kind, time.time(), name))
        self.trainers[name].send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        self._is_short = kind == "kill"

    def _collect(self) -> None:
        for name, process in list(self.trainers.items()):
            code = process.poll()
            if code is not None:
                del self.trainers[name]
                if code not in {0, self._expected.get(name, 0)}:
                    log = (self.folder / f"{name}.log").read_text()
                    raise RuntimeError(f"{name} exited with code {code}; its log: {log}")

    def _result(self, seconds: float) -> Run:
        applied: dict[int, dict[str, Any]] = {}
        counts = 0
        lines = [
            json.loads(line)
            for path in sorted(self.folder.glob("steps-*.jsonl"))
            for line in path.read_text().splitlines()
            if line.endswith("}")
        ]
        # A step that survivors repeated was applied only by trainers that are gone: the later world counts.
        for line in sorted(lines, key=lambda line: (line["generation"], line["at_s"])):
            counts += line["start"] in applied and applied[line["start"]]["generation"] != line["generation"]
            applied[line["start"]] = line
        steps = [
            (start, line["end"], line["generation"], line["at_s"], line["size"])
            for start, line in sorted(applied.items())
        ]
        problems = []
        if [step[0] for step in steps] != [0, *(step[1] for step in steps[:-1])] or steps[-1][1] != self._end:
            problems.append("the steps are not a partition of the records")
        logs = "\n".join(path.read_text() for path in self.folder.glob("trainer-*.log"))
        weights = {line.split()[1] for line in logs.splitlines() if line.startswith("weights ")}
        return Run(weights, steps, counts, self._changes, self._audit(), seconds, problems)


def main() -> int:
    """Run both, and print a table."""
    parser = argparse.ArgumentParser(description="Measure training in step under resizes and kills.")
    for name, default in (("steps", 6000), ("resizes", 100), ("kills", 20), ("trainers", 4), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pace-s", type=float, default=0.03)
    arguments = vars(parser.parse_args())
    with (
        tempfile.TemporaryDirectory() as folder,
        ElasticRun(Path(folder), **{**arguments, "resizes": 0, "kills": 0}) as job,
    ):
        quiet = job.measure()
    with tempfile.TemporaryDirectory() as folder, ElasticRun(Path(folder), **arguments) as job:
        stormy = job.measure()
    return report(quiet, stormy)


def report(quiet: Run, stormy: Run) -> int:
    """Print what the runs have shown; returns 1 if a promise is broken."""
    for name, run in (("undisturbed", quiet), ("disturbed", stormy)):
        epochs = run.audit["epochs"]
        done = sum(epoch["done"] for epoch in epochs)
        total = sum(epoch["total"] for epoch in epochs)
        print(
            f"{name}: {len(run.steps)} steps in {run.seconds:.1f} s, {run.step_s * 1000:.1f} ms a step;"
            f" audit {'ok' if run.audit['ok'] else 'BROKEN'}: {done} of {total} records in one step;"
            f" {run.repeated} applied steps discarded; weights {', '.join(sorted(run.weights))}"
        )
    for kind in ("join", "leave", "kill", "replace"):
        lost = lost_seconds(stormy, kind)
        if lost:
            most = sorted(lost)[int(0.95 * (len(lost) - 1))]
            print(
                f"{kind}: {len(lost)} times, training lost {statistics.median(lost):.3f} s in the median,"
                f" {most:.3f} s at the 95th percentile, {max(lost):.3f} s at most"
            )
    same = len(quiet.weights | stormy.weights) == 1
    print(f"weights are {'equal in every bit' if same else 'DIFFERENT'}")
    problems = quiet.problems + stormy.problems
    for problem in problems:
        print(problem)
    return int(not (same and quiet.audit["ok"] and stormy.audit["ok"] and not problems))


def lost_seconds(run: Run, kind: str) -> list[float]:
    """Seconds of training lost by each change of a kind: the gap at the first change of worlds after it."""
    lost = []
    changes = [*run.changes, Change("end", float("inf"))]
    for change, following in itertools.pairwise(changes):
        if change.kind == kind:
            gaps = [gap for at_s, gap in run.gaps() if change.at_s - run.step_s <= at_s < following.at_s]
            lost += [sum(gaps)] if gaps else []
    return lost


if __name__ == "__main__":
    sys.exit(main())
