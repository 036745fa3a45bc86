"""Compares the planner with an earlier version of itself, both in one process: which plans are worse, and the cost.

`python -m benchmarks.two_planners REVISION worlds|contended|histories|plans ...` reads `edl` of a revision from git
under another name, plans each world with both, and prints what differs: serving placed, jobs admitted, fulfilment
from the worst off upwards, deletions, refusals of the guard, CPU seconds. A history is a world whose plans are
carried out, two minutes apart, until nothing changes; the plans of both are followed for themselves. Worlds with
something that the earlier version does not know are left out, and counted.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contended_worlds import contended
from benchmarks.other_version import BEFORE, Translation, UnknownThereError, load
from benchmarks.random_worlds import random_world
from benchmarks.worst_worlds import World
from edl.errors import PlanError
from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.speedup import as_useful
from tests.worlds.small_clusters import apply_plan, later

DEADLINE_S = 10.0
REST_S, MOST_ROUNDS = 120.0, 12
SAME = 1e-9

Decide = Callable[[ClusterSnapshot, str, Limits], tuple[ScalePlan, float]]
"""Makes the plan for a snapshot, a policy and limits, and says how many CPU seconds it took."""


def planner_of(revision: str) -> Decide:
    """What decides as a revision does.

    Args:
        revision: anything that git understands.
    """
    load(revision)
    decide, errors = planner_in(BEFORE), importlib.import_module(f"{BEFORE}.errors")
    there: Callable[[object], Any] = Translation(BEFORE)
    here: Callable[[object], Any] = Translation("edl")

    def translated(snapshot: ClusterSnapshot, policy: str, limits: Limits) -> tuple[ScalePlan, float]:
        try:
            plan, cpu_s = decide(there(snapshot), policy, there(limits))
        except errors.PlanError as error:
            raise PlanError(f"{type(error).__name__}: {error}") from error
        parts = {name: here(getattr(plan, name)) for name in ("decisions", "certificate", "serving", "cut")}
        return ScalePlan(**parts), cpu_s

    return translated


def planner_in(package: str) -> Decide:
    """What decides with the planner in a package, by a clock of CPU seconds.

    Args:
        package: the name of the version of edl.
    """
    made: Any = importlib.import_module(f"{package}.planner.decide")
    clocks: Any = importlib.import_module(f"{package}.planner.clock")
    policies: Any = importlib.import_module(f"{package}.planner.policies.registry")

    def decide(snapshot: ClusterSnapshot, policy: str, limits: Limits) -> tuple[ScalePlan, float]:
        started_s = time.process_time()
        clock = clocks.Clock(limits.deadline_s, time.process_time)
        plan: ScalePlan = made.study(snapshot, policies.policy_named(policy), limits, clock=clock).plan
        return plan, time.process_time() - started_s

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
    snapshot, limits, found = _useful(world.snapshot), replace(world.limits, deadline_s=DEADLINE_S), Outcome()
    for _ in range(rounds):
        try:
            plan, cpu_s = decide(snapshot, policy, limits)
        except PlanError as error:
            return replace(found, failure=f"{type(error).__name__}: {error}"[:90])
        found = _judged(snapshot, plan, found, cpu_s)
        if rounds == 1 or not any(d.victims or d.nodes or d.fixed_nodes for d in plan.decisions):
            return found
        snapshot = later(apply_plan(snapshot, plan), REST_S)
    return replace(found, failure="does not come to rest")


def _useful(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The world in which no job may have trainers that only slow it; earlier versions gave them such trainers."""
    return replace(snapshot, jobs=tuple(map(as_useful, snapshot.jobs)))


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
    before, now, table, unknown = planner_of(given.revision), planner_in("edl"), Table(), Counter[str]()
    rounds = MOST_ROUNDS if given.kind in {"histories", "plans"} else 1
    with suppress(KeyboardInterrupt):  # what was compared until then is reported
        for name, world, policy in worlds_of(given.kind, given.first, given.count, given.files):
            if len(world.snapshot.nodes) <= given.most_nodes:
                try:
                    table.add(name, *(outcome(world, policy, decide, rounds) for decide in (before, now)))
                except UnknownThereError as error:
                    unknown[str(error)] += 1
    table.report()
    if unknown:
        print(f"left out: {unknown.total()}, because {given.revision} does not know", dict(unknown.most_common()))


if __name__ == "__main__":
    main()
