"""The OpenAPI document of a master, made from the classes that judge its bodies."""

from __future__ import annotations

from typing import Any

import msgspec

from edl import __version__
from edl.master import bodies

_Object = dict[str, Any]
_REF = "#/components/schemas/{name}"
_ROUTES: tuple[tuple[str, str, str, type | None, type | None], ...] = (
    ("post", "/v1/sync", "Heartbeat, renewal, report and lease in one", bodies.SyncBody, bodies.SyncAnswer),
    ("post", "/v1/dataset", "Say what is sharded", bodies.DatasetBody, bodies.DatasetBody),
    ("get", "/v1/dataset/piece", "Where a record of a file lies", None, bodies.PieceAnswer),
    ("post", "/v1/checkpoint/begin", "The model is being saved", bodies.BeginBody, bodies.IdAnswer),
    ("post", "/v1/checkpoint/commit", "The model is saved", bodies.CommitBody, bodies.IdAnswer),
    ("post", "/v1/checkpoint/restore", "Go on from a checkpoint", bodies.RestoreBody, bodies.IdAnswer),
    ("post", "/v1/save-election", "Who saves the model", bodies.ElectionBody, bodies.ElectionAnswer),
    ("put", "/v1/roster", "Who may hold leases; the controller's token", bodies.RosterBody, None),
    ("get", "/v1/status", "What the master holds", None, None),
)
_OPEN_ROUTES = (
    ("/openapi.json", "This document", "application/json"),
    ("/metrics", "For Prometheus", "text/plain"),
    ("/healthz", "The master answers", "text/plain"),
)
_RECORD = {
    "name": "record",
    "in": "query",
    "required": True,
    "description": "its number, from 0",
    "schema": {"type": "integer", "minimum": 0, "maximum": 10**18},
}
_REFUSALS = {
    "400": "malformed",
    "401": "no token",
    "403": "a foreign job's token, or the wrong role",
    "404": "no such checkpoint",
    "409": "a replaced session, an old seq, or another data set",
    "413": "the body is too large",
    "429": "too many calls or connections; see Retry-After",
    "503": "the disk is full or the master is stopping; see Retry-After",
}


def openapi() -> _Object:
    """The document, OpenAPI 3.1."""
    kinds = [kind for route in _ROUTES for kind in route[3:] if isinstance(kind, type)] + [bodies.ErrorAnswer]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(kinds), ref_template=_REF)
    paths: _Object = {}
    for method, path, summary, body, answer in _ROUTES:
        paths[path] = {method: _operation(summary, body, answer)}
    paths["/v1/dataset/piece"]["get"]["parameters"] = [_RECORD]
    for path, summary, content in _OPEN_ROUTES:
        ok = {"description": "done", "content": {content: {}}}
        paths[path] = {"get": {"summary": summary, "security": [], "responses": {"200": ok}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "edl master", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(summary: str, body: type | None, answer: type | None) -> _Object:
    schema = {"$ref": _REF.format(name=answer.__name__)} if answer is not None else {"type": "object"}
    responses: _Object = {"200": {"description": "done", "content": {"application/json": {"schema": schema}}}}
    error = {"schema": {"$ref": _REF.format(name="ErrorAnswer")}}
    for status, text in _REFUSALS.items():
        responses[status] = {"description": text, "content": {"application/json": error}}
    operation: _Object = {"summary": summary, "responses": responses}
    if body is not None:
        content = {"application/json": {"schema": {"$ref": _REF.format(name=body.__name__)}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation
