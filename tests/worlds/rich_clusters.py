"""Random clusters with several resources; pods request cpu, memory and devices, and nodes have taints."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.names import Role
from edl.model.resources import GPU, Placement, PodShape, Resources, Taint, Toleration
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import apply_plan, later, plan_for, with_jobs, with_pods

DEDICATED = Taint("dedicated", "training", "NoSchedule")
TOLERATES = Toleration("dedicated", "Equal", "training", "NoSchedule")
PLACEMENTS = (
    Placement(),
    Placement(),
    Placement(node_selector=(("pool", "x"),)),
    Placement(tolerations=(TOLERATES,)),
)


@st.composite
def shapes(draw: st.DrawFn) -> PodShape:
    shape = make_shape(draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.sampled_from(PLACEMENTS)))
    if draw(st.integers(0, 3)) == 0:
        shape = replace(shape, request=shape.request + Resources.of({GPU: 1}))
    return shape


@st.composite
def nodes(draw: st.DrawFn, name: str = "n0") -> Node:
    node = make_node(
        name,
        draw(st.integers(4, 9)),
        draw(st.integers(4, 14)),
        pods=draw(st.sampled_from([110, 110, 4])),
        labels=draw(st.sampled_from([{"pool": "x"}, {"pool": "x"}, {"pool": "y"}, {}])),
    )
    devices = 2 - draw(st.integers(0, 2))
    node = replace(node, allocatable=node.allocatable + Resources.of({GPU: devices}))
    return replace(node, taints=(DEDICATED,)) if draw(st.integers(0, 3)) == 0 else node


@st.composite
def rich_jobs(draw: st.DrawFn, menu: list[PodShape], name: str = "a") -> Job:
    min_trainers = draw(st.integers(1, 2))
    fixed: tuple[FixedPods, ...] = ()
    if draw(st.integers(0, 2)) == 0:
        fixed = (FixedPods(draw(st.sampled_from([Role.MASTER, Role.PSERVER])), draw(st.sampled_from(menu)), 1),)
    job = make_job(
        name,
        min_trainers=min_trainers,
        max_trainers=min_trainers + draw(st.integers(0, 4)),
        fixed=fixed,
        age_s=draw(st.integers(0, 99)),
        tier=draw(st.sampled_from([0, 0, 1])),
        pinned=draw(st.sampled_from([0, 0, 0, 0, 1, 3])),
    )
    return replace(job, trainer=draw(st.sampled_from(menu)), weight=draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])))


@st.composite
def rich_fresh_worlds(draw: st.DrawFn, most_jobs: int = 3, most_waiting: int = 3) -> ClusterSnapshot:
    """A cluster in which no job has pods yet."""
    menu = draw(st.lists(shapes(), min_size=1, max_size=3))
    here = tuple(draw(nodes(f"n{i}")) for i in range(3 - draw(st.integers(0, 2))))
    jobs = tuple(draw(rich_jobs(menu, name)) for name in "abc"[: most_jobs - draw(st.integers(0, most_jobs - 1))])
    waiting = [draw(st.sampled_from(menu)) for _ in range(draw(st.integers(0, most_waiting)))]
    return make_snapshot(
        here, jobs, tuple(replace(make_serving(f"w{i}"), shape=shape) for i, shape in enumerate(waiting))
    )


@st.composite
def rich_running_worlds(draw: st.DrawFn, changes: tuple[str, ...] = ()) -> ClusterSnapshot:
    """A cluster that runs its plan, after one or two of the named `changes` (default: any)."""
    empty = draw(rich_fresh_worlds(most_waiting=0))
    world = later(apply_plan(empty, plan_for(empty)), 100)
    for event in draw(
        st.lists(st.sampled_from(changes or sorted(RICH_CHANGES)), min_size=1, max_size=2, unique=True)
    ):
        world = RICH_CHANGES[event](draw, world)
    return world


def _menu(world: ClusterSnapshot) -> list[PodShape]:
    return sorted({job.trainer for job in world.jobs}, key=repr)


def _serving_comes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    menu = [*_menu(world), draw(shapes())]
    waiting = draw(st.lists(st.sampled_from(menu), min_size=1, max_size=3))
    return with_pods(world, *(replace(make_serving(f"w{i}"), shape=shape) for i, shape in enumerate(waiting)))


def _job_comes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    job = draw(rich_jobs([*_menu(world), draw(shapes())], "new"))
    return with_jobs(world, replace(job, created_s=world.observed_at_s))


def _node_comes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    return replace(world, nodes=(*world.nodes, draw(nodes("n9"))))


def _node_goes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    gone = draw(st.sampled_from([node.name for node in world.nodes]))
    jobs = (replace(job, pods=tuple(p for p in job.pods if p.node != gone)) for job in world.jobs)
    return replace(world, nodes=tuple(node for node in world.nodes if node.name != gone), jobs=tuple(jobs))


def _node_closes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    closed = draw(st.sampled_from([node.name for node in world.nodes] or [""]))
    change = draw(st.sampled_from(["cordoned", "ready", "gone with its pods still listed"]))
    if change.startswith("gone"):
        return replace(world, nodes=tuple(node for node in world.nodes if node.name != closed))
    nodes = (
        node
        if node.name != closed
        else replace(node, cordoned=True)
        if change == "cordoned"
        else replace(node, ready=False)
        for node in world.nodes
    )
    return replace(world, nodes=tuple(nodes))


def _pods_fail(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    job = draw(st.sampled_from(world.jobs))
    gone = draw(st.sets(st.sampled_from([p.name for p in job.pods]))) if job.pods else set()
    return with_jobs(world, replace(job, pods=tuple(p for p in job.pods if p.name not in gone)))


def _spec_changes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    job = draw(st.sampled_from(world.jobs))
    changes = [
        replace(job, max_trainers=job.min_trainers),
        replace(job, max_trainers=job.max_trainers + 2),
        replace(job, min_trainers=job.max_trainers),
        replace(job, suspended=True),
        replace(job, pinned=job.min_trainers),
        replace(job, finished=True),
    ]
    return with_jobs(world, draw(st.sampled_from(changes)))


RICH_CHANGES = {
    "serving comes": _serving_comes,
    "a job comes": _job_comes,
    "a node comes": _node_comes,
    "a node goes": _node_goes,
    "a node closes": _node_closes,
    "pods fail": _pods_fail,
    "a spec changes": _spec_changes,
}
