"""Waiting pods of Volcano whose queue is full or closed: it starts none of them, whatever becomes free on the nodes.

A queue limits what its pods request together by its `capability`, and says what they have in `status.allocated`; a
queue below another one is limited by both. A queue without a capability is limited by the cluster alone. A resource
that neither a pod nor its group requests may be used up.

Source: volcano.sh/volcano v1.13, pkg/scheduler/plugins/capacity, func jobEnqueueable and OnSessionOpen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edl.kube.translate.groups.gangs import VolcanoQueues
from edl.model.cluster import ClusterSnapshot
from edl.model.pods import Pod
from edl.model.units import amount
from edl.printable import printable

_DEEPEST = 16


class FullQueues:
    """Marks waiting pods as blocked whose Volcano queue has no quota left; equal input gives the same tuple again."""

    def __init__(self) -> None:
        self._last: tuple[tuple[Pod, ...], Mapping[str, str], tuple[Pod, ...]] = ((), {}, ())

    def apply(self, snapshot: ClusterSnapshot, queues: VolcanoQueues) -> ClusterSnapshot:
        """Return the snapshot with the waiting pods of full or closed queues marked as blocked.

        Args:
            snapshot: the cluster.
            queues: the queues of Volcano, and the groups in them.
        """
        if not queues.has_limits:
            return snapshot
        waiting = (pod for pod in snapshot.waiting_serving if pod.gang and not pod.blocked)
        blocked = {pod.uid: why for pod in waiting if (why := _why_full(pod, queues))}
        if not blocked:
            return snapshot
        if self._last[0] is not snapshot.pods or self._last[1] != blocked:
            marked = tuple(replace(p, blocked=blocked[p.uid]) if p.uid in blocked else p for p in snapshot.pods)
            self._last = (snapshot.pods, blocked, marked)
        return replace(snapshot, pods=self._last[2])


def _why_full(pod: Pod, queues: VolcanoQueues) -> str:
    """Say which queue has too little quota left for a pod, or for the minimum of its group; empty if none."""
    group = queues.groups.get((pod.namespace, pod.gang))
    if group is None:
        return ""
    name = group.queue
    for _ in range(_DEEPEST):
        queue = queues.queues.get(name)
        if queue is None:
            return ""
        if queue.closed:
            return f"its queue {printable(name)} of Volcano is closed"
        for resource, allowed in queue.capability.amounts:
            needs = max(pod.shape.request[resource], group.least[resource])
            if needs and queue.allocated[resource] + needs > allowed:
                return _words(name, resource, allowed)
        name = queue.parent
    return ""


def _words(queue: str, resource: str, allowed: int) -> str:
    """Say what the queue allows. What it uses now is left out: that would change the text with every snapshot."""
    return f"its queue {printable(queue)} of Volcano allows {amount(resource, allowed)}, and has not enough left"
