"""In-place resize: what a kubelet grants to containers that run.

A process has no CPU limit of its own here, so a grant is only what the kubelet reports and counts. The kubelet grants
what fits on its node beside what it granted to the other pods.

Source: https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edl.sandbox.kubelet.pod_status import ContainerRecord
from edl.sandbox.objects import Amounts, amounts_of, summed

Object = dict[str, Any]
DEFERRED, INFEASIBLE = "Deferred", "Infeasible"


def granted(records: Iterable[ContainerRecord]) -> Amounts:
    """The sum of the resources granted to the containers of a pod."""
    return summed(amounts_of(one.resources.get("requests")) for one in records)


def grant(pod: Object, records: Sequence[ContainerRecord], node: Object, others: Iterable[Amounts]) -> str:
    """Grant the resources that a pod's spec requests now, if the node has capacity; the records are changed.

    Args:
        pod: as the API server has it.
        records: the records of its containers.
        node: where it runs.
        others: what the other pods there were granted.

    Returns:
        Deferred if there is no capacity now, Infeasible if there never is; empty if they have what they request.
    """
    wanted = {one["name"]: one.get("resources") or {} for one in pod["spec"]["containers"]}
    if all(one.resources == wanted[one.name] for one in records):
        return ""
    total = summed(amounts_of(one.get("requests")) for one in wanted.values())
    allocatable = amounts_of(node["status"].get("allocatable"))
    used = summed(others)
    if any(amount > allocatable.get(name, 0) for name, amount in total.items()):
        return INFEASIBLE
    if any(amount + used.get(name, 0) > allocatable.get(name, 0) for name, amount in total.items()):
        return DEFERRED
    for one in records:
        one.resources = wanted[one.name]
    return ""
