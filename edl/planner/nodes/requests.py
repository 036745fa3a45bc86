"""Request pods in a plan: which of them count as using their node, and which stay.

A request pod without a node uses nothing. One whose node has come holds that node for its job until all nodes of the
job have come, because an autoscaler would take an empty one away. It holds nothing while serving waits for capacity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from edl.model.cluster import ClusterSnapshot, NodeRequest
from edl.model.names import JobKey


def requests_by_job(snapshot: ClusterSnapshot) -> Mapping[JobKey, list[NodeRequest]]:
    """The request pods of each job that are not being deleted."""
    found: dict[JobKey, list[NodeRequest]] = defaultdict(list)
    for request in snapshot.node_requests:
        if request.pod.is_live:
            found[request.job].append(request)
    return found


def holding(snapshot: ClusterSnapshot) -> tuple[NodeRequest, ...]:
    """Return the request pods that keep a node that has come until the other nodes for their job come as well."""
    if not snapshot.node_requests or any(pod.needs_capacity for pod in snapshot.waiting_serving):
        return ()
    admitted = {job.key for job in snapshot.jobs if job.was_admitted}
    held = []
    for key, requests in requests_by_job(snapshot).items():
        if key not in admitted and any(request.is_open for request in requests):
            held += [request for request in requests if not request.is_open]
    return tuple(held)


def with_holding(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Count the request pods of `holding` as pods on their nodes; returns the same snapshot if there are none."""
    held = [request.pod for request in holding(snapshot)]
    if not held:
        return snapshot
    pods = sorted((*snapshot.pods, *held), key=lambda pod: (pod.namespace, pod.name))
    return replace(snapshot, pods=tuple(pods))
