"""The command lines of a cluster: what prepares its namespaces, and what runs in them."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.control_plane.build import Binaries, NodeBinaries
from tests.e2e.control_plane.commands import (
    Layout,
    Settings,
    apiserver_flags,
    controller_manager,
    etcd_flags,
    scheduler,
)
from tests.real.cluster.files import KERNEL_SETTINGS
from tests.real.cluster.layout import API_ADDRESS, INNER_LINK, PREFIX_BITS, SERVICE_RANGE, NodeLayout
from tests.real.cluster.plan import Plan, Process


def plan(
    layout: Layout, settings: Settings, nodes: tuple[NodeLayout, ...], binaries: Binaries, programs: NodeBinaries
) -> Plan:
    """Everything that the first process of the namespaces prepares and runs."""
    ready = f"{layout.server}/readyz"
    managers = (controller_manager(layout, settings, binaries, ready), scheduler(layout, settings, binaries, ready))
    shared = (
        Process("etcd", (str(binaries.etcd), *etcd_flags(layout))),
        Process(
            "kube-apiserver",
            (str(binaries.kube_apiserver), *apiserver_flags(layout, settings), *_apiserver_flags(layout)),
            f"http://127.0.0.1:{layout.etcd_port}/health",
        ),
        *(Process(command.name, command.argv, command.after_url) for command in managers),
        Process("kube-proxy", (str(programs.kube_proxy), f"--config={layout.workdir}/kube-proxy.yaml"), ready),
        Process("coredns", (str(programs.coredns), "-conf", f"{layout.workdir}/Corefile"), ready),
    )
    groups = tuple(node.cgroup for node in nodes)
    of_nodes = (process for node in nodes for process in _node(layout, node, programs, ready))
    return Plan(_prepare(layout.workdir, nodes), groups, (*shared, *of_nodes))


def _prepare(workdir: Path, nodes: tuple[NodeLayout, ...]) -> tuple[tuple[str, ...], ...]:
    """The network, once the cable to the host is there, and what the kubelets want of the kernel."""
    addresses = (API_ADDRESS, *(node.address for node in nodes))
    wait = f"until ip link show {INNER_LINK} >&2; do sleep 0.02; done"
    masks = ((str(workdir / name.replace("/", "-")), f"/proc/sys/{name}") for name in KERNEL_SETTINGS)
    return (
        ("timeout", "30", "sh", "-c", wait),
        ("ip", "link", "set", "lo", "up"),
        *(("ip", "address", "add", f"{address}/{PREFIX_BITS}", "dev", INNER_LINK) for address in addresses),
        ("ip", "link", "set", INNER_LINK, "up"),
        # Without a route a process of the node could not even try a Service's address, which kube-proxy rewrites.
        ("ip", "route", "add", SERVICE_RANGE, "dev", INNER_LINK),
        ("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"),
        ("nft", "-f", str(workdir / "hairpin.nft")),
        *(("mount", "--bind", source, target) for source, target in masks),
    )


def _apiserver_flags(layout: Layout) -> tuple[str, ...]:
    tls = layout.workdir / "tls"
    return (
        "--authorization-mode=Node",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-certificate-authority={tls}/kubelets-ca.crt",
        f"--kubelet-client-certificate={tls}/apiserver-client.crt",
        f"--kubelet-client-key={tls}/apiserver-client.key",
        "--kubelet-preferred-address-types=InternalIP",
    )


def _node(layout: Layout, node: NodeLayout, programs: NodeBinaries, ready: str) -> tuple[Process, ...]:
    """Containerd makes the node's mount namespace; its kubelet joins it, again after each `start`."""
    folder = node.folder
    own = (("run", "/run"), ("log", "/var/log"), ("kubelet", "/var/lib/kubelet"))
    mounts = "".join(f"mkdir -p {target}\nmount --bind {folder}/{name} {target}\n" for name, target in own)
    script = f"set -e\n{mounts}exec containerd --config {folder}/containerd.toml"
    holder = layout.workdir / "run" / f"containerd-{node.name}.inner"
    join = f'exec nsenter --target "$(cat {holder})" --mount "$@"'
    kubelet = (
        str(programs.kubelet),
        f"--config={folder}/kubelet.yaml",
        f"--kubeconfig={layout.kubeconfig(f'kubelet-{node.name}')}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
    )
    return (
        Process(f"containerd-{node.name}", ("unshare", "--mount", "sh", "-c", script)),
        Process(f"kubelet-{node.name}", ("sh", "-c", join, "sh", *kubelet), ready),
    )
