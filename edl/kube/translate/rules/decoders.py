"""The decoders of what rules between pods, volumes and devices depend on, by the names of `RuleObjects`."""

from __future__ import annotations

from typing import Any

from edl.kube.translate.decoders import (
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    NAMESPACES,
    POD_GROUPS,
    STORAGE_CLASSES,
    VOLCANO_QUEUES,
    VOLUME_CLAIMS,
    VOLUMES,
    Decoder,
)
from edl.kube.translate.devices.decoders import CLAIM_TEMPLATES, DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES

RULE_DECODERS: dict[str, Decoder[Any]] = {
    "volumes": VOLUMES,
    "claims": VOLUME_CLAIMS,
    "classes": STORAGE_CLASSES,
    "csi_nodes": CSI_NODES,
    "csi_drivers": CSI_DRIVERS,
    "csi_capacities": CSI_CAPACITIES,
    "namespaces": NAMESPACES,
    "slices": RESOURCE_SLICES,
    "device_classes": DEVICE_CLASSES,
    "device_claims": RESOURCE_CLAIMS,
    "claim_templates": CLAIM_TEMPLATES,
    "volcano_pod_groups": POD_GROUPS["scheduling.volcano.sh/v1beta1"],
    "kubernetes_pod_groups": POD_GROUPS["scheduling.k8s.io/v1beta1"],
    "pod_groups": POD_GROUPS["scheduling.x-k8s.io/v1alpha1"],
    "kai_pod_groups": POD_GROUPS["scheduling.run.ai/v2alpha2"],
    "volcano_queues": VOLCANO_QUEUES,
}
