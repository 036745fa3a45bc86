"""Reads what Kueue has decided about jobs whose Workloads edl makes: TrainingJobs, and workloads that ask for it.

For the quotas the Workloads of a job that hold something count as one. A base that waits is to edl what the Workload
of anybody else is: Kueue decides when it is admitted, and until then no plan gives the job anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from edl.kube.translate.kueue.loads import Load, Owner, index_of, owner_of
from edl.kube.translate.kueue.objects import (
    DIGEST,
    AnnotatedMetadata,
    PodSetObject,
    WorkloadObject,
    WorkloadSpec,
    WorkloadStatus,
)
from edl.kube.translate.scalars import text
from edl.model.jobs import Job, Refusal
from edl.model.names import ANNOTATION_KUEUE_QUEUE, KUEUE_QUEUE, Role
from edl.model.quota_trees import KueueState, OwnedWorkload
from edl.model.status import Reason
from edl.printable import printable


def is_owned(source: WorkloadObject) -> bool:
    """True for a Workload that edl has made."""
    return source.metadata is not None and index_of(source.metadata) is not None


def state_of_left(workloads: tuple[OwnedWorkload, ...]) -> KueueState:
    """The state of a job that no longer names a queue but still has Workloads."""
    return KueueState("", Role.TRAINER.value, is_owned=True, workloads=workloads)


def not_managed_twice(job: Job, found: Load | None) -> Job:
    """Mark a job as invalid if Kueue manages it itself: it would delete the Workloads that edl makes.

    Args:
        job: as its reader made it.
        found: a Workload of the job that edl has not made; None if there is none.
    """
    if found is None or job.problem or job.owner_count is None or job.kueue is None or not job.kueue.is_owned:
        return job
    return replace(
        job,
        problem=(
            f"Workload {found.key} is not edl's: Kueue manages the job itself (manageJobsWithoutQueueName), or did so"
            f" before; take its namespace out of managedJobsNamespaceSelector, or use label {KUEUE_QUEUE} instead of"
            f" annotation {ANNOTATION_KUEUE_QUEUE}; if Kueue does not manage it any more, delete that Workload"
        ),
    )


def read_owned(source: WorkloadObject) -> tuple[Owner, OwnedWorkload] | None:
    """The namespace and the UID of the job and its Workload; None for a Workload that edl has not made."""
    metadata, spec = source.metadata or AnnotatedMetadata(), source.spec or WorkloadSpec()
    status = source.status or WorkloadStatus()
    index = index_of(metadata)
    owner = owner_of(metadata)
    if index is None or not owner[1] or metadata.deletion_timestamp is not None:
        return None
    conditions = {one.type: one for one in status.conditions or ()}
    true = {kind for kind, one in conditions.items() if one.status == "True"}
    evicted, reserved = conditions.get("Evicted"), conditions.get("QuotaReserved")
    said = evicted if "Evicted" in true else reserved
    assigned = (status.admission.pod_set_assignments if status.admission else None) or ()
    return owner, OwnedWorkload(
        name=metadata.name or "",
        uid=metadata.uid or "",
        index=index,
        trainers=sum(_count(one) for one in spec.pod_sets or () if one.name == Role.TRAINER),
        digest=text((metadata.annotations or {}).get(DIGEST)),
        is_reserved="QuotaReserved" in true,
        is_admitted={"QuotaReserved", "Admitted"} <= true,
        is_ready="PodsReady" in true,
        is_active=spec.active is not False,
        is_finished="Finished" in true,
        evicted=((evicted.reason if evicted else None) or "Evicted") if "Evicted" in true else "",
        message=printable(((said.message if said else None) or "")[:500]),
        flavors=tuple(sorted((one.name or "", tuple(sorted({*(one.flavors or {}).values()}))) for one in assigned)),
    )


def holding_of(own: Sequence[Load]) -> Load | None:
    """Add up what the Workloads of a job hold; None while its base holds nothing, or is being released.

    Args:
        own: its Workloads, the oldest first.
    """
    held = sorted(_holding(own), key=lambda load: load.index or 0)
    if not held or held[0].index != 0:
        return None
    pods = tuple(one for load in held for one in load.pod_sets)
    return replace(held[0], pod_sets=pods, priority=min(load.priority for load in held))


def waiting_of(own: Sequence[Load]) -> Load | None:
    """The newest pending Workload of a job, with the pods that all its Workloads ask for; None if none is pending.

    Args:
        own: its Workloads, the oldest first.
    """
    waiting = [load for load in own if not load.is_reserved and load.active and not load.evicted]
    if not waiting:
        return None
    return replace(
        waiting[-1],
        pod_sets=tuple(one for load in (*_holding(own), *waiting) for one in load.pod_sets),
        is_tried=any(load.is_tried for load in waiting),  # of those that are alike Kueue tries one
    )


def as_waiting(job: Job, state: KueueState, problem: str) -> Job:
    """Return the job for the planner while its base holds no quota: it keeps its pods, and gets no new ones.

    Args:
        job: as its reader made it.
        state: with its Workloads.
        problem: why the objects of Kueue, or the queue of the job, are of no use; empty if they are.
    """
    live = len(job.live_trainers)
    message = problem or _waits(job, state)
    refusal = Refusal(live, is_tried=False, reason=Reason.QUOTA_REACHED, message=message, details="", bars=not live)
    return replace(job, kueue=state, queue=f"{state.local_queue}/", refusal=refusal)


def stopped(job: Job, state: KueueState) -> Refusal | None:
    """Limit a running job of which somebody has deactivated a Workload."""
    found = next((one for one in state.workloads if one.index and not one.is_active), None)
    if found is None:
        return None
    kept = max(job.min_trainers, sum(one.trainers for one in state.workloads if one.is_reserved and not one.evicted))
    message = f"Workload {job.key.namespace}/{found.name} is stopped (spec.active is false)"
    return Refusal(kept, is_tried=False, reason=Reason.QUOTA_REACHED, message=message, details="")


def _holding(own: Iterable[Load]) -> list[Load]:
    return [load for load in own if load.is_reserved and not load.evicted and load.index is not None]


def _waits(job: Job, state: KueueState) -> str:
    base = state.base
    if base is None:
        return f"edl makes a Workload for it in LocalQueue {state.local_queue} of Kueue"
    name = f"Workload {job.key.namespace}/{base.name}"
    if not base.is_active:
        return f"{name} is stopped (spec.active is false); set it to true"
    if base.evicted and base.is_reserved:
        return f"Kueue has evicted {name}: {base.message}"
    waits = f"{name} waits in LocalQueue {state.local_queue} of Kueue"
    return f"{waits}: {base.message}" if base.message else waits


def _count(pods: PodSetObject) -> int:
    return pods.count or 0
