"""Runs every policy with every seed, on all cores of the machine, and computes means and intervals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from os import sched_getaffinity
from typing import Any, NoReturn, TypeVar

import numpy as np

from edl.sim.scenario import Scenario
from edl.sim.simulation import Run, simulate

CONFIDENCE = 0.95


T = TypeVar("T")


def run_in_processes(count: int, call: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> Generator[T]:
    """Call a function for many arguments in several processes; results come in the order in which they are ready.

    If the caller stops, on SIGINT or SIGTERM or because of an error, all processes end at once.
    """
    others = set(active_children())
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        with _terminates():
            for future in as_completed(_submit(pool, call, arguments)):
                yield future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(active_children()) - others:
            child.kill()
        raise
    pool.shutdown()


def _submit(
    pool: ProcessPoolExecutor, call: Callable[..., T], arguments: Sequence[tuple[Any, ...]]
) -> list[Future[T]]:
    """Submit every call; the processes that start for them have SIGINT blocked from the first moment.

    A terminal sends SIGINT to all processes, and a Python process that still loads modules answers with a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return [pool.submit(call, *each) for each in arguments]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _terminates() -> Iterator[None]:
    """Within the block, let SIGTERM raise an exception, so that this process ends the others before itself."""
    is_free = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_free:
        signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        if is_free:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


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
        seeds: the number of seeds.
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
    """Yield the results of all runs, made in this process if only one may run at a time, else in others."""
    arguments = [(scenario, policy, seed) for policy, seed in wanted]
    if count <= 1:
        return (simulate(*each) for each in arguments)
    return run_in_processes(count, simulate, arguments)


def summarise(runs: Sequence[Run]) -> Mapping[str, Interval]:
    """Compute the interval of each figure over the runs of one policy."""
    names = list(dict.fromkeys(name for run in runs for name in run.figures))
    return {name: interval([run.figures[name] for run in runs if name in run.figures]) for name in names}


def interval(values: Sequence[float]) -> Interval:
    """Compute the mean of values, and Student's 95 % interval around it."""
    count = len(values)
    mean = float(np.mean(values))
    if count == 1:
        return Interval(mean, float("inf"), 1)
    from scipy.special import stdtrit  # noqa: PLC0415 - slow to load, and most campaigns have one run

    error = float(np.std(values, ddof=1)) / count**0.5
    return Interval(mean, float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * error, count)
