"""The request pods of a job: which are created and which are withdrawn, as the plan asks, and what the user hears.

They are no pods of the job: nothing in its life waits for them, counts them or ends with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import count

from edl.model.actions import Action, CreatePod, EmitEvent, EventKind, RequestNode, WithdrawNodeRequest
from edl.model.cluster import NodeRequest
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.node_groups import NodeGroup
from edl.model.plan import ScaleDecision


class NodeEvent(StrEnum):
    """The reasons of events about request pods."""

    REQUESTED = "NodeRequested"
    CAME = "NodeCame"
    DID_NOT_COME = "NodeDidNotCome"
    WITHDRAWN = "NodeRequestWithdrawn"


def node_request_actions(
    job: Job,
    requests: Sequence[NodeRequest],
    decision: ScaleDecision | None,
    groups: Sequence[NodeGroup],
    now_s: float,
) -> tuple[RequestNode | WithdrawNodeRequest, ...]:
    """Return the withdrawals and then the new request pods, under the lowest free numbers; each with its event.

    Args:
        job: the job.
        requests: its request pods that exist.
        decision: what the plan decides about it; None leaves everything as it is, unless the job needs nothing more.
        groups: what can be asked.
        now_s: seconds since the epoch.
    """
    if decision is None and job.is_schedulable:
        return ()
    asks = decision.asks if decision is not None and job.is_schedulable else None
    if asks is None and not requests:  # nearly every job of every cluster
        return ()
    kept = set(asks.kept) if asks is not None else set()
    by_name = {group.name: group for group in groups}
    withdrawn = [
        WithdrawNodeRequest(
            job.key,
            job.uid,
            each.pod.name,
            each.pod.uid,
            _end_of(job, each, decision, by_name.get(each.group), now_s),
        )
        for each in requests
        if not each.pod.terminating and each.pod.name not in kept
    ]
    group = by_name.get(asks.group) if asks is not None else None
    if asks is None or group is None:
        return tuple(withdrawn)
    names = {each.pod.name for each in requests}
    numbers = (i for i in count() if f"{job.key.name}-node-{i}" not in names)
    said = f"edl asks for a node of group {group.name} at {group.price_per_hour:g} an hour"
    event = _event(job, NodeEvent.REQUESTED, said)
    created = [RequestNode(job.key, job.uid, next(numbers), group, request, event) for request in asks.new]
    return (*withdrawn, *created)


def _end_of(
    job: Job, request: NodeRequest, decision: ScaleDecision | None, group: NodeGroup | None, now_s: float
) -> EmitEvent:
    """The event of a request pod that is deleted: its node came, or not in time, or no job needs it any more."""
    is_running = decision is not None and decision.admitted and job.is_schedulable
    if not request.is_open:
        node = f"node {request.pod.node} of group {request.group} has joined the cluster"
        if is_running:
            return _event(job, NodeEvent.CAME, node)
        return _event(job, NodeEvent.WITHDRAWN, f"{node}, and the job does not use it now")
    if group is not None and now_s - request.pod.created_s >= group.give_up_s:
        in_time = f"in {group.give_up_s:.0f} s"
        said = f"group {group.name} brought no node {in_time}; edl withdraws the request and asks again later"
        return _event(job, NodeEvent.DID_NOT_COME, said)
    why = "the job found capacity elsewhere" if is_running else "the job no longer asks for it"
    return _event(job, NodeEvent.WITHDRAWN, f"edl withdraws the request for a node of group {request.group}: {why}")


def _event(job: Job, reason: NodeEvent, message: str) -> EmitEvent:
    kind = EventKind.WARNING if reason is NodeEvent.DID_NOT_COME else EventKind.NORMAL
    return EmitEvent(job.key, job.uid, kind, reason.value, message)


def allow_eviction(actions: Iterable[Action], job: Job, limits: Limits) -> tuple[Action, ...]:
    """The actions of a job whose new trainers above the minimum an autoscaler may evict, if edl empties nodes."""
    if not limits.nodes.drain_idle_s:
        return tuple(actions)
    return tuple(
        replace(action, may_evict=True)
        if isinstance(action, CreatePod) and action.role is Role.TRAINER and action.index >= job.min_trainers
        else action
        for action in actions
    )
