"""The resources of a cluster in the one log line that users of the original project look for.

The numbers are computed as the original did, without sidecars and overhead: every container and every init container
counts, even while its pod is pending. No decision uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from edl.errors import ConfigError
from edl.kube.translate.container_objects import ContainerObject, ResourceAmounts
from edl.kube.translate.objects import NodeObject, NodeStatus, PodObject, PodSpec, PodStatus
from edl.kube.translate.scalars import Scalar
from edl.kube.translate.shapes import parse_amounts
from edl.model.resources import CPU, GPU, MEMORY

MAX_NODES = 50
"""Most nodes in the maps, in order of their names; a line with 10,000 nodes is of no use."""

_MEGA = 10**6
_FINISHED = frozenset({"Succeeded", "Failed"})

Amounts = dict[str, int]


def resource_log_line(nodes: Iterable[NodeObject], pods: Iterable[PodObject]) -> str:
    """Return the resources of a cluster as one line.

    Args:
        nodes: every node.
        pods: every pod; finished pods do not count.

    Returns:
        `{NodeCount:8 GPURequest:0 ... Nodes:{NodesCPUIdleMilli:map[n1:1800 ...] NodesMemoryFreeMega:map[...]}}`.
        Totals are summed exactly and rounded up once; the maps round up per container. Mega is 10^6 bytes. If one
        quantity of an object cannot be parsed, all its quantities count as 0.
    """
    request: Amounts = {}
    limit: Amounts = {}
    total: Amounts = {}
    idle_milli: dict[str, int] = {}
    free_mega: dict[str, int] = {}
    for node in nodes:
        name = (node.metadata.name if node.metadata else None) or ""
        allocatable = _read((node.status or NodeStatus()).allocatable)
        _add(total, allocatable)
        idle_milli[name] = allocatable.get(CPU, 0)
        free_mega[name] = _mega(allocatable)
    for pod in pods:
        node_name = (pod.spec.node_name if pod.spec else None) or ""
        for container in _containers(pod):
            resources = container.resources or ResourceAmounts()
            requested = _read(resources.requests)
            _add(request, requested)
            _add(limit, _read(resources.limits))
            if node_name in idle_milli:
                idle_milli[node_name] -= requested.get(CPU, 0)
                free_mega[node_name] -= _mega(requested)
    return (
        f"{{NodeCount:{len(idle_milli)} "
        f"GPURequest:{request.get(GPU, 0)} GPULimit:{limit.get(GPU, 0)} GPUTotal:{total.get(GPU, 0)} "
        f"CPURequestMilli:{request.get(CPU, 0)} CPULimitMilli:{limit.get(CPU, 0)} CPUTotalMilli:{total.get(CPU, 0)} "
        f"MemoryRequestMega:{_mega(request)} MemoryLimitMega:{_mega(limit)} MemoryTotalMega:{_mega(total)} "
        f"Nodes:{{NodesCPUIdleMilli:{_as_map(idle_milli)} NodesMemoryFreeMega:{_as_map(free_mega)}}}}}"
    )


def _containers(pod: PodObject) -> Iterator[ContainerObject]:
    if (pod.status or PodStatus()).phase not in _FINISHED:
        spec = pod.spec or PodSpec()
        yield from spec.containers or ()
        yield from spec.init_containers or ()


def _read(quantities: Mapping[str, Scalar] | None) -> Amounts:
    try:
        return parse_amounts(quantities)
    except ConfigError:
        return {}


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _mega(amounts: Mapping[str, int]) -> int:
    return -(-amounts.get(MEMORY, 0) // _MEGA)


def _as_map(values: Mapping[str, int]) -> str:
    return "map[" + " ".join(f"{name}:{values[name]}" for name in sorted(values)[:MAX_NODES]) + "]"
