"""The two API servers that the contract is about, behind one small interface.

A real one runs controllers, a scheduler and fake kubelets too. So the tests here use pods of a scheduler that does
not exist, and compare what the API server itself does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract.embedded_server import EmbeddedServer
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube

Object = dict[str, Any]
READY_S = 90.0

EMBEDDED, REAL = "embedded", "real"


@dataclass(slots=True)
class Answer:
    """One response: the HTTP status and the body, decoded if it is JSON."""

    code: int
    body: Any

    @property
    def reason(self) -> str:
        """The reason of an error Status."""
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""

    @property
    def message(self) -> str:
        """The message of an error Status."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)

    @property
    def causes(self) -> set[tuple[str, str, str]]:
        """The causes of an error Status, without their order."""
        details = self.body.get("details") or {} if isinstance(self.body, dict) else {}
        causes = details.get("causes") or ()
        return {(one.get("reason", ""), one.get("field", ""), one.get("message", "")) for one in causes}


class Server:
    """One API server under contract.

    Attributes:
        name: `embedded` or `real`.
        kube: a client of the administrator; where the real server takes part, with a kubectl of its version.
    """

    def __init__(self, name: str, kubeconfig: Path, kubectl: Path | None) -> None:
        self.name = name
        self.kubeconfig = kubeconfig
        self.kube = Kube(kubeconfig, kubectl=kubectl)
        self._count = 0

    def close(self) -> None:
        """Close all connections."""
        self.kube.close()

    def namespace(self) -> str:
        """A new namespace, with its service account."""
        self._count += 1
        name = f"contract-{self._count}"
        self.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        what = "its service account exists"
        self.kube.wait_until(lambda: self.kube.find("serviceaccounts", "default", name), READY_S, what)
        self.kube.wait_until(lambda: self.kube.find("configmaps", "kube-root-ca.crt", name), READY_S, what)
        return name

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request, with further headers; an error is an answer like any other."""
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        headers = {**self.kube._headers(accept, content_type), **(headers or {})}
        code, raw = self.kube._exchange(method, self.kube._target(path, query), data, headers)
        try:
            return Answer(code, json.loads(raw))
        except ValueError:
            return Answer(code, raw.decode(errors="replace"))


def embedded(server: EmbeddedServer, kubectl: Path | None = None) -> Server:
    """The embedded server."""
    return Server(EMBEDDED, server.kubeconfig, kubectl)


def real(plane: ControlPlane) -> Server:
    """A real control plane."""
    return Server(REAL, plane.kubeconfig, plane.kube.kubectl_path)
