"""The PodGroup of a job whose minimum set starts whole or not at all, with what Volcano needs to know about it.

The amounts are those of the pods that edl would create, so a template or an admission rule of the project counts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from edl.api.manifest import pod_group_manifest
from edl.api.pods import pod_manifest
from edl.api.v1 import TrainingJob
from edl.kube.translate.objects import PodObject, PodSpec
from edl.kube.translate.shapes import shape_of
from edl.model.names import Role
from edl.model.resources import CPU, Resources, is_amount


def pod_group(job: TrainingJob, master_image: str, priority_classes: Collection[str]) -> dict[str, Any]:
    """The PodGroup of a job, in the queue of the job.

    Args:
        job: a valid job.
        master_image: the image of a master whose job names none.
        priority_classes: the PriorityClasses of the cluster.
    """
    least, priority_class = Resources(), ""
    for role in Role:
        if not (count := job.minimum(role)):
            continue
        pod = pod_manifest(job, role, 0, default_master_image=master_image, priority_classes=priority_classes)
        least += shape_of(msgspec.convert(pod, PodObject).spec or PodSpec()).request * count
        if role is Role.TRAINER:
            priority_class = pod["spec"].get("priorityClassName", "")
    return pod_group_manifest(job, _quantities(least), priority_class)


def _quantities(amounts: Resources) -> dict[str, str]:
    """The amounts as Kubernetes writes them; host ports are no resource there."""
    return {name: f"{amount}m" if name == CPU else str(amount) for name, amount in amounts.amounts if is_amount(name)}
