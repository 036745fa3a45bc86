"""The request pods of a job: which are created and which are withdrawn, as the plan asks.

They are no pods of the job: nothing in its life waits for them, counts them or ends with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from edl.model.actions import Action, CreatePod, RequestNode, WithdrawNodeRequest
from edl.model.cluster import NodeRequest
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.node_groups import NodeGroup
from edl.model.plan import Limits, ScaleDecision


def node_request_actions(
    job: Job, requests: Sequence[NodeRequest], decision: ScaleDecision | None, groups: Sequence[NodeGroup]
) -> tuple[RequestNode | WithdrawNodeRequest, ...]:
    """Withdrawals first, then new request pods under the lowest free numbers.

    Args:
        job: the job.
        requests: its request pods that exist.
        decision: what the plan decides about it; None leaves everything as it is, unless the job needs nothing more.
        groups: what can be asked.
    """
    if decision is None and job.is_schedulable:
        return ()
    asks = decision.asks if decision is not None and job.is_schedulable else None
    kept = set(asks.kept) if asks is not None else set()
    gone = [each for each in requests if not each.pod.terminating and each.pod.name not in kept]
    withdrawn = [WithdrawNodeRequest(job.key, job.uid, each.pod.name, each.pod.uid) for each in gone]
    group = next((each for each in groups if asks is not None and each.name == asks.group), None)
    if asks is None or group is None:
        return tuple(withdrawn)
    names = {each.pod.name for each in requests}
    numbers = (i for i in count() if f"{job.key.name}-node-{i}" not in names)
    created = [RequestNode(job.key, job.uid, next(numbers), group, request) for request in asks.new]
    return (*withdrawn, *created)


def allow_eviction(actions: Iterable[Action], job: Job, limits: Limits) -> tuple[Action, ...]:
    """The actions of a job whose new trainers above the minimum an autoscaler may evict, if edl empties nodes."""
    if not limits.drain_idle_s:
        return tuple(actions)
    return tuple(
        replace(action, may_evict=True)
        if isinstance(action, CreatePod) and action.role is Role.TRAINER and action.index >= job.min_trainers
        else action
        for action in actions
    )
