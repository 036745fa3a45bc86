"""Lists: selectors, pages, and the resourceVersion that they show.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/, "Resource versions" and "Retrieving large
results sets in chunks".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.errors import ApiError, bad_request, expired, forbidden_field, invalid, too_large_version
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.kind import Kind, Object
from edl.sandbox.apiserver.storage.selectors import FieldSelector, LabelSelector
from edl.sandbox.apiserver.storage.store import Entry, Key, TooOldError


class Selection:
    """The objects of a collection that the selectors of a request choose."""

    def __init__(self, kind: Kind, namespace: str, request: Request) -> None:
        """Read the selectors of a request.

        Raises:
            ApiError: 400, a selector cannot be parsed.
        """
        self.kind = kind
        self.namespace = namespace
        self._labels = LabelSelector(request.query.get("labelSelector", ""))
        self._fields = FieldSelector(request.query.get("fieldSelector", ""), kind.selectable)
        target = request.target
        self._name = target.name if target is not None else ""

    def holds(self, key: Key, entry: Entry) -> bool:
        """Return whether an object is selected."""
        if (self.namespace and key[0] != self.namespace) or (self._name and key[1] != self._name):
            return False
        if self._labels and not self._labels.matches(entry.value["metadata"].get("labels") or {}):
            return False
        if not self._fields:
            return True
        fields = {"metadata.namespace": key[0], "metadata.name": key[1], "name": key[1]}
        return self._fields.matches({**fields, **self.kind.fields_of(entry.value)})


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    entries: list[Entry]
    metadata: Object


class _Token(msgspec.Struct):
    version: int
    namespace: str
    name: str


def read_page(cluster: Cluster, selection: Selection, request: Request) -> Page:
    """The page that a request asks for.

    Raises:
        ApiError: 400, a parameter or the token is wrong; 410, the token is too old; 504, the version is not reached.
    """
    limit = request.number("limit") or 0
    token = _read_token(request.query.get("continue", ""))
    version = _version(cluster, request, token) if request.as_of is None else request.as_of
    try:
        found = cluster.store.entries(selection.kind.resource, selection.namespace, at=version)
    except TooOldError:
        raise expired(_too_old(token is not None, version, cluster)) from None
    if token is not None:
        found = [pair for pair in found if pair[0] > (token.namespace, token.name)]
    chosen = [(key, entry) for key, entry in found if selection.holds(key, entry)]
    shown = cluster.store.version if version is None else version
    metadata: Object = {"resourceVersion": str(shown)}
    if limit and len(chosen) > limit:
        last = chosen[limit - 1][0]
        metadata["continue"] = _write_token(_Token(shown, *last))
        if not request.query.get("labelSelector") and not request.query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(chosen) - limit
        chosen = chosen[:limit]
    return Page([entry for _, entry in chosen], metadata)


def _version(cluster: Cluster, request: Request, token: _Token | None) -> int | None:
    text, match = request.query.get("resourceVersion", ""), request.query.get("resourceVersionMatch", "")
    if token is not None:
        if text not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
        return token.version
    if match and not text:
        raise _forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match == "Exact" and text == "0":
        raise _forbidden_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    wanted = parse_version(text)
    if wanted > cluster.store.version:
        raise too_large_version(wanted, cluster.store.version)
    return wanted if match == "Exact" else None


def _forbidden_match(why: str) -> ApiError:
    return invalid("ListOptions", "meta.k8s.io", "", [forbidden_field("resourceVersionMatch", why)])


def parse_version(text: str) -> int:
    """Parse a resourceVersion as a number; 0 if it is empty.

    Raises:
        ApiError: 400, it is not one.
    """
    if text and not text.isdigit():
        raise bad_request(f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text or 0)


def _too_old(is_continued: bool, version: int | None, cluster: Cluster) -> str:
    if not is_continued:
        return f"The resourceVersion for the provided list is too old. ({version} < {cluster.store.version})"
    return (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter."
    )


def _write_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _read_token(text: str) -> _Token | None:
    if not text:
        return None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None


def values_of(entries: Iterable[Entry]) -> list[Object]:
    """The objects of a page."""
    return [entry.value for entry in entries]
