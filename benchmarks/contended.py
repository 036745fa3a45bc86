"""Measures the planner on small contended clusters: `python -m benchmarks.contended [--plot FILE] [WORDS ...]`.

A line for each number of nodes, jobs and sizes, over ten seeds: the median, the 99th percentile and the worst CPU
seconds of a decision, the median and the worst gap of the certificate, and how many decisions were cut short. With
`--before REVISION`, the planner of that revision decides each world, too, and has the same columns. The picture draws
CPU seconds over nodes, a curve for each number of jobs and sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.contended_worlds import contended
from benchmarks.two_planners import DEADLINE_S, Decide, planner_in, planner_of
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.policies.registry import POLICIES

NODES, JOBS, SIZES = (6, 12, 30, 60, 120, 250), (6, 15, 40), (1, 4, 12)


Row = tuple[int, int, int]  # nodes, jobs, sizes


@dataclass(frozen=True, slots=True)
class Measured:
    """The decisions of one row: nodes, jobs and sizes, then a number for each seed.

    Attributes:
        cpu_s: CPU seconds of each decision.
        gaps: the gap of each certificate, in parts of the bound.
        cut: how many decisions were cut short.
    """

    nodes: int
    jobs: int
    sizes: int
    cpu_s: tuple[float, ...]
    gaps: tuple[float, ...]
    cut: int


def measure(row: Row, seeds: int, policy: str, planners: Sequence[Decide]) -> tuple[Measured, ...]:
    """Decide once for each seed and planner, with the planners in turn."""
    worlds, limits = [contended(*row, seed) for seed in range(seeds)], Limits(deadline_s=DEADLINE_S)
    made = [[decide(world, policy, limits) for decide in planners] for world in worlds]
    return tuple(_measured(row, each) for each in zip(*made, strict=True))


def _measured(row: Row, made: Sequence[tuple[ScalePlan, float]]) -> Measured:
    plans = [plan for plan, _ in made]
    return Measured(
        *row,
        tuple(cpu_s for _, cpu_s in made),
        tuple(plan.certificate.gap for plan in plans),
        sum(bool(plan.cut) for plan in plans),
    )


def figures(row: Measured) -> str:
    """The columns of one planner."""
    cpu_s, gaps = np.array(row.cpu_s), np.array(row.gaps)
    return (
        f" {np.median(cpu_s):8.3f} {np.quantile(cpu_s, 0.99):7.3f} {cpu_s.max():7.3f} {np.median(gaps):7.1%}"
        f" {gaps.max():7.1%} {row.cut:3d}"
    )


def draw(rows: Sequence[Measured], file: Path) -> None:
    """Draw the median and the worst CPU seconds over nodes; needs the extra `plots`."""
    import matplotlib  # noqa: PLC0415 - an extra, and slow to load

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - once the backend is chosen

    figure, axes = pyplot.subplots(1, len(JOBS), figsize=(12, 4), layout="constrained", sharey=True)
    for axis, jobs in zip(axes, JOBS, strict=True):
        for sizes in SIZES:
            mine = [row for row in rows if (row.jobs, row.sizes) == (jobs, sizes)]
            if mine:
                nodes = [row.nodes for row in mine]
                (curve,) = axis.plot(nodes, [np.median(row.cpu_s) for row in mine], label=f"{sizes} sizes")
                axis.plot(nodes, [max(row.cpu_s) for row in mine], linestyle=":", color=curve.get_color())
        axis.set(xscale="log", yscale="log", xlabel="nodes", title=f"{jobs} jobs")
        axis.set_xticks(NODES, [str(n) for n in NODES])
        axis.minorticks_off()
    axes[0].set_ylabel("CPU seconds of a decision")
    axes[0].legend(title="median; dotted: worst")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure the planner on small contended clusters.")
    parser.add_argument("words", nargs="*", help="only rows like 30x15 or 30x15x4 that begin with one of these")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--policy", default="maxmin", choices=sorted(POLICIES))
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    parser.add_argument("--before", metavar="REVISION", help="also measure the planner of this revision")
    given = parser.parse_args()
    planners = [planner_in("edl.planner")]
    if given.before:
        planners.insert(0, planner_of(given.before))
    planners[-1](contended(12, 15, 4, 0), given.policy, Limits())  # libraries load with the first programs
    head = f" {'median s':>8} {'p99 s':>7} {'worst s':>7} {'gap':>7} {'worst':>7} cut"
    print(f"{'nodes':>5} {'jobs':>4} {'sizes':>5}{head * len(planners)}", flush=True)
    rows = []
    for nodes, jobs, sizes in product(NODES, JOBS, SIZES):
        name = f"{nodes}x{jobs}x{sizes}"
        if not given.words or any(name == word or name.startswith(f"{word}x") for word in given.words):
            rows.append(measure((nodes, jobs, sizes), given.seeds, given.policy, planners))
            print(f"{nodes:5d} {jobs:4d} {sizes:5d}{''.join(map(figures, rows[-1]))}", flush=True)
    for name, mine in zip(("now", "before"), list(zip(*rows, strict=True))[::-1], strict=False):
        small = [s for row in mine if row.nodes <= 60 and row.jobs <= 15 for s in row.cpu_s]
        if small:
            print(f"up to 60 nodes x 15 jobs, {name}: p99 {np.quantile(small, 0.99):.3f} s, worst {max(small):.3f} s")
    if given.plot is not None:
        draw([row for *_, row in rows], given.plot)


if __name__ == "__main__":
    main()
