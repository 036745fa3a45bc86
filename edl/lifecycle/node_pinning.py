"""Which new pods require their planned node, and what happens if kube-scheduler does not bind them to it.

kube-scheduler stops its search once it has found enough nodes that fit a pod. In a large cluster it therefore seldom
reaches the planned node, and a preference for a node that it never scores has no effect. There a pod requires its
node. The plan does not see pod anti-affinity, topology spread, volume zones, or a faster pod of another owner, and
any of these may exclude that node. A pod that stays unscheduled is deleted, and for a while its successors only
prefer their node.

Source: kube-scheduler, `minFeasibleNodesToFind` (100): it always searches smaller clusters completely. Measured on
133 nodes with a preference alone: 47 of 373 pods ran on another node than planned, and up to 4 % of the capacity that
training could have used was in pieces too small for a trainer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from edl.model.actions import Action, CreatePod
from edl.model.jobs import Job
from edl.model.pods import Pod

MAX_NODES_WITHOUT_PINNING = 100
"""Up to this many nodes kube-scheduler searches the whole cluster for each pod."""

REFUSED_AFTER_S = 3.0  # kube-scheduler tries again 1 s, then 2 s after a failure (podInitialBackoffSeconds)
UNPINNED_S = 300.0  # how long successors of a refused pod may run on any node; the cause may pass

UnpinnedPods = Mapping[tuple[str, str], float]
"""(UID of the job, name of the pod) -> the monotonic time, in seconds, until which it may run on any node."""


def is_refused(pod: Pod, now_s: float) -> bool:
    """True if the pod requires its node, and kube-scheduler has not bound it there for REFUSED_AFTER_S."""
    is_waiting = pod.pinned and pod.tried and not pod.node and pod.is_live
    return is_waiting and pod.answered_s is not None and now_s - pod.answered_s >= REFUSED_AFTER_S


def note_unpinned(unpinned: UnpinnedPods, job: Job, time_s: float, now_s: float) -> dict[tuple[str, str], float]:
    """Add the pods that kube-scheduler has not bound to their required node to those that may run on any node.

    If a controller loses this memory, each such pod costs one more attempt and nothing else.

    Args:
        unpinned: the result for the job before; empty at first.
        job: with its pods.
        time_s: seconds since the epoch.
        now_s: monotonic seconds.
    """
    found = {(job.uid, pod.name): now_s + UNPINNED_S for pod in job.pods if is_refused(pod, time_s)}
    if not found and not any(until_s <= now_s for until_s in unpinned.values()):
        return dict(unpinned)
    return {key: until_s for key, until_s in unpinned.items() if until_s > now_s} | found


def pin(actions: Iterable[Action], nodes: int, unpinned: UnpinnedPods) -> tuple[Action, ...]:
    """Let the new pods of a job require their planned nodes if the cluster is large.

    Args:
        actions: the actions from the life cycle.
        nodes: the number of nodes in the cluster.
        unpinned: the pods that may run on any node.
    """
    if nodes <= MAX_NODES_WITHOUT_PINNING:
        return tuple(actions)
    return tuple(_pinned(action, unpinned) if isinstance(action, CreatePod) else action for action in actions)


def refused_pods(job: Job, now_s: float) -> list[Pod]:
    """The pods of a job to delete so that their replacements may run on other nodes."""
    return [pod for pod in job.pods if is_refused(pod, now_s)]


def _pinned(action: CreatePod, unpinned: UnpinnedPods) -> CreatePod:
    return replace(action, pinned=bool(action.node) and (action.job_uid, action.pod_name) not in unpinned)
