"""Webhooks and admission policies in saved files that may change or refuse pods.

A plan from files asks no API server, so it knows of them only that they exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.objects import ApiStruct, ObjectMetadata

ADMISSION_API = "admissionregistration.k8s.io"


class Rule(ApiStruct):
    """Which requests a webhook or a policy sees; `*` is any."""

    api_groups: list[str] | None = None
    resources: list[str] | None = None
    operations: list[str] | None = None

    @property
    def meets_new_pods(self) -> bool:
        """True if the creation of a pod is such a request."""
        return all(
            not {"*", "*/*", wanted}.isdisjoint(given or ())
            for given, wanted in ((self.api_groups, ""), (self.resources, "pods"), (self.operations, "CREATE"))
        )


class Webhook(ApiStruct):
    """One webhook of a configuration."""

    name: str | None = None
    rules: list[Rule] | None = None


class WebhookConfiguration(ApiStruct):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: ObjectMetadata | None = None
    webhooks: list[Webhook] | None = None


class MatchConstraints(ApiStruct):
    """What a policy applies to."""

    resource_rules: list[Rule] | None = None


class PolicySpec(ApiStruct):
    """The part of a policy that says what it applies to."""

    match_constraints: MatchConstraints | None = None


class AdmissionPolicy(ApiStruct):
    """A MutatingAdmissionPolicy or a ValidatingAdmissionPolicy."""

    metadata: ObjectMetadata | None = None
    spec: PolicySpec | None = None


WEBHOOKS: Mapping[str, Decoder[Any]] = {
    kind: Decoder(kind, WebhookConfiguration)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
POLICIES: Mapping[str, Decoder[Any]] = {
    kind: Decoder(kind, AdmissionPolicy) for kind in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
}
ADMISSION: Mapping[tuple[str, str], Decoder[Any]] = {
    (f"{ADMISSION_API}/{version}", kind): decoder
    for version in ("v1", "v1beta1", "v1alpha1")
    for kind, decoder in (*WEBHOOKS.items(), *POLICIES.items())
}
"""(apiVersion, kind) -> its decoder."""


def not_asked(sources: Iterable[tuple[str, WebhookConfiguration | AdmissionPolicy]]) -> Iterator[str]:
    """Yield a warning for each of these objects that may change or refuse pods.

    Args:
        sources: (kind, object).
    """
    for kind, source in sources:
        if isinstance(source, WebhookConfiguration):
            meets = [hook.name or "" for hook in source.webhooks or () if _meets(hook.rules)]
            which = f" (webhook {', '.join(meets)})" if any(meets) else ""
        else:
            constraints = source.spec.match_constraints if source.spec else None
            meets, which = [""] * _meets(constraints.resource_rules if constraints else None), ""
        if meets:
            verb = "change" if kind.startswith("Mutating") else "refuse"
            name = source.metadata.name if source.metadata else ""
            yield (
                f"{kind} {name}{which} may {verb} pods, and a plan from files cannot ask it: pods of jobs count as"
                " their specs have them; `edl explain` shows what the controller reads from the API server"
            )


def _meets(rules: Iterable[Rule] | None) -> bool:
    return any(rule.meets_new_pods for rule in rules or ())
