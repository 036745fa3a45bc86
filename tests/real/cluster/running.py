"""A running cluster as one object, as a test uses it."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.e2e.control_plane.build import ensure_node_binaries
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.report import is_ready, tail_logs
from tests.e2e.control_plane.supervision import keep
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.real.cluster import images, measure
from tests.real.cluster.layout import API_ADDRESS, DNS_ADDRESS, NodeLayout, NodeSpec, cgroup_of
from tests.real.cluster.starting import STEP_S, Launched, join, launch, run

Object = dict[str, Any]

TWO_NODES = (NodeSpec("node-1"), NodeSpec("node-2"))
_READY_S = 120.0


@dataclass
class RealCluster:
    """A running cluster of real kubelets.

    Attributes:
        launched: its processes.
        kube: a client with the administrator's rights.
    """

    launched: Launched
    kube: Kube

    def __post_init__(self) -> None:
        self._builder = images.ImageBuilder(self.workdir / "build" / "buildah", cgroup_of(self.workdir))

    @property
    def workdir(self) -> Path:
        """Kubeconfig, logs, and the data that goes when the cluster is stopped."""
        return self.launched.workdir

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.workdir / "kubeconfig"

    @property
    def nodes(self) -> tuple[NodeLayout, ...]:
        """Where each node's files are, and its addresses."""
        return self.launched.nodes

    # Starting and stopping

    @classmethod
    def start(cls, workdir: Path, *, specs: tuple[NodeSpec, ...] = TWO_NODES, detached: bool = False) -> RealCluster:
        """Start a cluster and wait until its nodes are Ready.

        Args:
            workdir: a folder of its own.
            specs: the nodes.
            detached: whether it outlives this process.

        Raises:
            ControlPlaneError: the machine lacks something, another cluster runs on it, or it did not become ready;
                the message ends with the logs.
        """
        launched = launch(workdir, specs)
        try:
            cluster = cls(launched, _connect(launched))
            cluster._furnish()
            if detached:
                keep(workdir, launched.supervisor)
        except ControlPlaneError as error:
            launched.end()
            raise ControlPlaneError(f"{error}\n{tail_logs(workdir)}") from error
        except BaseException:
            launched.end()
            raise
        return cluster

    @classmethod
    def attach(cls, workdir: Path) -> RealCluster:
        """Use a cluster that somebody else started in a folder (`make real-cluster`), and leave it running.

        Raises:
            ControlPlaneError: none runs there.
        """
        launched = join(workdir)
        return cls(launched, _connect(launched))

    def stop(self) -> None:
        """End every process of the cluster and remove its data; harmless when done twice, nothing where attached."""
        self.kube.close()
        self.launched.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _furnish(self) -> None:
        pause = images.write_pause(self.workdir / "build" / "pause.tar", ensure_node_binaries().pause)
        self.import_image(pause)
        wanted = {node.name for node in self.nodes}
        self.launched.wait(lambda: _ready_nodes(self.kube) >= wanted, f"{sorted(wanted)} are ready", _READY_S)
        for body in _name_service():
            self.kube.create(body)
        self.launched.wait(lambda: _has_account(self.kube), "the default account exists")

    # Using it

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
        """Run kubectl as administrator and return what it printed; `ControlPlaneError` if it fails."""
        return self.kube.kubectl(*arguments, stdin=stdin, timeout_s=timeout_s)

    def exec(self, pod: str, *argv: str, namespace: str = "default", container: str = "") -> str:
        """Run a command in a container of a pod and return what it printed."""
        chosen = ("-c", container) if container else ()
        return self.kubectl("exec", "-n", namespace, pod, *chosen, "--", *argv)

    def build_image(
        self,
        tag: str,
        *,
        target: str = "",
        context: Path = images.ROOT,
        dockerfile: Path | None = None,
        base: str = images.BASE_IMAGE,
        requirements: Sequence[str] = (),
        nodes: Sequence[str] = (),
    ) -> Path:
        """Build an image offline and bring it to nodes; see `ImageBuilder.build`. Returns its docker-archive."""
        archive = self._builder.build(
            tag, target=target, context=context, dockerfile=dockerfile, base=base, requirements=requirements
        )
        self.import_image(archive, nodes)
        return archive

    def import_image(self, archive: Path, nodes: Sequence[str] = ()) -> None:
        """Bring an image (a docker-archive tar) to nodes, by default to every one, under its names in the archive."""
        chosen = [node for node in self.nodes if not nodes or node.name in nodes]
        with ThreadPoolExecutor(len(chosen)) as pool:
            list(pool.map(lambda node: _ctr(node, "images", "import", str(archive)), chosen))

    def build_own_images(self) -> None:
        """Build the two images of the repository's Dockerfile, `CONTROLLER_IMAGE` and `TRAINER_IMAGE`."""
        self.build_image(images.TRAINER_IMAGE, target="trainer-base")
        self.build_image(images.CONTROLLER_IMAGE, target="controller")

    def import_base(self) -> None:
        """Bring `BASE_IMAGE`, a Debian with python3, to every node."""
        self.import_image(images.base_archive())

    def kill_container(self, pod: str, *, namespace: str = "default", container: str = "") -> None:
        """SIGKILL the first process of a pod's container, as the kernel does when memory runs out.

        Args:
            pod: its name.
            namespace: its namespace.
            container: which of its containers; empty for the first.
        """
        node, identifier = self._container(pod, namespace, container)
        _ctr(node, "tasks", "kill", "--signal", "SIGKILL", identifier)

    def stop_container(self, pod: str) -> None:
        """SIGSTOP every process of a pod's first container: it answers nothing, and its connections stay open."""
        node, identifier = self._container(pod, "default", "")
        _ctr(node, "tasks", "kill", "--all", "--signal", "SIGSTOP", identifier)

    def _container(self, pod: str, namespace: str, container: str) -> tuple[NodeLayout, str]:
        found = self.kube.get("pods", pod, namespace)
        statuses = found["status"]["containerStatuses"]
        status = next(each for each in statuses if container in ("", each["name"]))
        node = next(node for node in self.nodes if node.name == found["spec"]["nodeName"])
        return node, str(status["containerID"]).removeprefix("containerd://")

    def on_node(self, node: str, *argv: str) -> str:
        """Run a program of this machine as root where a node's containers get their volumes from.

        A file system that is mounted there goes with the cluster.
        """
        holder = self.workdir / "run" / f"containerd-{node}.inner"
        join = f'exec nsenter --target "$(cat {holder})" --mount "$@"'
        inside = ("nsenter", "--target", str(self.launched.first_process), "--mount", "--pid")
        return run(*inside, "sh", "-c", join, "sh", *argv)

    def stop_kubelet(self, node: str) -> None:
        """Kill a node's kubelet; its containers run on, and the node is NotReady some 8 s later."""
        self._control("stop", f"kubelet-{node}")

    def start_kubelet(self, node: str) -> None:
        """Start a kubelet that was stopped."""
        self._control("start", f"kubelet-{node}")

    def memory_bytes(self) -> int:
        """What the processes of the cluster and of its pods hold, shared pages counted once."""
        return measure.memory_bytes(self.launched.first_process)

    def logs(self) -> str:
        """The end of each process's log."""
        return tail_logs(self.workdir)

    def _control(self, verb: str, name: str) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(STEP_S)
            connection.connect(str(self.workdir / "run" / "control.sock"))
            connection.sendall(json.dumps({"verb": verb, "name": name}).encode() + b"\n")
            answer = json.loads(connection.makefile().readline())["answer"]
        if answer:
            raise ControlPlaneError(answer)


def _connect(launched: Launched) -> Kube:
    """A client, once the API server has made its certificate and containerd listens."""
    launched.wait((launched.workdir / "tls" / "apiserver.crt").is_file, "the API server has a certificate")
    for node in launched.nodes:
        launched.wait(partial(_answers, node), f"containerd of {node.name} answers")
    kubectl = launched.workdir / "bin" / "kubectl"
    return Kube(launched.workdir / "kubeconfig", kubectl=kubectl)


def _ctr(node: NodeLayout, *arguments: str) -> None:
    run("ctr", "--address", str(node.containerd_socket), "--namespace", "k8s.io", *arguments)


def _ready_nodes(kube: Kube) -> set[str]:
    with suppress(ControlPlaneError):
        return {node["metadata"]["name"] for node in kube.list("nodes") if is_ready(node)}
    return set()


def _has_account(kube: Kube) -> bool:
    return kube.find("serviceaccounts", "default") is not None


def _name_service() -> list[Object]:
    """The Service of CoreDNS, which is a plain process, with its one endpoint written by hand."""
    ports = [{"name": protocol.lower(), "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    where = {"name": "kube-dns", "namespace": "kube-system"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": where,
            "spec": {"clusterIP": DNS_ADDRESS, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**where, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [API_ADDRESS], "conditions": {"ready": True}}],
        },
    ]


def _answers(node: NodeLayout) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(str(node.containerd_socket))
        return True
    return False
