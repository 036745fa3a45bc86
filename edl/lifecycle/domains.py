"""Trainers and pservers that must stay together: new ones require the label of their planned node.

kube-scheduler may bind a pod elsewhere than planned, but only to a node of the same domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from edl.model.actions import Action, CreatePod
from edl.model.cluster import Node
from edl.model.jobs import Job
from edl.model.topology import TOGETHER, domain_of


def require_domains(actions: Iterable[Action], job: Job, nodes: Sequence[Node]) -> tuple[Action, ...]:
    """The actions of a job; with `mode: Required`, new trainers and pservers must go to that of their planned node.

    Args:
        actions: the actions from the life cycle.
        job: the job.
        nodes: the nodes of the cluster.
    """
    topology = job.topology
    if topology is None or not topology.is_required:
        return tuple(actions)
    labels = {node.name: node.labels for node in nodes}

    def required(action: Action) -> Action:
        if not isinstance(action, CreatePod) or action.role not in TOGETHER:
            return action
        domain = domain_of(labels.get(action.node or "", ()), topology.key)
        return replace(action, label=(topology.key, domain)) if domain else action

    return tuple(map(required, actions))
