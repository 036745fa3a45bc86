"""What a job tells about nodes: on which of them its trainers failed or hung, while others of it did well elsewhere.

The list is in the status of the job, so it outlives a controller and, for its time, the pods. A trouble counts
against its node (`broken_nodes`) once it is confirmed: trainers of the job do well on at least as many nodes as it
had troubles on. Each new trouble weighs all of them again. So a job that fails everywhere accuses no node.
"""

from __future__ import annotations

from dataclasses import replace

from edl.lifecycle.data_progress import MasterView
from edl.lifecycle.hung_trainers import overdue_trainers
from edl.lifecycle.node_watch import PROBE, WELL, NodeWatch, does_well, forgotten_s
from edl.lifecycle.pod_events import event_of, failure_number
from edl.model.actions import Intent
from edl.model.job_policies import JobEvent
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod
from edl.model.status import NodeTrouble
from edl.model.times import text_of
from edl.model.units import count, listed

NODE_AVOIDED = "NodeAvoided"
MOST_TROUBLES = 16
"""The most nodes that a status stores: those with the latest troubles."""


def node_troubles(
    job: Job, watch: NodeWatch, now_s: float, master_view: MasterView | None = None, *, is_over: bool = False
) -> tuple[NodeTrouble, ...]:
    """The troubles to store in the status of a job, sorted by node; none if edl avoids no nodes.

    Args:
        job: the job with its pods and its stored status.
        watch: what is known about nodes.
        now_s: seconds since the epoch.
        master_view: what its master reports; None if nothing is known.
        is_over: the job has ended: what it reported stays until it is forgotten.
    """
    if not watch.first_s or job.owner_count is not None:
        return ()
    stored = job.status.troubles if job.status is not None else ()
    kept = {
        trouble.node: trouble
        for trouble in stored
        if now_s < forgotten_s(trouble, watch.first_s)
        and trouble.node not in watch.cleared
        and not _is_refuted(trouble, job, now_s, watch.first_s)
    }
    found = {} if is_over else _new(job, kept, watch, now_s, master_view)
    if not found and all(trouble.confirmed for trouble in kept.values()):
        return tuple(kept[node] for node in sorted(kept))
    if found:
        kept = {node: replace(trouble, confirmed=False) for node, trouble in {**kept, **found}.items()}
    well = {pod.node for pod in job.pods if does_well(pod, now_s, WELL * watch.first_s)} - set(kept)
    if len(well) >= len(kept):
        kept = {node: replace(trouble, confirmed=True) for node, trouble in kept.items()}
    latest = sorted(kept.values(), key=lambda trouble: (-trouble.time_s, trouble.node))[:MOST_TROUBLES]
    return tuple(sorted(latest, key=lambda trouble: trouble.node))


def avoided_problem(job: Job, watch: NodeWatch) -> tuple[str, str] | None:
    """(reason, message) if edl avoids a node on which trainers of this job failed or hung; None otherwise."""
    troubles = job.status.troubles if job.status is not None else ()
    own = {trouble.node for trouble in troubles if trouble.confirmed}
    avoided = [node for node in watch.avoided if node.name in own and not node.spared]
    if not avoided:
        return None
    places = listed(
        [f"{node.name} ({count(len(node.jobs), 'job')}, until {text_of(node.until_s)})" for node in avoided]
    )
    return (
        NODE_AVOIDED,
        f"trainers failed or hung on {places}, and others of the same jobs did well elsewhere; edl starts no trainers"
        " there until that time, and then one",
    )


def _is_refuted(trouble: NodeTrouble, job: Job, now_s: float, first_s: float) -> bool:
    """Return True if a trainer of the job that was created after the trouble does well on the same node."""
    return any(
        pod.node == trouble.node and pod.created_s > trouble.time_s and does_well(pod, now_s, PROBE * first_s)
        for pod in job.pods
    )


def _new(
    job: Job, kept: dict[str, NodeTrouble], watch: NodeWatch, now_s: float, master_view: MasterView | None
) -> dict[str, NodeTrouble]:
    """Find by node the failures and hangs of trainers that began after the last trouble known of that node."""
    hung = {pod.uid for pod in overdue_trainers(job, master_view)}
    avoided = {node.name: node for node in watch.avoided}
    found: dict[str, NodeTrouble] = {}
    for pod in job.pods:
        is_hung = pod.uid in hung or pod.intent == Intent.HUNG
        if pod.role is not Role.TRAINER or not pod.node or not (is_hung or _is_new_failure(job, pod)):
            continue
        if (before := kept.get(pod.node)) is not None and pod.created_s <= before.time_s:
            continue
        waits = 0
        if (known := avoided.get(pod.node)) is not None:
            waits = known.waits + (now_s >= known.until_s)
        found[pod.node] = NodeTrouble(pod.node, max(float(int(now_s)), pod.created_s), is_hung, waits)
    return found


def _is_new_failure(job: Job, pod: Pod) -> bool:
    """True if the pod failed and its failure is not yet counted in the stored status."""
    if event_of(pod, frozenset()) is not JobEvent.POD_FAILED:
        return False
    counted = job.status.failures if job.status is not None else 0
    return not pod.intent or failure_number(pod) > counted
