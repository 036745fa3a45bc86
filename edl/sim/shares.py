"""How the kernel divides the CPU of a node between serving and trainers that lend: by what they request.

Pods that request all that they use have it at any time. What they leave is divided between the trainers that lend,
in proportion to their requests, and none uses more than it declares. Serving is taken to use all that it requests.

Source: cpu.weight of control groups, https://docs.kernel.org/admin-guide/cgroup-v2.html#weights
"""

from __future__ import annotations

from collections.abc import Iterable

from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU


def shares_of(capacity_milli: int, pods: Iterable[Pod]) -> dict[str, float]:
    """By UID of each running trainer that lends, the part of its declared CPU that it has, 0 to 1.

    Args:
        capacity_milli: CPU of the node.
        pods: the pods on it.
    """
    running = [pod for pod in pods if pod.phase is PodPhase.RUNNING]
    lenders = [pod for pod in running if pod.lent_cpu_milli]
    left = float(capacity_milli - sum(pod.shape.request[CPU] for pod in running if not pod.lent_cpu_milli))
    shares: dict[str, float] = {}
    by_weight = sorted(lenders, key=lambda pod: (pod.shape.request[CPU] / max(1, pod.requested[CPU]), pod.uid))
    weight = float(sum(max(1, pod.requested[CPU]) for pod in lenders))
    for pod in by_weight:  # those that are satisfied with the least for each millicore of request come first
        declared, requested = pod.shape.request[CPU], max(1, pod.requested[CPU])
        given = max(0.0, min(float(declared), left * requested / weight))
        shares[pod.uid] = given / declared
        left, weight = left - given, weight - requested
    return shares
