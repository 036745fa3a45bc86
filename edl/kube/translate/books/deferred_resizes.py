"""Running pods whose larger requests their node cannot grant yet, because other pods use its capacity.

The kubelet defers such a resize and tries again whenever a pod of its node ends, but it ends none. kube-scheduler
does so from Kubernetes 1.37 on, behind an alpha feature gate. So a serving pod would wait as long as trainers fill
its node. What it waits for is planned like a serving pod that no other node takes.

Source: Kubernetes enhancements 1287 (in-place resize) and 5836 (preemption for it).
"""

from __future__ import annotations

from dataclasses import replace

from edl.kube.translate.objects import PodConditionObject, PodObject, PodSpec, PodStatus
from edl.kube.translate.shapes import granted_of
from edl.model.pods import RESIZE_UID, Pod, PodPhase
from edl.model.resources import NodeTerm, Placement, PodShape, Requirement, Resources, Toleration
from edl.model.times import seconds_of

_ANY_TAINT = Toleration(operator="Exists")


def deferred_resize(status: PodStatus | None) -> PodConditionObject | None:
    """Return the condition of a kubelet that grants larger requests later; None if the pod has none."""
    conditions = (status.conditions if status is not None else None) or ()
    waits = (c for c in conditions if c.type == "PodResizePending" and c.reason == "Deferred" and c.status == "True")
    return next(waits, None)


def split(source: PodObject, pod: Pod) -> tuple[Pod, Pod | None]:
    """Return a pod of no job as it runs now, and what it waits for as a pod of its own, if it waits.

    Args:
        source: the object.
        pod: its translation, with all that it requests.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    condition = deferred_resize(source.status)
    if condition is None or not pod.node or not pod.is_live or pod.daemon or pod.priority < 0:
        return pod, None
    granted = granted_of(source.spec or PodSpec(), source.status)
    missing = {name: amount for name, amount in (pod.shape.request - granted).amounts if amount > 0}
    if not missing:
        return pod, None
    here = NodeTerm(fields=(Requirement("metadata.name", "In", (pod.node,)),))
    since_s = seconds_of(condition.last_transition_time)
    waits = Pod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid + RESIZE_UID,
        shape=PodShape(Resources.of(missing), Placement(required=(here,), tolerations=(_ANY_TAINT,))),
        phase=PodPhase.PENDING,
        priority=pod.priority,
        created_s=pod.created_s if since_s is None else since_s,
        tried=True,
        answered_s=since_s,
        scheduler=pod.scheduler,
        may_preempt=False,
    )
    return replace(pod, shape=PodShape(granted, pod.shape.placement)), waits
