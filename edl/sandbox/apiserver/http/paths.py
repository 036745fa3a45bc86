"""The paths that name no resource: discovery, OpenAPI, version, health."""

from __future__ import annotations

from edl.sandbox.apiserver.errors import no_such_path
from edl.sandbox.apiserver.http import discovery, openapi
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.http.response import Accepted, Response, answer
from edl.sandbox.apiserver.registry import Registry

_HEALTH = ("/healthz", "/livez", "/readyz")
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def fixed_answer(registry: Registry, request: Request, form: Accepted) -> Response | None:
    """The answer for a path that names no resource; None for any other path.

    Raises:
        ApiError: 404, there is no such group or document.
    """
    path = request.path.rstrip("/") or "/"
    if path.startswith(_HEALTH):
        return Response(body=b"ok", content_type="text/plain; charset=utf-8")
    if path == "/version":
        return answer(discovery.VERSION)
    if path.startswith("/openapi/"):
        return _openapi(registry, path)
    if path in {"/api", "/apis"} and form.as_kind == "APIGroupDiscoveryList":
        response = answer(discovery.aggregated(registry, legacy=path == "/api"))
        response.content_type = _AGGREGATED
        return response
    if path == "/api":
        return answer(discovery.legacy_versions())
    if path == "/apis":
        return answer(discovery.group_list(registry))
    parts = path.split("/")[1:]
    if parts[0] == "api" and len(parts) == 2:
        return _resources(registry, "", parts[1])
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in registry.groups():
        return answer({"kind": "APIGroup", "apiVersion": "v1", **discovery.group(registry, parts[1])})
    if parts[0] == "apis" and len(parts) == 3:
        return _resources(registry, parts[1], parts[2])
    if parts[0] not in {"api", "apis"} or len(parts) < 3:
        return Response(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")
    return None


def _resources(registry: Registry, group: str, version: str) -> Response:
    if version not in registry.groups().get(group, ()):
        return Response(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")
    return answer(discovery.resource_list(registry, group, version))


def _openapi(registry: Registry, path: str) -> Response:
    if path == "/openapi/v3":
        return answer(openapi.index(registry))
    parts = path.removeprefix("/openapi/v3/").split("/")
    group, version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else ("", "")
    if parts[0] == "apis" and len(parts) == 3:
        group, version = parts[1], parts[2]
    if version not in registry.groups().get(group, ()):
        raise no_such_path()
    return answer(openapi.document(registry, group, version))
