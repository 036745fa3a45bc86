"""The rights that RBAC grants, and those that the API server's audit log shows in use. Nothing here imports edl."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.control_plane.kube import Kube

Object = Mapping[str, Any]
DECISION = "authorization.k8s.io/decision"
GROUNDS = "authorization.k8s.io/reason"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource (`pods`, `trainingjobs/status`) of an API group, or on one object if it has a name."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        where = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {where}{f' {self.name}' if self.name else ''}"


def granted_by(roles: Iterable[Object]) -> frozenset[Right]:
    """All rights that some roles grant. A wildcard stays a wildcard, so that it never counts as used."""
    return frozenset(
        Right(group, resource, verb, name)
        for role in roles
        for rule in role.get("rules") or ()
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or ("",)
    )


def roles_of(kube: Kube, account: str, namespace: str) -> list[Object]:
    """The roles that are bound to a ServiceAccount by name, as stored in the API server."""
    found: list[Object] = []
    for binding in (*kube.list("clusterrolebindings"), *kube.list("rolebindings")):
        if any(_is(subject, account, namespace) for subject in binding.get("subjects") or ()):
            reference = binding["roleRef"]
            place = binding["metadata"].get("namespace", "")
            found.append(kube.get(f"{reference['kind'].lower()}s", reference["name"], place))
    return found


def _is(subject: Object, account: str, namespace: str) -> bool:
    return (subject["kind"], subject["name"], subject.get("namespace")) == ("ServiceAccount", account, namespace)


def requests_of(log: Path, user: str) -> list[Object]:
    """The requests of a user: audit events with the decision on the request."""
    events = (json.loads(line) for line in log.read_text().splitlines())
    return [
        event for event in events if event["user"]["username"] == user and DECISION in event.get("annotations", {})
    ]


def forbidden(requests: Iterable[Object]) -> list[str]:
    """The requests that were denied because a right is missing."""
    return sorted({f"{right}" for right, decision in _judged(requests) if decision != "allow"})


def unused(granted: Iterable[Right], requests: Iterable[Object]) -> list[str]:
    """The rights that no request needed. A right on one object is used only by a request for that object."""
    used = {right for right, decision in _judged(requests) if decision == "allow"}
    anywhere = {Right(right.group, right.resource, right.verb) for right in used}
    return sorted(str(right) for right in granted if right not in (used if right.name else anywhere))


def grounds(requests: Iterable[Object]) -> frozenset[str]:
    """The reasons for which the API server allowed the requests."""
    return frozenset(str(event["annotations"].get(GROUNDS)) for event in requests)


def _judged(requests: Iterable[Object]) -> Iterator[tuple[Right, str]]:
    for event in requests:
        about = event.get("objectRef") or {"resource": event["requestURI"]}
        subresource = f"/{about['subresource']}" if about.get("subresource") else ""
        right = Right(
            about.get("apiGroup", ""), about["resource"] + subresource, event["verb"], about.get("name", "")
        )
        yield right, event["annotations"][DECISION]
