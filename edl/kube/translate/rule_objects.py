"""The objects by which a pod requires properties of nodes and of other pods, as the API server sends them.

The API server takes thousands of rules in one pod, and a decision compares each of them with every node. So an object
that has more of them than any real pod is not decoded.
"""

from __future__ import annotations

import msgspec

from edl.kube.translate.scalars import ApiStruct, Scalar
from edl.model.pod_limits import (
    MAX_LABELS,
    MAX_READ_EXPRESSIONS,
    MAX_READ_TERMS,
    MAX_READ_VALUES,
    MAX_RULES,
    check_counts,
)


class ExpressionObject(ApiStruct):
    """One match expression of a node selector term."""

    key: str | None = None
    operator: str | None = None
    values: list[Scalar] | None = None

    def __post_init__(self) -> None:
        """Reject an expression with more values than edl reads."""
        check_counts((len(self.values or ()), MAX_READ_VALUES, "values of an expression"))


class NodeTermObject(ApiStruct):
    """One node selector term."""

    match_expressions: list[ExpressionObject] | None = None
    match_fields: list[ExpressionObject] | None = None


class NodeSelectorObject(ApiStruct):
    """Node selector terms; a node must match at least one."""

    node_selector_terms: list[NodeTermObject] | None = None


class LabelSelectorObject(ApiStruct):
    """A label selector: all labels and all expressions must hold. Without either it matches everything."""

    match_labels: dict[str, Scalar] | None = None
    match_expressions: list[ExpressionObject] | None = None

    def __post_init__(self) -> None:
        """Reject a selector with more expressions than edl reads."""
        expressions = self.match_expressions or ()
        asked = len(self.match_labels or ()) + sum(1 + len(one.values or ()) for one in expressions)
        check_counts((asked, MAX_LABELS, "labels and values of a label selector"))


class PodTermObject(ApiStruct):
    """One required term of a pod affinity or anti-affinity."""

    label_selector: LabelSelectorObject | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelectorObject | None = None
    topology_key: str | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None

    def __post_init__(self) -> None:
        """Reject a term with more entries than edl reads."""
        names = [*(self.namespaces or ()), *(self.match_label_keys or ()), *(self.mismatch_label_keys or ())]
        check_counts((len(names), MAX_LABELS, "namespaces and label keys of a term"))


class PodAffinityObject(ApiStruct):
    """The required terms of a pod affinity or anti-affinity; preferred ones only score, so they are not read."""

    required: list[PodTermObject] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )

    def __post_init__(self) -> None:
        """Reject an affinity with more terms than edl reads."""
        check_counts((len(self.required or ()), MAX_RULES, "terms of an affinity between pods"))


class PreferenceObject(ApiStruct):
    """A node selector term and its weight."""

    weight: int | None = None
    preference: NodeTermObject | None = None


class NodeAffinityObject(ApiStruct):
    """The required and the preferred terms of a node affinity."""

    required: NodeSelectorObject | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferenceObject] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )

    def __post_init__(self) -> None:
        """Reject an affinity with more terms than edl reads."""
        required = (self.required.node_selector_terms if self.required else None) or ()
        terms = [*required, *(one.preference for one in self.preferred or () if one.preference)]
        expressions = [e for t in terms for e in (*(t.match_expressions or ()), *(t.match_fields or ()))]
        check_counts(
            (len(required), MAX_READ_TERMS, "terms of the required node affinity"),
            (len(self.preferred or ()), MAX_READ_TERMS, "terms of the preferred node affinity"),
            (len(expressions), MAX_READ_EXPRESSIONS, "expressions of the node affinity"),
            (sum(len(one.values or ()) for one in expressions), MAX_READ_VALUES, "values of the node affinity"),
        )


class AffinityObject(ApiStruct):
    """What a pod requires of nodes and of the pods there."""

    node_affinity: NodeAffinityObject | None = None
    pod_affinity: PodAffinityObject | None = None
    pod_anti_affinity: PodAffinityObject | None = None


class SpreadObject(ApiStruct):
    """One topology spread constraint."""

    max_skew: int | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: LabelSelectorObject | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None

    def __post_init__(self) -> None:
        """Reject a constraint with more entries than edl reads."""
        check_counts((len(self.match_label_keys or ()), MAX_LABELS, "label keys of a spread constraint"))


class ClaimSourceObject(ApiStruct):
    """The claim that a volume of a pod names."""

    claim_name: str | None = None


class ClaimResources(ApiStruct):
    """The requests in a claim."""

    requests: dict[str, Scalar] | None = None


class ClaimSpec(ApiStruct):
    """The spec of a PersistentVolumeClaim."""

    access_modes: list[str] | None = None
    storage_class_name: str | None = None
    volume_name: str | None = None
    volume_mode: str | None = None
    resources: ClaimResources | None = None
    selector: LabelSelectorObject | None = None
    volume_attributes_class_name: str | None = None


class OwnClaimTemplate(ApiStruct):
    """The template of a claim that is made for a pod."""

    spec: ClaimSpec | None = None


class EphemeralObject(ApiStruct):
    """A volume whose claim is made for one pod."""

    volume_claim_template: OwnClaimTemplate | None = None


class VolumeObject(ApiStruct):
    """A volume of a pod, as far as it decides about nodes."""

    name: str | None = None
    persistent_volume_claim: ClaimSourceObject | None = None
    ephemeral: EphemeralObject | None = None


class PodDeviceClaimObject(ApiStruct):
    """A claim in the spec of a pod: one that exists, or one that is made for the pod by a template."""

    name: str | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
