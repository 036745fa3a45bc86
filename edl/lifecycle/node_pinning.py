"""Pods that may go to their planned node only: where a preference does not do, and what becomes of those refused.

kube-scheduler stops looking once it has found enough nodes that a pod fits on, so in a large cluster it seldom comes
to the planned one, and a preference for a node that it never looks at counts for nothing. There a pod demands its
node. What the plan does not see (pod anti-affinity, spread, the zone of a volume, a pod that was quicker) may close
that node to it: a pod that stays refused is deleted, and for a while its successor only prefers where it is to go.

Source: kube-scheduler, `minFeasibleNodesToFind` (100): smaller clusters are looked at whole. Measured on 133 nodes
with a preference alone: 47 of 373 pods stood elsewhere than planned, and up to 4 % of the room that training could
have used was in pieces too small for a trainer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from edl.model.actions import Action, CreatePod
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.pods import Pod

LOOKED_AT_WHOLE = 100
"""Nodes of the largest cluster in which kube-scheduler looks at every node for each pod."""

PATIENCE_S = 3.0  # kube-scheduler tries again 1 s, then 2 s after a refusal (podInitialBackoffSeconds)
LOOSE_S = 300.0  # so long a refused pod's successors are free to go elsewhere: what keeps it out may pass

LoosePods = Mapping[tuple[str, str], float]
"""By the job's UID and the pod's name, until when (on a clock that never runs backwards) it may go anywhere."""


def is_refused(pod: Pod, now_s: float) -> bool:
    """True for a pod that demands its node, and that kube-scheduler has kept from it for some seconds."""
    is_waiting = pod.pinned and pod.tried and not pod.node and pod.is_live
    return is_waiting and pod.answered_s is not None and now_s - pod.answered_s >= PATIENCE_S


def loosen(loose: LoosePods, snapshot: ClusterSnapshot, now_s: float) -> dict[tuple[str, str], float]:
    """What is to be remembered after a snapshot; losing it costs each refused pod another try, and nothing else.

    Args:
        loose: what was remembered after the one before; empty at first.
        snapshot: the cluster.
        now_s: a clock that never runs backwards.
    """
    kept = {key: until_s for key, until_s in loose.items() if until_s > now_s}
    for job in snapshot.jobs:
        for pod in job.pods:
            if is_refused(pod, snapshot.observed_at_s):
                kept[job.uid, pod.name] = now_s + LOOSE_S
    return kept


def pin(actions: Iterable[Action], nodes: int, loose: LoosePods) -> tuple[Action, ...]:
    """The actions of a job, its new pods demanding their nodes where that is needed.

    Args:
        actions: as its life cycle gave them.
        nodes: in the cluster.
        loose: the pods that may go anywhere.
    """
    if nodes <= LOOKED_AT_WHOLE:
        return tuple(actions)
    return tuple(_pinned(action, loose) if isinstance(action, CreatePod) else action for action in actions)


def refused(job: Job, now_s: float) -> list[Pod]:
    """The pods of a job that make way for successors with a wider choice."""
    return [pod for pod in job.pods if is_refused(pod, now_s)]


def _pinned(action: CreatePod, loose: LoosePods) -> CreatePod:
    return replace(action, pinned=bool(action.node) and (action.job_uid, action.pod_name) not in loose)
