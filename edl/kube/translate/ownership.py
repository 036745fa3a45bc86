"""To which job a pod belongs: to the one that is its controller, by UID, whatever its labels say.

Anybody may change labels, and a new job may have the name of a former one. So a pod without an owner, as an orphaning
deletion leaves it, does not belong to a new job of the same name, and neither does a user's pod that merely has the
label. Only a job without a UID, which exists in files that people write, gets its pods by label and name.

The pods of a LeaderWorkerSet are those of StatefulSets, which edl does not read. These are named after the set, and
no other StatefulSet of the namespace can have their names. So such a pod belongs to the set that its label and the
name of its StatefulSet agree on, unless it is older than that set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from edl.kube.translate.objects import TRAINING_JOB_API, ObjectMetadata, OwnerReference, PodMetadata
from edl.model.names import WorkloadKind
from edl.model.times import seconds_of

TRAINING_JOB = "TrainingJob"
"""The kind of the owners of pods that edl creates."""

WORKLOAD_OWNERS = {
    ("batch/v1", "Job"): WorkloadKind.BATCH_JOB,
    ("batch.volcano.sh/v1alpha1", "Job"): WorkloadKind.VOLCANO_JOB,
    ("ray.io/v1", "RayCluster"): WorkloadKind.RAY_CLUSTER,
    ("kubeflow.org/v1", "PyTorchJob"): WorkloadKind.PYTORCH_JOB,
}
"""(apiVersion, kind) of the owners of pods that edl may read as jobs, besides TrainingJobs: `edl.kube.workloads`."""

SET_NAME = "leaderworkerset.sigs.k8s.io/name"
"""The label of a pod with the name of its LeaderWorkerSet."""

_STATEFUL_SET = ("apps/v1", "StatefulSet")
_NUMBERED = re.compile(r"(.+)-([0-9]{1,9})")

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


class GroupMember(NamedTuple):
    """A pod of a LeaderWorkerSet.

    Attributes:
        set_name: the name of the set.
        group: the index of its group, from 0.
        number: its index in the group; 0 is the leader.
    """

    set_name: str
    group: int
    number: int


def group_member(metadata: PodMetadata) -> GroupMember | None:
    """Return the set, the group and the position of a pod of a LeaderWorkerSet; None for any other pod.

    The StatefulSet of the leaders has the name of the set, and that of the workers of a group the name of its leader.
    """
    if not (name := metadata.known_labels.leader_worker_set):
        return None
    owners = (one for one in metadata.owner_references or () if one.controller)
    owner = next((one.name or "" for one in owners if (one.api_version, one.kind) == _STATEFUL_SET), "")
    pod = _NUMBERED.fullmatch(metadata.name or "")
    if pod is None or pod[1] != owner:
        return None
    if owner == name:
        return GroupMember(name, int(pod[2]), 0)
    leader = _NUMBERED.fullmatch(owner)
    return GroupMember(name, int(leader[2]), int(pod[2])) if leader is not None and leader[1] == name else None


def is_of_this_set(created_s: float, found: ObjectMetadata) -> bool:
    """Return True if a pod is not older than the LeaderWorkerSet that has the name of its own.

    Args:
        created_s: when the pod was created, in seconds since the epoch.
        found: of the set.
    """
    set_s = seconds_of(found.creation_timestamp)
    return set_s is None or created_s >= set_s
