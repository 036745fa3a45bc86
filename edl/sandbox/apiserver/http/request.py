"""One request to the API server, read from its path, query and headers.

Source: the paths and parameters of the Kubernetes API concepts, https://kubernetes.io/docs/reference/using-api/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from edl.sandbox.apiserver.errors import bad_request, unsupported_media
from edl.sandbox.apiserver.schema.protobuf import MEDIA_TYPE, ProtobufError, decode_protobuf

Object = dict[str, Any]

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_YAML = ("application/yaml", "application/apply-patch+yaml")


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a collection, an object or a subresource."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_target(path: str) -> Target | None:
    """The target of a path below /api or /apis; None if it names no resource."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"]:
        group, rest = "", parts[1:]
    elif parts[:1] == ["apis"] and len(parts) > 1:
        group, rest = parts[1], parts[2:]
    else:
        return None
    if len(rest) < 2:
        return None
    version, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2:] in (["status"], ["finalize"])):
        namespace, rest = rest[1], rest[2:]
    name, subresource = (rest[1:2] or [""])[0], "/".join(rest[2:])
    return Target(group, version, rest[0], namespace, name, subresource)


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: the HTTP method.
        path: decoded, without the query.
        query: the parameters.
        headers: with lower-case names.
        body: as sent.
        user: who sends it, as authentication found.
        groups: the groups of the user.
        as_of: a read is answered with the state at this version (see `faults`); None for the present.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: str = "admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    as_of: int | None = None

    @property
    def target(self) -> Target | None:
        """The resource that the path names."""
        return parse_target(self.path)

    @property
    def is_watch(self) -> bool:
        """True if the request is a watch."""
        return self.method == "GET" and self.flag("watch")

    @property
    def verb(self) -> str:
        """The Kubernetes verb: get, list, watch, create, update, patch, delete, deletecollection."""
        target = self.target
        named = target is not None and bool(target.name)
        if self.method in {"GET", "HEAD"}:
            if self.is_watch:
                return "watch"
            return "get" if named or target is None else "list"
        if self.method == "DELETE" and not named:
            return "deletecollection"
        return _WRITES.get(self.method, self.method.lower())

    @property
    def content_type(self) -> str:
        """The media type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip()

    def flag(self, name: str) -> bool:
        """Read a query parameter that is true or false."""
        return self.query.get(name, "").lower() in {"1", "true", "t"}

    def number(self, name: str) -> int | None:
        """Read a query parameter that is a whole number.

        Raises:
            ApiError: 400, it is not one.
        """
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None

    @property
    def is_dry_run(self) -> bool:
        """True if nothing is to be stored."""
        wanted = self.query.get("dryRun", "")
        if wanted not in {"", "All"}:
            detail = f'Invalid value: ["{wanted}"]: dryRun: Unsupported value: "{wanted}": supported values: "All"'
            raise bad_request(detail)
        return wanted == "All"

    @property
    def manager(self) -> str:
        """The field manager: the parameter, else the name of the program."""
        agent = self.headers.get("user-agent", "").partition("/")[0].strip()
        return self.query.get("fieldManager") or agent or "unknown"

    def decoded(self, kind: str = "object", type_name: str = "") -> Any:
        """The body as a value.

        Args:
            kind: what it should be, for the message.
            type_name: its full type, for a protobuf body.

        Raises:
            ApiError: 400, it cannot be parsed; 415, it is of another type.
        """
        if self.content_type == MEDIA_TYPE:
            if not type_name:
                raise unsupported_media()
            try:
                return decode_protobuf(self.body, type_name)
            except ProtobufError as error:
                raise bad_request(f"the object provided is unrecognized (must be of type {kind}): {error}") from None
        try:
            if self.content_type in _YAML and self.body[:1] != b"{":
                return yaml.safe_load(self.body)
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            detail = "couldn't get version/kind; json parse error: " + " ".join(str(error).split())
            raise bad_request(f"the object provided is unrecognized (must be of type {kind}): {detail}") from None
