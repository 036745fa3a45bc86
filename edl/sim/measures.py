"""The figures of one run, from what `meter.py` recorded. docs/simulator.md says what each of them means."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from edl.sim.meter import Decisions, Recording
from edl.sim.scenario import Scenario
from edl.sim.shapes import nodes_of, shape_of
from edl.sim.training import JobRun

Floats = NDArray[np.float64]
EARLY_S = 10.0
"""Trainers that are deleted within this time after a rise of serving are deleted for that rise."""

_GRID = 2000
"""Moments at which fairness is judged."""


def measure(
    scenario: Scenario,
    meter: Recording,
    runs: Sequence[JobRun],
    decisions: Decisions,
    *,
    start_s: float,
    cores: float,
) -> dict[str, float]:
    """Compute every figure by name; a figure for which the run has no data is left out.

    Args:
        scenario: what ran.
        meter: what happened.
        runs: the runs of all jobs.
        decisions: the decisions of the controller; empty for policies without one.
        start_s: virtual time at which the scenario began.
        cores: the cores of the cluster.
    """
    ended_s = meter.samples[-1].at_s
    span = (scenario.measure.from_s, min(ended_s, scenario.measure.until_s or ended_s))
    times = np.array([sample.at_s for sample in meter.samples])
    requested = np.array([sample.requested for sample in meter.samples]) / cores
    trainers = np.array([sample.trainers for sample in meter.samples], dtype=np.float64)
    figures = {}
    if span[0] < span[1]:
        useful = np.array([sample.useful for sample in meter.samples]) / cores
        used = np.array([sample.used for sample in meter.samples]) / cores
        figures = {
            "utilisation": mean_over(times, requested, span),
            "useful_utilisation": mean_over(times, useful, span),
            "used_utilisation": mean_over(times, used, span),
        }
    figures["trainer_hours"] = mean_over(times, trainers, (0.0, ended_s)) * ended_s / 3600
    if scenario.measure.steady_s is not None and scenario.measure.steady_s[0] < ended_s:
        figures["steady_utilisation"] = mean_over(times, requested, scenario.measure.steady_s)
        figures["steady_trainers"] = mean_over(times, trainers, scenario.measure.steady_s)
    figures |= _serving(scenario, meter, times) | _jobs(scenario, runs, start_s)
    figures |= _fairness(scenario, meter, runs, start_s) | _finish_times(scenario, runs)
    figures |= {
        "resizes": float(meter.resizes.count),
        "forced_resizes": float(meter.resizes.forced),
        "trainers_preempted": float(meter.preempted),
        "samples": sum(run.done for run in runs),
        "trainer_hours_lost": sum(run.lost_s for run in runs) / 3600,
    }
    if meter.prices:
        figures["lending_price"] = float(np.mean(list(meter.prices.values())))
    return figures | _decisions(decisions)


def _decisions(decisions: Decisions) -> dict[str, float]:
    """How far the plans were from their upper bounds, and how many broke a rule; empty without plans."""
    gaps = [gap for _, gap in decisions.gaps]
    if not gaps:
        return {}
    return {
        "gap_mean": float(np.mean(gaps)),
        "gap_max": max(gaps),
        "decisions": float(len(gaps)),
        "problems": float(len(decisions.problems)),
    }


def mean_over(times: Floats, values: Floats, span: tuple[float, float]) -> float:
    """The time-weighted mean of a step function over an interval; the function is 0 before its first step."""
    low, high = span
    if not len(times) or high <= low:
        return 0.0
    begins = np.clip(times, low, high)
    ends = np.clip(np.append(times[1:], np.inf), low, high)
    return float(((ends - begins) * values).sum() / (high - low))


def _serving(scenario: Scenario, meter: Recording, times: Floats) -> dict[str, float]:
    if not scenario.serving:
        return {}
    low, high = scenario.measure.ramps_s or (0.0, scenario.duration_s)
    slowed = np.array([sample.slowed for sample in meter.samples], dtype=np.float64)
    short = np.array([max(0, sample.target - sample.ready) for sample in meter.samples], dtype=np.float64)
    waits = {"serving_wait_p95_s": _quantile(meter.waits_s, 0.95)} if meter.waits_s else {}
    return {
        "serving_shortfall_pod_s": mean_over(times, short, (low, high)) * (high - low),
        "serving_below_s": mean_over(times, (short > 0).astype(np.float64), (low, high)) * (high - low),
        **waits,
        "trainers_deleted": float(len(meter.deleted_s)),
        "trainers_deleted_early": float(_count_early(scenario, meter)),
        "trainers_slowed": mean_over(times, slowed, (low, high)),
    }


def _count_early(scenario: Scenario, meter: Recording) -> int:
    """Count the trainers that were deleted within `EARLY_S` of a rise of serving."""
    rises = [
        at_s for spec in scenario.serving for (_, before), (at_s, after) in pairwise(spec.replicas) if after > before
    ]
    return sum(any(0 <= at_s - rise_s <= EARLY_S for rise_s in rises) for at_s in meter.deleted_s)


def _jobs(scenario: Scenario, runs: Sequence[JobRun], start_s: float) -> dict[str, float]:
    end_s = start_s + scenario.duration_s
    pending = [run.first_running_s - run.created_s for run in runs if run.first_running_s is not None]
    never = [(run.ended_s or end_s) - run.created_s for run in runs if run.first_running_s is None]
    figures = {"never_started": float(len(never))}
    if pending:
        figures |= {"pending_mean_s": float(np.mean(pending))}
        figures |= {f"pending_p{n}_s": _quantile(pending, n / 100) for n in (50, 95, 99)}
    if pending or never:
        figures["pending_all_mean_s"] = float(np.mean(pending + never))
    done = [run for run in runs if run.is_done and run.ended_s is not None]
    working = [run for run in runs if run.group.work is not None]
    if working:
        figures["unfinished"] = float(len(working) - len(done))
    if done:
        lengths = [(run.ended_s or 0.0) - run.created_s for run in done]
        figures |= {
            "jct_mean_s": float(np.mean(lengths)),
            "jct_p50_s": _quantile(lengths, 0.5),
            "jct_p99_s": _quantile(lengths, 0.99),
            "makespan_s": max(run.ended_s or 0.0 for run in done) - min(run.created_s for run in runs),
        }
    return figures


def _fairness(scenario: Scenario, meter: Recording, runs: Sequence[JobRun], start_s: float) -> dict[str, float]:
    """Jain's index of the jobs' fulfilment, averaged over the time with two jobs or more."""
    low, high = scenario.measure.steady_s or (
        scenario.measure.from_s,
        scenario.measure.until_s or scenario.duration_s,
    )
    last = max((run.ended_s or start_s + scenario.duration_s for run in runs), default=start_s) - start_s
    grid = np.linspace(low, min(high, last), _GRID)
    there = np.zeros((len(runs), _GRID), dtype=np.bool_)
    fulfilment = np.zeros((len(runs), _GRID))
    for row, run in enumerate(runs):
        there[row] = (grid >= run.created_s - start_s) & (grid < (run.ended_s or np.inf) - start_s)
        steps = meter.trainers.get(run.key, [])
        if steps:
            at = np.searchsorted([t for t, _ in steps], grid, side="right") - 1
            counts = np.where(at >= 0, np.array([n for _, n in steps])[at], 0)
            fulfilment[row] = _fulfilment(counts, run.group.min, run.group.max)
    fulfilment *= there
    number, squares = there.sum(axis=0), (fulfilment**2).sum(axis=0)
    judged = number >= 2
    figures = {}
    if judged.any():
        jain = np.where(squares > 0, fulfilment.sum(axis=0) ** 2 / np.maximum(number * squares, 1e-12), 1.0)
        figures["jain"] = float(jain[judged].mean())
    return figures


def _fulfilment(counts: NDArray[np.int64], low: int, high: int) -> Floats:
    """(trainers - min) / (max - min), from 0 to 1; a job of one size has all that it wants once it runs."""
    if low == high:
        return (counts >= low).astype(np.float64)
    return np.clip((counts - low) / (high - low), 0.0, 1.0)


def _finish_times(scenario: Scenario, runs: Sequence[JobRun]) -> dict[str, float]:
    """The finish-time fairness of completed jobs, as in Themis (NSDI 2020), section 3."""
    begins = np.array([run.created_s for run in runs])
    ends = np.array([np.inf if run.ended_s is None else run.ended_s for run in runs])
    ratios = []
    for run in runs:
        if not run.is_done or run.ended_s is None or run.group.work is None:
            continue
        length_s = run.ended_s - run.created_s
        shared_s = np.minimum(ends, run.ended_s) - np.maximum(begins, run.created_s)
        peers = float(np.maximum(shared_s, 0.0).sum()) / length_s if length_s > 0 else 1.0
        share = max(1, min(run.group.max, int(slots_of(run, scenario) / max(1.0, peers))))
        ratios.append(length_s / run.alone_s(share))
    if not ratios:
        return {}
    return {"finish_time_fairness_mean": float(np.mean(ratios)), "finish_time_fairness_max": max(ratios)}


def slots_of(run: JobRun, scenario: Scenario) -> int:
    """The number of a job's trainers that fit in the empty cluster."""
    request = shape_of(run.group.trainer).request
    return sum(
        min(node.allocatable[name] // request[name] for name in request) for node, _ in nodes_of(scenario.nodes)
    )


def _quantile(values: Sequence[float], part: float) -> float:
    return float(np.quantile(values, part)) if values else 0.0
