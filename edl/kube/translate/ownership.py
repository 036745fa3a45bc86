"""To which job a pod belongs: to the one that is its controller, by UID, whatever its labels say.

Anybody may change labels, and a new job may have the name of a former one. So a pod without an owner, as an orphaning
deletion leaves it, does not belong to a new job of the same name, and neither does a user's pod that merely has the
label. Only a job without a UID, which exists in files that people write, gets its pods by label and name.
"""

from __future__ import annotations

from collections.abc import Iterable

from edl.kube.translate.objects import TRAINING_JOB_API, ObjectMetadata, OwnerReference, PodMetadata
from edl.model.names import WorkloadKind

TRAINING_JOB = "TrainingJob"
"""The kind of the owners of pods that edl creates."""

WORKLOAD_OWNERS = {
    ("batch/v1", "Job"): WorkloadKind.BATCH_JOB,
    ("batch.volcano.sh/v1alpha1", "Job"): WorkloadKind.VOLCANO_JOB,
    ("ray.io/v1", "RayCluster"): WorkloadKind.RAY_CLUSTER,
    ("kubeflow.org/v1", "PyTorchJob"): WorkloadKind.PYTORCH_JOB,
}
"""(apiVersion, kind) of the owners of pods that edl may read as jobs, besides TrainingJobs: `edl.kube.workloads`."""

_OWNING_KINDS = {TRAINING_JOB, *(kind for _, kind in WORKLOAD_OWNERS)}


def names_a_job(metadata: PodMetadata) -> bool:
    """Return True if a TrainingJob is the controller of the pod, or if its label names one."""
    return owning_job(metadata) is not None or bool(metadata.known_labels.job)


def owning_job(metadata: ObjectMetadata) -> OwnerReference | None:
    """Return the TrainingJob that controls an object; None if none does."""
    owners = (o for o in metadata.owner_references or () if o.controller and o.kind == TRAINING_JOB)
    return next((o for o in owners if o.name and (o.api_version or TRAINING_JOB_API) == TRAINING_JOB_API), None)


def is_owned_by(owners: Iterable[OwnerReference], job: ObjectMetadata) -> bool:
    """Return True if the job is the controller of a pod that names it, by UID.

    A job without a UID is written by hand, and so may its pods be: they may have no owner, or one of its name.
    """
    owners = tuple(owners)
    if job.uid:
        return any(o.controller and o.uid == job.uid for o in owners)
    return not owners or any(o.kind in _OWNING_KINDS and o.name == job.name for o in owners)
