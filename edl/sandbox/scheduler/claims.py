"""Writes into a pod's claims which devices they get, before the pod is bound, and releases them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from edl.kube.client.session import ApiSession
from edl.sandbox.objects import name_of, namespace_of, pod_path
from edl.sandbox.scheduler.devices import Asked, Device, Request
from edl.sandbox.scheduler.view import PodView

Object = dict[str, Any]
FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim for extended resources."""
_LOOK_S, _LOOKS = 0.01, 500
_STRATEGIC = "application/strategic-merge-patch+json"


def claim_path(claim: Object) -> str:
    """The path of a ResourceClaim at the API server."""
    return f"{_collection(namespace_of(claim))}/{name_of(claim)}"


def _collection(namespace: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"


class ClaimWriter:
    """Writes the status of ResourceClaims.

    Args:
        session: the API server.
        is_seen: tells whether the scheduler sees a claim of a namespace and a name.
    """

    def __init__(self, session: ApiSession, is_seen: Callable[[str, str], bool]) -> None:
        self._session, self._is_seen = session, is_seen

    async def reserve(
        self, pod: PodView, asked: Asked, node: str, devices: Sequence[Sequence[Device]]
    ) -> list[Object]:
        """Give the claims of a pod their devices, and reserve all for the pod; return them as stored.

        Args:
            pod: the pod.
            asked: what it asks for.
            node: that has the devices.
            devices: for each open claim, and last those for extended resources.

        Raises:
            EdlError: the API server refuses it, or a claim has changed.
        """
        *of_claims, of_extended = devices
        pairs = zip(asked.open, of_claims, strict=True)
        stored = [await self._allocate(claim, pod, node, own) for claim, own in pairs]
        for claim, _ in asked.allocated:
            users = (claim.get("status") or {}).get("reservedFor") or []
            if all(one.get("uid") != pod.uid for one in users):
                stored.append(await self._write(claim, {"reservedFor": [*users, _user(pod)]}))
        if of_extended:
            claim = await self._create(pod, asked.extended, of_extended)
            stored.append(await self._allocate(claim, pod, node, of_extended))
        return stored

    async def deallocate(self, claim: Object) -> Object:
        """Remove the devices of a claim that no pod uses; returns the claim as stored."""
        return await self._write(claim, {"allocation": None, "reservedFor": None})

    async def _allocate(self, claim: Object, pod: PodView, node: str, devices: Sequence[Device]) -> Object:
        finalizers = claim["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            version = claim["metadata"]["resourceVersion"]
            body = {"metadata": {"finalizers": [*finalizers, FINALIZER], "resourceVersion": version}}
            claim = await self._session.patch(claim_path(claim), body)
        results = [
            {"request": request, "driver": driver, "pool": pool, "device": device}
            for request, (driver, pool, device) in devices
        ]
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [here]}}
        return await self._write(claim, {"allocation": allocation, "reservedFor": [_user(pod)]})

    async def _create(self, pod: PodView, requests: Sequence[Request], devices: Sequence[Device]) -> Object:
        """Create the claim for the extended resources of a pod, and name it in the status of the pod."""
        given = {name for name, _ in devices}
        used = [one for one in requests if one.name in given]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.key[1], "uid": pod.uid, "controller": True}
        metadata = {
            "generateName": f"{pod.key[1]}-extended-resources-",
            "namespace": pod.key[0],
            "annotations": {EXTENDED: "true"},
            "ownerReferences": [owner],
        }
        wanted = [
            {"name": one.name, "exactly": {"deviceClassName": one.kind.device_class, "count": one.count}}
            for one in used
        ]
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": metadata,
            "spec": {"devices": {"requests": wanted}},
        }
        claim = await self._session.post(_collection(pod.key[0]), body)
        for _ in range(_LOOKS):
            if self._is_seen(pod.key[0], name_of(claim)):  # else it seems to be gone
                break
            await asyncio.sleep(_LOOK_S)
        containers = pod.body["spec"]["containers"]
        mappings = [
            {
                "containerName": containers[one.container]["name"],
                "resourceName": one.resource,
                "requestName": one.name,
            }
            for one in used
        ]
        status = {"extendedResourceClaimStatus": {"requestMappings": mappings, "resourceClaimName": name_of(claim)}}
        await self._session.patch(pod_path(pod.body, "status"), {"status": status}, content_type=_STRATEGIC)
        return claim

    async def _write(self, claim: Object, status: Object) -> Object:
        """Write the status of a claim, if it is still the same object."""
        metadata = {"uid": claim["metadata"]["uid"], "resourceVersion": claim["metadata"]["resourceVersion"]}
        return await self._session.patch(f"{claim_path(claim)}/status", {"metadata": metadata, "status": status})


def _user(pod: PodView) -> Object:
    return {"resource": "pods", "name": pod.key[1], "uid": pod.uid}
