"""RayJobs: KubeRay makes a RayCluster for each, which edl resizes; here is what a RayJob says about that cluster.

KubeRay copies the labels and the annotations of a RayJob when it makes the cluster, and never writes the replicas of
that cluster again. It submits the job once all pods of the cluster run. Whether it deletes the cluster after the job
is a setting of the RayJob, so a cluster may last longer than what ran on it.

Source: github.com/ray-project/kuberay/ray-operator v1.5.1, controllers/ray/rayjob_controller.go, funcs Reconcile,
getOrCreateRayClusterInstance and constructRayClusterForRayJob.
"""

from __future__ import annotations

from typing import Any

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.makers import MakerReader, maker_of
from edl.kube.translate.scalars import text
from edl.kube.workloads.annotations import ELASTIC
from edl.kube.workloads.ray_objects import (
    ManagedSpec,
    RayClusterObject,
    RayClusterStatus,
    RayJobObject,
    RayJobSpec,
    RayJobStatus,
)
from edl.kube.workloads.unresizable import Unresizable
from edl.kube.workloads.workload_objects import WorkloadMetadata
from edl.model.names import KUEUE_QUEUE, WorkloadKind

KIND = "RayJob"

_ENDED = {"Complete", "Failed", "ValidationFailed"}
"""Values of `status.jobDeploymentStatus` of a RayJob of which KubeRay only cleans up."""
_ENDED_ON_RAY = {"SUCCEEDED", "FAILED", "STOPPED"}
"""Values of `status.jobStatus` that are final."""
_DELETED = {"Suspending", "Suspended", "Retrying"}
"""Values of `status.jobDeploymentStatus` with which KubeRay deletes the cluster."""

_SUBMITTER = "ray-job-submitter"
"""The container of the head that submits the job, if `spec.submissionMode` is SidecarMode."""
_READY = "ready"
_PROVISIONED = "RayClusterProvisioned"
"""A condition that stays true once all pods of the cluster were ready."""


class RayJobs(Unresizable, MakerReader):
    """Reads RayJobs; none of them is a job of the planner, because their pods are those of their RayClusters."""

    def __init__(self) -> None:
        super().__init__(WorkloadKind.RAY_JOB, ("ray.io/v1", KIND, "rayjobs"), "edl resizes its RayCluster")
        self.decoder: Decoder[Any] = Decoder(WorkloadKind.RAY_JOB.value, RayJobObject)

    def is_elastic(self, source: object) -> bool:  # noqa: ARG002 - as the protocol has it
        """Return False: edl resizes the RayCluster of the RayJob, which has a copy of its annotations."""
        return False

    def ending(self, source: RayJobObject) -> str:
        """Why the cluster runs nothing any more: the job has ended, or KubeRay is about to delete the cluster."""
        metadata, status = source.metadata or WorkloadMetadata(), source.status or RayJobStatus()
        name, deployment = f"{KIND} {metadata.name}", status.job_deployment_status or ""
        on_ray = status.job_status or ""
        if deployment in _ENDED or on_ray in _ENDED_ON_RAY:
            how = on_ray if on_ray in _ENDED_ON_RAY else deployment
            return f"{name} has ended ({how}); delete it, and KubeRay deletes the cluster with it"
        if metadata.deletion_timestamp is not None:
            return f"{name} is being deleted, and KubeRay deletes the cluster with it"
        if deployment in _DELETED or (source.spec or RayJobSpec()).suspend:
            return f"{name} is suspended or tried again, and KubeRay deletes this cluster"
        return ""


def ray_job_problem(metadata: WorkloadMetadata[ManagedSpec]) -> str:
    """Why edl does not resize the cluster of a RayJob, and the remedy; empty if it does.

    Kueue takes the number of workers from the RayJob, unless Ray's own autoscaler sets that of the cluster. So a
    cluster that edl resizes would have pods that Kueue has not counted, and that it never ungates.

    Source: sigs.k8s.io/kueue v0.19, pkg/controller/jobs/raycluster/common.go, func UpdatePodSets.
    """
    queue, owner = text((metadata.labels or {}).get(KUEUE_QUEUE)), maker_of(metadata)
    if owner is None or not queue:
        return ""
    return (
        f"label {KUEUE_QUEUE} is {queue[:80]}, and Kueue counts the workers in {KIND} {owner.name}, not in its"
        f" cluster; create the {KIND} without that label, or without annotation {ELASTIC}"
    )


def keeps_minimum(source: RayClusterObject) -> bool:
    """True if stopping the cluster could make a RayJob fail, because its program may already run there.

    KubeRay submits it once the cluster is ready; the container in the head submits it as soon as the head runs. Both
    are in the object that edl patches, so a cluster that has become ready since it was read is not stopped.
    """
    if maker_of(source.metadata or WorkloadMetadata()) is None:
        return False
    head = source.spec.head_group_spec if source.spec else None
    template = head.template.spec if head and head.template else None
    if any(one.name == _SUBMITTER for one in (template.containers if template else None) or ()):
        return True
    status = source.status or RayClusterStatus()
    conditions = status.conditions or ()
    return (
        status.state == _READY
        or _READY in (status.state_transition_times or {})
        or any(one.type == _PROVISIONED and one.status == "True" for one in conditions)
    )
