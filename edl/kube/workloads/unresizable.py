"""Kinds of which no running object can be resized: one that asks for it hears which field keeps edl from it.

Their pods are those of somebody else in every plan, as they are without the annotation.

Source: github.com/kubernetes-sigs/jobset v0.10, pkg/webhooks/jobset_webhook.go, func ValidateUpdate;
github.com/kubeflow/trainer v2.1, pkg/runtime/framework/plugins/torch; github.com/kubeflow/mpi-operator v0.6,
pkg/controller, func updateDiscoverHostsInConfigMap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.objects import ConditionObject, PodObject, PodSpec
from edl.kube.translate.scalars import ApiStruct
from edl.kube.workloads.annotations import ELASTIC, Wish, is_elastic, read_wish
from edl.kube.workloads.read_alike import key_of, read_job
from edl.kube.workloads.workload_objects import WorkloadMetadata
from edl.model.jobs import Job
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod

_ENDED = frozenset({"Completed", "Complete", "Succeeded", "Failed"})


class UnresizableStatus(ApiStruct):
    """The status of an object of these kinds."""

    conditions: list[ConditionObject] | None = None


class UnresizableObject(ApiStruct):
    """An object of one of these kinds."""

    metadata: WorkloadMetadata[dict[str, Any]] | None = None
    status: UnresizableStatus | None = None


class Unresizable:
    """An adapter that refuses each object; see `edl.kube.workloads.adapter.Adapter`.

    Args:
        kind: of the objects.
        api: (apiVersion, kind, plural).
        why: which field would have to be mutable.
    """

    def __init__(self, kind: WorkloadKind, api: tuple[str, str, str], why: str) -> None:
        self.kind, self.api, self._why = kind, api, why
        self.decoder: Decoder[Any] = Decoder(kind.value, UnresizableObject)

    def key(self, source: UnresizableObject) -> JobKey:
        """The key of an object."""
        return key_of(self.kind, _metadata(source))

    def is_elastic(self, source: UnresizableObject) -> bool:
        """True if the object asks to be resized."""
        return is_elastic(_metadata(source).annotations or {})

    def problem(self, source: UnresizableObject) -> str:
        """Why edl does not resize the object; empty if it has ended."""
        if _is_ended(source):
            return ""
        wish: Wish = read_wish(_metadata(source).annotations or {})
        return wish.problem or f"{self._why}; remove annotation {ELASTIC}"

    def read(
        self, source: UnresizableObject, pods: Collection[Pod], source_of: Callable[[Pod], PodObject], now_s: float
    ) -> Job:
        """Translate an object: a job without pods."""
        del pods, source_of
        job = read_job(self.key(source), _metadata(source), Wish(), PodSpec(), (), now_s=now_s)
        return replace(job, problem=self.problem(source), finished=_is_ended(source), owner_count=0)

    def templates(self, source: UnresizableObject) -> dict[Role, PodObject]:  # noqa: ARG002 - as the protocol has it
        """Return no templates: the workload gets no pods from a plan."""
        return {}

    def count(self, source: UnresizableObject) -> int:  # noqa: ARG002 - as the protocol has it
        """Return 0: edl does not count the pods of the object."""
        return 0

    def patch(self, source: UnresizableObject, count: int, victims: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG002 - as the protocol has it
        """Return no patch: no plan changes the object."""
        return {}

    def surplus(self, source: UnresizableObject, count: int) -> tuple[str, ...]:  # noqa: ARG002 - as the protocol has it
        """Return no pods."""
        return ()

    def mark(self, source: UnresizableObject, *, is_surplus: bool) -> list[dict[str, Any]]:  # noqa: ARG002 - as the protocol has it
        """Return no patch: edl marks no pod of the object."""
        return []


UNRESIZABLE = (
    Unresizable(
        WorkloadKind.JOB_SET,
        ("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
        "the API server accepts no other spec.replicatedJobs of a JobSet that runs; upstream would have to make"
        " spec.replicatedJobs[].replicas mutable (edl does not use the alpha gate ElasticJobSet)",
    ),
    Unresizable(
        WorkloadKind.TRAIN_JOB,
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs"),
        "the pods of a TrainJob get PET_NNODES when they are created, and spec.replicatedJobs of its JobSet is"
        " immutable; upstream would have to make spec.trainer.numNodes mutable while it runs",
    ),
    Unresizable(
        WorkloadKind.MPI_JOB,
        ("kubeflow.org/v2beta1", "MPIJob", "mpijobs"),
        "mpirun reads its hosts once, when the launcher starts; spec.mpiReplicaSpecs.Worker.replicas is mutable, and"
        " upstream would have to say in the object whether its launcher reads discover_hosts.sh again",
    ),
)
"""The reader of each kind."""


def _metadata(source: UnresizableObject) -> WorkloadMetadata[dict[str, Any]]:
    return source.metadata or WorkloadMetadata()


def _is_ended(source: UnresizableObject) -> bool:
    conditions = (source.status.conditions if source.status is not None else None) or ()
    return any(one.type in _ENDED and one.status == "True" for one in conditions)
