"""Access reviews: SelfSubjectReview, SubjectAccessReview and SelfSubjectRulesReview."""

from __future__ import annotations

from typing import Any

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.errors import bad_request
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.rights import User, judge, reviewed, rules_of


def review(cluster: Cluster, kind: Kind, body: Any, request: Request) -> Object:
    """The answer to a review.

    Raises:
        ApiError: 400, it asks about nothing.
    """
    spec = dig(body, "spec", default={})
    user = User(request.user, request.groups)
    status: Object
    match kind.name:
        case "SelfSubjectReview":
            status = {"userInfo": {"username": user.name, "uid": user.name, "groups": list(user.groups)}}
        case "TokenReview":
            status = _token(cluster, str(spec.get("token", "")))
        case "SelfSubjectRulesReview":
            status = _rules(cluster, user, str(spec.get("namespace", "")))
        case "SelfSubjectAccessReview":
            status = _access(cluster, user, kind, spec)
        case _:
            asked = User(str(spec.get("user", "")), tuple(spec.get("groups") or ()))
            status = _access(cluster, asked, kind, spec)
    metadata = {"creationTimestamp": None}
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata, "spec": spec, "status": status}


def _access(cluster: Cluster, user: User, kind: Kind, spec: Object) -> Object:
    if not (spec.get("resourceAttributes") or spec.get("nonResourceAttributes")):
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise bad_request(f"{kind.name}: {detail}")
    answer = judge(cluster, user, reviewed(spec))
    return {"allowed": answer.allowed, **({"reason": answer.reason} if answer.reason else {})}


def _rules(cluster: Cluster, user: User, namespace: str) -> Object:
    rules = rules_of(cluster, user, namespace)
    paths = ("nonResourceURLs", "verbs")
    return {
        "resourceRules": [rule for rule in rules if rule.get("resources")],
        "nonResourceRules": [{key: rule[key] for key in paths} for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }


def _token(cluster: Cluster, token: str) -> Object:
    found = cluster.tokens.get(token)
    if found is None:
        return {"authenticated": False, "error": "the token is not valid"}
    return {"authenticated": True, "user": {"username": found[0], "groups": list(found[1])}}
