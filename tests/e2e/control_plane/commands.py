"""Writes the files and command lines of a control plane.

Everything listens on loopback only. Data is disposable: etcd does not wait for the disk. The
limits on requests per second are far above the defaults, for those would make the workload under
test slower than on any cluster.
"""

from __future__ import annotations

import base64
import random
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from edl.sandbox.apiserver.rights import KUBELET_CLIENT
from edl.sandbox.certificate import write_certificate
from tests.e2e.control_plane.build import Binaries
from tests.e2e.control_plane.kubeconfig import write_kubeconfig
from tests.e2e.control_plane.nodes import MANAGED_LABEL, MANAGED_VALUE
from tests.e2e.control_plane.plan import Command
from tests.e2e.control_plane.stages import kwok_config
from tests.e2e.control_plane.versions import ControlPlaneError

KWOK_USER = "edl.test:kwok"
LOOPBACK = "127.0.0.1"

# Below the range from which the kernel takes the near end of outgoing connections.
_PORTS = range(20_000, 32_000)
_USERS: Mapping[str, tuple[str, str]] = {
    "admin": ("edl.test:admin", "system:masters"),
    "kwok": (KWOK_USER, "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True, slots=True)
class Settings:
    """How a cluster behaves.

    Attributes:
        pod_delete_s: from the deletion of a pod until it is gone.
        pod_ready_s: from the binding of a pod until it is Ready.
        node_grace_s: how long a silent node stays Ready; kwok renews leases in a quarter of it.
        unreachable_toleration_s: how long pods stay on a lost node before they are evicted.
        audit_level: the API server's audit log at this level (Metadata, RequestResponse), in
            `logs/audit.log`; none where empty.
        audit_user: if it is set, only the writes of this user are in the audit log.
        feature_gates: for the API server, the controller manager and the scheduler.
        percent_of_nodes_scored: among so many of the nodes with room kube-scheduler looks for the best; 0 is its own
            rule, which looks at 100 nodes or more.
        api_heap_percent: the API server collects garbage once its heap has grown by so much (Go's `GOGC`); 0 is
            Go's own rule, 100. On two cores a collection of a large heap takes a second, in which requests hardly
            move.
        is_bare: only etcd, kube-apiserver and kube-scheduler run. Nodes and pods change only by what tests write.
    """

    pod_delete_s: float = 1.0
    pod_ready_s: float = 0.5
    node_grace_s: int = 8
    unreachable_toleration_s: int = 300
    audit_level: str = ""
    audit_user: str = ""
    feature_gates: str = ""
    percent_of_nodes_scored: int = 0
    api_heap_percent: int = 0
    is_bare: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are in a working folder, and the ports of one start.

    Attributes:
        address: where the API server listens.
        identities: key -> (user name, group or nothing); each has a token and a kubeconfig.
    """

    workdir: Path
    etcd_port: int
    peer_port: int
    api_port: int
    tokens: dict[str, str]
    address: str = LOOPBACK
    identities: Mapping[str, tuple[str, str]] = field(default_factory=lambda: _USERS)

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.api_port}"

    @property
    def certificate(self) -> Path:
        return self.workdir / "tls" / "apiserver.crt"

    def kubeconfig(self, user: str) -> Path:
        name = "kubeconfig" if user == "admin" else f"kubeconfigs/{user}"
        return self.workdir / name

    def write_kubeconfigs(self) -> None:
        """Write a kubeconfig for each identity."""
        for key, (name, _) in self.identities.items():
            write_kubeconfig(
                self.kubeconfig(key), server=self.server, ca=self.certificate, user=name, token=self.tokens[key]
            )


def lay_out(
    workdir: Path,
    settings: Settings,
    *,
    address: str = LOOPBACK,
    identities: Mapping[str, tuple[str, str]] | None = None,
) -> Layout:
    """Choose ports and tokens and write the files that the processes read.

    Args:
        workdir: an empty folder with `tls`, `kubeconfigs`, ... in it.
        settings: how the cluster behaves.
        address: where the API server listens.
        identities: who gets a token, besides those whom every control plane has.
    """
    etcd_port, peer_port, api_port = _free_ports(3)
    known = {**_USERS, **(identities or {})}
    tokens = {key: secrets.token_hex(16) for key in known}
    layout = Layout(workdir, etcd_port, peer_port, api_port, tokens, address, known)
    rows = [f"{tokens[key]},{name},{name},{group}" for key, (name, group) in known.items()]
    _write_secret(workdir / "tokens.csv", "\n".join(rows) + "\n")
    _write_secret(workdir / "service-accounts.pem", _signing_key())
    client = write_certificate(workdir / "kubelet-client.pem", name=KUBELET_CLIENT).read_text()
    (workdir / "kubelet-client.crt").write_text(client[client.index("-----BEGIN CERTIFICATE") :])
    config = kwok_config(pod_delete_s=settings.pod_delete_s, pod_ready_s=settings.pod_ready_s)
    (workdir / "kwok.yaml").write_text(config)
    (workdir / "scheduler.yaml").write_text(_scheduler_config(layout, settings))
    (workdir / "audit.yaml").write_text(yaml.safe_dump(_audit_policy(settings)))
    return layout


def commands(layout: Layout, settings: Settings, binaries: Binaries) -> tuple[Command, ...]:
    """The processes, in the order in which they start."""
    ready = f"{layout.server}/readyz"
    managers = (scheduler,) if settings.is_bare else (controller_manager, scheduler, _kwok)
    return (
        Command("etcd", (str(binaries.etcd), *etcd_flags(layout))),
        Command(
            "kube-apiserver",
            _apiserver(layout, settings, str(binaries.kube_apiserver)),
            f"http://127.0.0.1:{layout.etcd_port}/health",
        ),
        *(make(layout, settings, binaries, ready) for make in managers),
    )


def _apiserver(layout: Layout, settings: Settings, binary: str) -> tuple[str, ...]:
    percent = settings.api_heap_percent
    return (*(("env", f"GOGC={percent}") if percent else ()), binary, *apiserver_flags(layout, settings))


def etcd_flags(layout: Layout) -> list[str]:
    client, peer = (f"http://127.0.0.1:{p}" for p in (layout.etcd_port, layout.peer_port))
    return [
        f"--data-dir={layout.workdir}/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
    ]


def apiserver_flags(layout: Layout, settings: Settings) -> list[str]:
    work = layout.workdir
    toleration = settings.unreachable_toleration_s
    flags = [
        f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
        f"--bind-address={layout.address}",
        f"--advertise-address={layout.address}",
        # A loopback address may not be an endpoint, and nothing here reaches one.
        f"--endpoint-reconciler-type={'none' if layout.address == LOOPBACK else 'lease'}",
        f"--secure-port={layout.api_port}",
        f"--cert-dir={work}/tls",
        f"--token-auth-file={work}/tokens.csv",
        "--authorization-mode=RBAC",
        f"--client-ca-file={work}/kubelet-client.crt",
        f"--kubelet-client-certificate={work}/kubelet-client.crt",
        f"--kubelet-client-key={work}/kubelet-client.pem",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={work}/service-accounts.pem",
        f"--service-account-signing-key-file={work}/service-accounts.pem",
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
        f"--default-unreachable-toleration-seconds={toleration}",
        f"--default-not-ready-toleration-seconds={toleration}",
        *_gates(settings),
    ]
    if settings.is_bare:  # nobody would take the taint of a new node away
        flags.append("--disable-admission-plugins=TaintNodesByCondition")
    if settings.audit_level:
        flags += [f"--audit-policy-file={work}/audit.yaml", f"--audit-log-path={work}/logs/audit.log"]
    return flags


def controller_manager(layout: Layout, settings: Settings, binaries: Binaries, ready: str) -> Command:
    flags = (
        f"--kubeconfig={layout.kubeconfig('controller-manager')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={layout.workdir}/service-accounts.pem",
        f"--root-ca-file={layout.certificate}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={settings.node_grace_s}s",
        *_gates(settings),
    )
    name = "kube-controller-manager"
    return Command(name, (str(binaries.kube_controller_manager), *flags), ready)


def scheduler(layout: Layout, settings: Settings, binaries: Binaries, ready: str) -> Command:
    flags = (f"--config={layout.workdir}/scheduler.yaml", "--secure-port=0", *_gates(settings))
    return Command("kube-scheduler", (str(binaries.kube_scheduler), *flags), ready)


def _scheduler_config(layout: Layout, settings: Settings) -> str:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(layout.kubeconfig("scheduler")), "qps": 200, "burst": 400},
        "percentageOfNodesToScore": settings.percent_of_nodes_scored,
    }
    return yaml.safe_dump(config)


def _kwok(layout: Layout, settings: Settings, binaries: Binaries, ready: str) -> Command:
    flags = (
        f"--config={layout.workdir}/kwok.yaml",
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--manage-nodes-with-label-selector={MANAGED_LABEL}={MANAGED_VALUE}",
        f"--node-lease-duration-seconds={settings.node_grace_s}",
        # For nodes that came without a range of their own; multicast, as `nodes.manifest` says.
        "--cidr=239.224.0.1/16",
        "--node-ip=239.225.0.1",
    )
    return Command("kwok", (str(binaries.kwok), *flags), ready)


def _audit_policy(settings: Settings) -> dict[str, Any]:
    rule: dict[str, Any] = {"level": settings.audit_level or "None"}
    if settings.audit_user:
        rule |= {"users": [settings.audit_user], "verbs": ["create", "update", "patch", "delete"]}
    rules = [rule, {"level": "None"}] if settings.audit_user else [rule]
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}


def _gates(settings: Settings) -> list[str]:
    return [f"--feature-gates={settings.feature_gates}"] if settings.feature_gates else []


def _free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now; a start that loses one to a neighbour is done again."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ControlPlaneError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}")


def _signing_key() -> str:
    """A fresh P-256 key in SEC1 form, which is a number in a fixed frame (RFC 5915)."""
    scalar = (secrets.randbelow(_P256_ORDER - 1) + 1).to_bytes(32, "big")
    frame = bytes.fromhex("30310201010420"), bytes.fromhex("a00a06082a8648ce3d030107")
    body = base64.b64encode(frame[0] + scalar + frame[1]).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    name = "EC PRIVATE KEY"
    return "\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""])


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
