"""What may run of a TrainingJob that Kueue admits.

Kueue admits the base of a job, its master, pservers and minimum, as a whole. Each of its other Workloads is for one
trainer more, and Kueue may take each of them back alone. Whatever a plan says, no pod is created beyond what is
admitted, and as many trainers end at once as Kueue has taken back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from edl.lifecycle.step import Stage, Step
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScaleDecision
from edl.model.pods import Pod
from edl.model.quota_trees import KueueState, OwnedWorkload
from edl.model.status import Reason


def owned(job: Job) -> KueueState | None:
    """Return what Kueue has decided about a job whose Workloads edl makes; None for any other job."""
    state = job.kueue
    return state if state is not None and state.is_owned and state.local_queue else None


def surplus_of(state: KueueState) -> tuple[OwnedWorkload, ...]:
    """The Workloads for the trainers above the base, without finished ones, by index."""
    return tuple(one for one in state.workloads if one.index and not one.is_finished)


def decision_under(job: Job, decision: ScaleDecision | None) -> ScaleDecision | None:
    """The decision of a plan; None while it is not known what Kueue lets the job do, so that it keeps its pods.

    That is so if the objects of Kueue cannot be read, and if a job that runs has no admission yet: somebody has given
    it to a queue just now, or has deleted its Workload.
    """
    state = owned(job)
    if state is None:
        return decision
    base = state.base
    is_settled = base is not None and (base.is_admitted or bool(base.evicted))
    return decision if is_settled or not (state.is_unknown or job.live_trainers) else None


def step_under(job: Job, step: Step) -> Step:
    """Return the step of a job, changed to waiting for as long as Kueue does not let the job run."""
    state = owned(job)
    if state is None or step.stage is not Stage.RUNNING or state.is_unknown:
        return step
    base = state.base
    if base is not None and base.evicted and (base.is_reserved or job.live_trainers):
        return _waiting(step, f"Kueue has evicted Workload {job.key.namespace}/{base.name}: {base.message}")
    if job.live_trainers or (base is not None and base.is_admitted):
        return step
    if base is not None and base.is_reserved:
        return _waiting(step, f"Workload {job.key.namespace}/{base.name} waits for its admission checks")
    return _waiting(step, f"waits in LocalQueue {state.local_queue} of Kueue")


def taken_back(job: Job, victims: Collection[str]) -> list[Pod]:
    """Choose the trainers to end because Kueue has taken back their quota: highest indexes first, the minimum last.

    Args:
        job: the job.
        victims: names of the trainers that end in any case.
    """
    state = owned(job)
    base = state.base if state is not None else None
    if state is None or state.is_unknown or base is None or not base.is_admitted or base.evicted:
        return []
    kept = base.trainers + sum(one.trainers for one in surplus_of(state) if not one.evicted)
    live = [pod for pod in job.live_trainers if pod.name not in victims]
    most, first = len(live) - kept, job.minimum_trainers
    if most <= 0:
        return []
    return sorted(live, key=lambda pod: (pod.name in first, bool(pod.node), -(pod.index or 0)))[:most]


def most_new_under(job: Job, most_new: int | None) -> int | None:
    """How many trainers may be created now: with those that still end, no more than Kueue admits.

    Args:
        job: the job.
        most_new: what else limits them; None for nothing.
    """
    state = owned(job)
    if state is None:
        return most_new
    unused = max(0, admitted_trainers(state) - used_trainers(job))
    return unused if most_new is None else min(most_new, unused)


def admitted_trainers(state: KueueState) -> int:
    """For how many trainers Kueue has admitted Workloads; 0 if the base is not admitted."""
    base = state.base
    if state.is_unknown or base is None or not base.is_admitted or base.evicted:
        return 0
    return base.trainers + sum(one.trainers for one in surplus_of(state) if one.is_admitted and not one.evicted)


def used_trainers(job: Job) -> int:
    """Count the trainers that use quota: those that have not ended, or that another controller is about to make."""
    trainers = [pod for pod in job.pods if pod.role is Role.TRAINER and not pod.is_finished]
    ending = sum(pod.terminating for pod in trainers)
    return ending + max(len(trainers) - ending, awaited_trainers(job))


def awaited_trainers(job: Job) -> int:
    """How many trainers the workload's own controller keeps, or makes if they are missing; 0 if edl makes the pods.

    So does a higher count that it had before, as long as its controller may not have seen the lower one.
    """
    if job.owner_count is None or job.finishing or job.finished:
        return 0
    last = job.status.last_resize if job.status is not None else None
    return max(job.owner_count, last.unseen.count if last is not None and last.unseen is not None else 0)


def flavors_of(job: Job, role: Role) -> tuple[str, ...]:
    """The ResourceFlavors whose nodes the pods of a role need."""
    state = owned(job)
    base = state.base if state is not None else None
    return dict(base.flavors).get(role.value, ()) if base is not None else ()


def _waiting(step: Step, message: str) -> Step:
    return replace(
        step,
        stage=Stage.WAITING,
        target=0,
        reason=Reason.QUOTA_REACHED.value,
        message=message,
        details="",
        shrink_reason="",
        unplanned=False,
    )
