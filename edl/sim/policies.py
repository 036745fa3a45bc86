"""Every policy that a scenario can run under, by name: those of the controller, of 2017, and of research."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from edl.errors import ConfigError
from edl.explain.decision import decide
from edl.lifecycle.desired_state import as_planned
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import NO_COLUMNS, ScalePlan
from edl.model.sizes import at_most
from edl.planner.policies.base import Policy
from edl.planner.policies.registry import POLICIES, policy_named
from edl.sim.baselines.afs import Afs
from edl.sim.baselines.base import JobFacts, Sharer
from edl.sim.baselines.optimus import Optimus
from edl.sim.baselines.pollux import Pollux
from edl.sim.baselines.sia import Sia
from edl.sim.baselines.tiresias import Tiresias

SHARERS: Mapping[str, Callable[[], Sharer]] = {
    "optimus": Optimus,
    "afs": Afs,
    "sia": Sia,
    "pollux": Pollux,
    "tiresias": Tiresias,
}


class _FixedSize:
    """Gives each job the number of trainers that its user chose, the oldest first; a job without capacity waits."""

    def share(self, jobs: Sequence[JobFacts], _: float) -> Mapping[JobKey, int]:
        """Return the number of trainers of each job; see `Sharer.share`."""
        return {job.key: job.fixed for job in jobs}


@dataclass(frozen=True, slots=True)
class Native:
    """Stands for runs without edl's controller; see `native.NativeJobs`."""

    is_elastic: bool
    has_priorities: bool


NATIVES: Mapping[str, Native] = {
    "static-2017": Native(is_elastic=False, has_priorities=False),
    "edl-2017": Native(is_elastic=True, has_priorities=False),
    "edl-2017-priority": Native(is_elastic=True, has_priorities=True),
}


class Facts(Protocol):
    """Reads from a snapshot what a baseline needs to know: its jobs, and the capacity that training may use."""

    def __call__(self, snapshot: ClusterSnapshot) -> tuple[Sequence[JobFacts], float]:
        """Return the jobs that have not ended, sorted by key, and the capacity for training."""


class Decider:
    """`decide` with one policy; each plan starts from the columns of the last one, as in the controller.

    Attributes:
        cpu_s: processor seconds of all decisions so far.
    """

    def __init__(self, policy: Policy, sharer: Sharer | None = None, facts: Facts | None = None) -> None:
        self._policy, self._sharer, self._facts = policy, sharer, facts
        self._columns = NO_COLUMNS
        self.cpu_s = 0.0

    def __call__(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        """Make a plan."""
        view = snapshot
        if self._sharer is not None and self._facts is not None:
            view = _pinned(snapshot, self._sharer.share(*self._facts(snapshot)))
        began_s = time.process_time()
        plan = decide(view, self._policy, limits, self._columns)
        self.cpu_s += time.process_time() - began_s
        self._columns = plan.columns
        return plan


def policy_names() -> tuple[str, ...]:
    """Every policy that a scenario can run under."""
    return (*NATIVES, *POLICIES, "fixed", *SHARERS)


def check_policy(name: str) -> None:
    """Refuse an unknown policy.

    Raises:
        ConfigError: no policy has that name.
    """
    if name not in policy_names():
        raise ConfigError(f"policy {name!r} does not exist; choose one of {', '.join(policy_names())}")


def decider(name: str, facts: Facts) -> Decider:
    """Make the planner of a policy that is not one of `NATIVES`."""
    if name == "fixed":
        return Decider(policy_named("maxmin"), _FixedSize(), facts)
    if name in SHARERS:
        return Decider(policy_named("maxmin"), SHARERS[name](), facts)
    return Decider(policy_named(name))


def _pinned(snapshot: ClusterSnapshot, shares: Mapping[JobKey, int]) -> ClusterSnapshot:
    """Return the snapshot with each job fixed to its share, or suspended."""
    jobs = tuple(
        replace(job, pinned=size)
        if (size := at_most(job.sizes, min(job.max_trainers, shares.get(job.key, 0))))
        else replace(job, suspended=True)
        for job in map(as_planned, snapshot.jobs)
    )
    return replace(snapshot, jobs=jobs)
