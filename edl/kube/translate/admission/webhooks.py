"""Webhooks and admission policies in saved files that may change or reject pods.

A plan from files asks no API server, so it knows of them only that they exist, and which new pods they may see: by
their rules, selectors and match conditions. What cannot be told from the files counts as seen, and is named.

Source: k8s.io/apiserver/pkg/admission/plugin, webhook/predicates and policy/matching
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from edl.kube.expressions import CelError, Evaluator
from edl.kube.translate.admission.new_pods import NewPod, owners
from edl.kube.translate.admission.objects import (
    AdmissionPolicy,
    BindingSpec,
    MatchConditionObject,
    MatchObject,
    PolicyBinding,
    PolicySpec,
    RuleObject,
    WebhookConfiguration,
    WebhookObject,
)
from edl.kube.translate.devices.selectors import SelectorError, check_bounds
from edl.kube.translate.rules.namespaces import NamespaceLabels, chooses
from edl.kube.translate.rules.terms import read_selector
from edl.model.units import listed
from edl.planner.eligibility import holds

Source = WebhookConfiguration | AdmissionPolicy

_VARIABLES = ("object", "oldObject", "request", "namespaceObject", "authorizer", "params", "variables")
_READ = re.compile(rf"\b(?:{'|'.join(_VARIABLES)})\b(?:\.\w+)*")
_KNOWN = re.compile(
    r"object\.metadata\.(labels|annotations|namespace)\b.*"
    r"|request\.(namespace|operation|kind\.\w+|resource\.\w+)"
)
"""What an expression may read of a new pod: the API server and others add to the rest before a condition is read."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What the files say about the admission of new pods.

    Attributes:
        pods: those that do not exist yet.
        namespaces: the labels of each namespace in the files.
        bindings: (kind, object) of the bindings of policies.
    """

    pods: Sequence[NewPod]
    namespaces: NamespaceLabels
    bindings: Sequence[tuple[str, PolicyBinding]] = ()

    def not_asked(self, sources: Iterable[tuple[str, Source]]) -> Iterator[str]:
        """Yield a warning for each of these objects that may change or reject a new pod.

        Args:
            sources: (kind, object).
        """
        for kind, source in sources:
            name = (source.metadata.name if source.metadata else "") or ""
            if isinstance(source, WebhookConfiguration):
                met = self._met_by_hooks(source.webhooks or ())
            else:
                met = self._met_by_policy(kind, name, source.spec or PolicySpec())
            if not met.pods:
                continue
            which = f" (webhook {', '.join(met.hooks)})" if any(met.hooks) else ""
            doubt = f"; whether it does depends on {listed(dict.fromkeys(met.doubts))}" if met.doubts else ""
            yield (
                f"{kind} {name}{which} may {'change' if kind.startswith('Mutating') else 'refuse'}"
                f" {owners(met.pods)}, and a plan from files cannot ask it: pods of jobs count as their specs have"
                f" them{doubt}; `edl explain` shows what the controller reads from the API server"
            )

    def _met_by_hooks(self, hooks: Iterable[WebhookObject]) -> _Met:
        met = _Met()
        for hook in hooks:
            match = MatchObject(
                resource_rules=hook.rules,
                namespace_selector=hook.namespace_selector,
                object_selector=hook.object_selector,
            )
            if met.add(self._met(match, hook.match_conditions)) and hook.name:
                met.hooks.append(hook.name)
        return met

    def _met_by_policy(self, kind: str, name: str, spec: PolicySpec) -> _Met:
        """The pods that a policy may see; one without a binding does nothing, but the files may lack its binding."""
        match = spec.match_constraints or MatchObject()
        bound = [one.spec or BindingSpec() for of_kind, one in self.bindings if of_kind == f"{kind}Binding"]
        bound = [one for one in bound if one.policy_name == name]
        if not bound:
            met = self._met(match, spec.match_conditions)
            met.doubts.append("its binding, which the files do not have")
            return met
        met = _Met()
        for one in bound:
            if one.validation_actions is None or "Deny" in one.validation_actions:
                met.add(self._met(match, spec.match_conditions, one.match_resources))
        return met

    def _met(
        self,
        match: MatchObject,
        conditions: Iterable[MatchConditionObject] | None,
        also: MatchObject | None = None,
    ) -> _Met:
        """The new pods that may match, with what this depends on besides the files."""
        met = _Met()
        if not _meets(match.resource_rules) or (
            also is not None and also.resource_rules and not _meets(also.resource_rules)
        ):
            return met
        if _excludes(match) or (also is not None and _excludes(also)):
            return met
        for pod in self.pods:
            doubts: list[str] = []
            parts = [match, *((also,) if also is not None else ())]
            if all(self._selects(part, pod, doubts) for part in parts) and _holds(conditions, pod, doubts):
                met.pods.append(pod)
                met.doubts += doubts
        return met

    def _selects(self, match: MatchObject, pod: NewPod, doubts: list[str]) -> bool:
        labels = {str(k): str(v) for k, v in (pod.body["metadata"].get("labels") or {}).items()}
        if not all(holds(one, labels) for one in read_selector(match.object_selector) or ()):
            return False
        chosen = chooses(read_selector(match.namespace_selector) or (), pod.namespace, self.namespaces)
        if chosen is None:
            doubts.append(f"the labels of namespace {pod.namespace}, which the files do not have")
        return chosen is not False


@dataclass(slots=True)
class _Met:
    """The pods that something may see.

    Attributes:
        hooks: the names of the webhooks that see them.
        doubts: what this depends on that the files do not say.
    """

    pods: list[NewPod] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def add(self, other: _Met) -> bool:
        """Add the pods of another; return False if there are none."""
        self.pods += other.pods
        self.doubts += other.doubts
        return bool(other.pods)


def _meets(rules: Iterable[RuleObject] | None) -> bool:
    return any(rule.meets_new_pods for rule in rules or ())


def _excludes(match: MatchObject) -> bool:
    return any(rule.meets_new_pods and not rule.resource_names for rule in match.exclude_resource_rules or ())


def _holds(conditions: Iterable[MatchConditionObject] | None, pod: NewPod, doubts: list[str]) -> bool:
    """True unless a condition is false for a pod; one that cannot be evaluated is noted."""
    for one in conditions or ():
        value = _value(one.expression or "", pod)
        if value is False:
            return False
        if value is None:
            doubts.append(f"matchCondition {one.name}, which edl cannot evaluate")
    return True


def _value(expression: str, pod: NewPod) -> bool | None:
    """The value of an expression for a pod; None if the files do not tell."""
    if not all(_is_known(found, pod) for found in _READ.findall(expression)):
        return None
    request = {
        "namespace": pod.namespace,
        "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
    }
    evaluator = _evaluator()
    try:
        check_bounds(expression)
        value = evaluator.evaluate(expression, evaluator.given({"object": pod.body, "request": request}))
    except (CelError, SelectorError):
        return None
    return value if isinstance(value, bool) else None


def _is_known(path: str, pod: NewPod) -> bool:
    found = _KNOWN.fullmatch(path)
    return found is not None and (found[1] is None or found[1] in pod.body["metadata"])


@cache
def _evaluator() -> Evaluator:
    return Evaluator(("object", "request"))
