"""Where a cluster's files and addresses are: numbers that several modules must agree on.

The addresses are fixed, so one such cluster runs on a machine at a time; they belong to a network namespace of their
own, of which the host sees one cable.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HOST_ADDRESS: Final = "172.31.250.1"
API_ADDRESS: Final = "172.31.250.2"
PREFIX_BITS: Final = 24
HOST_LINK: Final = "edl-real"
INNER_LINK: Final = "edl-inner"
POD_RANGE: Final = "10.244.0.0/16"
SERVICE_RANGE: Final = "10.96.0.0/16"
DNS_ADDRESS: Final = "10.96.0.10"
DOMAIN: Final = "cluster.local"
PAUSE_IMAGE: Final = "edl.test/pause:1"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node.

    Attributes:
        name: of the Node object.
        reserved: what the kubelet keeps from pods (`systemReserved`). Every node reports the whole machine's cores
            and memory, so this is how a test makes nodes of different or small size.
    """

    name: str
    reserved: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Where one node's files are, and its addresses.

    Attributes:
        spec: what the test asked for.
        folder: everything that the node writes.
        address: the node's own.
        pod_subnet: its pods' addresses.
        cgroup: of its pods, below every hierarchy; with a leading slash.
    """

    spec: NodeSpec
    folder: Path
    address: str
    pod_subnet: str
    cgroup: str

    @property
    def name(self) -> str:
        """Of the Node object."""
        return self.spec.name

    @property
    def containerd_socket(self) -> Path:
        """As seen from the host."""
        return self.folder / "run" / "containerd" / "containerd.sock"


def cgroup_of(workdir: Path) -> str:
    """The control group of everything in one working folder, so that nobody removes another cluster's."""
    return f"/edl-real-{hashlib.sha256(str(workdir).encode()).hexdigest()[:8]}"


def node_layouts(workdir: Path, specs: tuple[NodeSpec, ...]) -> tuple[NodeLayout, ...]:
    """Give each node a folder and addresses."""
    return tuple(
        NodeLayout(
            spec,
            workdir / "nodes" / spec.name,
            f"172.31.250.{10 + number}",
            f"10.244.{number}.0/24",
            f"{cgroup_of(workdir)}/{spec.name}",
        )
        for number, spec in enumerate(specs, start=1)
    )
