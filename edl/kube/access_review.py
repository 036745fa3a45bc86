"""Asks the API server what the owner of a token may do, with that token and with nothing of this process.

The review is a SelfSubjectAccessReview, which every authenticated user may create. So the controller needs no right
of its own for it, and a token that the API server does not accept is rejected by the API server itself.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edl.errors import PermanentError
from edl.kube.client.session import ApiSession

_SELF = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_OTHER = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Right:
    """A right in all namespaces; `group` is empty for the core resources, and `resource` may name a subresource."""

    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


async def missing_rights(session: ApiSession, token: str, rights: Sequence[Right]) -> tuple[Right, ...]:
    """The rights that the owner of the token does not have.

    Args:
        session: leads to the API server; its own credentials are not used.
        token: the bearer token, not empty.
        rights: what is needed.

    Raises:
        RefusedError: the API server does not accept the token (401), or the owner may not create a review (403).
        TemporaryError: the API server does not answer.
        PermanentError: the answer is not that of an API server.
    """
    async with session.of_caller(token) as caller:
        return tuple([right for right in rights if not await _may(caller, right)])


async def has_right(session: ApiSession, user: str, groups: Sequence[str], right: Right) -> bool:
    """Ask the API server whether a user whom this process has authenticated has a right.

    Args:
        session: its account may create SubjectAccessReviews.
        user: the name of whoever asks.
        groups: theirs.
        right: what is needed.

    Raises:
        EdlError: the API server rejects the question, or does not answer.
    """
    return await _allowed(session, _OTHER, "SubjectAccessReview", right, {"user": user, "groups": list(groups)})


async def _may(caller: ApiSession, right: Right) -> bool:
    return await _allowed(caller, _SELF, "SelfSubjectAccessReview", right, {})


async def _allowed(session: ApiSession, path: str, kind: str, right: Right, subject: dict[str, object]) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "version": "*"}
    if subresource:
        attributes["subresource"] = subresource
    spec = {"resourceAttributes": attributes, **subject}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    status = (await session.post(path, body)).get("status")
    if not isinstance(status, dict):
        raise PermanentError(f"the API server answered a {kind} without a status; check its address")
    return status.get("allowed") is True
