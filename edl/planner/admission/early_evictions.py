"""Evictions for pending serving pods ahead of a plan that takes long.

On a large cluster a plan takes a second, and most of it says who grows where. What serving needs is a small part of
that: which surplus trainers are evicted so that the pending pods fit. It is decided here as a plan decides it at
first, over the present pods. No job grows, starts or stops by it, and the plan that follows decides everything again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from edl.model.sizes import at_most
from edl.model.status import Reason
from edl.planner.clock import Clock, without_collections
from edl.planner.minimums.batches import batches_of, surplus
from edl.planner.minimums.gangs import with_whole_gangs
from edl.planner.minimums.required import spare_victims
from edl.planner.minimums.serving import count_serving
from edl.planner.packing import place_batch
from edl.planner.problem import Problem
from edl.planner.problem_reader import read_problem
from edl.planner.programs.engine import with_engine
from edl.planner.reading.kept import KeptReading
from edl.planner.sizes.rounding import lower
from edl.planner.trial_packing import SERVING, TrialPacking


@dataclass(frozen=True, slots=True)
class Yield:
    """Trainers of one job to evict, so that their capacity becomes free for serving.

    Attributes:
        job: the job, as the snapshot has it.
        victims: names of its trainers, sorted; never so many that fewer than its minimum stay.
        nodes: the nodes that they run on, sorted.
    """

    job: Job
    victims: tuple[str, ...]
    nodes: tuple[str, ...]


def early_evictions(
    snapshot: ClusterSnapshot, adapt: Callable[[Job], Job], limits: Limits, kept: KeptReading | None = None
) -> tuple[Yield, ...]:
    """Choose surplus trainers whose capacity lets waiting serving pods fit, as few as can be found in one pass.

    No trainer is chosen for a pod for which free capacity, or the capacity of terminating pods, is enough. None is
    chosen of a job that must stay in one domain, or of a workload whose own controller chooses which pods end.

    Args:
        snapshot: the cluster as the planner sees it.
        adapt: how the policy sees a job; it may pin it.
        limits: what the operator allows.
        kept: what the last search has read, with which this one reads sooner.

    Returns:
        The chosen trainers by job, in the order of the snapshot; empty if none helps, or if only a plan can tell.

    Raises:
        PlanError: there was no time for it.
    """
    clock = Clock(limits.deadline_s)
    with without_collections():
        whole = with_whole_gangs(snapshot, limits, clock, kept)
        adapted = replace(whole, jobs=tuple(adapt(job) for job in snapshot.jobs))
        problem = with_engine(read_problem(adapted, limits, clock=clock, defers=True, kept=kept))
        packing = _with_capacity_for_serving(problem, limits.deadline_s)
    gone: defaultdict[int, list[int]] = defaultdict(list)
    for index in packing.victims:
        gone[problem.live_trainers[index].demand].append(index)
    by_key = {problem.demands[j].job.key: indices for j, indices in gone.items()}
    return tuple(_yield(job, by_key[job.key], problem) for job in snapshot.jobs if job.key in by_key)


def decision_of(found: Yield, message: str) -> ScaleDecision:
    """The decision that evicts the chosen trainers of a job, and does nothing else."""
    job, live = found.job, len(found.job.live_trainers)
    return ScaleDecision(
        job=job.key,
        generation=job.generation,
        current=live,
        target=live - len(found.victims),
        min_trainers=job.min_trainers,
        max_trainers=job.max_trainers,
        admitted=True,
        reason=Reason.SERVING_NEEDS_ROOM,
        message=message,
        victims=found.victims,
        shrink_reason=Reason.SERVING_NEEDS_ROOM,
        lent_cpu_milli=sum(pod.lent_cpu_milli for pod in job.live_trainers),
    )


def _with_capacity_for_serving(problem: Problem, deadline_s: float) -> TrialPacking:
    """The present packing after evicting surplus trainers for as many serving pods as possible.

    Every job with live pods counts, as nobody ends here. One whose admission its status does not show yet gives
    nothing, as a plan may be about to end it.

    Raises:
        PlanError: there was no time for it.
    """
    served = count_serving(problem, deadline_s)
    packing = TrialPacking(problem, problem.with_pods)
    if served.places:  # no order of placing serves so many: that is for the plan
        return packing
    for batch in batches_of(packing, served):
        if batch.owners[0][0] == SERVING:
            place_batch(packing, batch, _allowance(packing))
    spare_victims(packing)
    for j in {problem.live_trainers[index].demand for index in packing.victims}:
        lower(packing, j, at_most(problem.demands[j].job.sizes, packing.count[j]))
    return packing


def _allowance(packing: TrialPacking) -> dict[int, int]:
    """How many trainers each job may lose to evictions ahead of the plan."""
    demands = packing.problem.demands
    return {
        j: spare
        for j, spare in surplus(packing).items()
        if spare
        and demands[j].job.was_admitted
        and demands[j].job.owner_count is None
        and demands[j].job.topology is None
    }


def _yield(job: Job, indices: Sequence[int], problem: Problem) -> Yield:
    trainers = [problem.live_trainers[index] for index in indices]
    nodes = {problem.snapshot.nodes[trainer.node].name for trainer in trainers if trainer.node >= 0}
    return Yield(job, tuple(sorted(trainer.pod.name for trainer in trainers)), tuple(sorted(nodes)))
