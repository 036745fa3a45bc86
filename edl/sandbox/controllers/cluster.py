"""The smaller controllers: Endpoints of Services, and lost nodes."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from edl.kube.client.session import ApiSession
from edl.sandbox.controllers.loop import Informers, attempt, collection_of, delete, path_of
from edl.sandbox.kubelet.node import LEASE_S
from edl.sandbox.objects import (
    condition,
    is_deleted,
    is_finished,
    is_true,
    labels_of,
    name_of,
    namespace_of,
    now_text,
    uid_of,
)
from edl.sandbox.scheduler.filters import is_tolerated

Object = dict[str, Any]
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
_STRATEGIC = "application/strategic-merge-patch+json"
_TICK_S = 1.0


class EndpointsController:
    """Writes the Endpoints of each Service with a selector.

    Args:
        session: the API server.
        informers: the informers of Service, Pod and Endpoints.
    """

    def __init__(self, session: ApiSession, informers: Informers) -> None:
        self._session, self._informers = session, informers

    async def run(self) -> None:
        """Write the Endpoints again after each change, forever."""
        await self._informers.after_each_change(self._write_all)

    async def _write_all(self) -> None:
        pods = [pod for pod in self._informers["Pod"] if not is_finished(pod)]
        for service in self._informers["Service"]:
            if service["spec"].get("selector") and not is_deleted(service):
                await self._write(service, endpoint_subsets(service, pods))

    async def _write(self, service: Object, subsets: list[Object]) -> None:
        namespace, name = namespace_of(service), name_of(service)
        stored = self._informers["Endpoints"].get(namespace, name)
        owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid_of(service)}
        metadata = {"name": name, "namespace": namespace, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
        if stored is None:
            await attempt(self._session.post(collection_of("Endpoints", namespace), body))
        elif (stored.get("subsets") or []) != subsets:
            path = path_of(stored, "Endpoints")
            await attempt(self._session.patch(path, {"subsets": subsets or None}))


def endpoint_subsets(service: Object, pods: list[Object]) -> list[Object]:
    """The subsets of the Endpoints of a Service: ready addresses, and those that are not ready."""
    wanted = service["spec"]["selector"].items()
    chosen = [
        pod
        for pod in sorted(pods, key=name_of)
        if namespace_of(pod) == namespace_of(service)
        and wanted <= labels_of(pod).items()
        and (pod.get("status") or {}).get("podIP")
        and not is_deleted(pod)
    ]
    if not chosen:
        return []
    is_published = bool(service["spec"].get("publishNotReadyAddresses"))
    ready = [_address(pod) for pod in chosen if is_published or is_true(pod, "Ready")]
    waiting = [_address(pod) for pod in chosen if not is_published and not is_true(pod, "Ready")]
    ports = [
        {key: value for key, value in _port(one).items() if value is not None}
        for one in service["spec"].get("ports") or ()
    ]
    subset = {"addresses": ready, "notReadyAddresses": waiting, "ports": ports}
    return [{key: value for key, value in subset.items() if value}]


def _address(pod: Object) -> Object:
    target = {"kind": "Pod", "name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)}
    address = {"ip": pod["status"]["podIP"], "nodeName": pod["spec"].get("nodeName"), "targetRef": target}
    return {"hostname": pod["spec"]["hostname"], **address} if pod["spec"].get("hostname") else address


def _port(port: Object) -> Object:
    target = port.get("targetPort") or port["port"]
    number = target if isinstance(target, int) else port["port"]
    return {"name": port.get("name"), "port": number, "protocol": port.get("protocol") or "TCP"}


class NodeController:
    """Marks nodes whose Lease is not renewed, and evicts their pods once these no longer tolerate it.

    Args:
        session: the API server.
        informers: the informers of Node, Pod and Lease.
        grace_s: how long a node whose Lease is not renewed stays ready.
        toleration_s: how long a pod without a toleration of its own stays on a lost node.
    """

    def __init__(
        self, session: ApiSession, informers: Informers, grace_s: float = LEASE_S, toleration_s: float = 300.0
    ) -> None:
        self._session, self._informers = session, informers
        self._grace_s, self._toleration_s = grace_s, toleration_s
        self._seen: dict[str, tuple[str, float]] = {}

    async def run(self) -> None:
        """Look at the nodes each second, forever."""
        await self._informers.wait_until_synced()
        while True:
            for node in self._informers["Node"]:
                await self._check(node)
            await asyncio.sleep(_TICK_S)

    async def _check(self, node: Object) -> None:
        lease = self._informers["Lease"].get("kube-node-lease", name_of(node))
        renewed = str(((lease or {}).get("spec") or {}).get("renewTime") or "")
        known, since_s = self._seen.get(name_of(node), ("", 0.0))
        if renewed != known or not since_s:
            self._seen[name_of(node)] = (renewed, time.monotonic())
            since_s = time.monotonic()
        is_lost = time.monotonic() - since_s > self._grace_s
        if is_lost and (condition(node, "Ready") or {}).get("status") != "Unknown":
            await self._mark(node, is_lost=True)
        elif not is_lost and _taint(node) is not None and is_true(node, "Ready"):
            await self._mark(node, is_lost=False)
        if taint := _taint(node):
            await self._evict(node, taint)

    async def _mark(self, node: Object, *, is_lost: bool) -> None:
        others = [one for one in (node.get("spec") or {}).get("taints") or () if one["key"] != UNREACHABLE["key"]]
        version = node["metadata"]["resourceVersion"]
        if is_lost:
            found = {
                "type": "Ready",
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": now_text(),
            }
            status = {"status": {"conditions": [found]}}
            await attempt(
                self._session.patch(f"/api/v1/nodes/{name_of(node)}/status", status, content_type=_STRATEGIC)
            )
            others += [{**UNREACHABLE, "timeAdded": now_text()}, {**UNREACHABLE, "effect": "NoSchedule"}]
            version = ""
            await self._mark_pods(name_of(node))
        body: Object = {"spec": {"taints": others or None}}
        if version:
            body["metadata"] = {"resourceVersion": version}
        await attempt(self._session.patch(f"/api/v1/nodes/{name_of(node)}", body))

    async def _mark_pods(self, node: str) -> None:
        """Mark the pods of a lost node as not ready, so that no Service sends them requests."""
        found = {"type": "Ready", "status": "False", "lastTransitionTime": now_text()}
        for pod in self._informers["Pod"]:
            if pod["spec"].get("nodeName") == node and is_true(pod, "Ready"):
                path = f"{path_of(pod, 'Pod')}/status"
                body = {"status": {"conditions": [found]}}
                await attempt(self._session.patch(path, body, content_type=_STRATEGIC))

    async def _evict(self, node: Object, taint: Object) -> None:
        added = str(taint.get("timeAdded") or "")
        if not added:
            return
        age_s = (datetime.now(UTC) - datetime.fromisoformat(added)).total_seconds()
        for pod in self._informers["Pod"]:
            if (
                pod["spec"].get("nodeName") == name_of(node)
                and not is_deleted(pod)
                and age_s > self._patience_s(pod, taint)
            ):
                await delete(self._session, "Pod", pod)

    def _patience_s(self, pod: Object, taint: Object) -> float:
        matching = [one for one in pod["spec"].get("tolerations") or () if is_tolerated(taint, [one])]
        if not matching:
            return self._toleration_s
        limits = [one.get("tolerationSeconds") for one in matching]
        known = [float(limit) for limit in limits if limit is not None]
        return min(known) if known else float("inf")


def _taint(node: Object) -> Object | None:
    taints = (node.get("spec") or {}).get("taints") or ()
    return next((one for one in taints if (one["key"], one["effect"]) == tuple(UNREACHABLE.values())), None)
