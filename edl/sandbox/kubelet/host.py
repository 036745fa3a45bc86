"""What all pods of a kubelet share: the runtime, folders, addresses, and the connection to the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from edl.errors import ConflictError, EdlError, TemporaryError
from edl.kube.client.api_errors import NotFoundError
from edl.kube.client.session import STRATEGIC_PATCH, ApiSession
from edl.sandbox.events import EventRecorder
from edl.sandbox.kubelet.addresses import AddressPool
from edl.sandbox.kubelet.environment import Find
from edl.sandbox.kubelet.images import Image
from edl.sandbox.kubelet.launch import Machine
from edl.sandbox.kubelet.network_hook import Ports
from edl.sandbox.kubelet.runtime import Runtime
from edl.sandbox.kubelet.temporary import TemporaryFolders
from edl.sandbox.objects import namespace_of, pod_path, uid_of

Object = dict[str, Any]
_CLAIM = "PersistentVolumeClaim"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of a kubelet, in seconds.

    Attributes:
        crash_s: the pause before the second restart of a container; later ones are longer.
        volumes_s: between two attempts to make the volumes of a pod.
        api_s: between two attempts of a write that failed.
    """

    crash_s: float = 10.0
    volumes_s: float = 1.0
    api_s: float = 0.5


@dataclass(slots=True)
class Host:
    """The resources that all pods of one kubelet share.

    Attributes:
        session: the API server.
        runtime: runs the containers.
        machine: what every container gets.
        images: the image table.
        addresses: the addresses of pods.
        folder: the folder of this kubelet; pods have folders below it.
        temporary: names the links to the temporary files of containers.
        events: writes events.
        data: the Secrets and ConfigMaps that pods refer to: (kind, namespace, name) -> object.
    """

    session: ApiSession
    runtime: Runtime
    machine: Machine
    images: tuple[Image, ...]
    addresses: AddressPool
    folder: Path
    temporary: TemporaryFolders
    events: EventRecorder
    pace: Pace = field(default_factory=Pace)
    data: dict[tuple[str, str, str], Object] = field(default_factory=dict)

    def target(self, address: str, port: int) -> tuple[str, int]:
        """The address on this machine at which a port of a pod can be reached.

        Raises:
            LookupError: nothing listens there.
        """
        if self.machine.ports is None or address == LOOPBACK:
            return address, port
        real = Ports(str(self.machine.ports)).find(address, port)
        if real is None:
            raise LookupError(f"dial tcp {address}:{port}: connect: connection refused")
        return LOOPBACK, real

    def finder(self, pod: Object) -> Find:
        """Return a function that looks up what `fetch_data` has read for a pod."""
        namespace = namespace_of(pod)
        return lambda kind, name: self.data.get((kind, namespace, name))

    async def fetch_data(self, pod: Object) -> None:
        """Read what a pod refers to: Secrets, ConfigMaps, claims and their volumes; what does not exist is left out.

        Raises:
            EdlError: the API server does not answer, or refuses.
        """
        namespace = namespace_of(pod)
        for kind, name in sorted(set(_references(pod))):
            plural = f"{kind.lower()}s"
            found = await self._read((kind, namespace, name), f"/api/v1/namespaces/{namespace}/{plural}/{name}")
            volume = ((found or {}).get("spec") or {}).get("volumeName") if kind == _CLAIM else None
            if volume:
                await self._read(("PersistentVolume", namespace, volume), f"/api/v1/persistentvolumes/{volume}")

    async def _read(self, key: tuple[str, str, str], path: str) -> Object | None:
        """Read an object and cache it; None if it does not exist."""
        try:
            self.data[key] = await _get(self.session, path)
        except NotFoundError:
            self.data.pop(key, None)
        return self.data.get(key)

    async def token(self, pod: Object, source: Object) -> str:
        """Request a token of the pod's ServiceAccount for a projected volume."""
        account = pod["spec"].get("serviceAccountName") or "default"
        path = f"/api/v1/namespaces/{namespace_of(pod)}/serviceaccounts/{account}/token"
        spec: Object = {
            "expirationSeconds": source.get("expirationSeconds") or 3600,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "uid": uid_of(pod),
            },
        }
        if source.get("audience"):
            spec["audiences"] = [source["audience"]]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self.session.post(path, body)
        return str(answer["status"]["token"])

    async def write_status(self, pod: Object, status: Object) -> bool:
        """Write the status of a pod; True once it is written, or if the pod does not exist any more."""
        body = {"metadata": {"uid": uid_of(pod)}, "status": status}
        try:
            await self.session.patch(pod_path(pod, "status"), body, content_type=STRATEGIC_PATCH)
        except (NotFoundError, ConflictError):
            return True
        except EdlError:
            return False
        return True

    async def delete(self, pod: Object) -> None:
        """Delete a pod whose containers have ended, however long the API server is away."""
        while True:
            try:
                await self.session.delete(pod_path(pod), uid=uid_of(pod), grace_s=0)
                return
            except (NotFoundError, ConflictError):
                return
            except TemporaryError:
                await asyncio.sleep(self.pace.api_s)


async def _get(session: ApiSession, path: str) -> Object:

    found: Object = msgspec.json.decode(await session.get(path))
    return found


def _references(pod: Object) -> Iterable[tuple[str, str]]:
    """The Secrets, ConfigMaps and claims that a pod refers to: (kind, name)."""
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for one in container.get("envFrom") or ():
            yield from _named(one, "secretRef", "configMapRef")
        for one in container.get("env") or ():
            yield from _named(one.get("valueFrom") or {}, "secretKeyRef", "configMapKeyRef")
    for volume in spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield _CLAIM, claim["claimName"]
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            yield from _named(source, "secret", "configMap")


def _named(source: Object, secret: str, config_map: str) -> Iterable[tuple[str, str]]:
    for field_name, kind in ((secret, "Secret"), (config_map, "ConfigMap")):
        if reference := source.get(field_name):
            yield kind, reference.get("secretName") or reference["name"]
