"""Nodes of expected groups that hold nothing but surplus trainers, and the plan that empties them.

Only a node that nobody needs is idle: no job waits that it could take, no serving pod does, and no job that asks for
all its trainers could grow there. Where such a job could run, only empty nodes are idle: the others share with it,
and would take its trainers for those that they lose. So emptying a node never causes a request.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.node_groups import NodeGroup, ScaleUp
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.resources import PodShape
from edl.model.status import Reason
from edl.planner.eligibility import takes


def idle_nodes(snapshot: ClusterSnapshot, limits: Limits) -> tuple[str, ...]:
    """Names of the idle nodes, sorted; together they hold no trainer that a job needs for its minimum."""
    if not limits.nodes.expected:
        return ()
    cluster = _Cluster(snapshot)
    found = [name for group in limits.nodes.expected for name in cluster.idle_of(group)]
    return tuple(sorted(found))


class _Cluster:
    """The pods on each node, and the trainers that each job could lose."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._nodes, self._held, self._needs = snapshot.nodes, _pods_by_node(snapshot), _needs(snapshot)
        self._jobs = {job.key: job for job in snapshot.jobs}
        full = (job for job in snapshot.jobs if job.is_schedulable and job.scale_up is ScaleUp.FULL)
        self._asking = list({job.trainer: None for job in full})
        self._spare = {job.key: len(job.live_trainers) - job.bounds.min_trainers for job in snapshot.jobs}

    def idle_of(self, group: NodeGroup) -> list[str]:
        """The idle nodes of a group, those with the fewest pods first; what they hold can be taken only once."""
        members = [node for node in self._nodes if group.has(dict(node.labels))]
        left, found = len(members) - group.keep, []
        for node in sorted(members, key=lambda node: (len(self._held[node.name]), node.name)):
            here = Counter(pod.job for pod in self._held[node.name] if pod.job is not None)
            if left <= 0 or not self._is_idle(node) or any(self._spare[key] < n for key, n in here.items()):
                continue
            for key, n in here.items():
                self._spare[key] -= n
            left -= 1
            found.append(node.name)
        return found

    def _is_idle(self, node: Node) -> bool:
        held = self._held[node.name]
        needs = [*self._needs, *self._asking] if held else self._needs
        is_surplus = all(_may_go(pod, self._jobs) for pod in held)
        return node.ready and is_surplus and not any(_could_take(node, shape) for shape in needs)


def _pods_by_node(snapshot: ClusterSnapshot) -> Mapping[str, list[Pod]]:
    """By node, the pods that keep it from being empty: daemon pods and pods that end do not count."""
    held: dict[str, list[Pod]] = defaultdict(list)
    for pod in (*snapshot.pods, *(request.pod for request in snapshot.node_requests)):
        if (node := pod.node or pod.nominated) and pod.is_live and not pod.daemon:
            held[node].append(pod)
    for job in snapshot.jobs:
        for pod in job.pods:
            if (node := pod.node or pod.planned) and pod.is_live:
                held[node].append(pod)
    return held


def _may_go(pod: Pod, jobs: Mapping[JobKey, Job]) -> bool:
    """True for a trainer that its job can lose, as long as the job is above its minimum."""
    job = jobs.get(pod.job) if pod.job is not None else None
    if job is None or pod.role is not Role.TRAINER or pod.safe_to_evict is False:
        return False
    is_elastic = job.fault_tolerant and job.owner_count is None and job.is_schedulable and job.was_admitted
    return is_elastic and job.scale_up is not ScaleUp.FULL


def _needs(snapshot: ClusterSnapshot) -> list[PodShape]:
    """The shapes of pods that wait for capacity, or that a job may ask for nodes for."""
    shapes = [pod.shape for pod in snapshot.waiting_serving if pod.needs_capacity]
    for job in snapshot.jobs:
        if not job.is_schedulable:
            continue
        if not job.was_admitted:
            shapes += [job.trainer, *(fixed.shape for fixed in job.fixed)]
        elif job.scale_up is ScaleUp.FULL and len(job.live_trainers) < job.bounds.max_trainers:
            shapes.append(job.trainer)
    return list(dict.fromkeys(shapes))


def _could_take(node: Node, shape: PodShape) -> bool:
    return shape.request.fits(node.allocatable - node.reserved) and takes(node, shape.placement)


def without_idle(snapshot: ClusterSnapshot, limits: Limits) -> ClusterSnapshot:
    """Return the snapshot in which the nodes to be emptied take no pods and their trainers end.

    A node that is needed by now is no longer emptied.
    """
    if not snapshot.idle_nodes:
        return snapshot
    gone = {*snapshot.idle_nodes}.intersection(idle_nodes(snapshot, limits))
    nodes = tuple(replace(node, cordoned=True) if node.name in gone else node for node in snapshot.nodes)
    return replace(snapshot, nodes=nodes).with_changed(_without(job, gone) for job in snapshot.jobs)


def _without(job: Job, gone: set[str]) -> Job:
    names = _leaving(job, gone)
    if not names:
        return job
    return replace(job, pods=tuple(replace(p, terminating=True) if p.name in names else p for p in job.pods))


def _leaving(job: Job, nodes: set[str]) -> set[str]:
    return {pod.name for pod in job.live_trainers if (pod.node or pod.planned) in nodes}


def with_idle(before: ClusterSnapshot, after: ClusterSnapshot, plan: ScalePlan) -> ScalePlan:
    """Return the plan that also deletes the trainers on the nodes to be emptied, for the snapshot as it is.

    Args:
        before: the cluster as it is.
        after: what `without_idle` made of it.
        plan: made for `after`.
    """
    if before is after:
        return plan
    pairs = zip(before.jobs, after.jobs, plan.decisions, strict=True)
    return replace(plan, decisions=tuple(_with_leaving(*pair) for pair in pairs))


def _with_leaving(before: Job, after: Job, decision: ScaleDecision) -> ScaleDecision:
    stays = {pod.name for pod in after.live_trainers}
    leaving = [pod.name for pod in before.live_trainers if pod.name not in stays]
    if not leaving:
        return decision
    return replace(
        decision,
        current=len(before.live_trainers),
        victims=tuple(sorted((*decision.victims, *leaving))),
        shrink_reason=decision.shrink_reason or Reason.NODE_IDLE.value,
    )
