"""Many runs: every policy with every seed, over the cores of the machine, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from os import sched_getaffinity

import numpy as np
from scipy.stats import t as student

from edl.sim.processes import run_in_processes
from edl.sim.scenario import Scenario
from edl.sim.simulation import Run, simulate

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean of a figure over seeds, and half the width of its 95 % interval; infinite for one seed."""

    mean: float
    half: float
    seeds: int


def run_all(
    scenario: Scenario,
    policies: Sequence[str],
    seeds: int,
    on_done: Callable[[], None] = lambda: None,
    processes: int | None = None,
) -> dict[str, tuple[Run, ...]]:
    """Run a scenario under each policy with seeds 0 to `seeds` - 1.

    Args:
        scenario: what runs.
        policies: names; see `policies.policy_names`.
        seeds: how many.
        on_done: called after each run.
        processes: how many at a time; by default one for each core that this process may use.

    Returns:
        By policy, its runs in the order of their seeds.
    """
    wanted = [(policy, seed) for policy in policies for seed in range(seeds)]
    count = min(len(wanted), processes or len(sched_getaffinity(0)))
    found: dict[tuple[str, int], Run] = {}
    with closing(_each(scenario, wanted, count)) as runs:
        for run in runs:
            found[run.policy, run.seed] = run
            on_done()
    return {policy: tuple(found[policy, seed] for seed in range(seeds)) for policy in policies}


def _each(scenario: Scenario, wanted: Sequence[tuple[str, int]], count: int) -> Generator[Run]:
    """Runs in this process if there is only one at a time, else in others."""
    arguments = [(scenario, policy, seed) for policy, seed in wanted]
    if count <= 1:
        return (simulate(*each) for each in arguments)
    return run_in_processes(count, simulate, arguments)


def summarise(runs: Sequence[Run]) -> Mapping[str, Interval]:
    """Each figure of the runs of one policy, in the order in which runs list them."""
    names = list(dict.fromkeys(name for run in runs for name in run.figures))
    return {name: interval([run.figures[name] for run in runs if name in run.figures]) for name in names}


def interval(values: Sequence[float]) -> Interval:
    """The mean and Student's interval around it."""
    count = len(values)
    mean = float(np.mean(values))
    if count == 1:
        return Interval(mean, float("inf"), 1)
    error = float(np.std(values, ddof=1)) / count**0.5
    return Interval(mean, float(student.ppf((1 + CONFIDENCE) / 2, count - 1)) * error, count)
