"""A whole control plane as one object: start it, use it, lose its nodes, stop it.

What runs is etcd, kube-apiserver, kube-controller-manager, kube-scheduler and, in place of
kubelets, kwok. A supervisor owns the processes (see `supervisor`), so that the process that holds this
object may be killed at any time without leaving anything running.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.e2e.control_plane import lost
from tests.e2e.control_plane.build import Binaries, ensure_binaries
from tests.e2e.control_plane.commands import Layout, Settings, commands, lay_out
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.kubeconfig import with_token
from tests.e2e.control_plane.nodes import NodeSpec, load_mix, manifest
from tests.e2e.control_plane.plan import down_file, read_plan
from tests.e2e.control_plane.processes import Identity, end_recorded, is_alive, read_pid_file, send, wait_gone
from tests.e2e.control_plane.report import is_ready, tail_logs
from tests.e2e.control_plane.supervision import end_supervisor, keep, supervise, supervisor_of
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.worlds.waiting import PATIENCE, wait_until

API_SERVER = "kube-apiserver"
READY_TIMEOUT_S = 90.0
_ATTEMPTS = 3
_STOP_S = 10.0


class _PortTakenError(ControlPlaneError):
    """A neighbour took a port between its choice and its use."""


@dataclass
class ControlPlane:
    """A running cluster.

    Attributes:
        workdir: logs, kubeconfigs and pid files; the data goes when the cluster is stopped.
        kubeconfig: the administrator's.
        kube: a client with it.
        supervisor: the process to end; None for a cluster that somebody else runs.
    """

    workdir: Path
    kubeconfig: Path
    kube: Kube
    settings: Settings
    supervisor: Identity | None
    _node_count: int = 0
    _namespaces: list[str] = field(default_factory=list)

    # Starting and stopping

    @classmethod
    def start(
        cls,
        workdir: Path,
        *,
        nodes: Sequence[NodeSpec] | str | Path = "small",
        settings: Settings | None = None,
        detached: bool = False,
    ) -> ControlPlane:
        """Start a fresh cluster and wait until it is ready for work.

        Args:
            workdir: a folder of its own; what a former cluster left running there is ended first.
            nodes: the nodes, or the mix they come from.
            settings: how it behaves.
            detached: whether it outlives this process.

        Raises:
            ControlPlaneError: it did not become ready; the message ends with the logs.
        """
        specs = load_mix(nodes) if isinstance(nodes, str | Path) else tuple(nodes)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                plane = cls._start_once(workdir, specs, settings or Settings())
                if detached and plane.supervisor is not None:
                    keep(workdir, plane.supervisor)
            except _PortTakenError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return plane
        raise AssertionError("unreachable")

    @classmethod
    def _start_once(cls, workdir: Path, specs: Sequence[NodeSpec], settings: Settings) -> ControlPlane:
        binaries = ensure_binaries()
        _clear(workdir)
        layout = lay_out(workdir, settings)
        supervisor = _launch(layout, settings, binaries)
        admin = layout.kubeconfig("admin")
        try:
            _wait_for_api(workdir, supervisor, last="kube-scheduler" if settings.is_bare else "kwok")
            kube = Kube(admin, kubectl=binaries.kubectl)
            plane = cls(workdir, admin, kube, settings, supervisor)
            try:
                plane._furnish(specs)
            except BaseException:
                kube.close()
                raise
        except ControlPlaneError as error:
            end_supervisor(workdir, supervisor)
            logs = tail_logs(workdir)
            kind = _PortTakenError if "address already in use" in logs else ControlPlaneError
            raise kind(f"{error}\n{logs}") from error
        except BaseException:
            end_supervisor(workdir, supervisor)
            raise
        return plane

    @classmethod
    def attach(
        cls,
        kubeconfig: Path,
        workdir: Path,
        *,
        nodes: Sequence[NodeSpec] | str | Path = "small",
        settings: Settings | None = None,
    ) -> ControlPlane:
        """Use a cluster that runs already, and leave it running.

        One of ours must have been started with these nodes and settings, lest a figure be taken
        for what it is not; any other is used as it is.
        """
        workdir.mkdir(parents=True, exist_ok=True)
        wanted = settings or Settings()
        kube = Kube(kubeconfig, kubectl=ensure_binaries().kubectl)
        plane = cls(workdir, kubeconfig, kube, wanted, None, len(kube.list("nodes")))
        beside = kubeconfig.parent / "settings.json"
        if beside.is_file():
            specs = load_mix(nodes) if isinstance(nodes, str | Path) else nodes
            missing = {spec.name for spec in specs} - plane.ready_nodes()
            running = Settings(**json.loads(beside.read_text()))
            if missing or running != wanted:
                kube.close()
                raise ControlPlaneError(
                    f"{kubeconfig}: runs with {running}, {len(missing)} nodes missing; this needs "
                    f"{wanted}, nodes {nodes!r}: start it so, or unset EDL_E2E_KUBECONFIG"
                )
        return plane

    def stop(self) -> None:
        """End every process of this cluster and remove its data; harmless when done twice.

        Of a cluster that somebody else runs, only the namespaces that were made here go.
        """
        if self.supervisor is not None:
            end_supervisor(self.workdir, self.supervisor)
            shutil.rmtree(self.workdir / "etcd", ignore_errors=True)
        else:
            while self._namespaces:
                self.kube.delete("namespaces", self._namespaces.pop())
        self.kube.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # Nodes

    def add_nodes(self, specs: Sequence[NodeSpec]) -> None:
        """Add machines; returns once each is ready."""
        numbered = list(enumerate(specs, start=self._node_count))
        self._node_count += len(numbered)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda pair: self.kube.create(manifest(pair[1], pair[0])), numbered))
        names = {spec.name for spec in specs}
        self.kube.wait_until(lambda: names <= self.ready_nodes(), READY_TIMEOUT_S, f"{len(names)} nodes are ready")

    def ready_nodes(self) -> set[str]:
        """The names of the nodes that are ready and take pods."""
        return {n["metadata"]["name"] for n in self.kube.list("nodes") if is_ready(n)}

    def lose_node(self, name: str, *, wait: bool = True, timeout_s: float = 60.0) -> None:
        """Let a machine die: no heartbeat, and its pods stay as they are, Terminating for ever.

        Args:
            name: the node.
            wait: return only once Kubernetes has noticed (`node_grace_s` and a second or two).
            timeout_s: how long to wait for that.
        """
        with self._kwok() as kwok:
            lost.lose(self.kube, kwok, name)
        if wait:
            lost.wait_readiness(self.kube, name, ready=False, timeout_s=timeout_s)

    def recover_node(self, name: str, *, wait: bool = True, timeout_s: float = 60.0) -> None:
        """Bring a lost machine back; its kubelet takes up the pods that are still bound to it."""
        with self._kwok() as kwok:
            lost.recover(self.kube, kwok, name)
        if wait:
            lost.wait_readiness(self.kube, name, ready=True, timeout_s=timeout_s)

    # The server

    def stop_api_server(self) -> None:
        """Let the API server die at once; everything else runs on."""
        self.stop_process(API_SERVER)

    def stop_process(self, name: str) -> None:
        """Kill a process of the cluster at once; returns once the supervisor has seen it, and leaves it so."""
        path = self._run_folder() / f"{name}.pid"
        down_file(self.workdir, name).touch()
        who = read_pid_file(path)
        if who is not None and send(who, signal.SIGKILL) and not wait_gone(who, _STOP_S):
            raise ControlPlaneError(f"{name} does not end")
        wait_until(lambda: not path.exists(), f"the supervisor has seen that {name} ended", _STOP_S)

    def start_process(self, name: str) -> None:
        """Let the supervisor start it again, by its command in the plan."""
        down_file(self.workdir, name).unlink(missing_ok=True)

    def start_api_server(self) -> None:
        """Start it again on the same port with the same data; returns once it answers."""
        self.start_process(API_SERVER)
        what = f"{API_SERVER} answers again"
        self.kube.wait_until(lambda: self.kube.request("GET", "/readyz"), READY_TIMEOUT_S, what)

    def compact(self) -> int:
        """Make etcd forget every revision but the present one; returns that revision."""
        self._run_folder()
        etcd = next(c for c in read_plan(self.workdir / "plan.json").commands if c.name == "etcd")
        flag = "--listen-client-urls="
        url = next(word.removeprefix(flag) for word in etcd.argv if word.startswith(flag))
        now = _post(f"{url}/v3/kv/range", {"key": "AA==", "limit": "1"})["header"]["revision"]
        _post(f"{url}/v3/kv/compaction", {"revision": now, "physical": True})
        return int(now)

    def _run_folder(self) -> Path:
        if self.supervisor is None:
            raise ControlPlaneError(
                f"{self.kubeconfig}: somebody else runs this cluster, so nothing of it is stopped; "
                "unset EDL_E2E_KUBECONFIG"
            )
        return self.workdir / "run"

    # Identities

    def kubeconfig_for(self, service_account: str, namespace: str = "default", *, duration_s: int = 3600) -> Path:
        """A kubeconfig with a ServiceAccount's own token, so that its rights are the real ones."""
        account = self.kube.resource("serviceaccounts").path(namespace, service_account, "token")
        answer = self.kube.request(
            "POST",
            account,
            body={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": duration_s},
            },
        )
        return with_token(
            self.kubeconfig,
            self.workdir / "kubeconfigs" / f"{namespace}-{service_account}",
            user=service_account,
            token=answer["status"]["token"],
        )

    def namespace(self, prefix: str = "test") -> str:
        """A namespace of its own for a test that shares the cluster; returns its name."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{prefix}-"}}
        name = str(self.kube.create(body)["metadata"]["name"])
        self._namespaces.append(name)
        self.kube.wait_until(
            lambda: self.kube.find("serviceaccounts", "default", name),
            READY_TIMEOUT_S,
            f"the service account of {name} exists",
        )
        return name

    def logs(self) -> str:
        """The end of each process's log."""
        return tail_logs(self.workdir)

    def _kwok(self) -> Kube:
        path = self.kubeconfig.parent / "kubeconfigs" / "kwok"
        if not path.is_file():
            raise ControlPlaneError(
                f"{self.kubeconfig}: not a cluster of ours, so its nodes cannot be lost; unset EDL_E2E_KUBECONFIG"
            )
        return Kube(path)

    def _furnish(self, specs: Sequence[NodeSpec]) -> None:
        if self.settings.is_bare:
            self.kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
            return
        lost.install(self.kube)
        self.add_nodes(specs)
        self.kube.wait_until(
            lambda: self.kube.find("serviceaccounts", "default"),
            READY_TIMEOUT_S,
            "the default service account exists",
        )


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask etcd by its JSON gateway."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_STOP_S) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def _wait_for_api(workdir: Path, supervisor: Identity, *, last: str) -> None:
    """Wait until the last process has its turn, or the supervisor gave up."""
    deadline = time.monotonic() + READY_TIMEOUT_S * PATIENCE
    while not (workdir / "run" / f"{last}.pid").is_file():
        if not is_alive(supervisor):
            ended = workdir / "run" / "ended"
            why = ended.read_text() if ended.is_file() else "no reason was left"
            raise ControlPlaneError(f"the control plane ended while starting: {why}")
        if time.monotonic() > deadline:
            raise ControlPlaneError(f"the API server was not ready in {READY_TIMEOUT_S:g} s")
        time.sleep(0.02)


def _clear(workdir: Path) -> None:
    """End what a former cluster left in a folder, and make room for a fresh one."""
    workdir.mkdir(parents=True, exist_ok=True)
    former = supervisor_of(workdir)
    left = end_supervisor(workdir, former) if former else end_recorded(workdir / "run")
    if former or left:
        print(f"{workdir}: ended a cluster that was left running", file=sys.stderr)
    for name in ("etcd", "tls", "run", "logs", "kubeconfigs", "bin"):
        shutil.rmtree(workdir / name, ignore_errors=True)
    for name in ("run", "logs", "tls", "kubeconfigs", "bin"):
        (workdir / name).mkdir()


def _launch(layout: Layout, settings: Settings, binaries: Binaries) -> Identity:
    """Write what the processes need and start their supervisor in a session of its own."""
    work = layout.workdir
    layout.write_kubeconfigs()
    (work / "settings.json").write_text(json.dumps(asdict(settings)))
    (work / "bin" / "kubectl").symlink_to(binaries.kubectl)
    return supervise(work, commands(layout, settings, binaries))
