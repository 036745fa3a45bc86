"""Pods of jobs whose end no kubelet will confirm, because their node is gone or does not answer.

A terminating pod exists until its kubelet confirms the end. If its node is gone or not ready, that never happens: the
pod keeps its name and its requests, and only a forced deletion helps. The caller measures how long a pod has been
unreachable and decides when to force the deletion; this module only finds the pods.
"""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot


def unreachable_pods(snapshot: ClusterSnapshot) -> frozenset[str]:
    """UIDs of the pods of jobs that are bound to a missing node, or terminating on a node that is not ready.

    A gang's pod on a node that is not ready does not count: the node may come back with the pod still running, and
    two runs of a gang would corrupt its model. A fault-tolerant job is safe, because its master has fenced the leases
    of the pod. A node that exists but could not be parsed counts as ready.
    """
    ready = {node.name: node.ready for node in snapshot.nodes} | dict.fromkeys(snapshot.unread_nodes, True)
    return frozenset(
        pod.uid
        for job in snapshot.jobs
        for pod in job.pods
        if pod.node
        and (
            (pod.node not in ready and not pod.is_finished)
            or (pod.terminating and (pod.node not in ready or (job.fault_tolerant and not ready[pod.node])))
        )
    )
