"""Nodes that reject pods of a job: all its pods keep away from them, masters and pservers too, if others accept them.

A node on which trainers merely failed is another matter (`broken_nodes`): only trainers leave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from edl.lifecycle.broken_nodes import closed_nodes, excluding
from edl.model.actions import Action, CreatePod
from edl.model.cluster import AvoidedNode, Node
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pod_limits import excess_of
from edl.model.resources import PodShape


def away_in_plan(job: Job, rejecting: Sequence[AvoidedNode], nodes: Sequence[Node]) -> Job:
    """The job for the planner: its new pods fit on no node that rejects them.

    Args:
        job: the job.
        rejecting: the nodes that rejected pods of it.
        nodes: the nodes of the cluster.
    """
    if not rejecting:
        return job

    def away(shape: PodShape) -> PodShape:
        names = _closed(job, shape, rejecting, nodes)
        return excluding(shape, names) if names else shape

    fixed = tuple(replace(one, shape=away(one.shape)) for one in job.fixed)
    return replace(job, trainer=away(job.trainer), fixed=fixed)


def away_when_created(
    actions: Iterable[Action], job: Job, rejecting: Sequence[AvoidedNode], nodes: Sequence[Node]
) -> tuple[Action, ...]:
    """The actions of a job; its new pods exclude the nodes that reject them, so that kube-scheduler does too.

    Only a pod that is planned for a node that is tried may go there, unless there are more than a pod may name.
    """
    if not rejecting:
        return tuple(actions)
    tried = {node.name for node in rejecting if node.probe == job.key}
    tried &= {node.name for node in nodes} if tried else set()  # a node that is gone is never tried
    shapes = {Role.TRAINER: job.trainer, **{one.role: one.shape for one in job.fixed}}
    names = {role: _closed(job, shape, rejecting, nodes) for role, shape in shapes.items()}
    others = {role: _few(tried, names[role], job, shape) for role, shape in shapes.items()}
    return tuple(
        replace(
            a, avoided=tuple(sorted({*a.avoided, *names.get(a.role, ()), *(others.get(a.role, set()) - {a.node})}))
        )
        if isinstance(a, CreatePod)
        else a
        for a in actions
    )


def _closed(job: Job, shape: PodShape, rejecting: Sequence[AvoidedNode], nodes: Sequence[Node]) -> tuple[str, ...]:
    return closed_nodes(replace(job, trainer=shape), rejecting, nodes)


def _few(tried: set[str], closed: Sequence[str], job: Job, shape: PodShape) -> set[str]:
    """The nodes that are tried; none if a pod that names them all has more requirements than it may have."""
    return set() if tried and excess_of(excluding(shape, (*closed, *tried)), job.preferred) else tried
