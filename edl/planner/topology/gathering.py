"""Which trainers of a job with a Preferred level move once the cluster is quiet, so that all are in one domain of it.

Such a job spreads over domains rather than have fewer trainers, and stays so when capacity comes free. A few
trainers at a time are deleted in other domains and start again in the domain that could hold all of them. The job
never has fewer trainers than its minimum, and no other job loses any. The narrowest level on which that works counts.
A job never leaves the domain of its Required level: it would have to end first. Slices stay where they are.

What locality is worth is not known, so it is assumed to be a little: GAIN of the speed of the job over HORIZON_S must
pay for the resizes. A job whose trainers have not all run that long does not move, so moves cannot follow each other
faster than they pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from edl.model.actions import Intent
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScalePlan
from edl.model.pods import PodPhase
from edl.model.topology import Path, path_of
from edl.planner.consolidation import Moving, pays, with_moves, without
from edl.planner.problem import JobDemand, LiveTrainer
from edl.planner.topology.choices import towards
from edl.planner.trial_packing import TrialPacking
from edl.planner.waits import HORIZON_S

GAIN = 0.1  # of the speed of a job, assumed for having all trainers in one domain
RESIZES = 2  # for each part of the trainers that moves: a shrink and a growth


class Gathering(NamedTuple):
    """Trainers to delete so that they start again in another domain; their names are sorted."""

    job: JobKey
    domain: Path
    trainers: tuple[str, ...]


def gatherings(packing: TrialPacking) -> Iterator[Gathering]:
    """Find the jobs whose trainers could move together into one domain, in the order of admission.

    Args:
        packing: the finished packing of a plan that changes nothing.
    """
    demands = packing.problem.demands
    turns = sorted(
        packing.members, key=lambda j: (-demands[j].job.tier, demands[j].job.created_s, demands[j].job.key)
    )
    for j in turns:
        topology = demands[j].job.topology
        if topology is None or topology.slices is not None or not _may_move(packing, demands[j]):
            continue
        depths = range(len(topology.levels), topology.depth, -1)
        tries = (_Spread(packing, demands[j], topology.keys[:depth]).gathered() for depth in depths)
        if (found := next(filter(None, tries), None)) is not None:
            yield found


def as_gathered(snapshot: ClusterSnapshot, gathering: Gathering) -> ClusterSnapshot:
    """The snapshot in which these trainers terminate, and their job prefers the domain."""
    going = without(snapshot, _moving(gathering))
    jobs = (towards(job, gathering.domain) if job.key == gathering.job else job for job in going.jobs)
    return replace(going, jobs=tuple(jobs))


def holds_together(snapshot: ClusterSnapshot, before: ScalePlan, after: ScalePlan, gathering: Gathering) -> bool:
    """True if a plan costs no job anything and each moved trainer starts again in the domain.

    Args:
        snapshot: the cluster.
        before: the plan without the move.
        after: the plan for the snapshot in which the trainers terminate.
        gathering: the move.
    """
    job = next(job for job in snapshot.jobs if job.key == gathering.job)
    decision = after.decision(job.key)
    if job.topology is None or decision is None or not pays(before, after, 0):
        return False
    labels = {node.name: node.labels for node in snapshot.nodes}
    keys = job.topology.keys[: len(gathering.domain)]
    there = sum(n for name, n in decision.nodes if path_of(labels.get(name, ()), keys) == gathering.domain)
    return there == len(gathering.trainers) == sum(n for _, n in decision.nodes)


def with_gathering(before: ScalePlan, after: ScalePlan, gathering: Gathering) -> ScalePlan:
    """The plan made as if the trainers were terminating, as one that deletes them."""
    return with_moves(before, after, _moving(gathering))


def moves_trainers(plan: ScalePlan) -> bool:
    """True if a plan deletes trainers that start again elsewhere, for themselves or for pservers."""
    return any(decision.shrink_reason == Intent.MOVED for decision in plan.decisions)


def settled_s(job: Job) -> float:
    """When all trainers of a job have run for HORIZON_S, in seconds since the epoch; it does not move before."""
    return max((max(pod.created_s, pod.started_s or 0.0) for pod in job.live_trainers), default=0.0) + HORIZON_S


def _moving(gathering: Gathering) -> Moving:
    return Moving({}, {gathering.job: gathering.trainers})


def _may_move(packing: TrialPacking, demand: JobDemand) -> bool:
    """True for a job that can run with fewer trainers, is not about to end, and was not resized recently."""
    job, now_s = demand.job, packing.problem.snapshot.observed_at_s
    if not job.fault_tolerant or job.owner_count is not None or job.completed(Role.TRAINER):
        return False
    return now_s >= settled_s(job) and all(pod.phase is PodPhase.RUNNING for pod in job.live_trainers)


def _pays_for(job: Job, moved: int, at_once: int) -> bool:
    """True if the assumed gain pays for moving a number of trainers, a few at a time."""
    parts = ceil(moved / at_once)
    return parts * RESIZES * (job.resize_cost_s or 0.0) <= GAIN * HORIZON_S


@dataclass(frozen=True, slots=True)
class _Spread:
    """The domains of one level in which the trainers of one job run.

    Attributes:
        keys: the labels of the level and of all wider ones.
    """

    packing: TrialPacking
    demand: JobDemand
    keys: tuple[str, ...]

    def gathered(self) -> Gathering | None:
        """The trainers that move first; None if the job is in one domain already, or cannot be."""
        here = self._by_domain()
        at_once = len(self.demand.live_trainers) - self.demand.min_trainers
        if len(here) < 2 or at_once <= 0:
            return None
        for domain in sorted(here, key=lambda name: (-len(here[name]), name)):
            outside = {name: trainers for name, trainers in here.items() if name != domain}
            count = sum(map(len, outside.values()))
            if not domain or self._slots(domain) < count or not self._all_may(outside):
                continue
            part = _part_of(outside, at_once)
            left = {name: len(trainers) for name, trainers in outside.items() if name}
            for trainer in part:
                if (name := self._domain(trainer)) in left:
                    left[name] -= 1
            if max(left.values(), default=0) < len(here[domain]) and _pays_for(self.demand.job, count, at_once):
                return Gathering(self.demand.job.key, domain, tuple(sorted(t.pod.name for t in part)))
        return None

    def _by_domain(self) -> dict[Path, list[LiveTrainer]]:
        """The trainers by domain, in the order of deletion; those outside of all domains have the empty path."""
        trainers = [self.packing.problem.live_trainers[i] for i in self.demand.live_trainers]
        found: dict[Path, list[LiveTrainer]] = {}
        for trainer in sorted(trainers, key=lambda t: t.order):
            found.setdefault(self._domain(trainer), []).append(trainer)
        return found

    def _domain(self, trainer: LiveTrainer) -> Path:
        nodes = self.packing.problem.snapshot.nodes
        return path_of(nodes[trainer.node].labels, self.keys) if trainer.node >= 0 else ()

    def _slots(self, domain: Path) -> int:
        """How many more trainers fit in a domain now."""
        slots = self.packing.slots(self.demand.shape).tolist()
        nodes = self.packing.problem.snapshot.nodes
        return sum(n for n, node in zip(slots, nodes, strict=True) if n and path_of(node.labels, self.keys) == domain)

    def _all_may(self, outside: dict[Path, list[LiveTrainer]]) -> bool:
        """Return True if all trainers outside the domain may be evicted and can be replaced by equal ones."""
        return all(
            trainer.pod.safe_to_evict is not False and trainer.shape == self.demand.shape
            for trainers in outside.values()
            for trainer in trainers
        )


def _part_of(outside: dict[Path, list[LiveTrainer]], at_once: int) -> list[LiveTrainer]:
    """The first trainers that move, from the domain with most of them at each step."""
    left = {name: list(trainers) for name, trainers in outside.items()}
    part: list[LiveTrainer] = []
    while len(part) < at_once and any(left.values()):
        name = max(sorted(left), key=lambda name: len(left[name]))
        part.append(left[name].pop(0))
    return part
