"""Compares the planner with an earlier version of itself, both in one process: which plans are worse, and the cost.

`python -m benchmarks.two_planners REVISION worlds|contended|histories|plans ...` reads `edl/planner` of a revision
from git under another name, plans each world with both, and prints what differs: serving placed, jobs admitted,
fulfilment from the worst off upwards, deletions, refusals of the guard, CPU seconds. A history is a world whose plans
are carried out, two minutes apart, until nothing changes; the plans of both are followed for themselves.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import io
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contended_worlds import contended
from benchmarks.random_worlds import random_world
from benchmarks.worst_worlds import World
from edl.errors import PlanError
from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from tests.worlds.small_clusters import apply_plan, later

NAME = "planner_before"
DEADLINE_S = 10.0
REST_S, MOST_ROUNDS = 120.0, 12
SAME = 1e-9

Decide = Callable[[ClusterSnapshot, str, Limits], ScalePlan]


def planner_of(revision: str) -> Decide:
    """What decides as the planner of a revision does; the rest of edl is that of the working tree.

    Args:
        revision: anything that git understands.
    """
    archive = subprocess.run(["git", "archive", revision, "edl/planner"], check=True, capture_output=True).stdout  # noqa: S607
    folder = Path(tempfile.mkdtemp())
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    package = (folder / "edl" / "planner").rename(folder / NAME)
    for module in package.rglob("*.py"):
        module.write_text(module.read_text(encoding="utf-8").replace("edl.planner", NAME), encoding="utf-8")
    sys.path.insert(0, str(folder))
    return planner_in(NAME)


def planner_in(package: str) -> Decide:
    """What decides with the planner in a package, by a clock of CPU seconds.

    Args:
        package: its name.
    """
    made: Any = importlib.import_module(f"{package}.decide")
    clocks: Any = importlib.import_module(f"{package}.clock")
    policies: Any = importlib.import_module(f"{package}.policies.registry")

    def decide(snapshot: ClusterSnapshot, policy: str, limits: Limits) -> ScalePlan:
        clock = clocks.Clock(limits.deadline_s, time.process_time)
        plan: ScalePlan = made.study(snapshot, policies.policy_named(policy), limits, clock=clock).plan
        return plan

    return decide


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a planner makes of one world, or of one history.

    Attributes:
        placed: waiting serving pods that get a place.
        admitted: for each job, in its turn, whether it runs.
        fulfilments: of the jobs that run, ascending.
        achieved: the objective of the policy.
        deletions: trainers deleted, in all plans of a history.
        cpu_s: CPU seconds of the slowest decision.
        failure: the plan was refused, or there was none in time; or the history does not come to rest.
        is_cut: a decision was cut short.
    """

    placed: int = 0
    admitted: tuple[bool, ...] = ()
    fulfilments: tuple[float, ...] = ()
    achieved: float = 0.0
    deletions: int = 0
    cpu_s: float = 0.0
    failure: str = ""
    is_cut: bool = False


def outcome(world: World, policy: str, decide: Decide, rounds: int) -> Outcome:
    """Plan a world; with several rounds, carry out plans until one changes nothing, and judge the last one."""
    snapshot, limits, found = world.snapshot, replace(world.limits, deadline_s=DEADLINE_S), Outcome()
    for _ in range(rounds):
        started_s = time.process_time()
        try:
            plan = decide(snapshot, policy, limits)
        except PlanError as error:
            return replace(found, failure=f"{type(error).__name__}: {error}"[:90])
        found = _judged(snapshot, plan, found, time.process_time() - started_s)
        if rounds == 1 or not any(d.victims or d.nodes or d.fixed_nodes for d in plan.decisions):
            return found
        snapshot = later(apply_plan(snapshot, plan), REST_S)
    return replace(found, failure="does not come to rest")


def _judged(snapshot: ClusterSnapshot, plan: ScalePlan, before: Outcome, cpu_s: float) -> Outcome:
    turns = sorted(zip(snapshot.jobs, plan.decisions, strict=True), key=lambda pair: pair[0].turn)
    fulfilments = [
        1.0
        if job.max_trainers <= job.min_trainers
        else (d.target - job.min_trainers) / (job.max_trainers - job.min_trainers)
        for job, d in turns
        if d.admitted
    ]
    return Outcome(
        plan.serving.placed,
        tuple(d.admitted for _, d in turns),
        tuple(sorted(round(f, 9) for f in fulfilments)),
        plan.certificate.achieved,
        before.deletions + sum(len(d.victims) for d in plan.decisions),
        max(before.cpu_s, cpu_s),
        is_cut=before.is_cut or bool(plan.cut),
    )


@dataclass
class Table:
    """Counts what is better and worse, world by world."""

    number: int = 0
    better: dict[str, int] = field(default_factory=dict)
    worse: dict[str, int] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    pairs: list[tuple[Outcome, Outcome]] = field(default_factory=list)

    def add(self, name: str, old: Outcome, new: Outcome) -> None:
        """Compare two outcomes; print the name of a world in which the new one is worse."""
        self.number += 1
        self.pairs.append((old, new))
        for what, sign in self._compared(old, new):
            if sign:
                counts = self.better if sign > 0 else self.worse
                counts[what] = counts.get(what, 0) + 1
            if sign < 0:
                print(f"worse {what}: {name} {_difference(old, new)}", flush=True)

    def _compared(self, old: Outcome, new: Outcome) -> Iterator[tuple[str, int]]:
        yield "failure", bool(old.failure) - bool(new.failure)
        if old.failure or new.failure:
            return
        yield "cut", old.is_cut - new.is_cut
        yield "serving", _sign(new.placed - old.placed)
        yield "admission", (new.admitted > old.admitted) - (new.admitted < old.admitted)
        if old.admitted == new.admitted:
            steps = [b - a for a, b in zip(old.fulfilments, new.fulfilments, strict=True) if abs(b - a) > SAME]
            if steps:
                (self.gains if steps[0] > 0 else self.losses).append(abs(steps[0]))
            yield "leximin", _sign(steps[0] if steps else 0.0)
            yield "sum", _sign(new.achieved - old.achieved)
        yield "deletions", _sign(old.deletions - new.deletions)

    def report(self) -> None:
        """Print the table."""
        print(f"{self.number} worlds")
        print(f"{'':<12} {'better':>7} {'worse':>7} {'worse %':>8}")
        for what in ("failure", "cut", "serving", "admission", "leximin", "sum", "deletions"):
            better, worse = self.better.get(what, 0), self.worse.get(what, 0)
            print(f"{what:<12} {better:7d} {worse:7d} {worse / max(1, self.number):8.2%}")
        for name, steps in (("lost", self.losses), ("gained", self.gains)):
            if steps:
                print(f"first fulfilment {name}: median {np.median(steps):.4f}, most {max(steps):.4f}")
        for k, name in enumerate(("before", "now")):
            mine = [pair[k] for pair in self.pairs]
            cpu_s = np.array([each.cpu_s for each in mine])
            print(
                f"{name:<7} deletions {sum(each.deletions for each in mine):6d}, CPU s: median {np.median(cpu_s):.3f}"
                f" p99 {np.quantile(cpu_s, 0.99):.3f}, worst {cpu_s.max():.3f}, all {cpu_s.sum():.1f}"
            )


def _sign(value: float) -> int:
    return (value > SAME) - (value < -SAME)


def _difference(old: Outcome, new: Outcome) -> str:
    if old.failure or new.failure:
        return f"{old.failure!r} -> {new.failure!r}"
    differing = [
        f"{a:.3f}>{b:.3f}" for a, b in zip(old.fulfilments, new.fulfilments, strict=False) if abs(a - b) > SAME
    ]
    return (
        f"placed {old.placed}>{new.placed} admitted {sum(old.admitted)}>{sum(new.admitted)} deletions"
        f" {old.deletions}>{new.deletions} sum {old.achieved:.3f}>{new.achieved:.3f} {' '.join(differing[:6])}"
    )


def _saved(file: str) -> ClusterSnapshot:
    """A saved snapshot, gzipped or not."""
    raw = Path(file).read_bytes()
    text = (gzip.decompress(raw) if file.endswith(".gz") else raw).decode()
    return read_snapshot_texts([(file.removesuffix(".gz"), text)]).snapshot(None)[0]


def worlds_of(kind: str, first: int, count: int, files: Iterable[str]) -> Iterator[tuple[str, World, str]]:
    """The worlds of a kind: name, world, policy."""
    if kind == "plans":
        for file in files:
            yield Path(file).name, World(_saved(file)), "maxmin"
        return
    rows = [(n, j, s) for n in (6, 12, 30, 60, 120, 250) for j in (6, 15, 40) for s in (1, 4, 12)]
    for number in range(first, first + count):
        policy = "utility" if number % 3 == 2 else "maxmin"
        if kind == "contended" or (kind == "histories" and number % 2):
            nodes, jobs, sizes = rows[number % len(rows)]
            seed = number // len(rows)
            yield f"contended {nodes} {jobs} {sizes} {seed}", World(contended(nodes, jobs, sizes, seed)), "maxmin"
        else:
            yield f"world {number}", random_world(number), policy


def main() -> None:
    """Compare and print the table."""
    parser = argparse.ArgumentParser(description="Compare the planner with an earlier version of itself.")
    parser.add_argument("revision")
    parser.add_argument("kind", choices=("worlds", "contended", "histories", "plans"))
    parser.add_argument("files", nargs="*", help="saved snapshots, for `plans`")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--most-nodes", type=int, default=10**6, help="leave out contended worlds with more nodes")
    given = parser.parse_args()
    before, now, table = planner_of(given.revision), planner_in("edl.planner"), Table()
    rounds = MOST_ROUNDS if given.kind in {"histories", "plans"} else 1
    worlds = worlds_of(given.kind, given.first, given.count, given.files)
    for name, world, policy in islice(worlds, None):
        if len(world.snapshot.nodes) <= given.most_nodes:
            table.add(name, *(outcome(world, policy, decide, rounds) for decide in (before, now)))
    table.report()


if __name__ == "__main__":
    main()
