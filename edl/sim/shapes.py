"""The nodes, pod shapes and jobs of a scenario as values of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edl.model.cluster import Node
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.quantity import parse_quantity
from edl.model.resources import CPU, PODS, PodShape, Resources
from edl.sim.batches.phases import phases_of
from edl.sim.scenario import JobGroup, NodeGroup

NAMESPACE = "training"
_PODS_OF_A_NODE = 110

TTL_S = 30
"""When a job that has ended is deleted; a thousand ended jobs would only cost time."""


def resources_of(amounts: Mapping[str, str | float]) -> Resources:
    """Convert amounts to the units of the model."""
    return Resources.of({name: parse_quantity(value, name) for name, value in amounts.items()})


def shape_of(amounts: Mapping[str, str | float]) -> PodShape:
    """The shape of a pod that requests these amounts."""
    return PodShape(resources_of(amounts) + Resources.of({PODS: 1}))


def allocatable_of(group: NodeGroup) -> Resources:
    """The allocatable resources of each node of a group."""
    amounts = resources_of(group.resources).as_dict()
    if PODS not in group.resources:
        amounts[PODS] = _PODS_OF_A_NODE
    amounts[CPU] = amounts.get(CPU, 0) - parse_quantity(group.system_cpu, CPU)
    return Resources.of(amounts)


def nodes_of(groups: tuple[NodeGroup, ...]) -> Iterator[tuple[Node, int]]:
    """Yield each node, and the millicores of its own daemons, which are not allocatable."""
    for group in groups:
        system, allocatable = parse_quantity(group.system_cpu, CPU), allocatable_of(group)
        for i in range(group.count):
            name = f"{group.name}-{i}"
            labels = tuple(sorted({"kubernetes.io/hostname": name, **group.labels}.items()))
            yield Node(name, allocatable, labels), system


def job_of(group: JobGroup, number: int, now_s: float) -> Job:
    """Make one job of a group, in the form that the API server returns after the job's creation."""
    fixed = tuple(
        FixedPods(role, shape_of(spec.resources), spec.count)
        for role, spec in ((Role.MASTER, group.master), (Role.PSERVER, group.pserver))
        if spec is not None
    )
    first = phases_of(group)[0]
    return Job(
        key=JobKey(NAMESPACE, f"{group.name}-{number}"),
        uid=f"job-{group.name}-{number}",
        min_trainers=group.min,
        max_trainers=group.max,
        sizes=tuple(sorted(set(group.sizes))),
        trainer=shape_of(group.trainer),
        fixed=fixed,
        created_s=now_s,
        weight=group.weight,
        cooldown_s=group.cooldown_s,
        ttl_s=TTL_S,
        throughput=first.processed if group.is_declared else (),
        goodput=first.known if group.is_declared and group.batch is not None else (),
        resize_cost_s=group.resize.cost_s or None,
        lending=group.lending,
    )
