"""Which pods of ours nobody will ever end: their kubelet is gone, or does not answer.

A terminating pod stays until its kubelet confirms the end. Where the node is gone or not ready that never happens,
the pod keeps its name and its room, and only a forced deletion helps. Whether it is time for that depends on how long
the pod has been stranded, which the caller measures; this module only says which pods are.
"""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot


def unreachable_pods(snapshot: ClusterSnapshot) -> frozenset[str]:
    """UIDs of the pods of jobs that are bound to a missing node, or terminating on one that is not ready.

    A gang's pod on a node that is not ready is left alone: the node may come back with the pod alive, and a gang that
    runs twice spoils its own model, where a fault-tolerant job has fenced the pod's leases. A node that could not be
    read is there all the same, and nothing is known against it.
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
