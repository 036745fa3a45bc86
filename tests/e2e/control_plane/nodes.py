"""Describes the nodes of a test cluster, from code or from a mix file.

A node here is a name and numbers: no kubelet runs, kwok pretends. Quantities stay the strings
that Kubernetes reads, so that nothing is rounded on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.control_plane.versions import ControlPlaneError

MIXES = Path(__file__).parent / "mixes"
MANAGED_LABEL = "edl.test/kubelet"
MANAGED_VALUE = "kwok"

_PODS = {"pods": "110"}
_KEYS = {"name", "count", "capacity", "allocatable", "labels", "taints"}


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node; `allocatable` names only what differs from `capacity`."""

    name: str
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


def make_nodes(
    count: int,
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    prefix: str = "node",
    extra: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> tuple[NodeSpec, ...]:
    """`count` equal nodes named `<prefix>-<number>`; `extra` is further capacity, such as GPUs."""
    capacity = {**_PODS, "cpu": cpu, "memory": memory, **(extra or {})}
    width = len(str(count - 1))
    return tuple(
        NodeSpec(f"{prefix}-{i:0{width}d}", capacity, allocatable or {}, labels or {}, taints) for i in range(count)
    )


def load_mix(mix: str | Path) -> tuple[NodeSpec, ...]:
    """The nodes of a mix: a name under `mixes/`, or the path of a file of the same form.

    Raises:
        ControlPlaneError: there is no such mix, or it does not read as one.
    """
    path = MIXES / f"{mix}.yaml"
    if not path.is_file():
        path = Path(mix)
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in MIXES.glob("*.yaml")))
        raise ControlPlaneError(f"no mix {mix!s}; give a file, or one of {known}")
    document = yaml.safe_load(path.read_text())
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise ControlPlaneError(f"{path}: a mix is a mapping with a list `nodes`")
    return tuple(spec for kind in document["nodes"] for spec in _of_kind(kind, path))


def _of_kind(kind: Mapping[str, Any], path: Path) -> Iterator[NodeSpec]:
    if unknown := set(kind) - _KEYS:
        raise ControlPlaneError(f"{path}: unknown {sorted(unknown)}; known are {sorted(_KEYS)}")
    if "name" not in kind or "capacity" not in kind:
        raise ControlPlaneError(f"{path}: a kind of node needs `name` and `capacity`")
    capacity = {key: str(value) for key, value in kind["capacity"].items()}
    yield from make_nodes(
        int(kind.get("count", 1)),
        cpu=capacity.pop("cpu"),
        memory=capacity.pop("memory"),
        prefix=str(kind["name"]),
        extra=capacity,
        allocatable={key: str(value) for key, value in kind.get("allocatable", {}).items()},
        labels=kind.get("labels", {}),
        taints=kind.get("taints", ()),
    )


def manifest(spec: NodeSpec, index: int) -> dict[str, Any]:
    """The Node object of a spec.

    Args:
        spec: the node.
        index: its number in the cluster, below 24,576. It gives the node an address and a pod
            range of its own; kwok's default is one range of 256 addresses for the whole cluster. They are
            multicast addresses, to which no connection can be made: nothing runs in these pods, and a client
            that calls one must not reach another machine of this network.
    """
    high, low = divmod(index, 256)
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        **spec.labels,
        MANAGED_LABEL: MANAGED_VALUE,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels},
        "spec": {
            "taints": [dict(taint) for taint in spec.taints],
            "podCIDR": f"239.{128 + high}.{low}.0/24",
            "podCIDRs": [f"239.{128 + high}.{low}.0/24"],
        },
        "status": {
            "capacity": dict(spec.capacity),
            "allocatable": {**spec.capacity, **spec.allocatable},
            "addresses": [
                {"type": "InternalIP", "address": f"239.{high}.{low}.1"},
                {"type": "Hostname", "address": spec.name},
            ],
        },
    }
