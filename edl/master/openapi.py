"""The OpenAPI document of a master, generated from the classes that validate its bodies."""

from __future__ import annotations

from typing import Any

import msgspec

from edl import __version__
from edl.master import bodies

_Object = dict[str, Any]
_REF = "#/components/schemas/{name}"
_ROUTES: tuple[tuple[str, str, str, type | None, type | None], ...] = (
    (
        "post",
        "/v1/sync",
        "Send a heartbeat, renew and report leases, ask for leases",
        bodies.SyncBody,
        bodies.SyncAnswer,
    ),
    (
        "post",
        "/v1/dataset",
        "Set the data set of the job; the same data set again changes nothing",
        bodies.DatasetBody,
        bodies.DatasetBody,
    ),
    ("get", "/v1/dataset/piece", "Find the file and the place of a record", None, bodies.PieceAnswer),
    (
        "get",
        "/v1/dataset/sources",
        "How far the training is in each source of a mixture",
        None,
        bodies.SourcesAnswer,
    ),
    (
        "post",
        "/v1/checkpoint/begin",
        "Begin a checkpoint, before the model is saved",
        bodies.BeginBody,
        bodies.IdAnswer,
    ),
    (
        "post",
        "/v1/checkpoint/commit",
        "Commit a checkpoint, after the model is saved",
        bodies.CommitBody,
        bodies.IdAnswer,
    ),
    (
        "post",
        "/v1/checkpoint/restore",
        "Continue training from a committed checkpoint",
        bodies.RestoreBody,
        bodies.IdAnswer,
    ),
    (
        "post",
        "/v1/save-election",
        "Ask whether this trainer should save the model of a step",
        bodies.ElectionBody,
        bodies.ElectionAnswer,
    ),
    (
        "post",
        "/v1/group/enter",
        "Ask for a world to train in step with others; held until the world forms",
        bodies.EnterBody,
        bodies.EnterAnswer,
    ),
    (
        "post",
        "/v1/group/watch",
        "Report the position of the model; held until the world has to change",
        bodies.WatchBody,
        bodies.WatchAnswer,
    ),
    (
        "post",
        "/v1/group/leave",
        "Leave the world; held until no trainer of it is in a step",
        bodies.LeaveBody,
        bodies.LeaveAnswer,
    ),
    (
        "post",
        "/v1/group/alive",
        "Say that the process of a trainer lives, while its loop may be too busy to watch",
        bodies.AliveBody,
        None,
    ),
    (
        "post",
        "/v1/group/stop",
        "End the training of the world with the step that ends at a position",
        bodies.StopBody,
        None,
    ),
    ("put", "/v1/roster", "Set the pods that may hold leases; needs the controller's token", bodies.RosterBody, None),
    ("get", "/v1/status", "Read the progress, the sessions and the leases", None, None),
)
_ROUTES_WITHOUT_TOKEN = (
    ("/openapi.json", "Read this document", "application/json"),
    ("/metrics", "Read the metrics, for Prometheus", "text/plain"),
    ("/healthz", "Check that the master answers; the text names a blocked journal", "text/plain"),
)
_RECORD = {
    "name": "record",
    "in": "query",
    "required": True,
    "description": "number of the record, from 0",
    "schema": {"type": "integer", "minimum": 0, "maximum": 10**18},
}
_PART = {
    "name": "part",
    "in": "query",
    "required": False,
    "description": "number of the source in a mixture, from 0; the record is then that of the source",
    "schema": {"type": "integer", "minimum": 0, "maximum": 10**18},
}
_ERRORS = {
    "400": "the request is malformed",
    "401": "the token is missing",
    "403": "the token belongs to another job or to the wrong role",
    "404": "there is no such checkpoint",
    "409": "the session was replaced, the seq is old, the job has another data set, or its trainers train otherwise",
    "413": "the body is too large",
    "429": "too many calls or connections; try again after Retry-After",
    "503": "the disk is full, or the master is stopping; try again after Retry-After",
}


def openapi() -> _Object:
    """The document, in OpenAPI 3.1."""
    kinds = [kind for route in _ROUTES for kind in route[3:] if isinstance(kind, type)] + [bodies.ErrorAnswer]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(kinds), ref_template=_REF)
    paths: _Object = {}
    for method, path, summary, body, answer in _ROUTES:
        paths[path] = {method: _operation(summary, body, answer)}
    paths["/v1/dataset/piece"]["get"]["parameters"] = [_RECORD, _PART]
    for path, summary, content in _ROUTES_WITHOUT_TOKEN:
        ok = {"description": "success", "content": {content: {}}}
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
    responses: _Object = {"200": {"description": "success", "content": {"application/json": {"schema": schema}}}}
    error = {"schema": {"$ref": _REF.format(name="ErrorAnswer")}}
    for status, text in _ERRORS.items():
        responses[status] = {"description": text, "content": {"application/json": error}}
    operation: _Object = {"summary": summary, "responses": responses}
    if body is not None:
        content = {"application/json": {"schema": {"$ref": _REF.format(name=body.__name__)}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation
