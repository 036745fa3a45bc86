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
import importlib
import itertools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.elastic_schedule import random_changes
from benchmarks.forked_trainers import FORKS, ForkedTrainers
from example.fit_flights.local import Plan

BATCH, RECORDS = 64, 6400
LEAVES_WITH = 143
TIMEOUT_S = 3000.0
_STEPS_BETWEEN = 10
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}
_TRAINER = "benchmarks.elastic_torch_trainer"


@dataclass
class Change:
    """A planned resize or a kill.

    Attributes:
        kind: join, leave, kill, replace for the join after a kill, stop, or continue after a stop.
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
        step_s, pairs = self.step_s, itertools.pairwise(self.steps)
        return [(a[3], b[3] - a[3] - step_s) for a, b in pairs if a[2] != b[2]]


class ElasticRun(ForkedTrainers):
    """A job on this machine whose trainers come and go after a schedule.

    A server process imports PyTorch once and forks the trainers: in a cluster a new trainer imports it while the
    others train, which on a small machine would slow these down.

    Args:
        folder: for its files.
        steps: how many optimizer steps.
        resizes: how many planned ones: a trainer joins or leaves.
        kills: how many trainers get SIGKILL; each is replaced once the others train on.
        stops: how many trainers get SIGSTOP, and SIGCONT once the others train on.
        trainers: at most.
        seed: of the schedule.
        pace_s: a step takes at least so long, so that there is time for all changes.
        logical_ranks: into how many parts a step is divided.
    """

    def __init__(
        self,
        folder: Path,
        *,
        steps: int,
        resizes: int,
        kills: int,
        trainers: int,
        seed: int,
        pace_s: float,
        logical_ranks: int,
        stops: int = 0,
    ) -> None:
        self._epochs = max(1, round(steps * BATCH / RECORDS))
        super().__init__(folder, Plan(seed, trainers, 0, 0, 0, RECORDS, self._epochs, environment=_ONE_THREAD))
        self._pace_s, self._most, self._parts = pace_s, trainers, logical_ranks
        self._end = self._epochs * RECORDS
        self._draw = random.Random(seed)  # noqa: S311 - not a secret
        self._schedule = random_changes(resizes, kills, stops, trainers=trainers, seed=seed)
        self._changes: list[Change] = []
        self._is_short = False  # a killed trainer has to be replaced
        self._stopped = ""  # the trainer that got SIGSTOP

    def measure(self) -> Run:
        """Run to the end.

        Raises:
            TimeoutError: the run takes too long.
            RuntimeError: a trainer failed.
        """
        started_s = time.monotonic()
        self.start()
        generation = formed = position = 0
        while live := self.live():
            if time.monotonic() - started_s > TIMEOUT_S:
                raise TimeoutError(f"the run takes longer than {TIMEOUT_S:g} s")
            group = self.ask("GET", "/v1/status")["group"]
            training = [name for name in live if name != self._stopped]
            is_settled = group is not None and group["generation"] > generation
            is_settled = is_settled and sorted(group["members"]) == training
            # Until the world has trained, a new trainer may still copy the model of the only other one.
            if is_settled and group["generation"] > formed:
                formed, position = group["generation"], group["position"]
            is_settled = is_settled and group["position"] >= position + _STEPS_BETWEEN * BATCH
            if is_settled and self._is_short:
                generation, self._is_short = group["generation"], False
                self._join("replace")
            elif is_settled and self._stopped:
                generation = group["generation"]
                self._continue()
            elif is_settled and self._schedule:
                generation = group["generation"]
                self._change(self._schedule.pop(0), live)
            time.sleep(0.02)
        return self._result(time.monotonic() - started_s)

    def _add_trainer(self) -> None:
        name = self.new_name()
        environment = {
            "EDL_MASTER": self._url,
            "EDL_TOKEN_FILE": str(self.folder / "token"),
            "EDL_LOGICAL_RANKS": str(self._parts),
            "POD_NAME": name,
            "POD_UID": f"uid-{name}",
            "TRAINERS": str(self._most),
        }
        self.fork(name, _train, environment, str(self.folder), self._pace_s)

    def _join(self, kind: str) -> None:
        self._changes.append(Change(kind, time.time()))
        self._add_trainer()

    def _continue(self) -> None:
        process = self.forked[self._stopped]
        self._changes.append(Change("continue", time.time(), self._stopped))
        os.kill(process.pid or 0, signal.SIGCONT)
        self._stopped = ""

    def _change(self, kind: str, live: list[str]) -> None:
        if kind == "join":
            self._join(kind)
            return
        name = self._draw.choice(live)
        process = self.forked[name]
        self._changes.append(Change(kind, time.time(), name))
        if kind == "stop":
            self._stopped = name
            os.kill(process.pid or 0, signal.SIGSTOP)
            return
        self.expected[name] = -signal.SIGKILL if kind == "kill" else LEAVES_WITH
        if kind == "kill":
            process.kill()
            process.join()
            self._is_short = True
        else:
            process.terminate()

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
            before = applied.get(line["start"])
            counts += before is not None and before["generation"] != line["generation"]
            # The first trainer's line: that of a stopped trainer may come when it goes on.
            if before is None or before["generation"] != line["generation"]:
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


def _train(environment: dict[str, str], folder: str, pace_s: float) -> None:
    """The body of a trainer; only the server that forks trainers imports PyTorch."""
    trainer = importlib.import_module(_TRAINER)
    trainer.train(environment, folder, RECORDS, BATCH, pace_s)


def main() -> int:
    """Run both, and print a table."""
    parser = argparse.ArgumentParser(description="Measure training in step under resizes and kills.")
    numbers = {"steps": 8000, "resizes": 100, "kills": 20, "stops": 0, "trainers": 4, "seed": 0}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pace-s", type=float, default=0.01)
    parser.add_argument("--undisturbed-trainers", type=int, default=4)
    parser.add_argument("--undisturbed-pace-s", type=float, default=0.01)
    arguments = vars(parser.parse_args())
    arguments["logical_ranks"] = arguments["trainers"]
    calm = {"resizes": 0, "kills": 0, "stops": 0}
    calm |= {name: arguments.pop(f"undisturbed_{name}") for name in ("trainers", "pace_s")}
    os.environ |= _ONE_THREAD
    FORKS.set_forkserver_preload([_TRAINER])
    with (
        tempfile.TemporaryDirectory() as folder,
        ElasticRun(Path(folder), **{**arguments, **calm}) as job,
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
    print(f"planned: {sum(change.kind in {'join', 'leave'} for change in stormy.changes)} resizes,", end=" ")
    print(f"{sum(change.kind == 'kill' for change in stormy.changes)} kills")
    for kind in ("join", "leave", "kill", "replace", "stop", "continue"):
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
    """Seconds of training lost by each change of a kind: the gaps that end before the next one."""
    lost, gaps, step_s = [], run.gaps(), run.step_s
    changes = [*run.changes, Change("end", float("inf"))]
    for change, following in itertools.pairwise(changes):
        if change.kind == kind:
            # A gap begins with the last step before its change, and ends before the next change is asked for.
            its = [gap for at_s, gap in gaps if change.at_s <= at_s + step_s + gap < following.at_s]
            lost += [sum(its)] if its else []
    return lost


if __name__ == "__main__":
    sys.exit(main())
