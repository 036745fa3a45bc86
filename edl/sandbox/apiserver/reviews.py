"""Reviews: who am I, may I. Every authenticated user may do everything here."""

from __future__ import annotations

from typing import Any

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig


def review(cluster: Cluster, kind: Kind, body: Any, request: Request) -> Object:
    """The answer to a review."""
    spec = dig(body, "spec", default={})
    user = {"username": request.user, "uid": request.user, "groups": list(request.groups)}
    status: Object
    match kind.name:
        case "SelfSubjectReview":
            status = {"userInfo": user}
        case "TokenReview":
            status = _token(cluster, str(spec.get("token", "")))
        case "SelfSubjectRulesReview":
            everything = ["*"]
            rule = {"verbs": everything, "apiGroups": everything, "resources": everything}
            paths = {"verbs": everything, "nonResourceURLs": everything}
            status = {"resourceRules": [rule], "nonResourceRules": [paths], "incomplete": False}
        case _:
            status = {"allowed": True, "reason": "the embedded server allows everything to whoever has a token"}
    metadata = {"creationTimestamp": None}
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata, "spec": spec, "status": status}


def _token(cluster: Cluster, token: str) -> Object:
    found = cluster.tokens.get(token)
    if found is None:
        return {"authenticated": False, "error": "the token is not valid"}
    return {"authenticated": True, "user": {"username": found[0], "groups": list(found[1])}}
