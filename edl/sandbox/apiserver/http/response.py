"""One response of the API server, and the form that the client accepts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from edl.sandbox.apiserver.errors import ApiError, not_acceptable

Object = dict[str, Any]


@dataclass(slots=True)
class Response:
    """A response.

    Attributes:
        code: the HTTP status.
        body: all of it; empty for a stream.
        stream: the chunks of a watch or a log.
        content_type: the content type of the body.
        headers: further ones.
    """

    code: int = 200
    body: bytes = b""
    stream: AsyncGenerator[bytes] | None = None
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def answer(value: Any, code: int = 200) -> Response:
    """Make a response with a JSON value."""
    return Response(code, msgspec.json.encode(value))


def answer_error(error: ApiError) -> Response:
    """The response for an error."""
    response = answer(error.status, error.code)
    retry = (error.status.get("details") or {}).get("retryAfterSeconds")
    if retry and error.code in {429, 503}:
        response.headers["Retry-After"] = str(retry)
    return response


def as_yaml(response: Response) -> Response:
    """Convert a JSON response to YAML."""
    value = msgspec.json.decode(response.body)
    response.body = yaml.safe_dump(value, sort_keys=True).encode()
    response.content_type = "application/yaml"
    return response


@dataclass(frozen=True, slots=True)
class Accepted:
    """The form that the client wants.

    Attributes:
        form: `json` or `yaml`.
        as_kind: the kind that objects are turned into (`Table`, `PartialObjectMetadata`...); empty for none.
        version: the version of that kind.
    """

    form: str = "json"
    as_kind: str = ""
    version: str = ""


_KINDS = {
    ("Table", "v1", "meta.k8s.io"),
    ("PartialObjectMetadata", "v1", "meta.k8s.io"),
    ("PartialObjectMetadataList", "v1", "meta.k8s.io"),
    ("APIGroupDiscoveryList", "v2", "apidiscovery.k8s.io"),
}


def accepted(headers: Mapping[str, str]) -> Accepted:
    """The first form of the Accept header that the server has.

    Raises:
        ApiError: 406, it has none of them.
    """
    text = headers.get("accept", "") or "application/json"
    for choice in text.split(","):
        media, _, rest = choice.strip().partition(";")
        parameters = dict(part.strip().partition("=")[::2] for part in rest.split(";") if "=" in part)
        kind = (parameters.get("as", ""), parameters.get("v", ""), parameters.get("g", ""))
        form = {"application/json": "json", "application/*": "json", "*/*": "json", "application/yaml": "yaml"}.get(
            media
        )
        if form and (not kind[0] or kind in _KINDS):
            return Accepted(form, kind[0], kind[1])
    raise not_acceptable("application/json, application/yaml, application/vnd.kubernetes.protobuf")
