"""Writes what the processes of a node read: certificates, containerd, CNI, kubelet, kube-proxy and CoreDNS.

Each setting that is not a default is there because the cluster fails without it inside a namespace on a machine that
is not its own, or because it keeps the machine as it was.
"""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

import trustme
import yaml

from tests.e2e.control_plane.commands import Layout
from tests.real.cluster.layout import API_ADDRESS, DNS_ADDRESS, DOMAIN, PAUSE_IMAGE, POD_RANGE, NodeLayout

CNI_PLUGINS = "/usr/lib/cni"
NODE_LEASE_S = 8

Document = dict[str, Any]


def write_certificates(tls: Path, nodes: tuple[NodeLayout, ...]) -> None:
    """One authority: each kubelet proves who it is to the API server, and the API server to each kubelet."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tls / "kubelets-ca.crt"))
    client = authority.issue_cert(
        "apiserver.edl.test", common_name="edl.test:apiserver", organization_name="system:masters"
    )
    client.cert_chain_pems[0].write_to_path(str(tls / "apiserver-client.crt"))
    _write_secret(tls / "apiserver-client.key", client.private_key_pem.bytes())
    for node in nodes:
        server = authority.issue_cert(node.address, node.name)
        server.cert_chain_pems[0].write_to_path(str(tls / f"{node.name}.crt"))
        _write_secret(tls / f"{node.name}.key", server.private_key_pem.bytes())


def write_node(layout: Layout, node: NodeLayout) -> None:
    """The folders of a node and the files that its containerd and kubelet read."""
    for name in ("run", "log", "kubelet", "containerd", "cni"):
        (node.folder / name).mkdir(parents=True)
    (node.folder / "containerd.toml").write_text(_containerd(node))
    (node.folder / "cni" / "10-edl.conflist").write_text(json.dumps(_cni(node)))
    (node.folder / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(layout.workdir / "tls", node)))


def write_cluster(layout: Layout, nodes: tuple[NodeLayout, ...]) -> None:
    """The files of what runs once for all nodes."""
    (layout.workdir / "kube-proxy.yaml").write_text(yaml.safe_dump(_proxy(layout, nodes[0])))
    (layout.workdir / "Corefile").write_text(_corefile(layout))
    (layout.workdir / "hairpin.nft").write_text(_hairpin(nodes))
    for setting, value in KERNEL_SETTINGS.items():
        (layout.workdir / setting.replace("/", "-")).write_text(value)


# What a kubelet wants of the kernel; files laid over these names tell it so, and nothing of the machine changes.
KERNEL_SETTINGS = {"vm/overcommit_memory": "1\n", "kernel/panic": "10\n", "kernel/panic_on_oops": "1\n"}


def _containerd(node: NodeLayout) -> str:
    return f"""version = 2
root = "{node.folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{node.folder}/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{node.folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def _cni(node: NodeLayout) -> Document:
    """A cable per pod and a route to it: no bridge, no masquerading."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": node.pod_subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "0.4.0",
        "name": "edl",
        "plugins": [{"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": addresses}],
    }


def _kubelet(tls: Path, node: NodeLayout) -> Document:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(tls / "kubelets-ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(tls / f"{node.name}.crt"),
        "tlsPrivateKeyFile": str(tls / f"{node.name}.key"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": DOMAIN,
        "nodeLeaseDurationSeconds": NODE_LEASE_S,
        "nodeStatusUpdateFrequency": "2s",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "systemReserved": node.spec.reserved,
        # The disk is the machine's, and how full it is no business of a test.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    }


def _proxy(layout: Layout, first: NodeLayout) -> Document:
    """One for all nodes, which share their network."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": POD_RANGE,
        "hostnameOverride": first.name,
        "clientConnection": {"kubeconfig": str(layout.kubeconfig("kube-proxy"))},
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _hairpin(nodes: tuple[NodeLayout, ...]) -> str:
    """Masquerade a pod that reaches itself through a Service; kube-proxy does that for the pods of one node only."""
    pairs = (f"{pod} . {pod}" for node in nodes for pod in ipaddress.ip_network(node.pod_subnet).hosts())
    return f"""table ip edl-hairpin {{
  set itself {{ type ipv4_addr . ipv4_addr; elements = {{ {", ".join(pairs)} }}; }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ct status dnat ip saddr . ip daddr @itself masquerade
  }}
}}
"""


def _corefile(layout: Layout) -> str:
    """The cluster's names, and the answer that there is no other: a refusal would read as a server that is away."""
    return f""".:53 {{
    bind {API_ADDRESS}
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {layout.kubeconfig("coredns")}
        ttl 1
    }}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
