"""Starts a cluster's processes and ends them: the part that must leave nothing behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.e2e.control_plane.build import ensure_binaries, ensure_node_binaries
from tests.e2e.control_plane.commands import Settings, lay_out
from tests.e2e.control_plane.plan import Command
from tests.e2e.control_plane.processes import Identity, is_alive, locked, read_pid_file, write_pid_file
from tests.e2e.control_plane.supervision import end_supervisor, environment, supervise, supervisor_of
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.real.cluster import files
from tests.real.cluster.layout import (
    API_ADDRESS,
    HOST_ADDRESS,
    HOST_LINK,
    INNER_LINK,
    PREFIX_BITS,
    NodeLayout,
    NodeSpec,
    cgroup_of,
    node_layouts,
)
from tests.real.cluster.needs import check_machine
from tests.real.cluster.plan import write_plan
from tests.real.cluster.processes import plan
from tests.real.cluster.sweep import RECORD, sweep

STEP_S = 30.0
_POLL_S = 0.05
_NODES = "nodes.json"
_LOCK = Path("/run/lock/edl-real-cluster")
_SOCKET_NAME = 107
_FOLDERS = ("run", "logs", "tls", "kubeconfigs", "bin", "nodes", "build")


@dataclass(frozen=True, slots=True)
class Launched:
    """The processes of a cluster, from the outside.

    Attributes:
        workdir: where the cluster's files are.
        nodes: where each node's files are.
        supervisor: ends with its owner, and everything else with it.
        sweeper: removes what is left once the supervisor has ended; None if another process owns the cluster.
    """

    workdir: Path
    nodes: tuple[NodeLayout, ...]
    supervisor: Identity
    sweeper: subprocess.Popen[bytes] | None

    @property
    def first_process(self) -> int:
        """The pid, on the host, of the first process of the cluster's namespaces."""
        who = read_pid_file(self.workdir / "run" / "cluster.pid")
        children = Path(f"/proc/{who.pid}/task/{who.pid}/children").read_text().split() if who else []
        if not children:
            raise ControlPlaneError(f"{self.workdir}: the cluster does not run")
        return int(children[0])

    def wait(self, predicate: Callable[[], bool], what: str, timeout_s: float = STEP_S) -> None:
        """Wait while the cluster lives.

        Raises:
            ControlPlaneError: it ended, or the time is over.
        """

        def is_so() -> bool:
            if not is_alive(self.supervisor):
                raise ControlPlaneError(f"the cluster ended: {self._why_ended()}")
            return predicate()

        _wait(is_so, timeout_s, f"after {timeout_s:g} s not yet: {what}")

    def end(self) -> None:
        """End every process and remove the data; harmless when done twice. Somebody else's cluster runs on."""
        if self.sweeper is None:
            return
        end_supervisor(self.workdir, self.supervisor)
        self.sweeper.wait()
        sweep(self.workdir)

    def _why_ended(self) -> str:
        for name in ("ended-inside", "ended"):
            path = self.workdir / "run" / name
            if path.is_file():
                return path.read_text()
        return "no reason was left"


def launch(workdir: Path, specs: tuple[NodeSpec, ...]) -> Launched:
    """Start everything and return once the cluster's network is joined to the host's.

    Raises:
        ControlPlaneError: the machine lacks something, another cluster runs on it, or this one ended at once.
    """
    check_machine()
    _check_length(workdir)
    with locked(_LOCK, "another process starts a cluster of real kubelets; waiting for it"):
        return _launch(workdir, specs)


def _check_length(workdir: Path) -> None:
    """The kernel takes so many bytes for the name of a socket."""
    longest = len(str(workdir / "nodes" / "node-1" / "run" / "containerd" / "containerd.sock"))
    if longest > _SOCKET_NAME:
        raise ControlPlaneError(
            f"{workdir}: too long a path by {longest - _SOCKET_NAME} characters for the sockets below it; "
            "choose another folder (--dir)"
        )


def _launch(workdir: Path, specs: tuple[NodeSpec, ...]) -> Launched:
    busy = f"another cluster of real kubelets runs on this machine (network link {HOST_LINK}); end that one first"
    _wait(lambda: not Path("/sys/class/net", HOST_LINK).exists(), 5, busy)
    _clear(workdir)
    nodes = _lay_out(workdir, specs)
    inner = workdir / "plan-inside.json"
    flags = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
    argv = ("unshare", *flags, sys.executable, "-m", "tests.real.cluster.init", str(inner))
    supervisor = supervise(workdir, (Command("cluster", argv),))
    launched = Launched(workdir, nodes, supervisor, _sweeper(workdir, supervisor))
    try:
        _connect(launched)
    except BaseException:
        launched.end()
        raise
    return launched


def join(workdir: Path) -> Launched:
    """A cluster that somebody else started in a folder and keeps.

    Raises:
        ControlPlaneError: none runs there.
    """
    supervisor = supervisor_of(workdir)
    if supervisor is None:
        raise ControlPlaneError(
            f"{workdir}: no cluster of real kubelets runs here; start one with `make real-cluster`"
        )
    specs = tuple(NodeSpec(**fields) for fields in json.loads((workdir / _NODES).read_text()))
    return Launched(workdir, node_layouts(workdir, specs), supervisor, None)


def _lay_out(workdir: Path, specs: tuple[NodeSpec, ...]) -> tuple[NodeLayout, ...]:
    binaries, programs = ensure_binaries(), ensure_node_binaries()
    nodes = node_layouts(workdir, specs)
    settings = Settings(node_grace_s=files.NODE_LEASE_S)
    layout = lay_out(workdir, settings, address=API_ADDRESS, identities=_identities(nodes))
    layout.write_kubeconfigs()
    files.write_certificates(workdir / "tls", nodes)
    files.write_cluster(layout, nodes)
    for node in nodes:
        files.write_node(layout, node)
    (workdir / "bin" / "kubectl").symlink_to(binaries.kubectl)
    write_plan(workdir / "plan-inside.json", plan(layout, settings, nodes, binaries, programs))
    (workdir / _NODES).write_text(json.dumps([asdict(node.spec) for node in nodes]))
    return nodes


def _clear(workdir: Path) -> None:
    """End what a former cluster left in a folder, and make room for a fresh one."""
    sweep(workdir)
    for name in _FOLDERS:
        shutil.rmtree(workdir / name, ignore_errors=True)
        (workdir / name).mkdir(parents=True)


def _connect(launched: Launched) -> None:
    """Lay the cable between the host and the cluster's network, once that network exists."""
    record = launched.workdir / "run" / "cluster.pid"
    launched.wait(lambda: _in_own_network(record), "the namespaces exist")
    who = read_pid_file(record)
    assert who is not None
    cable = ("link", "add", HOST_LINK, "type", "veth", "peer", "name", INNER_LINK, "netns", str(who.pid))
    for arguments in (
        cable,
        # Whose it is, for the one who removes it.
        ("link", "set", HOST_LINK, "alias", cgroup_of(launched.workdir)),
        ("address", "add", f"{HOST_ADDRESS}/{PREFIX_BITS}", "dev", HOST_LINK),
        ("link", "set", HOST_LINK, "up"),
    ):
        run("ip", *arguments)


def _identities(nodes: tuple[NodeLayout, ...]) -> dict[str, tuple[str, str]]:
    return {
        "kube-proxy": ("system:kube-proxy", ""),
        "coredns": ("edl.test:coredns", "system:masters"),
        **{f"kubelet-{node.name}": (f"system:node:{node.name}", "system:nodes") for node in nodes},
    }


def _sweeper(workdir: Path, supervisor: Identity) -> subprocess.Popen[bytes]:
    """A process that outlives this one and cleans up after the supervisor."""
    write_pid_file(workdir / "run" / RECORD, supervisor)
    with (workdir / "logs" / "sweep.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.real.cluster.sweep", str(workdir)],
            env=environment(workdir),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _in_own_network(record: Path) -> bool:
    """Whether the recorded process has left the host's network."""
    who = read_pid_file(record)
    if who is None:
        return False
    with suppress(FileNotFoundError):
        return Path(f"/proc/{who.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    return False


def run(*argv: str) -> str:
    """Run a program and return what it printed; `ControlPlaneError` if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ControlPlaneError(f"{' '.join(argv)}: ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _wait(predicate: Callable[[], bool], timeout_s: float, complaint: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            raise ControlPlaneError(complaint)
        time.sleep(_POLL_S)
