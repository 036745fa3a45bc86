"""Names of jobs and pods: job keys, roles, and the labels and annotations that edl writes on pods."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

LABEL_JOB = "paddlepaddle.org/job"
LABEL_ROLE = "paddlepaddle.org/role"
LABEL_INDEX = "paddlepaddle.org/index"
LABEL_LENDING = "paddlepaddle.org/lending"
"""A label of a node: with the value Never, no trainer there lends CPU."""
LABEL_REQUESTS_NODE = "paddlepaddle.org/requests-node-for"
"""A label of a request pod: the job that asks for a node."""
LABEL_NODE_GROUP = "paddlepaddle.org/node-group"
"""A label of a request pod: the group of nodes that it asks."""
ANNOTATION_NODE = "paddlepaddle.org/planned-node"
ANNOTATION_PINNED = "paddlepaddle.org/pinned"
ANNOTATION_DECLARED_CPU = "paddlepaddle.org/declared-cpu"
ANNOTATION_REQUESTS = "paddlepaddle.org/requests"
"""An annotation of a pod: a digest of what edl asked for, before admission changed it; see `edl.api.requests`."""
ANNOTATION_INTENT = "paddlepaddle.org/intent"
ANNOTATION_JOURNAL = "paddlepaddle.org/journal"

ANNOTATION_MIN, ANNOTATION_MAX = "paddlepaddle.org/min-instance", "paddlepaddle.org/max-instance"
"""The annotations with the bounds of a workload that is not a TrainingJob."""
ANNOTATION_QUEUE = "paddlepaddle.org/queue"
"""The annotation with edl's queue of a workload that is not a TrainingJob."""
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""A label that gives an object to Kueue, which admits and suspends it."""
KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
"""A label that names the WorkloadPriorityClass of an object that Kueue admits."""
ANNOTATION_KUEUE_QUEUE = "paddlepaddle.org/kueue-queue"
"""Names a LocalQueue of Kueue: edl makes the Workloads of the object, and Kueue's own integrations do not see it."""
ANNOTATION_KUEUE_PRIORITY = "paddlepaddle.org/kueue-priority-class"
"""Names the WorkloadPriorityClass of such an object."""

PRIORITY_BEST_EFFORT = "edl-best-effort"
PRIORITY_BEST_EFFORT_SURPLUS = "edl-best-effort-surplus"
"""PriorityClasses that only jobs without requests need: trainers up to the minimum, and the others."""

SURPLUS_VALUE = -100
"""The value of PriorityClass `edl-surplus`: trainers of the minimum have more, and no other trainer has."""

CONTROLLER_NAMESPACE = "paddlecloud"
"""The namespace of the controller in a default installation; TrainingJobs are invalid there."""

KEY_SECRET = "edl-master-key"  # noqa: S105 - a name
"""The Secret with the key from which the tokens of the data masters are derived; in the controller's namespace."""


class WorkloadKind(StrEnum):
    """What a workload is, as kubectl names the resource. The planner treats all kinds alike."""

    TRAINING_JOB = "trainingjob"
    BATCH_JOB = "job.batch"
    VOLCANO_JOB = "job.batch.volcano.sh"
    RAY_CLUSTER = "raycluster.ray.io"
    RAY_JOB = "rayjob.ray.io"
    PYTORCH_JOB = "pytorchjob.kubeflow.org"
    LEADER_WORKER_SET = "leaderworkerset.leaderworkerset.x-k8s.io"
    JOB_SET = "jobset.jobset.x-k8s.io"
    TRAIN_JOB = "trainjob.trainer.kubeflow.org"
    MPI_JOB = "mpijob.kubeflow.org"

    @property
    def takes_names(self) -> bool:
        """True if the controller of the kind deletes the pods that edl names; any other chooses itself."""
        return self is WorkloadKind.RAY_CLUSTER


class JobKey(NamedTuple):
    """Namespace and name of a workload; also the tie-breaker between jobs that are otherwise equal.

    The name of a TrainingJob stands alone. Every other workload has its kind before it, as kubectl writes it
    (`job.batch/train`), so that objects of two kinds may have one name.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, kind: WorkloadKind, namespace: str, name: str) -> JobKey:
        """The key of an object of that kind."""
        return cls(namespace, name if kind is WorkloadKind.TRAINING_JOB else f"{kind.value}/{name}")

    @property
    def kind(self) -> WorkloadKind:
        """The kind of the workload."""
        kind = self.name.partition("/")[0] if "/" in self.name else ""
        return WorkloadKind(kind) if kind in set(WorkloadKind) else WorkloadKind.TRAINING_JOB

    @property
    def object_name(self) -> str:
        """The name of the object, without its kind."""
        return self.name.rpartition("/")[2]


def is_among(key: JobKey, keys: Sequence[JobKey]) -> bool:
    """True if a sorted list of thousands of keys contains this one, by binary search."""
    where = bisect_left(keys, key)
    return where < len(keys) and keys[where] == key


class Role(StrEnum):
    """The role of a pod in its job."""

    MASTER = "master"
    PSERVER = "pserver"
    TRAINER = "trainer"


_RESUME = {
    WorkloadKind.PYTORCH_JOB: "set spec.runPolicy.suspend to false",
    WorkloadKind.LEADER_WORKER_SET: "set spec.replicas to the groups that it should begin with",
    WorkloadKind.VOLCANO_JOB: "resume it with a Command of Volcano (`vcctl job resume`)",
}


def minimum_of(kind: WorkloadKind) -> str:
    """The field or annotation in which the owner of a job of this kind sets its minimum."""
    return _field(kind, "spec.trainer.min-instance", ANNOTATION_MIN)


def maximum_of(kind: WorkloadKind) -> str:
    """The field or annotation in which the owner of a job of this kind sets its maximum."""
    return _field(kind, "spec.trainer.max-instance", ANNOTATION_MAX)


def queue_of(kind: WorkloadKind) -> str:
    """The field or annotation in which the owner of a job of this kind sets its queue of edl."""
    return _field(kind, "spec.queue", ANNOTATION_QUEUE)


def how_to_resume(kind: WorkloadKind) -> str:
    """Say what the owner of a suspended job of this kind has to do to start it."""
    return _RESUME.get(kind, "set spec.suspend to false")


def _field(kind: WorkloadKind, field: str, annotation: str) -> str:
    return field if kind is WorkloadKind.TRAINING_JOB else f"annotation {annotation}"
