"""Compares the solvers of linear programs: `python -m benchmarks.solvers [WORDS...] [-f FILE...]`.

A line for each world has, for each solver: CPU seconds of the decision, those of them that the solver took with its
calls, the sum that the plan achieves, and the bound. Worlds are those of `benchmarks.planner`, empty and after ten
changes, the families of `benchmarks.worst_worlds` at two sizes, and saved clusters.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.worlds import carried_out, fleet, jobs_2017, mixed, nodes_2017, with_changes
from benchmarks.worst_worlds import FAMILIES, World
from edl.kube.snapshot_files.saved_cluster import read_snapshot_files
from edl.model.limits import Limits
from edl.model.plan import NO_COLUMNS, KeptColumns, ScalePlan
from edl.planner.clock import Clock
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import POLICIES
from edl.planner.solvers.linear_program import Answer, LinearProgram, Model, Solver
from edl.planner.solvers.matrix import Matrix
from edl.planner.solvers.with_highspy import Highspy
from edl.planner.solvers.with_scipy import Scipy
from tests.worlds.builders import make_snapshot

DEADLINE_S = 600.0
CHANGES = 10
SOLVERS: tuple[Solver, ...] = (Scipy(), Highspy())
FAMILY_SIZES = ((100, 40), (1000, 500))


@dataclass
class Timed:
    """A solver that counts its calls and their CPU seconds; it is its own model."""

    solver: Solver
    calls: int = 0
    cpu_s: float = 0.0

    @property
    def name(self) -> str:
        """The library's name."""
        return self.solver.name

    def load(self, program: LinearProgram) -> Model:
        """Make a model of a program."""
        started_s = time.process_time()
        model = self.solver.load(program)
        self.cpu_s += time.process_time() - started_s
        return _TimedModel(self, model)


@dataclass
class _TimedModel:
    timed: Timed
    model: Model

    def add(self, columns: Matrix) -> None:
        """Append columns."""
        started_s = time.process_time()
        self.model.add(columns)
        self.timed.cpu_s += time.process_time() - started_s

    def solve(self, limit_s: float) -> Answer:
        """Solve it as it stands."""
        started_s = time.process_time()
        answer = self.model.solve(limit_s)
        self.timed.cpu_s += time.process_time() - started_s
        self.timed.calls += 1
        return answer


def decided(world: World, columns: KeptColumns, solver: Solver) -> tuple[ScalePlan, str]:
    """Decide once; the plan and the columns of the line."""
    timed, started_s = Timed(solver), time.process_time()
    clock = Clock(DEADLINE_S, time.process_time)
    plan = study(world.snapshot, POLICIES["maxmin"], world.limits, columns, clock, solver=timed).plan
    cpu_s, problems = time.process_time() - started_s, check(world.snapshot, plan, world.limits.quotas)
    if problems or plan.certificate.bound < plan.certificate.achieved:
        sys.exit(f"the plan breaks a rule: {problems}")
    proved = plan.certificate
    return plan, f"{cpu_s:6.2f} {timed.cpu_s:7.3f} {timed.calls:4d} {proved.achieved:10.4f} {proved.bound:10.4f}"


def worlds() -> Iterator[tuple[str, World]]:
    """The worlds that are planned empty, and again after ten changes."""
    limits = Limits(deadline_s=DEADLINE_S)
    yield "2017: 20 jobs x 133", World(make_snapshot(nodes_2017(), jobs_2017(20)), limits)
    for jobs, nodes in ((10, 20), (50, 200)):
        yield f"mixed: {jobs} jobs x {nodes}", World(mixed(nodes, jobs), limits)
    for jobs, nodes in ((50, 200), (200, 1000), (1000, 10_000)):
        yield f"fleet: {jobs} jobs x {nodes}", World(fleet(nodes, jobs), limits)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Compare the solvers of linear programs.")
    parser.add_argument("words", nargs="*", help="only worlds whose name contains one of these")
    parser.add_argument("-f", "--file", action="append", default=[], help="a saved cluster")
    given = parser.parse_args()
    columns = f"{'CPU s':>6} {'solver':>7} {'':>4} {'achieved':>10} {'bound':>10}"
    print(f"{'':<34} " + " | ".join(f"{solver.name:^41}" for solver in SOLVERS))
    print(f"{'world':<34} " + " | ".join(columns for _ in SOLVERS), flush=True)

    def is_wanted(name: str) -> bool:
        return not given.words or any(word in name for word in given.words)

    for name, world in worlds():
        if is_wanted(name):
            made = [decided(world, NO_COLUMNS, solver) for solver in SOLVERS]
            print(f"{name:<34} " + " | ".join(line for _, line in made), flush=True)
            first = made[0][0]
            changed = World(with_changes(carried_out(world.snapshot, first), CHANGES), world.limits)
            lines = [decided(changed, first.columns, solver)[1] for solver in SOLVERS]
            print(f"{name + ', changed':<34} " + " | ".join(lines), flush=True)
    for nodes, jobs in FAMILY_SIZES:
        for family, make in FAMILIES.items():
            if is_wanted(name := f"{family} {nodes} x {jobs}"):
                world = make(nodes, jobs, 1)
                lines = [decided(world, NO_COLUMNS, solver)[1] for solver in SOLVERS]
                print(f"{name:<34} " + " | ".join(lines), flush=True)
    for path in given.file:
        snapshot = read_snapshot_files([path]).snapshot()[0]
        world = World(snapshot, Limits(deadline_s=DEADLINE_S))
        lines = [decided(world, NO_COLUMNS, solver)[1] for solver in SOLVERS]
        print(f"{path.rpartition('/')[2]:<34} " + " | ".join(lines), flush=True)


if __name__ == "__main__":
    main()
