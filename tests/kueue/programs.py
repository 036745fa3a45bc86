"""Kueue on a control plane of the tests: what its installation creates, with its webhooks, and its program.

Nothing is left out but the Deployment, the rights and what serves the pending workloads. The webhooks cannot be left
out: they gate the pods of a job when it is created.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from edl.sandbox.stack import free_port
from tests.e2e.control_plane.beside import ProgramBeside
from tests.e2e.control_plane.build import KueueBinary, ensure_kueue
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import KubeError
from tests.kueue.certificates import Certificates, make_certificates

Object = dict[str, Any]
SYSTEM = "kueue-system"
WORKLOADS, CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS, FLAVORS = (
    f"{name}.kueue.x-k8s.io" for name in ("workloads", "clusterqueues", "localqueues", "cohorts", "resourceflavors")
)
_KEPT = ("CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Secret")
_WITHIN_S = 120.0


class Kueue(ProgramBeside):
    """The one program of Kueue.

    Args:
        plane: the control plane.
        binary: where the program is.
        frameworks: the integrations that are on; each needs the resource of its kind.
    """

    def __init__(self, plane: ControlPlane, binary: KueueBinary, frameworks: tuple[str, ...]) -> None:
        super().__init__(plane)
        self._binary, self._frameworks = binary, frameworks
        self._port = free_port()
        self._certificates = make_certificates(plane.workdir / "kueue")

    def add_frameworks(self, *names: str) -> None:
        """Turn on further integrations when it starts next; the resources of their kinds exist."""
        self._frameworks = (*self._frameworks, *names)

    def install(self) -> None:
        """Create the resources, the webhooks and the Secret."""
        kube = self._plane.kube
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        rendered = kube.kubectl("kustomize", str(self._binary.manifests))
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        kept = [body for body in yaml.load_all(rendered, loader) if body and body["kind"] in _KEPT]
        for body in sorted(kept, key=lambda body: _KEPT.index(body["kind"])):
            kube.create(at_loopback(body, self._port, self._certificates), SYSTEM)
        kube.wait_until(self._are_served, _WITHIN_S, "the API server serves what Kueue defines")

    def start(self, **more: Any) -> None:
        """Start the program, and wait until its webhooks answer.

        Args:
            more: further fields of its configuration.
        """
        configuration = self._plane.workdir / "kueue.yaml"
        configuration.write_text(yaml.safe_dump(self._configuration() | more))
        flags = (f"--config={configuration}", "--feature-gates=VisibilityOnDemand=false", "--zap-log-level=2")
        self._launch("kueue.log", self._binary.kueue, *flags)
        self._plane.kube.wait_until(self._is_answering, _WITHIN_S, "the webhooks of Kueue answer")

    def _configuration(self) -> Object:
        installed = yaml.safe_load(self._binary.configuration.read_text())
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": SYSTEM,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._port, "certDir": str(self._certificates.folder)},
            "leaderElection": {"leaderElect": False},
            "controller": installed["controller"],  # without it, it handles one Job and one Workload at a time
            "clientConnection": installed["clientConnection"],
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": "kueue-webhook-service",
                "webhookSecretName": "kueue-webhook-server-cert",
            },
            "integrations": {"frameworks": [*self._frameworks]},
        }

    def _are_served(self) -> bool:
        return all(isinstance(self._plane.kube.list(kind), list) for kind in (WORKLOADS, CLUSTER_QUEUES, COHORTS))

    def _is_answering(self) -> bool:
        """True once the admission suspends a Job that names a queue."""
        template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
        metadata = {"name": "probe", "labels": {"kueue.x-k8s.io/queue-name": "none"}}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
        with contextlib.suppress(KubeError):
            path = "/apis/batch/v1/namespaces/default/jobs"
            return bool(self._plane.kube.request("POST", path, body=body, query={"dryRun": "All"})["spec"]["suspend"])
        return False


def at_loopback(body: Object, port: int, certificates: Certificates) -> Object:
    """The object with the addresses of the webhooks, or with the certificate.

    Args:
        body: what an installation creates.
        port: of the webhooks, on loopback.
        certificates: of the program that serves them.
    """
    if body["kind"] == "Secret":
        return {**body, "data": certificates.secret()}
    if body["kind"] == "CustomResourceDefinition":
        conversion = body["spec"].get("conversion", {}).get("webhook")
        if conversion:
            conversion["clientConfig"] = _client(conversion["clientConfig"], port, certificates)
        return body
    for webhook in body["webhooks"]:
        webhook["clientConfig"] = _client(webhook["clientConfig"], port, certificates)
    return body


def _client(before: Mapping[str, Any], port: int, certificates: Certificates) -> Object:
    path = before["service"].get("path", "/")
    return {"url": f"https://127.0.0.1:{port}{path}", "caBundle": certificates.authority}


@contextlib.contextmanager
def kueue_on(plane: ControlPlane, *frameworks: str) -> Iterator[Kueue]:
    """Kueue on a control plane, until the end of the block.

    Args:
        plane: the control plane.
        frameworks: further integrations besides that of `batch/v1` Jobs.
    """
    kueue = Kueue(plane, ensure_kueue(), ("batch/job", *frameworks))
    try:
        kueue.install()
        kueue.start()
        yield kueue
    finally:
        kueue.stop()
