"""Volcano on a control plane of the tests: its resources, its admission, its controllers and its scheduler.

Nothing is left out but the Deployments. The admission fills in what a manifest leaves open, such as the queue, so
manifests are applied as they were published. It uses the certificate of the API server: both listen on loopback.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from edl.sandbox.stack import free_port
from tests.e2e.control_plane.build import VolcanoBinaries, ensure_volcano
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import KubeError
from tests.e2e.control_plane.processes import die_with_parent

Object = dict[str, Any]
CONTROLLERS, SCHEDULER, ADMISSION = "vc-controller-manager", "vc-scheduler", "vc-webhook-manager"
SYSTEM = "volcano-system"
_WITHIN_S = 60.0
_STOP_S = 30.0

# As in templates/webhooks.yaml of Volcano's chart: path, whether it changes objects, group and version, operations.
_WEBHOOKS = (
    ("/pods/mutate", True, "/v1", ("CREATE",)),
    ("/queues/mutate", True, "scheduling.volcano.sh/v1beta1", ("CREATE",)),
    ("/podgroups/mutate", True, "scheduling.volcano.sh/v1beta1", ("CREATE",)),
    ("/jobs/mutate", True, "batch.volcano.sh/v1alpha1", ("CREATE",)),
    ("/jobs/validate", False, "batch.volcano.sh/v1alpha1", ("CREATE", "UPDATE")),
    ("/pods/validate", False, "/v1", ("CREATE",)),
    ("/queues/validate", False, "scheduling.volcano.sh/v1beta1", ("CREATE", "UPDATE", "DELETE")),
)


class Volcano:
    """The three programs of Volcano.

    Args:
        plane: the control plane.
        binaries: where the programs are.
    """

    def __init__(self, plane: ControlPlane, binaries: VolcanoBinaries) -> None:
        self._plane, self._binaries = plane, binaries
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Create the resources, start the programs, and wait until a job is accepted."""
        kube = self._plane.kube
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        folders = [f"--filename={folder / 'bases'}" for folder in sorted(self._binaries.crds.iterdir())]
        kube.kubectl("apply", "--server-side", *folders)
        served = ("jobs.batch.volcano.sh", "podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh")
        for resource in served:
            is_served = partial(self._is_served, resource)
            kube.wait_until(is_served, _WITHIN_S, f"the API server serves {resource}")
        self._start_admission()
        self.start_controllers()
        flags = (f"--scheduler-conf={self._binaries.scheduler_configuration}", "--cache-dumper=false")
        self._start(SCHEDULER, *flags, "--schedule-period=100ms")
        kube.wait_until(lambda: kube.find("queues.scheduling.volcano.sh", "default"), _WITHIN_S, "there is a queue")
        kube.wait_until(self._is_admitting, _WITHIN_S, "Volcano's admission answers")

    def start_controllers(self) -> None:
        """Start the controllers, which make the pods of Volcano Jobs."""
        self._start(CONTROLLERS, "-v=3")

    def stop_controllers(self) -> None:
        """Kill the controllers, as a node that is lost does."""
        process = self._running.pop(CONTROLLERS)
        process.kill()
        process.wait(_STOP_S)

    def stop(self) -> None:
        """End every program."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait(_STOP_S)
        self._running.clear()

    def _is_served(self, resource: str) -> bool:
        return isinstance(self._plane.kube.list(resource), list)

    def _start(self, name: str, *flags: str) -> None:
        limits = ("--kube-api-qps=200", "--kube-api-burst=400")
        if name != ADMISSION:
            flags = (*flags, "--leader-elect=false")
        path: Path = getattr(self._binaries, name.replace("-", "_"))
        with (self._plane.workdir / "logs" / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [path, f"--kubeconfig={self._plane.kubeconfig}", *limits, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def _start_admission(self) -> None:
        port, tls = free_port(), self._plane.workdir / "tls"
        for webhook in _WEBHOOKS:
            self._plane.kube.create(_configuration(port, *webhook))
        self._start(
            ADMISSION,
            f"--tls-cert-file={tls / 'apiserver.crt'}",
            f"--tls-private-key-file={tls / 'apiserver.key'}",
            f"--ca-cert-file={tls / 'apiserver.crt'}",
            "--listen-address=127.0.0.1",
            f"--port={port}",
            f"--webhook-url=https://127.0.0.1:{port}",
        )

    def _is_admitting(self) -> bool:
        """True once the admission fills in the queue of a job, and accepts a pod."""
        template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
        job = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "probe", "namespace": "default"},
            "spec": {"minAvailable": 1, "tasks": [{"name": "one", "replicas": 1, "template": template}]},
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": "default"}, **template}
        kube = self._plane.kube
        with contextlib.suppress(KubeError):
            kube.request("POST", "/api/v1/namespaces/default/pods", body=pod, query={"dryRun": "All"})
            path = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
            stored = kube.request("POST", path, body=job, query={"dryRun": "All"})
            return bool(stored["spec"].get("queue"))
        return False


def _configuration(port: int, path: str, changes: bool, api: str, operations: tuple[str, ...]) -> Object:
    """One webhook configuration; the admission itself adds the certificate to it."""
    kind, (group, version) = ("Mutating" if changes else "Validating"), api.split("/")
    _, resource, verb = path.split("/")
    others = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [SYSTEM, "kube-system"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": f"volcano-admission-service-{resource}-{verb}"},
        "webhooks": [
            {
                "name": f"{verb}{resource.removesuffix('s')}.volcano.sh",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": f"https://127.0.0.1:{port}{path}"},
                "failurePolicy": "Fail",
                "namespaceSelector": {"matchExpressions": [others]},
                "rules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": [version],
                        "operations": list(operations),
                        "resources": [resource],
                        "scope": "*",
                    }
                ],
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": 10,
            }
        ],
    }


@contextlib.contextmanager
def volcano_on(plane: ControlPlane) -> Iterator[Volcano]:
    """Volcano on a control plane, until the end of the block."""
    volcano = Volcano(plane, ensure_volcano())
    try:
        volcano.start()
        yield volcano
    finally:
        volcano.stop()
