"""Which new trainers lend CPU: those of the surplus, on the node that the plan chose for them.

kube-scheduler sees only what a pod requests, so it would put more trainers that lend on one node than the planner
has capacity for. So each of them requires its planned node. One that may run on any node requests all that it
declares.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from edl.lifecycle.node_pinning import UnpinnedPods
from edl.model.actions import Action, CreatePod
from edl.model.cluster import Node
from edl.model.jobs import Job
from edl.model.lending import Lending, least
from edl.model.limits import Limits
from edl.model.names import LABEL_LENDING, Role


def lend(
    actions: Iterable[Action],
    job: Job,
    limits: Limits,
    unpinned: UnpinnedPods,
    closed_nodes: Container[str] = frozenset(),
) -> tuple[Action, ...]:
    """Let new trainers of a job that may lend CPU request a part of it, and require their planned node.

    Args:
        actions: the actions from the life cycle.
        job: the job.
        limits: what the operator allows, with the part that such trainers request.
        unpinned: the pods that may run on any node.
        closed_nodes: names of the nodes on which no trainer lends; see `nodes_without_lending`.
    """
    part = limits.lending.surplus_cpu_request
    allowed = as_allowed_to_lend(job, limits)
    if part >= 1.0 or allowed.lending is Lending.NEVER:
        return tuple(actions)
    return tuple(
        replace(action, cpu_request=part, pinned=True)
        if isinstance(action, CreatePod) and action.node not in closed_nodes and _may_lend(action, allowed, unpinned)
        else action
        for action in actions
    )


def as_allowed_to_lend(job: Job, limits: Limits) -> Job:
    """The job with no more lending than the rule of its namespace allows."""
    most = limits.tenants.rule_of(job.key.namespace).lending if limits.tenants is not None else None
    return job if most is None else replace(job, lending=least(job.lending, most))


def nodes_without_lending(nodes: Iterable[Node]) -> frozenset[str]:
    """The names of the nodes on which no trainer lends, by their label."""
    return frozenset(node.name for node in nodes if (LABEL_LENDING, Lending.NEVER.value) in node.labels)


def _may_lend(action: CreatePod, job: Job, unpinned: UnpinnedPods) -> bool:
    is_placed = bool(action.node) and (action.job_uid, action.pod_name) not in unpinned
    return action.role is Role.TRAINER and is_placed and job.may_lend(action.index)
