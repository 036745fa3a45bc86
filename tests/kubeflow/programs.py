"""The training operator of Kubeflow on a control plane of the tests: its resource, its admission, and the operator.

The operator makes its own certificates and puts them into a Secret. In a cluster the kubelet mounts that Secret as
files; here they are written to the folder that the operator has compiled in. The API server reaches its admission
through a Service with an external name.
"""

from __future__ import annotations

import contextlib
import shutil
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from edl.sandbox.stack import free_port
from tests.e2e.control_plane.beside import ProgramBeside
from tests.e2e.control_plane.build import KubeflowBinary, ensure_kubeflow
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import KubeError

JOBS = "pytorchjobs.kubeflow.org"
_NAMESPACE, _NAME, _SECRET = "kubeflow", "training-operator", "training-operator-webhook-cert"
_CONFIGURATION = "validator.training-operator.kubeflow.org"
_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
_WITHIN_S = 60.0


class Kubeflow(ProgramBeside):
    """The one program of the training operator.

    Args:
        plane: the control plane.
        binary: where the program is.
    """

    def __init__(self, plane: ControlPlane, binary: KubeflowBinary) -> None:
        super().__init__(plane)
        self.binary = binary
        self._port = free_port()

    def install(self) -> None:
        """Create the resource and the admission as published, with a Service that leads here."""
        kube = self._plane.kube
        kube.kubectl("apply", "--server-side", f"--filename={self.binary.crd}")
        kube.wait_until(lambda: isinstance(kube.list(JOBS), list), _WITHIN_S, f"the API server serves {JOBS}")
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
        where: dict[str, Any] = {"namespace": _NAMESPACE}
        kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, **where}})
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self._port}]}
        kube.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": _NAME, **where}, "spec": service})
        self.install_admission()

    def install_admission(self) -> None:
        """Create the configuration of the admission; without it nobody judges a job."""
        self._plane.kube.create(self._admission())

    def start(self) -> None:
        """Start the operator, and give it its certificates once it has made them."""
        shutil.rmtree(_CERTIFICATES, ignore_errors=True)
        flags = (
            "--enable-scheme=pytorchjob",
            f"--webhook-server-port={self._port}",
            f"--metrics-bind-address=127.0.0.1:{free_port()}",
            f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        )
        self._launch("training-operator.log", self.binary.training_operator, *flags, TMPDIR="/tmp")
        data = self._plane.kube.wait_until(self._certificates, _WITHIN_S, "the operator has made its certificates")
        _CERTIFICATES.mkdir(parents=True)
        for name in ("tls.key", "tls.crt"):  # the operator waits for the second one
            (_CERTIFICATES / name).write_bytes(b64decode(data[name]))
        self._plane.kube.wait_until(self._answers, _WITHIN_S, "the admission of the operator answers")

    def remove(self) -> None:
        """Kill the operator, and remove its certificates."""
        self.stop()
        shutil.rmtree(_CERTIFICATES, ignore_errors=True)

    def _admission(self) -> dict[str, Any]:
        """The published configuration with only the kind that is installed here."""
        (found,) = yaml.safe_load_all(self.binary.webhooks.read_text())
        hooks = [hook for hook in found["webhooks"] if hook["rules"][0]["resources"] == ["pytorchjobs"]]
        for hook in hooks:
            hook["clientConfig"]["service"] |= {"name": _NAME, "namespace": _NAMESPACE, "port": self._port}
        return {**found, "metadata": {"name": _CONFIGURATION}, "webhooks": hooks}

    def _certificates(self) -> dict[str, str]:
        data: dict[str, str] = self._plane.kube.get("secrets", _SECRET, _NAMESPACE).get("data") or {}
        return data if {"tls.crt", "tls.key"} <= data.keys() else {}

    def _answers(self) -> bool:
        """True once the admission refuses a job in its own words."""
        kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
        body: dict[str, Any] = {**kind, "metadata": {"name": "9-is-no-name"}, "spec": {"pytorchReplicaSpecs": {}}}
        try:
            self._plane.kube.create(body)
        except KubeError as error:
            return "validator.pytorchjob" in str(error) and "should match" in str(error)
        return False


@contextlib.contextmanager
def kubeflow_on(plane: ControlPlane) -> Iterator[Kubeflow]:
    """The training operator on a control plane, until the end of the block."""
    kubeflow = Kubeflow(plane, ensure_kubeflow())
    try:
        kubeflow.install()
        kubeflow.start()
        yield kubeflow
    finally:
        kubeflow.remove()
