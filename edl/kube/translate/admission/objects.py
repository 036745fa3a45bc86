"""Webhooks, admission policies, their bindings, LimitRanges and RuntimeClasses, as the API server sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.rule_objects import LabelSelectorObject
from edl.kube.translate.scalars import ApiStruct, Scalar

ADMISSION_API = "admissionregistration.k8s.io"


class RuleObject(ApiStruct):
    """Which requests a webhook or a policy sees; `*` is any."""

    api_groups: list[str] | None = None
    resources: list[str] | None = None
    operations: list[str] | None = None
    api_versions: list[str] | None = None
    scope: str | None = None
    resource_names: list[str] | None = None

    @property
    def meets_new_pods(self) -> bool:
        """True if the creation of a pod is such a request, whatever its name is."""
        return self.scope != "Cluster" and all(
            not wanted.isdisjoint(given)
            for given, wanted in (
                (self.api_groups or (), {"*", ""}),
                (["*"] if self.api_versions is None else self.api_versions, {"*", "v1"}),
                (self.resources or (), {"*", "*/*", "pods", "pods/*"}),
                (self.operations or (), {"*", "CREATE"}),
            )
        )


class MatchConditionObject(ApiStruct):
    """An expression that must be true for a request, else a webhook or a policy does not see it."""

    name: str | None = None
    expression: str | None = None


class MatchObject(ApiStruct):
    """What a policy applies to, or what a binding leaves of that."""

    resource_rules: list[RuleObject] | None = None
    exclude_resource_rules: list[RuleObject] | None = None
    namespace_selector: LabelSelectorObject | None = None
    object_selector: LabelSelectorObject | None = None


class WebhookObject(ApiStruct):
    """One webhook of a configuration."""

    name: str | None = None
    rules: list[RuleObject] | None = None
    namespace_selector: LabelSelectorObject | None = None
    object_selector: LabelSelectorObject | None = None
    match_conditions: list[MatchConditionObject] | None = None


class WebhookConfiguration(ApiStruct):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: ObjectMetadata | None = None
    webhooks: list[WebhookObject] | None = None


class PolicySpec(ApiStruct):
    """The part of a policy that says what it applies to."""

    match_constraints: MatchObject | None = None
    match_conditions: list[MatchConditionObject] | None = None


class AdmissionPolicy(ApiStruct):
    """A MutatingAdmissionPolicy or a ValidatingAdmissionPolicy."""

    metadata: ObjectMetadata | None = None
    spec: PolicySpec | None = None


class BindingSpec(ApiStruct):
    """What a binding applies its policy to; a mutating one has no actions."""

    policy_name: str | None = None
    match_resources: MatchObject | None = None
    validation_actions: list[str] | None = None


class PolicyBinding(ApiStruct):
    """A MutatingAdmissionPolicyBinding or a ValidatingAdmissionPolicyBinding."""

    metadata: ObjectMetadata | None = None
    spec: BindingSpec | None = None


class LimitObject(ApiStruct):
    """What a LimitRange gives and forbids containers, pods or claims."""

    type: str | None = None
    default: dict[str, Scalar] | None = None
    default_request: dict[str, Scalar] | None = None
    min: dict[str, Scalar] | None = None
    max: dict[str, Scalar] | None = None
    max_limit_request_ratio: dict[str, Scalar] | None = None


class LimitRangeSpec(ApiStruct):
    """The spec of a LimitRange."""

    limits: list[LimitObject] | None = None


class LimitRangeObject(ApiStruct):
    """A v1 LimitRange."""

    metadata: ObjectMetadata | None = None
    spec: LimitRangeSpec | None = None


class OverheadObject(ApiStruct):
    """What a RuntimeClass needs for each pod besides its containers."""

    pod_fixed: dict[str, Scalar] | None = None


class SchedulingObject(ApiStruct):
    """Which nodes have the runtime of a class."""

    node_selector: dict[str, Scalar] | None = None
    tolerations: list[dict[str, Any]] | None = None


class RuntimeClassObject(ApiStruct):
    """A node.k8s.io/v1 RuntimeClass."""

    metadata: ObjectMetadata | None = None
    overhead: OverheadObject | None = None
    scheduling: SchedulingObject | None = None


_SIDES = ("Mutating", "Validating")
WEBHOOKS: Mapping[str, Decoder[Any]] = {
    kind: Decoder(kind, WebhookConfiguration) for kind in (f"{side}WebhookConfiguration" for side in _SIDES)
}
POLICIES: Mapping[str, Decoder[Any]] = {
    kind: Decoder(kind, AdmissionPolicy) for kind in (f"{side}AdmissionPolicy" for side in _SIDES)
}
BINDINGS: Mapping[str, Decoder[Any]] = {
    f"{kind}Binding": Decoder(f"{kind}Binding", PolicyBinding) for kind in POLICIES
}
LIMIT_RANGES = Decoder("LimitRange", LimitRangeObject)
RUNTIME_CLASSES = Decoder("RuntimeClass", RuntimeClassObject)
ADMISSION: Mapping[tuple[str, str], Decoder[Any]] = {
    (f"{ADMISSION_API}/{version}", kind): decoder
    for version in ("v1", "v1beta1", "v1alpha1")
    for kind, decoder in (*WEBHOOKS.items(), *POLICIES.items(), *BINDINGS.items())
} | {("node.k8s.io/v1", "RuntimeClass"): RUNTIME_CLASSES}
"""(apiVersion, kind) -> its decoder."""
