"""Nodes on which trainers of several jobs failed or hung: new trainers avoid them for a while, then one is tried.

A job that fails everywhere says nothing about a node, so only nodes count on which a job had trouble while its
trainers on as many other nodes did well (`node_troubles` finds and stores that). Troubles of one namespace alone keep
only its own trainers away: a tenant could let them fail where others shall not run. Serving pods, masters and
pservers are never kept away: a master may need the volume of its node. Running trainers stay.

Everything follows from the stored status of the jobs, their pods and the time, so a new controller avoids the same
nodes. All times are parts of `NodeLimits.avoid_for_s`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from edl.lifecycle.node_watch import (
    PROBE,
    TURN,
    UNWATCHED,
    WELL,
    WINDOW,
    NodeWatch,
    does_well,
    forgotten_s,
    wait_s,
)
from edl.model.actions import Action, CreatePod
from edl.model.cluster import AvoidedNode, ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.pod_limits import excess_of
from edl.model.pods import Pod
from edl.model.resources import HOST_PORT_PREFIX, NodeTerm, PodShape, Requirement
from edl.model.status import NodeTrouble
from edl.planner.eligibility import takes

MOST_FRACTION, MOST_NODES, LEAST_CLUSTER = 0.1, 16, 3
"""edl avoids at most a tenth of the nodes and at most 16, but one in each cluster of at least three nodes."""
TRAINERS = frozenset({Role.TRAINER})
_FIELD, _NOT_IN = "metadata.name", "NotIn"


class Start(Protocol):
    """A pod that may start on a node."""

    @property
    def job(self) -> JobKey:
        """The job of the pod."""

    @property
    def role(self) -> Role:
        """The role of the pod."""

    @property
    def node(self) -> str:
        """The name of the node on which the pod may start."""


S = TypeVar("S", bound=Start)


def watch_nodes(snapshot: ClusterSnapshot, limits: Limits) -> NodeWatch:
    """Find the nodes that new trainers should avoid.

    Args:
        snapshot: the cluster as observed.
        limits: the number of affected jobs from which on a node is avoided, and for how long.
    """
    if not limits.nodes.avoid_after:
        return UNWATCHED
    first_s, now_s = limits.nodes.avoid_for_s, snapshot.observed_at_s
    reports = _reports_by_node(snapshot)
    found = [node for name in reports if (node := _judge(name, reports[name], limits, now_s))]
    if not found:
        return NodeWatch(first_s)
    last_s = {node.name: node.until_s - wait_s(first_s, node.waits) for node in found}
    tried: dict[str, list[Pod]] = defaultdict(list)
    for job in snapshot.jobs:
        for pod in job.pods:
            place = pod.node or pod.planned
            if pod.role is Role.TRAINER and place in last_s and pod.created_s > last_s[place]:
                tried[place].append(pod)
    cleared = frozenset(
        name for name, pods in tried.items() if any(does_well(pod, now_s, PROBE * first_s) for pod in pods)
    )
    kept = sorted((node for node in found if node.name not in cleared), key=_most_seen_first)
    most = most_avoided(len(snapshot.nodes))
    closed = [replace(node, spared=number >= most) for number, node in enumerate(kept)]
    # A trainer that failed there counts as well: its job has not stored that yet.
    avoided = (node if node.name in tried else _with_probe(node, snapshot, limits) for node in closed)
    return NodeWatch(first_s, tuple(sorted(avoided, key=lambda node: node.name)), cleared)


def _most_seen_first(node: AvoidedNode) -> tuple[int, int, str]:
    """Return a sort key that puts nodes first with which jobs of many namespaces had trouble."""
    return -len(node.namespaces), -len(node.jobs), node.name


def most_avoided(nodes: int) -> int:
    """The most nodes that edl avoids at once, in a cluster of that many nodes."""
    return min(MOST_NODES, max(1, int(MOST_FRACTION * nodes))) if nodes >= LEAST_CLUSTER else 0


def closed_nodes(job: Job, avoided: Iterable[AvoidedNode], nodes: Sequence[Node]) -> tuple[str, ...]:
    """The nodes that new trainers of a job keep away from, sorted.

    None if no node would be left that accepts them and is large enough, or if they already name too many nodes.
    """
    names = tuple(node.name for node in avoided if node.is_closed_to(job.key))
    if not names or job.owner_count is not None or not job.is_schedulable:
        return ()
    shape = excluding(job.trainer, names)
    is_open = any(takes(node, shape.placement) and _is_large_enough(node, shape) for node in nodes)
    return names if is_open and not excess_of(shape, job.preferred) else ()


def _is_large_enough(node: Node, shape: PodShape) -> bool:
    """True if an empty node has all that a pod requests; host ports are on every node."""
    have = node.allocatable
    return all(n <= have[name] or name.startswith(HOST_PORT_PREFIX) for name, n in shape.request.amounts)


def as_avoiding(job: Job, avoided: Iterable[AvoidedNode], nodes: Sequence[Node]) -> Job:
    """Return the job for the planner with the avoided nodes excluded for its new trainers."""
    names = closed_nodes(job, avoided, nodes)
    return replace(job, trainer=excluding(job.trainer, names)) if names else job


def keep_away(
    actions: Iterable[Action], job: Job, avoided: Sequence[AvoidedNode], nodes: Sequence[Node]
) -> tuple[Action, ...]:
    """Exclude the avoided nodes in the job's creations of trainers, so that kube-scheduler avoids them too.

    Only the trainer that is planned for a node that is tried may go there.
    """
    names = closed_nodes(job, avoided, nodes) if avoided else ()
    probed = {node.name for node in avoided if not node.spared and node.probe == job.key}
    if not names and not probed:
        return tuple(actions)
    return tuple(
        replace(a, avoided=tuple(sorted({*names, *(probed - {a.node})})))
        if isinstance(a, CreatePod) and a.role is Role.TRAINER
        else a
        for a in actions
    )


def one_trial_per_node(
    starts: Iterable[S],
    avoided: Iterable[AvoidedNode],
    jobs: Iterable[Job] = (),
    *,
    roles: Container[Role] = TRAINERS,
) -> tuple[S, ...]:
    """Keep the pods that may start; of those that would test the same avoided node, only the first one.

    Args:
        starts: the pods, the first to be created first.
        avoided: the nodes; the job that may try one says which pods are meant.
        jobs: while a pod of theirs that has not begun is on such a node, it is the one that is tried there. A trainer
            may wait for its master or pservers, so it holds back trainers alone.
        roles: only pods of these roles are tried.
    """
    tried = {(node.probe, node.name) for node in avoided if node.probe is not None}
    if not tried:
        return tuple(starts)
    keys = {key for key, _ in tried}
    trying = [
        (job.key, pod) for job in jobs if job.key in keys for pod in job.pods if pod.is_live and not pod.has_begun
    ]
    taken = {(key, pod.node or pod.planned, pod.role is Role.TRAINER) for key, pod in trying}
    kept: list[S] = []
    for start in starts:
        is_trainer = start.role is Role.TRAINER
        if (start.job, start.node) in tried and start.role in roles:
            if not taken.isdisjoint((start.job, start.node, one) for one in {False, is_trainer}):
                continue
            taken.add((start.job, start.node, is_trainer))
        kept.append(start)
    return tuple(kept)


def excluding(shape: PodShape, names: Iterable[str]) -> PodShape:
    """The shape of a pod that may not run on some nodes; the API allows one name in a requirement on a field."""
    placement = shape.placement
    closed = [Requirement(_FIELD, _NOT_IN, (name,)) for name in names]
    required = tuple(
        NodeTerm(term.expressions, (*term.fields, *(one for one in closed if one not in term.fields)))
        for term in placement.required or (NodeTerm(),)
    )
    return replace(shape, placement=replace(placement, required=required))


def _reports_by_node(snapshot: ClusterSnapshot) -> dict[str, list[tuple[JobKey, NodeTrouble]]]:
    """The confirmed troubles of all jobs, by the name of a node that exists."""
    reports: dict[str, list[tuple[JobKey, NodeTrouble]]] = defaultdict(list)
    for job in snapshot.jobs:
        if job.status is not None and job.status.troubles:
            for trouble in job.status.troubles:
                if trouble.confirmed:
                    reports[trouble.node].append((job.key, trouble))
    names = {node.name for node in snapshot.nodes} if reports else set()
    return {name: reports[name] for name in sorted(reports) if name in names}


def _judge(
    name: str, reports: Sequence[tuple[JobKey, NodeTrouble]], limits: Limits, now_s: float
) -> AvoidedNode | None:
    """Return a node as avoided if enough jobs failed there at about the same time, or one after a pause.

    Return None if they did not.
    """
    first_s = limits.nodes.avoid_for_s
    reports = [(key, trouble) for key, trouble in reports if now_s < forgotten_s(trouble, first_s)]
    if not reports:
        return None
    last_s = max(trouble.time_s for _, trouble in reports)
    waits = max(trouble.waits for _, trouble in reports)
    jobs = sorted(key for key, trouble in reports if waits or last_s - trouble.time_s <= WINDOW * first_s)
    if len(jobs) < limits.nodes.avoid_after and not waits:
        return None
    return AvoidedNode(name, last_s + wait_s(first_s, waits), tuple(jobs), waits)


def _with_probe(node: AvoidedNode, snapshot: ClusterSnapshot, limits: Limits) -> AvoidedNode:
    """Add to an avoided node whose time is over the job that may test it with one trainer; jobs take turns."""
    now_s = snapshot.observed_at_s
    if node.spared or now_s < node.until_s:
        return node
    place = next(one for one in snapshot.nodes if one.name == node.name)
    able = [job.key for job in snapshot.jobs if _may_try(job, place, limits, now_s)]
    turn = int((now_s - node.until_s) // (TURN * limits.nodes.avoid_for_s))
    return replace(node, probe=able[turn % len(able)]) if able else node


def _may_try(job: Job, place: Node, limits: Limits, now_s: float) -> bool:
    """True if a trainer of the job may test an avoided node: the job can use one more, and runs well elsewhere."""
    if job.owner_count is not None or not (job.fault_tolerant and job.is_schedulable and job.was_admitted):
        return False
    live = job.live_trainers
    if not job.bounds.min_trainers <= len(live) < job.bounds.max_trainers or job.completed_trainers:
        return False
    least_s = WELL * limits.nodes.avoid_for_s
    return takes(place, job.trainer.placement) and any(
        pod.node != place.name and does_well(pod, now_s, least_s) for pod in live
    )
