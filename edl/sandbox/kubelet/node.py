"""The nodes of a kubelet: registration, Lease, and status.

Source: https://kubernetes.io/docs/concepts/architecture/nodes/#management
"""

from __future__ import annotations

import asyncio
import platform
from dataclasses import dataclass
from typing import Any

import msgspec

from edl import __version__
from edl.errors import EdlError
from edl.kube.client.api_errors import AlreadyExistsError, NotFoundError
from edl.kube.client.session import STRATEGIC_PATCH, ApiSession
from edl.sandbox.kubelet.host import LOOPBACK
from edl.sandbox.objects import micro_text, now_text

Object = dict[str, Any]
LEASE_S = 40
RENEW_S = 2.0
_STATUS_EVERY = 5  # renewals of the Lease
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "the process kubelet is ready"),
}


@dataclass(frozen=True, slots=True)
class NodeShape:
    """The capacity of a simulated node.

    Attributes:
        cpu, memory: as Kubernetes writes them.
        pods: the most pods.
    """

    cpu: str = "4"
    memory: str = "8Gi"
    pods: int = 110


class NodeAgent:
    """Keeps one Node ready.

    Args:
        session: the API server.
        name: the name of the node.
        shape: what it offers.
        port: the port of the kubelet's HTTPS server.
    """

    def __init__(self, session: ApiSession, name: str, shape: NodeShape, port: int) -> None:
        self._session, self.name, self._shape, self._port = session, name, shape, port
        self._since = now_text()
        self.node: Object = self._body()

    async def register(self) -> None:
        """Create the Node, or take over one of that name, and report it ready.

        Raises:
            EdlError: the API server does not answer, or refuses.
        """
        try:
            self.node = await self._session.post("/api/v1/nodes", self._body())
        except AlreadyExistsError:
            self.node = msgspec.json.decode(await self._session.get(self._path))
        await self._write_status()
        await self._renew()

    async def run(self) -> None:
        """Renew the Lease and, more rarely, the status, forever."""
        count = 0
        while True:
            await asyncio.sleep(RENEW_S)
            count += 1
            try:
                await self._renew()
                if count % _STATUS_EVERY == 0:
                    await self._write_status()
            except NotFoundError:
                await self._register_again()
            except EdlError:
                continue

    async def remove(self) -> None:
        """Delete the Node and its Lease."""
        for path in (f"{_LEASES}/{self.name}", self._path):
            try:
                await self._session.request("DELETE", path, timeout_s=3)
            except EdlError:
                continue

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    async def _register_again(self) -> None:
        try:
            await self.register()
        except EdlError:
            return

    async def _renew(self) -> None:
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_S, "renewTime": micro_text()}
        try:
            await self._session.patch(f"{_LEASES}/{self.name}", {"spec": spec})
        except NotFoundError:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.node["metadata"]["uid"]}
            metadata = {"name": self.name, "namespace": "kube-node-lease", "ownerReferences": [owner]}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            await self._session.post(_LEASES, body)

    async def _write_status(self) -> None:
        status = self._status()
        self.node = await self._session.patch(
            f"{self._path}/status", {"status": status}, content_type=STRATEGIC_PATCH
        )

    def _body(self) -> Object:
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": _architecture(),
            "paddlepaddle.org/kubelet": "process",
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {},
            "status": self._status(),
        }

    def _status(self) -> Object:
        amounts = {"cpu": self._shape.cpu, "memory": self._shape.memory, "pods": str(self._shape.pods)}
        return {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "conditions": [
                {
                    "type": kind,
                    "status": value,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now_text(),
                    "lastTransitionTime": self._since,
                }
                for kind, (value, reason, message) in _HEALTHY.items()
            ],
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": platform.release(),
                "osImage": platform.system(),
                "containerRuntimeVersion": f"process://{__version__}",
                "kubeletVersion": f"v{__version__}-edl",
                "kubeProxyVersion": "",
                "operatingSystem": platform.system().lower(),
                "architecture": _architecture(),
            },
        }


def _architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
