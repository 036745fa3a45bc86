"""The required rules of a pod as comparable values, and tests for the pods that they are about.

Preferred rules and `ScheduleAnyway` only score, so they are left out: they exclude no node.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins, interpodaffinity and podtopologyspread
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from edl.kube.translate.objects import PodMetadata, PodObject, PodSpec
from edl.kube.translate.rule_objects import ClaimSpec, LabelSelectorObject, PodTermObject, SpreadObject
from edl.kube.translate.rules.namespaces import NamespaceLabels, chooses
from edl.kube.translate.scalars import text
from edl.model.names import LABEL_JOB, LABEL_ROLE
from edl.model.resources import Requirement
from edl.planner.eligibility import holds

DEFAULT_NAMESPACE = "default"

Selector = tuple[Requirement, ...]
"""All expressions must hold; without any, every pod matches."""


class PodTerm(NamedTuple):
    """A required term of a pod affinity or anti-affinity.

    Attributes:
        selector: the pods that it is about; None for no pod.
        namespaces: where these pods are, besides those of `namespace_selector`.
        namespace_selector: chooses namespaces by their labels; None chooses none.
        key: the label of nodes whose value makes a domain.
    """

    selector: Selector | None
    namespaces: tuple[str, ...]
    namespace_selector: Selector | None
    key: str

    def is_about(self, pod: PodRules, namespaces: NamespaceLabels) -> bool | None:
        """Return True if a pod is one of those that the term is about.

        Returns:
            None if that depends on labels of the pod's namespace, which are not known.
        """
        if self.selector is None or not selects(self.selector, dict(pod.labels)):
            return False
        if pod.namespace in self.namespaces:
            return True
        chosen = self.namespace_selector
        return False if chosen is None else chooses(chosen, pod.namespace, namespaces)

    def words(self) -> str:
        """Describe the pods that the term selects, for a message: `app=web`."""
        where = [name for name in self.namespaces if name != DEFAULT_NAMESPACE]
        place = f" in namespace {' or '.join(where)}" if where else ""
        if self.namespace_selector is not None:
            chosen = selector_words(self.namespace_selector)
            place = f" in namespaces {chosen}" if self.namespace_selector else " in any namespace"
        return selector_words(self.selector) + place


class SpreadTerm(NamedTuple):
    """A topology spread constraint that must hold.

    Attributes:
        max_skew: so many more pods than the emptiest domain has may a domain have.
        min_domains: with fewer domains the emptiest one counts as empty.
        honors_affinity: only nodes that the pod's own selector and affinity accept are counted.
        honors_taints: only nodes whose taints the pod tolerates are counted.
    """

    key: str
    selector: Selector | None
    namespace: str
    max_skew: int
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    def is_about(self, pod: PodRules) -> bool:
        """Return True if the constraint counts a pod."""
        is_here = pod.namespace == self.namespace
        return is_here and self.selector is not None and selects(self.selector, dict(pod.labels))

    def words(self) -> str:
        """Describe the pods that the constraint counts, for a message: `app=web in namespace ads`."""
        place = "" if self.namespace == DEFAULT_NAMESPACE else f" in namespace {self.namespace}"
        return selector_words(self.selector) + place


class DeviceClaim(NamedTuple):
    """A claim on devices in the spec of a pod: one that exists, or one that a template makes for the pod."""

    name: str
    is_template: bool


class OwnVolume(NamedTuple):
    """A volume whose claim is made for one pod.

    Attributes:
        name: of the claim once the pod is there; that of the volume in a manifest.
        storage_class: None for the default class.
        size: what it requests.
        access_modes, volume_mode, attributes_class: those of its claim.
        selector: the labels of volumes that exist which its claim wants; None for any.
    """

    name: str
    storage_class: str | None
    size: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = ""
    attributes_class: str = ""
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class PodRules:
    """The rules of a pod about other pods, and the labels that the rules of other pods read.

    Attributes:
        claims: the names of its volume claims, sorted.
        devices: its claims on devices, sorted.
        own_volumes: those whose claims are made for each pod, sorted by name.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadTerm, ...] = ()
    claims: tuple[str, ...] = ()
    devices: tuple[DeviceClaim, ...] = ()
    own_volumes: tuple[OwnVolume, ...] = ()

    @property
    def is_plain(self) -> bool:
        """True for a pod without rules and claims of its own."""
        return not (self.has_terms or self.claims or self.devices or self.own_volumes)

    @property
    def has_terms(self) -> bool:
        """True for a pod that requires something of the pods beside it."""
        return bool(self.affinity or self.anti or self.spread)


def has_rules(spec: PodSpec) -> bool:
    """Return True if a pod requires anything of the pods beside it, or uses devices by claim or volumes."""
    if spec.resource_claims or has_terms(spec):
        return True
    return any(v.persistent_volume_claim or v.ephemeral for v in spec.volumes or ())


def has_terms(spec: PodSpec) -> bool:
    """Return True if a pod requires anything of the pods beside it."""
    affinity = spec.affinity
    if affinity is not None and any(
        part is not None and part.required for part in (affinity.pod_affinity, affinity.pod_anti_affinity)
    ):
        return True
    return any(_must_hold(one) for one in spec.topology_spread_constraints or ())


def rules_of(source: PodObject, namespace: str, *, is_manifest: bool = False) -> PodRules:
    """Read the rules and the labels of a pod, or of a manifest of which several are made.

    Args:
        source: the pod.
        namespace: where it is.
        is_manifest: it stands for pods to come, whatever its name is.
    """
    metadata, spec = source.metadata or PodMetadata(), source.spec or PodSpec()
    labels = tuple(sorted((key, text(value)) for key, value in (metadata.labels or {}).items()))
    name = "" if is_manifest else metadata.name or ""
    if not has_rules(spec):
        return PodRules(namespace, labels)
    affinity, own = spec.affinity, dict(labels)
    near = affinity.pod_affinity.required if affinity and affinity.pod_affinity else None
    apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else None
    return PodRules(
        namespace=namespace,
        labels=labels,
        affinity=tuple(_pod_term(term, namespace, own) for term in near or ()),
        anti=tuple(_pod_term(term, namespace, own) for term in apart or ()),
        spread=tuple(
            _spread_term(one, namespace, own) for one in spec.topology_spread_constraints or () if _must_hold(one)
        ),
        claims=tuple(sorted(_claims(spec, name))),
        devices=tuple(sorted(_device_claims(spec))),
        own_volumes=tuple(sorted(_own_volumes(spec, name), key=lambda one: one.name)),
    )


def _device_claims(spec: PodSpec) -> Iterator[DeviceClaim]:
    for claim in spec.resource_claims or ():
        if claim.resource_claim_name:
            yield DeviceClaim(claim.resource_claim_name, is_template=False)
        elif claim.resource_claim_template_name:
            yield DeviceClaim(claim.resource_claim_template_name, is_template=True)


def selector_words(selector: Selector | None) -> str:
    """Format a selector as kubectl does; the selector of a job's pods is named by their role."""
    if selector is None:
        return "no pod"
    equal = {one.key: one.values[0] for one in selector if one.operator == "In" and len(one.values) == 1}
    if equal.keys() == {LABEL_JOB, LABEL_ROLE} and len(selector) == len(equal):
        return f"role {equal[LABEL_ROLE]} of job {equal[LABEL_JOB]}"
    return ",".join(map(_requirement_words, selector)) or "any label"


def _requirement_words(one: Requirement) -> str:
    match one.operator:
        case "In" if len(one.values) == 1:
            return f"{one.key}={one.values[0]}"
        case "In" | "NotIn":
            return f"{one.key} {'in' if one.operator == 'In' else 'notin'} ({','.join(one.values)})"
        case "DoesNotExist":
            return f"!{one.key}"
        case _:
            return one.key


def _must_hold(constraint: SpreadObject) -> bool:
    return constraint.when_unsatisfiable in {None, "", "DoNotSchedule"}


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Return True if labels meet all expressions of a selector."""
    return all(holds(one, labels) for one in selector)


def read_selector(selector: LabelSelectorObject | None) -> Selector | None:
    """Read a label selector; None if there is none."""
    if selector is None:
        return None
    equal = [Requirement(key, "In", (text(value),)) for key, value in (selector.match_labels or {}).items()]
    others = [
        Requirement(e.key or "", e.operator or "", tuple(text(value) for value in e.values or ()))
        for e in selector.match_expressions or ()
    ]
    return tuple(sorted({*equal, *others}))


def _with_keys(
    selector: Selector | None, keys: Iterable[str] | None, own: Mapping[str, str], operator: str
) -> Selector | None:
    """Add to a selector that the other pod has, or has not, the values of some of the pod's own labels."""
    if selector is None:
        return None
    more = {Requirement(key, operator, (own[key],)) for key in keys or () if key in own}
    return tuple(sorted({*selector, *more}))


def _pod_term(term: PodTermObject, namespace: str, own: Mapping[str, str]) -> PodTerm:
    selector = _with_keys(read_selector(term.label_selector), term.match_label_keys, own, "In")
    selector = _with_keys(selector, term.mismatch_label_keys, own, "NotIn")
    chosen = read_selector(term.namespace_selector)
    names = tuple(sorted(term.namespaces or ()))
    if not names and chosen is None:
        names = (namespace,)
    return PodTerm(selector, names, chosen, term.topology_key or "")


def _spread_term(one: SpreadObject, namespace: str, own: Mapping[str, str]) -> SpreadTerm:
    selector = _with_keys(read_selector(one.label_selector), one.match_label_keys, own, "In")
    return SpreadTerm(
        key=one.topology_key or "",
        selector=selector,
        namespace=namespace,
        max_skew=max(1, one.max_skew or 1),
        min_domains=max(1, one.min_domains or 1),
        honors_affinity=one.node_affinity_policy != "Ignore",
        honors_taints=one.node_taints_policy == "Honor",
    )


def _claims(spec: PodSpec, pod: str) -> Iterator[str]:
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None and pod:
            yield f"{pod}-{volume.name}"


def _own_volumes(spec: PodSpec, pod: str) -> Iterator[OwnVolume]:
    for volume in spec.volumes or ():
        if volume.ephemeral is not None:
            template = volume.ephemeral.volume_claim_template
            made = (template.spec if template is not None else None) or ClaimSpec()
            requests = (made.resources.requests if made.resources is not None else None) or {}
            yield OwnVolume(
                name=f"{pod}-{volume.name}" if pod else volume.name or "",
                storage_class=made.storage_class_name,
                size=text(requests.get("storage") or ""),
                access_modes=tuple(made.access_modes or ()),
                volume_mode=made.volume_mode or "",
                attributes_class=made.volume_attributes_class_name or "",
                selector=read_selector(made.selector),
            )
