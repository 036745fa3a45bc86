"""Pods of jobs whose termination no kubelet can confirm, because their node is gone or does not answer.

A terminating pod exists until its kubelet confirms the end. If its node is gone or not ready, that never happens: the
pod keeps its name and its requests, and only a forced deletion helps. The caller measures how long a pod has been
unreachable and decides when to force the deletion; this module only finds the pods.
"""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.pods import Pod


def unreachable_pods(snapshot: ClusterSnapshot) -> frozenset[str]:
    """UIDs of the pods of jobs that are bound to a missing node, or terminating on a node that is not ready.

    A gang's pod on a node that is not ready does not count: the node may come back with the pod still running, and
    two runs of a gang would corrupt its model. A fault-tolerant job is safe, because its master has fenced the leases
    of the pod. A node that exists but could not be parsed counts as ready.
    """
    return UnreachablePods().of(snapshot)


class UnreachablePods:
    """Finds these pods in one snapshot after the other; only jobs that have changed are read again."""

    def __init__(self) -> None:
        self._nodes: tuple[object, object] = (None, None)
        self._ready: dict[str, bool] = {}
        self._known: dict[str, tuple[Job, frozenset[str]]] = {}

    def of(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        """Return the result of `unreachable_pods`, cached."""
        if self._nodes[0] is not snapshot.nodes or self._nodes[1] is not snapshot.unread_nodes:
            self._nodes = (snapshot.nodes, snapshot.unread_nodes)
            ready = {node.name: node.ready for node in snapshot.nodes} | dict.fromkeys(snapshot.unread_nodes, True)
            if ready != self._ready:
                self._ready, self._known = ready, {}
        known_jobs = self._known = self._known if len(self._known) <= 2 * len(snapshot.jobs) else {}
        found: set[str] = set()
        for job in snapshot.jobs:
            known = known_jobs.get(job.uid)
            if known is None or known[0] is not job:
                pods = frozenset([pod.uid for pod in job.pods if self._is_unreachable(job, pod)])
                known_jobs[job.uid] = known = (job, pods)
            if known[1]:
                found |= known[1]
        return frozenset(found)

    def _is_unreachable(self, job: Job, pod: Pod) -> bool:
        if not pod.node:
            return False
        is_ready = self._ready.get(pod.node)
        if is_ready is None:
            return pod.terminating or not pod.is_finished
        return pod.terminating and job.fault_tolerant and not is_ready
