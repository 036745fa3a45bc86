"""Jobs whose trainers run while their master or a pserver can go to no node, whatever capacity there is.

Its volume or its template binds such a pod to a zone whose nodes are closed, for example. No eviction helps it, and
it may start again once a node is opened. So the job keeps what it has, nobody frees capacity, and the job says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from edl.lifecycle.allowance import as_allowed
from edl.model.cluster import Node
from edl.model.jobs import FixedPods, Job, Refusal
from edl.model.node_groups import NodeGroup
from edl.model.status import Reason
from edl.model.units import listed
from edl.planner.eligibility import is_selected, takes
from edl.planner.nodes.bins import expected_node

_MOST_NAMED = 3


def as_stranded(job: Job, nodes: Sequence[Node], expected: Sequence[NodeGroup] = ()) -> Job:
    """The job for the planner: without the masters and pservers that no node takes, if its trainers run.

    Args:
        job: with the bounds that it would have otherwise.
        nodes: every node.
        expected: what an autoscaler may add; a job waits for such a node as any other does.
    """
    if job.refusal is not None or not any(pod.node for pod in job.live_trainers):
        return job
    closed = [fixed for fixed in job.fixed if _is_stranded(job, fixed, nodes, expected)]
    if not closed:
        return job
    roles = {fixed.role for fixed in closed}
    pods = tuple(pod for pod in job.pods if pod.node or pod.role not in roles)
    message = "; ".join(f"its {fixed.role.value} waits for a node: {_why(fixed, nodes)}" for fixed in closed)
    live = len(job.live_trainers)
    refusal = Refusal(live, is_tried=False, reason=Reason.UNSCHEDULABLE, message=message, details="")
    return as_allowed(replace(job, pods=pods), refusal)


def may_be_stranded(job: Job) -> bool:
    """False if every master and pserver of a job has a node: then `as_stranded` returns the job itself."""
    return any(_lacks(job, fixed) for fixed in job.fixed)


def _lacks(job: Job, fixed: FixedPods) -> bool:
    bound = sum([pod.role is fixed.role and pod.is_live and bool(pod.node) for pod in job.pods])
    return bound < fixed.count


def _is_stranded(job: Job, fixed: FixedPods, nodes: Sequence[Node], expected: Sequence[NodeGroup]) -> bool:
    if not _lacks(job, fixed):
        return False
    placement = fixed.shape.placement
    return not any(takes(node, placement) for node in chain(nodes, (expected_node(group, 0) for group in expected)))


def _why(fixed: FixedPods, nodes: Sequence[Node]) -> str:
    placement = fixed.shape.placement
    if placement.rules:
        return f"{', '.join(rule.why for rule in placement.rules)}, and no node there takes it"
    closed = [node.name for node in nodes if is_selected(node, placement)]
    if not closed:
        return "no node has what its selector or its affinity requires"
    more = [f"{len(closed) - _MOST_NAMED} more"] if len(closed) > _MOST_NAMED else []
    names = listed([*closed[:_MOST_NAMED], *more])
    return f"each node that its template allows is cordoned, tainted or not ready: {names}"
