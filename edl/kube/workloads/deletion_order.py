"""The order in which pods of equal rank are deleted: those that do the least work first.

It is the order of the Job controller, and what edl uses itself if it may name the pods.

Source: k8s.io/kubernetes/pkg/controller, type ActivePods.
"""

from __future__ import annotations

from typing import Any

from edl.kube.translate.objects import PodObject, PodStatus
from edl.model.pods import Pod
from edl.model.times import seconds_of


def deletion_key(pod: Pod, source: PodObject) -> tuple[Any, ...]:
    """Sort key: pods without a node first, then those that do not run, are not ready, or became ready last."""
    status = source.status or PodStatus()
    phase = {"Pending": 0, "Unknown": 1}.get(status.phase or "Pending", 2)
    ready = next((c for c in status.conditions or () if c.type == "Ready" and c.status == "True"), None)
    ready_s = seconds_of(ready.last_transition_time) if ready else None
    restarts = max((c.restart_count or 0 for c in status.container_statuses or ()), default=0)
    since = float("-inf") if ready_s is None else -ready_s
    return bool(pod.node), phase, ready is not None, since, -restarts, -pod.created_s, pod.name
