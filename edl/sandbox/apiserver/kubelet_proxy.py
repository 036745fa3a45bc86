"""Logs and exec: requests that the server passes on to the kubelet of the pod's node.

The address is in the node's status, as with a real kubelet: `addresses` and `daemonEndpoints.kubeletEndpoint.Port`.
Kubelets serve https with a certificate of their own, which a real API server does not check either by default. They
recognise this server by its token, which lets its bearer do no more than call kubelets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
from aiohttp import web

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.errors import ApiError, bad_request, internal
from edl.sandbox.apiserver.http.request import Request, Target
from edl.sandbox.apiserver.http.response import Response
from edl.sandbox.apiserver.kinds.kind import Object, dig

_LOG_OPTIONS = ("follow", "previous", "tailLines", "limitBytes", "sinceSeconds", "sinceTime", "timestamps")
_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_CONNECT_S = 10.0


def is_proxied(target: Target | None) -> bool:
    """Return whether a request goes to a kubelet."""
    return (
        target is not None
        and target.plural == "pods"
        and target.group == ""
        and target.subresource in {"log", "exec"}
    )


class KubeletProxy:
    """Passes requests on to kubelets.

    Args:
        cluster: has the pods and the addresses of the nodes.
        token: with which it calls them.
    """

    def __init__(self, cluster: Cluster, token: str) -> None:
        self._cluster, self._token = cluster, token
        self._client: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections to kubelets."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
            headers = {"Authorization": f"Bearer {self._token}"}
            self._client = aiohttp.ClientSession(timeout=limits, headers=headers, auto_decompress=False)
        return self._client

    async def logs(self, request: Request, target: Target) -> Response:
        """Stream the log of a container from its kubelet.

        Raises:
            ApiError: 400, 404, or what the kubelet answers.
        """
        pod = self._pod(target)
        container = _container(pod, request.query.get("container", ""))
        if not pod["spec"].get("nodeName"):
            return Response(content_type="text/plain")
        url = f"{self._kubelet(pod)}/containerLogs/{target.namespace}/{target.name}/{container}"
        query = {name: request.query[name] for name in _LOG_OPTIONS if name in request.query}
        try:
            reply = await self._session().get(url, params=query, ssl=False, allow_redirects=False)
        except (aiohttp.ClientError, OSError) as error:
            raise internal(f'Get "{url}": {error}') from None
        if reply.status != 200:
            text = (await reply.text()).strip()
            raise _kubelet_error(reply.status, text)
        return Response(stream=_chunks(reply), content_type="text/plain")

    async def exec(self, raw: web.BaseRequest, request: Request, target: Target) -> web.StreamResponse:
        """Run a command in a container: connect the WebSocket of the client to that of the kubelet.

        Raises:
            ApiError: 400, 404, or what the kubelet answers.
        """
        pod = self._pod(target)
        container = _container(pod, request.query.get("container", ""))
        if not pod["spec"].get("nodeName"):
            raise bad_request(f"pod {target.name} does not have a host assigned")
        url = f"{self._kubelet(pod)}/exec/{target.namespace}/{target.name}/{container}"
        query = [(name, value) for name, value in raw.query.items() if name != "container"]
        try:
            far = await self._session().ws_connect(url, params=query, protocols=_PROTOCOLS, ssl=False)
        except aiohttp.WSServerHandshakeError as error:
            raise _kubelet_error(error.status, await self._refusal(url, query)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise internal(f'Get "{url}": {error}') from None
        near = web.WebSocketResponse(protocols=_PROTOCOLS)
        await near.prepare(raw)
        await asyncio.gather(_pass_on(near, far), _pass_on(far, near))
        return near

    async def _refusal(self, url: str, query: list[tuple[str, str]]) -> str:
        """Ask the kubelet why it rejects a request; a failed WebSocket handshake does not tell."""
        async with self._session().post(url, params=query, ssl=False, allow_redirects=False) as reply:
            return (await reply.text()).strip()

    def _pod(self, target: Target) -> Object:
        kind = self._cluster.registry.find("", "v1", "pods")
        if kind is None:
            raise AssertionError("pods are built in")
        return self._cluster.entry(kind, (target.namespace, target.name)).value

    def _kubelet(self, pod: Object) -> str:
        """The URL of the kubelet of a pod."""
        name = pod["spec"]["nodeName"]
        node = self._cluster.find("nodes", "", name) or {}
        addresses = {one.get("type"): one.get("address") for one in dig(node, "status", "addresses", default=())}
        port = dig(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port")
        host = addresses.get("InternalIP") or addresses.get("Hostname")
        if not host or not port:
            raise ApiError(404, "NotFound", f'no address is known for node "{name}"', {})
        return f"https://{host}:{port}"


def _container(pod: Object, name: str) -> str:
    names = [one["name"] for field in ("initContainers", "containers") for one in pod["spec"].get(field, ())]
    pod_name = pod["metadata"]["name"]
    if not name:
        mains = [one["name"] for one in pod["spec"]["containers"]]
        chosen = dig(pod, "metadata", "annotations", "kubectl.kubernetes.io/default-container")
        if len(mains) > 1 and chosen not in mains:
            choice = " ".join(mains)
            raise bad_request(f"a container name must be specified for pod {pod_name}, choose one of: [{choice}]")
        return str(chosen if chosen in mains else mains[0])
    if name not in names:
        raise bad_request(f"container {name} is not valid for pod {pod_name}")
    return name


def _kubelet_error(code: int, text: str) -> ApiError:
    reasons = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 501: "NotImplemented"}
    return ApiError(code, reasons.get(code, "InternalError"), text or f"the kubelet answered {code}", {})


async def _chunks(reply: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    try:
        async for chunk in reply.content.iter_any():
            yield chunk
    finally:
        reply.close()


async def _pass_on(source: Any, sink: Any) -> None:
    """Pass on the messages of one WebSocket to another until it closes."""
    async for message in source:
        if message.type is aiohttp.WSMsgType.BINARY:
            await sink.send_bytes(message.data)
        elif message.type is aiohttp.WSMsgType.TEXT:
            await sink.send_str(message.data)
    await sink.close()
