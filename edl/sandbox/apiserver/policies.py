"""ValidatingAdmissionPolicies: the stored policies and their bindings, evaluated on a write.

Parameters, namespace and object selectors and audit annotations are stored and not evaluated: edl uses none of them.

Source: https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from operator import itemgetter
from typing import Any

from edl.kube.expressions import MAPPING, CelError, Evaluator, method
from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.errors import ApiError, forbidden
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.rights import Attempt, User, judge
from edl.sandbox.apiserver.writing import Write

_POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
_BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


_VARIABLES = ("object", "oldObject", "request", "namespaceObject", "authorizer", "params")
_STEPS = ("group", "resource", "subresource", "namespace", "name", "path")
"""The questions that the authorizer of an expression takes step by step; each gives the authorizer with one more."""


def _step(name: str) -> Any:
    def asked(authorizer: Object, value: str) -> Object:
        return {**authorizer, name: value}

    return method(name, asked, MAPPING, "string")


class Policies:
    """The admission policies of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        answers = [method(name, itemgetter(name), MAPPING) for name in ("allowed", "reason")]
        check = method("check", self._check, MAPPING, "string")
        self._evaluator = Evaluator(_VARIABLES, [*map(_step, _STEPS), check, *answers])

    def _check(self, authorizer: Object, verb: str) -> Object:
        """Evaluate what a policy asks the authorizer."""
        resource = "/".join(filter(None, (authorizer.get("resource"), authorizer.get("subresource"))))
        about = {name: authorizer[name] for name in ("group", "namespace", "name", "path") if name in authorizer}
        user = User(authorizer["user"], tuple(authorizer["groups"]))
        return asdict(judge(self._cluster, user, Attempt(verb, resource=resource, **about)))

    def admit(self, write: Write, value: Object, old: Object | None) -> None:
        """Reject an object that some policy denies.

        Raises:
            ApiError: with the code of the policy's reason.
        """
        operation = "CREATE" if old is None else "UPDATE"
        for name, binding, policy in self._bound():
            if not _matches(policy, write.kind, operation, write.subresource):
                continue
            given = self._evaluator.given(self._variables(write, value, old, operation))
            for rule in dig(policy, "spec", "validations", default=()):
                detail = self._refusal(rule, given, dig(policy, "spec", "failurePolicy", default="Fail"))
                if detail:
                    source = f"'{name}' with binding '{binding}'"
                    raise _denied(write.kind, value["metadata"].get("name", ""), source, rule, detail)

    def _bound(self) -> Iterator[tuple[str, str, Object]]:
        """Yield each binding that denies objects: the names of policy and binding, and the policy."""
        for (_, binding), entry in self._cluster.store.entries(_BINDINGS):
            spec = entry.value.get("spec", {})
            policy = self._cluster.find(_POLICIES, "", spec.get("policyName", ""))
            if policy is not None and "Deny" in spec.get("validationActions", ()):
                yield spec["policyName"], binding, policy

    def _variables(self, write: Write, value: Object, old: Object | None, operation: str) -> dict[str, Any]:
        request = write.request
        kind = write.kind
        namespace = value["metadata"].get("namespace", "")
        return {
            "object": value,
            "oldObject": old,
            "request": {
                "operation": operation,
                "namespace": namespace,
                "name": value["metadata"].get("name", ""),
                "userInfo": {"username": request.user, "groups": list(request.groups)},
                "kind": {"group": kind.group, "version": kind.version, "kind": kind.name},
                "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
                "subResource": write.subresource,
                "dryRun": request.is_dry_run,
            },
            "namespaceObject": self._cluster.find("namespaces", "", namespace),
            "authorizer": {"user": request.user, "groups": list(request.groups)},
            "params": None,
        }

    def _refusal(self, rule: Object, given: Any, failure_policy: str) -> str:
        """Why a validation of a policy denies the object; empty if it does not."""
        text = rule["expression"]
        try:
            if self._evaluator.evaluate(text, given) is True:
                return ""
        except CelError as error:
            return f"expression '{text}' resulted in error: {error}" if failure_policy == "Fail" else ""
        return str(rule.get("message") or f"failed expression: {text.strip()}")


def _matches(policy: Object, kind: Kind, operation: str, subresource: str) -> bool:
    plural = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return any(
        _names(rule.get("apiGroups"), kind.group)
        and _names(rule.get("apiVersions"), kind.version)
        and _names(rule.get("operations"), operation)
        and _names(rule.get("resources"), plural)
        for rule in dig(policy, "spec", "matchConstraints", "resourceRules", default=())
    )


def _names(words: list[str] | None, word: str) -> bool:
    return words is not None and (word in words or "*" in words)


def _denied(kind: Kind, name: str, source: str, rule: Object, detail: str) -> ApiError:
    reason = rule.get("reason", "Invalid")
    why = f"ValidatingAdmissionPolicy {source} denied request: {detail}"
    error = forbidden(kind.plural, kind.group, name, why)
    error.status["details"]["causes"] = [{"message": why}]
    if reason != "Forbidden":
        error.code = error.status["code"] = _CODES.get(reason, 422)
        error.status["reason"] = reason
    return error
