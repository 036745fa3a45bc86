"""The controller of LeaderWorkerSets on a control plane of the tests: its resource and its admission as published."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import yaml

from edl.sandbox.stack import free_port
from tests.e2e.control_plane.beside import ProgramBeside
from tests.e2e.control_plane.build import LeaderWorkerSetBinary, ensure_lws
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import KubeError
from tests.kueue.certificates import make_certificates
from tests.kueue.programs import at_loopback

SETS = "leaderworkersets.leaderworkerset.x-k8s.io"
_SYSTEM = "lws-system"
_KEPT = ("CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_WITHIN_S = 60.0


class LeaderWorkerSetProgram(ProgramBeside):
    """The one program of LeaderWorkerSet.

    Args:
        plane: the control plane.
        binary: where the program is.
    """

    def __init__(self, plane: ControlPlane, binary: LeaderWorkerSetBinary) -> None:
        super().__init__(plane)
        self.binary = binary
        self._port = free_port()
        self._certificates = make_certificates(plane.workdir / "lws")

    def install(self) -> None:
        """Create the resource, and the admission with the address of the program."""
        kube = self._plane.kube
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _SYSTEM}})
        rendered = kube.kubectl("kustomize", str(self.binary.manifests))
        for body in yaml.safe_load_all(rendered):
            if body and body["kind"] in _KEPT:
                kube.create(at_loopback(body, self._port, self._certificates))
        kube.wait_until(lambda: isinstance(kube.list(SETS), list), _WITHIN_S, f"the API server serves {SETS}")

    def start(self) -> None:
        """Start the program, and wait until its admission answers."""
        configuration = self._plane.workdir / "lws.yaml"
        webhook = {"host": "127.0.0.1", "port": self._port, "certDir": str(self._certificates.folder)}
        body = {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
            "metrics": {"bindAddress": "0"},
            "webhook": webhook,
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
        }
        configuration.write_text(yaml.safe_dump(body))
        self._launch("lws.log", self.binary.lws, f"--config={configuration}")
        self._plane.kube.wait_until(self._is_answering, _WITHIN_S, "the admission of LeaderWorkerSets answers")

    def _is_answering(self) -> bool:
        """True once the admission gives a set its defaults."""
        body = {**yaml.safe_load(self.binary.sample.read_text())}
        body["metadata"] = {"name": "probe"}
        with contextlib.suppress(KubeError):
            path = self._plane.kube.resource(SETS).path("default")
            found = self._plane.kube.request("POST", path, body=body, query={"dryRun": "All"})
            return bool(found["spec"]["networkConfig"])
        return False


@contextlib.contextmanager
def lws_on(plane: ControlPlane) -> Iterator[LeaderWorkerSetProgram]:
    """The controller of LeaderWorkerSets on a control plane, until the end of the block."""
    program = LeaderWorkerSetProgram(plane, ensure_lws())
    try:
        program.install()
        program.start()
        yield program
    finally:
        program.stop()
