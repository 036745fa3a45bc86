"""Which collections of the API server are mirrored for rules, and which jobs and workloads count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.rules.decoders import RULE_DECODERS
from edl.kube.workloads.adapter import MirroredKind
from edl.kube.workloads.registry import ADAPTERS
from edl.model.names import WorkloadKind

_PATHS = {
    "volumes": "/api/v1/persistentvolumes",
    "claims": "/api/v1/persistentvolumeclaims",
    "classes": "/apis/storage.k8s.io/v1/storageclasses",
    "csi_nodes": "/apis/storage.k8s.io/v1/csinodes",
    "csi_drivers": "/apis/storage.k8s.io/v1/csidrivers",
    "csi_capacities": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "namespaces": "/api/v1/namespaces",
    "slices": "/apis/resource.k8s.io/v1/resourceslices",
    "device_classes": "/apis/resource.k8s.io/v1/deviceclasses",
    "device_claims": "/apis/resource.k8s.io/v1/resourceclaims",
    "claim_templates": "/apis/resource.k8s.io/v1/resourceclaimtemplates",
    "volcano_pod_groups": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "kubernetes_pod_groups": "/apis/scheduling.k8s.io/v1beta1/podgroups",
    "pod_groups": "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    "kai_pod_groups": "/apis/scheduling.run.ai/v2alpha2/podgroups",
    "volcano_queues": "/apis/scheduling.volcano.sh/v1beta1/queues",
}
RULE_OBJECTS: dict[str, tuple[str, Decoder[Any]]] = {
    name: (_PATHS[name], decoder) for name, decoder in RULE_DECODERS.items()
}
"""Path and decoder of the objects on which rules between pods, volumes and devices depend, as in `RuleObjects`."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The jobs and workloads that a cache mirrors.

    Attributes:
        namespaces: TrainingJobs are watched in these, and other workloads count only there; if empty, in all. Pods
            are watched in all namespaces.
        workloads: the readers of other workloads, by kind.
        requires_jobs: False also decides in a cluster in which nobody has installed the CRD of TrainingJobs.
    """

    namespaces: Sequence[str] = ()
    workloads: Mapping[WorkloadKind, MirroredKind] = field(default_factory=lambda: ADAPTERS)
    requires_jobs: bool = True


EVERYTHING = Mirrored()
