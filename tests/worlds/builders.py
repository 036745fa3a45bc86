"""Builders of small clusters: a test names the fields that matter and leaves the rest to the defaults.

Units: cpu in cores, memory in GiB.
"""

from __future__ import annotations

from dataclasses import replace

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU, MEMORY, PODS, NodeTerm, Placement, PodShape, Requirement, Resources

GIB = 1024**3


def make_resources(cpu: float = 0, memory_gib: float = 0, **devices: int) -> Resources:
    """Resources without the pod count. For resource names that are no Python names use `Resources.of`."""
    return Resources.of({CPU: round(cpu * 1000), MEMORY: round(memory_gib * GIB), **devices})


def make_shape(cpu: float = 1, memory_gib: float = 1, placement: Placement | None = None, **devices: int) -> PodShape:
    """The shape of one pod."""
    request = make_resources(cpu, memory_gib, **devices) + Resources.of({PODS: 1})
    return PodShape(request, placement or Placement())


def make_node(
    name: str,
    cpu: float = 8,
    memory_gib: float = 32,
    *,
    pods: int = 110,
    labels: dict[str, str] | None = None,
    ready: bool = True,
    cordoned: bool = False,
    **devices: int,
) -> Node:
    """A node with these allocatable resources."""
    return Node(
        name=name,
        allocatable=make_resources(cpu, memory_gib, **devices) + Resources.of({PODS: pods}),
        labels=tuple(sorted({"kubernetes.io/hostname": name, **(labels or {})}.items())),
        ready=ready,
        cordoned=cordoned,
    )


def make_nodes(count: int, cpu: float = 8, memory_gib: float = 32) -> tuple[Node, ...]:
    """Equal nodes named n000, n001, ..."""
    return tuple(make_node(f"n{i:03d}", cpu, memory_gib) for i in range(count))


def make_job(
    name: str,
    *,
    trainers: int = 0,
    min_trainers: int = 1,
    max_trainers: int = 10,
    cpu: float = 1,
    memory_gib: float = 1,
    namespace: str = "default",
    on: tuple[str, ...] = (),
    age_s: float = 0.0,
    tier: int = 0,
    fixed: tuple[FixedPods, ...] = (),
    pinned: int = 0,
) -> Job:
    """A job with `trainers` running trainers, spread over the nodes `on` in turn; its age is at second 1,000."""
    key = JobKey(namespace, name)
    shape = make_shape(cpu, memory_gib)
    pods = tuple(
        Pod(
            namespace=namespace,
            name=f"{name}-trainer-{i}",
            uid=f"{namespace}-{name}-t{i}",
            shape=shape,
            phase=PodPhase.RUNNING,
            node=on[i % len(on)] if on else "",
            ready=True,
            job=key,
            role=Role.TRAINER,
            index=i,
            priority=-5 if i < min_trainers else -100,
            started_s=900.0,
        )
        for i in range(trainers)
    )
    return Job(
        key=key,
        uid=f"uid-{namespace}-{name}",
        min_trainers=min_trainers,
        max_trainers=max_trainers,
        trainer=shape,
        fixed=fixed,
        pods=pods,
        created_s=1000.0 - age_s,
        tier=tier,
        pinned=pinned,
    )


def make_serving(
    name: str, *, cpu: float = 3, memory_gib: float = 3, node: str = "", nominated: str = "", priority: int = 0
) -> Pod:
    """A pod of no job: it waits if `node` is empty, else it runs there."""
    return Pod(
        namespace="serving",
        name=name,
        uid=f"serving-{name}",
        shape=make_shape(cpu, memory_gib),
        phase=PodPhase.RUNNING if node else PodPhase.PENDING,
        node=node,
        nominated=nominated,
        priority=priority,
        created_s=990.0,
        ready=bool(node),
    )


def only_on(pod: Pod, node: str) -> Pod:
    """The pod with a node affinity that names one node, as that of a pod of a DaemonSet does."""
    term = NodeTerm(fields=(Requirement("metadata.name", "In", (node,)),))
    return replace(pod, shape=replace(pod.shape, placement=Placement(required=(term,))))


def make_snapshot(
    nodes: tuple[Node, ...], jobs: tuple[Job, ...] = (), pods: tuple[Pod, ...] = (), now_s: float = 1000.0
) -> ClusterSnapshot:
    """A snapshot in the order in which edl.kube sorts it."""
    return ClusterSnapshot(
        observed_at_s=now_s,
        nodes=tuple(sorted(nodes, key=lambda n: n.name)),
        pods=tuple(sorted(pods, key=lambda p: (p.namespace, p.name))),
        jobs=tuple(sorted(jobs, key=lambda j: j.key)),
    )


def changed_jobs(before: ClusterSnapshot, after: ClusterSnapshot) -> frozenset[JobKey]:
    """Return the keys of the jobs that came, changed or went between two snapshots of one cluster.

    A job that has not changed is the same Python object in both, so none is compared by its content.
    """
    if before.jobs is after.jobs:
        return frozenset()
    old, new = ({id(job) for job in one.jobs} for one in (before, after))
    return frozenset(
        job.key for one, other in ((before, new), (after, old)) for job in one.jobs if id(job) not in other
    )
