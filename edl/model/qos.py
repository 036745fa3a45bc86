"""The QoS class of a pod, as Kubernetes derives it from requests and limits: who is evicted first under pressure."""

from __future__ import annotations

from enum import StrEnum


class QosClass(StrEnum):
    """`status.qosClass` of a pod."""

    GUARANTEED = "Guaranteed"  # every container requests exactly its limits of cpu and memory
    BURSTABLE = "Burstable"  # some container has a request or a limit of cpu or memory
    BEST_EFFORT = "BestEffort"  # none has; a device or a disk does not count
