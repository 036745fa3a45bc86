"""Training in step on 1 -> 4 -> 2 -> 3 trainers with two SIGKILLs and a lost node, beside undisturbed runs.

    python -m benchmarks.elastic_node                       # five seeds, in a Python with PyTorch and scikit-learn
    python -m benchmarks.elastic_node --seeds 1 --epochs 20

The trainers are processes on two pretended nodes, and train the digits of example/torch_elastic. A lost node is one
whose trainers all get SIGSTOP at once: they answer nothing, and their connections stay open. After a while its pods
are deleted, and others start elsewhere. Each step is written down, so the seconds between the last step of one world
and the first one of the next show what a change cost. What the planner would charge comes from the controller's own
meter (`edl.lifecycle.measurement`), which reads the same master.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.forked_trainers import FORKS, ForkedTrainers
from edl.lifecycle.measurement import ProgressReading, SpeedMeter, observe
from example.fit_flights.local import Plan

RECORDS, BATCH = 1500, 60
NODES = ("a", "b", "c")  # the last one takes the trainers of a node that was lost
LEAVES_WITH = 143
WINDOW_S, POLL_S, SETTLED_STEPS, TIMEOUT_S = 3.0, 0.05, 10, 1200.0
REPLACED_AFTER_S, GONE_AFTER_S = 1.0, 3.0  # what a controller and a control plane take
_TRAINER = "benchmarks.elastic_node_trainer"
_POINTS = 8


class Event(NamedTuple):
    """Something that happens to the job.

    Attributes:
        part: of all steps, after which it happens.
        what: for the table.
        wanted: how many trainers there are afterwards.
        how: join, leave, kill or stop.
    """

    part: float
    what: str
    wanted: int
    how: str


EVENTS = (
    Event(0.10, "1 -> 4 trainers", 4, "join"),
    Event(0.24, "SIGKILL, 1 of 4", 4, "kill"),
    Event(0.38, "4 -> 2 trainers", 2, "leave"),
    Event(0.50, "SIGKILL, 1 of 2", 2, "kill"),
    Event(0.62, "2 -> 3 trainers", 3, "join"),
    Event(0.76, "node lost, 2 of 3", 3, "stop"),
)


class Step(NamedTuple):
    """A step that counts."""

    start: int
    end: int
    generation: int
    at_s: float
    loss: float


@dataclass
class Happened:
    """An event that has happened.

    Attributes:
        at_s: seconds since the epoch.
        charged_s: what the meter found it to cost; None if it found nothing before the next one.
    """

    event: Event
    at_s: float
    charged_s: float | None = None


@dataclass
class Run:
    """What one run has shown.

    Attributes:
        endings: (accuracy, digest of the weights) of the trainers that reached the end.
        steps: that count, in order.
        repeated: steps that were applied by a trainer that was lost, and made again by others.
        mean_s: what the planner would charge for a resize at the end; None if nothing was measured.
        problems: broken promises.
    """

    endings: set[tuple[float, str]]
    steps: list[Step]
    repeated: int
    happened: list[Happened]
    audit: dict[str, Any]
    mean_s: float | None
    problems: list[str] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """On the held-out digits; all trainers have the same model."""
        return max(self.endings)[0] if self.endings else float("nan")

    @property
    def step_s(self) -> float:
        """The median time of a step within a world."""
        return statistics.median(b.at_s - a.at_s for a, b in self._pairs() if a.generation == b.generation)

    def lost_s(self, number: int) -> float:
        """Seconds beyond one step, at each change of the world that an event caused."""
        following = self.happened[number + 1].at_s if number + 1 < len(self.happened) else float("inf")
        began_s, step_s = self.happened[number].at_s, self.step_s
        return sum(
            b.at_s - a.at_s - step_s
            for a, b in self._pairs()
            if a.generation != b.generation and began_s <= b.at_s < following
        )

    def curve(self) -> list[float]:
        """The mean loss in equal parts of the training."""
        size = -(-len(self.steps) // _POINTS)
        parts = (self.steps[first : first + size] for first in range(0, len(self.steps), size))
        return [statistics.mean(step.loss for step in part) for part in parts]

    def _pairs(self) -> list[tuple[Step, Step]]:
        return list(itertools.pairwise(self.steps))


class NodeRun(ForkedTrainers):
    """A job whose trainers are on nodes.

    Args:
        folder: for its files.
        seed: of the weights and of the order of the data.
        epochs: over the data.
        trainers: at the beginning.
        events: that happen to it.
        pace_s: a step takes at least so long.
        logical_ranks: into how many parts a step is divided; 0 is one for each trainer.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        epochs: int,
        trainers: int,
        events: tuple[Event, ...],
        pace_s: float,
        logical_ranks: int = 0,
    ) -> None:
        super().__init__(folder, Plan(seed, trainers, 0, 0, 0, RECORDS, epochs))
        self._end, self._events, self._pace_s, self._parts = RECORDS * epochs, list(events), pace_s, logical_ranks
        self._places: dict[str, str] = {}
        self._stopped: dict[str, float] = {}  # name of a trainer on a lost node -> when its pod is deleted
        self._lost_node = ""
        self._wanted, self._replaced_s = trainers, 0.0  # how many, and from when on the missing ones are started
        self._happened: list[Happened] = []
        self._meter = SpeedMeter()

    def measure(self) -> Run:
        """Run to the end.

        Raises:
            TimeoutError: the run takes too long.
            RuntimeError: a trainer failed.
        """
        until_s = time.monotonic() + TIMEOUT_S
        self.start()
        formed = position = 0
        while live := self.live():
            if time.monotonic() > until_s:
                raise TimeoutError(f"the run takes longer than {TIMEOUT_S:g} s")
            status = self.ask("GET", "/v1/status")
            self._read(status, len(live))
            group = status["group"]
            if group is not None and sorted(group["members"]) == live and group["generation"] > formed:
                formed, position = group["generation"], group["position"]
            # Until a world has trained, a new trainer may still copy the model of the only other one.
            is_settled = group is not None and sorted(group["members"]) == live and group["generation"] == formed
            is_settled = is_settled and group["position"] >= position + SETTLED_STEPS * BATCH
            is_settled = is_settled and len(live) == self._wanted
            self._delete_lost_pods(group)
            if status["state"] == "running" and time.monotonic() >= self._replaced_s:
                for _ in range(self._wanted - len(self.forked)):
                    self._add_trainer()
            if is_settled and self._events and group["position"] >= self._events[0].part * self._end:
                self._happen(self._events.pop(0), live)
            time.sleep(POLL_S)
        return self._result()

    def _read(self, status: dict[str, Any], live: int) -> None:
        """Show the meter of the controller what it would see."""
        group = status["group"]
        reading = ProgressReading(
            time.monotonic(),
            0,
            status["epoch"] * status["total"] + status["consumed"],
            live,
            len(group["working"]) if group is not None else 0,
            status["state"] == "running",
        )
        before, self._meter = self._meter, observe(self._meter, reading, WINDOW_S)
        if self._happened and self._meter.lost_s is not None and before.lost_s is None:
            last = self._happened[-1]
            last.charged_s = (last.charged_s or 0.0) + self._meter.lost_s

    def _add_trainer(self) -> None:
        name = self.new_name()
        nodes = [node for node in NODES if node != self._lost_node][:2]
        taken = [self._places[live] for live in self.forked]
        self._places[name] = min(nodes, key=taken.count)
        environment = {
            "EDL_MASTER": self._url,
            "EDL_TOKEN_FILE": str(self.folder / "token"),
            "EDL_CHECKPOINTS": str(self.folder / "models"),
            "EDL_GLOBAL_BATCH": str(BATCH),
            "EDL_LOGICAL_RANKS": str(self._parts),
            "OMP_NUM_THREADS": "1",
            "POD_NAME": name,
            "POD_UID": f"uid-{name}",
            "TRAINERS": str(self.plan.trainers),
        }
        self.fork(name, _train, environment, str(self.folder), self.plan.seed, self._pace_s)

    def _happen(self, event: Event, live: list[str]) -> None:
        self._happened.append(Happened(event, time.time()))
        self._wanted = event.wanted
        if event.how == "stop":
            self._stop_node()
        elif event.how == "kill":
            self._end_trainer(live[-1], signal.SIGKILL, -signal.SIGKILL)
        elif event.how == "leave":
            for name in live[event.wanted :]:
                self._end_trainer(name, signal.SIGTERM, LEAVES_WITH)

    def _end_trainer(self, name: str, number: int, code: int) -> None:
        process = self.forked[name]
        self.expected[name] = code
        os.kill(process.pid or 0, number)
        if number == signal.SIGKILL:
            process.join()
            del self.forked[name]
            self._replaced_s = time.monotonic() + REPLACED_AFTER_S

    def _stop_node(self) -> None:
        """All trainers of the node with most of them stop answering."""
        places = [self._places[name] for name in self.forked]
        self._lost_node = max(NODES, key=places.count)
        for name, process in self.forked.items():
            if self._places[name] == self._lost_node:
                os.kill(process.pid or 0, signal.SIGSTOP)
                self._stopped[name] = float("inf")

    def _delete_lost_pods(self, group: dict[str, Any] | None) -> None:
        """What the control plane does some time after the others train on."""
        if not self._stopped or group is None or set(group["members"]) & set(self._stopped) or not group["working"]:
            return
        for name, due_s in list(self._stopped.items()):
            self._stopped[name] = min(due_s, time.monotonic() + GONE_AFTER_S)
        if all(time.monotonic() >= due_s for due_s in self._stopped.values()):
            for name in self._stopped:
                self._end_trainer(name, signal.SIGKILL, -signal.SIGKILL)
            self._stopped.clear()

    def _result(self) -> Run:
        lines = [
            json.loads(line)
            for path in sorted(self.folder.glob("steps-*.jsonl"))
            for line in path.read_text().splitlines()
            if line.endswith("}")
        ]
        applied: dict[int, list[dict[str, Any]]] = {}
        repeated = 0
        # A step that survivors repeated was applied only by trainers that are gone: the later world counts.
        for line in sorted(lines, key=lambda line: (line["generation"], line["at_s"])):
            same = applied.setdefault(line["start"], [])
            if same and same[0]["generation"] != line["generation"]:
                repeated += 1
                same.clear()
            same.append(line)
        steps = [
            Step(start, same[0]["end"], same[0]["generation"], same[0]["at_s"], sum(line["loss"] for line in same))
            for start, same in sorted(applied.items())
        ]
        audit, problems = self._audit(), []
        if [step.start for step in steps] != [0, *(step.end for step in steps[:-1])] or steps[-1].end != self._end:
            problems.append("the steps are not a partition of the records")
        if not audit["ok"] or any(epoch["done"] != epoch["total"] for epoch in audit["epochs"]):
            problems.append("by the audit a record is not in exactly one step")
        if self._events:
            problems.append(f"{len(self._events)} events did not happen; give more epochs")
        logs = "\n".join(path.read_text() for path in self.folder.glob("trainer-*.log"))
        words = (line.split() for line in logs.splitlines() if line.startswith("accuracy "))
        endings = {(float(accuracy), weights) for _, accuracy, _, weights in words}
        if len(endings) != 1:
            problems.append(f"the trainers have {len(endings)} different models")
        return Run(endings, steps, repeated, self._happened, audit, self._meter.measured.resize_s, problems)


def _train(environment: dict[str, str], folder: str, seed: int, pace_s: float) -> None:
    """The body of a trainer; only the server that forks trainers imports PyTorch."""
    importlib.import_module(_TRAINER).train(environment, folder, seed, pace_s)


def main() -> int:
    """Run both for each seed, and print what they show; returns 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description="Train on 1 -> 4 -> 2 -> 3 trainers, with kills and a lost node.")
    for name, default in (("seeds", 5), ("epochs", 60), ("undisturbed-trainers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pace-s", type=float, default=0.06, help="a disturbed step takes at least so long")
    parser.add_argument("--deterministic", action="store_true", help="the weights must be equal in every bit, too")
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    FORKS.set_forkserver_preload([_TRAINER])
    parts = max(event.wanted for event in EVENTS) if chosen.deterministic else 0
    calm: list[Run] = []
    stormy: list[Run] = []
    for seed in range(chosen.seeds):
        common = {"seed": seed, "epochs": chosen.epochs, "logical_ranks": parts}
        for runs, trainers, events, pace_s in (
            (calm, chosen.undisturbed_trainers, (), 0.0),
            (stormy, 1, EVENTS, chosen.pace_s),
        ):
            with (
                tempfile.TemporaryDirectory() as folder,
                NodeRun(Path(folder), trainers=trainers, events=events, pace_s=pace_s, **common) as job,
            ):
                runs.append(job.measure())
            print(f"seed {seed}: {_line(runs[-1])}", flush=True)
    return _report(calm, stormy, is_deterministic=chosen.deterministic)


def _line(run: Run) -> str:
    done, total = (sum(epoch[name] for epoch in run.audit["epochs"]) for name in ("done", "total"))
    return (
        f"accuracy {run.accuracy:.4f}, {len(run.steps)} steps of {1000 * run.step_s:.0f} ms in the median, {done} of"
        f" {total} records in one step, {run.repeated} steps of lost trainers made again, {len(run.happened)} events"
        f"{'; BROKEN: ' + '; '.join(run.problems) if run.problems else ''}"
    )


def _report(calm: list[Run], stormy: list[Run], *, is_deterministic: bool) -> int:
    """Print the tables."""
    print("\n| event | lost, as measured | charged by the controller's meter |\n|---|---|---|")
    for number, event in enumerate(EVENTS):
        found = [run for run in stormy if len(run.happened) > number]
        charged = [cost for run in found if (cost := run.happened[number].charged_s) is not None]
        print(f"| {event.what} | {_span([run.lost_s(number) for run in found])} | {_span(charged)} |")
    means = [run.mean_s for run in stormy if run.mean_s is not None]
    print(f"\nA resize at the end of the run is charged {_span(means)}.")
    print("\n| part of the training | undisturbed loss | disturbed loss |\n|---|---|---|")
    for point, curves in enumerate(zip(*(run.curve() for run in (*calm, *stormy)), strict=True)):
        cells = (_span(list(part), unit="") for part in (curves[: len(calm)], curves[len(calm) :]))
        print(f"| {point + 1} of {_POINTS} | {' | '.join(cells)} |")
    accuracies = [[run.accuracy for run in runs] for runs in (calm, stormy)]
    for name, found_parts in zip(("undisturbed", "disturbed"), accuracies, strict=True):
        print(f"accuracy, {name}: {', '.join(f'{part:.4f}' for part in found_parts)}")
    spread = max(accuracies[0]) - min(accuracies[0])
    shift = statistics.mean(accuracies[1]) - statistics.mean(accuracies[0])
    print(f"the mean differs by {shift:+.4f}; the undisturbed runs differ among each other by {spread:.4f}")
    broken = [problem for run in (*calm, *stormy) for problem in run.problems]
    if is_deterministic and any(a.endings != b.endings for a, b in zip(calm, stormy, strict=True)):
        broken.append("the weights differ")
    print(f"load {os.getloadavg()[1]:.1f} over 5 minutes; {'; '.join(broken) or 'every promise is kept'}")
    return int(bool(broken))


def _span(values: list[float], unit: str = " s") -> str:
    """The median, the smallest and the largest."""
    if not values:
        return "not measured"
    return f"{statistics.median(values):.3g}{unit} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    sys.exit(main())
