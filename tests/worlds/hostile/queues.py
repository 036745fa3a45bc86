"""Queue objects that the API server and the controller refuse, each with a part of the controller's message."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def queue(name: str = "blue", **spec: Any) -> Object:
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


INVALID: dict[str, tuple[Object, str]] = {
    "no spec": ({"metadata": {"name": "blue"}}, "spec is missing"),
    "no quota": (queue(), "spec.nominalQuota is missing"),
    "an empty quota": (queue(nominalQuota={}), "spec.nominalQuota is shorter than 1 item"),
    "no quantity": (queue(nominalQuota={"cpu": "many"}), '"many" is not a valid quantity'),
    "an unknown resource": (queue(nominalQuota={"cups": "1"}), "unknown resource cups; use cpu"),
    "a negative quota": (
        queue(nominalQuota={"cpu": -3}),
        "nominalQuota: the amount -3 of cpu is negative; write 0 or more",
    ),
    "a negative limit": (
        queue(nominalQuota={"memory": 1}, borrowingLimit={"memory": -1}),
        "borrowingLimit: the amount -1 of memory is negative; write 0 or more",
    ),
    "a negative quota as text": (queue(nominalQuota={"cpu": "-3"}), '"-3" is not a valid quantity'),
    "half a device": (queue(nominalQuota={"nvidia.com/gpu": "0.5"}), "0.5 of nvidia.com/gpu is not a whole number"),
    "half a pod": (queue(nominalQuota={"pods": "500m"}), "500m of pods is not a whole number"),
    "two names of one device": (
        queue(nominalQuota={"nvidia.com/gpu": "1", "alpha.kubernetes.io/nvidia-gpu": "1"}),
        "are two names of one resource",
    ),
    "a limit without a quota": (
        queue(nominalQuota={"cpu": "1"}, borrowingLimit={"memory": "1Gi"}),
        "borrowingLimit names memory, and nominalQuota does not",
    ),
    "weight 0": (queue(nominalQuota={"cpu": "1"}, weight=0), "spec.weight 0 is below 1"),
    "an unknown answer about best effort": (
        queue(nominalQuota={"cpu": "1"}, bestEffort="Yes"),
        "spec.bestEffort \"Yes\" is not a known value; use 'Allowed' or 'Refused'",
    ),
    "an unknown reclaim": (
        queue(nominalQuota={"cpu": "1"}, reclaim="Always"),
        "use 'Any', 'LowerPriority' or 'Never'",
    ),
    "another version": ({**queue(nominalQuota={"cpu": "1"}), "apiVersion": "v2"}, "write paddlepaddle.org/v1"),
    "a name that no job can use": (queue("Blue", nominalQuota={"cpu": "1"}), "metadata.name"),
}
