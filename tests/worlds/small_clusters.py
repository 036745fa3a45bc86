"""Small random clusters in which only cpu is scarce, and what a plan makes of them. Requests are whole cores.

`reachable` is brute force without any code of the planner: it lists every way to fill each node with whole pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

from hypothesis import strategies as st

from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import VOLUNTARY_SHRINKS, ScaleDecision, ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU, PodShape
from edl.model.status import Condition, JobStatus, Resize, RoleCount
from edl.planner.policies.registry import policy_named
from edl.planner.starts import Start, startable
from tests.worlds.builders import (
    make_job,
    make_node,
    make_nodes,
    make_resources,
    make_serving,
    make_shape,
    make_snapshot,
)

LIMITS = Limits()
Vector = tuple[int, ...]


def plan_for(snapshot: ClusterSnapshot, limits: Limits = LIMITS, policy: str = "maxmin") -> ScalePlan:
    return decide(snapshot, policy_named(policy), limits)


def decision_of(plan: ScalePlan, name: str, namespace: str = "default") -> ScaleDecision:
    return next(d for d in plan.decisions if d.job == (namespace, name))


def targets(plan: ScalePlan) -> dict[str, int]:
    return {d.job.name: d.target for d in plan.decisions}


def victims(plan: ScalePlan) -> list[str]:
    return [name for d in plan.decisions for name in d.victims]


def essence(plan: ScalePlan) -> list[tuple[str, int, bool]]:
    """The part of a plan that must not change if the cluster does not."""
    return [(str(d.job), d.target, d.admitted) for d in plan.decisions]


def with_jobs(snapshot: ClusterSnapshot, *jobs: Job) -> ClusterSnapshot:
    """The snapshot with these jobs, which replace jobs of the same key."""
    keys = {job.key for job in jobs}
    kept = [job for job in snapshot.jobs if job.key not in keys]
    return replace(snapshot, jobs=tuple(sorted((*kept, *jobs), key=lambda job: job.key)))


def with_pods(snapshot: ClusterSnapshot, *pods: Pod) -> ClusterSnapshot:
    return replace(snapshot, pods=tuple(sorted((*snapshot.pods, *pods), key=lambda p: (p.namespace, p.name))))


def with_status(job: Job, *, resize: Resize | None = None, admitted: bool | None = None, since_s: float = 0.0) -> Job:
    word = {True: "True", False: "False"}
    conditions = () if admitted is None else (Condition("Admitted", word[admitted], "", "", since_s),)
    return replace(job, status=JobStatus(conditions=conditions, last_resize=resize, start_s=1.0))


def later(snapshot: ClusterSnapshot, duration_s: float) -> ClusterSnapshot:
    return replace(snapshot, observed_at_s=snapshot.observed_at_s + duration_s)


def apply_plan(
    snapshot: ClusterSnapshot, plan: ScalePlan, *, gone: bool = True, bound: bool = True, only_startable: bool = False
) -> ClusterSnapshot:
    """The cluster after a plan is carried out.

    Args:
        snapshot: the cluster before the plan.
        plan: the plan.
        gone: if true, victims are removed; else they are terminating.
        bound: if true, new pods run on their planned nodes; else they are pending.
        only_startable: if true, only pods that fit now are created.
    """
    allowed = list(startable(snapshot, plan)) if only_startable else None
    jobs = []
    for job in snapshot.jobs:
        decision = plan.decision(job.key)
        assert decision is not None
        pods = [p for pod in job.pods if (p := _after(pod, decision, gone=gone, bound=bound)) is not None]
        for role, shape, node in _created(job, decision):
            if allowed is not None:
                if Start(job.key, role, node) not in allowed:
                    continue
                allowed.remove(Start(job.key, role, node))
            pods.append(_new_pod(job, role, shape, node, pods, bound=bound, now_s=snapshot.observed_at_s))
        pods.sort(key=lambda p: (p.role or "", p.index or 0, p.name))
        jobs.append(replace(job, pods=tuple(pods), status=_status(job, decision, snapshot.observed_at_s)))
    return replace(snapshot, jobs=tuple(jobs))


def _after(pod: Pod, decision: ScaleDecision, *, gone: bool, bound: bool) -> Pod | None:
    ends = pod.name in decision.victims or pod.name in decision.moves or not decision.admitted
    if pod.terminating or (pod.is_live and ends):
        return None if gone else replace(pod, terminating=True)
    if bound and not pod.node and pod.planned:
        return replace(pod, node=pod.planned, phase=PodPhase.RUNNING, started_s=0.0)
    return pod


def _created(job: Job, decision: ScaleDecision) -> Iterable[tuple[Role, PodShape, str]]:
    shapes = {fixed.role: fixed.shape for fixed in job.fixed}
    yield from ((role, shapes[role], node) for role, node in decision.fixed_nodes)
    for node, count in decision.nodes:
        yield from [(Role.TRAINER, job.trainer, node)] * count


def _new_pod(
    job: Job, role: Role, shape: PodShape, node: str, pods: Sequence[Pod], *, bound: bool, now_s: float
) -> Pod:
    used = {p.index for p in pods if p.role is role}
    index = next(i for i in range(len(used) + 1) if i not in used)
    return Pod(
        namespace=job.key.namespace,
        name=f"{job.key.name}-{role.value}-{index}",
        uid=f"{job.key}-{role.value}-{index}-{now_s}",
        shape=shape,
        phase=PodPhase.RUNNING if bound else PodPhase.PENDING,
        node=node if bound else "",
        planned=node,
        created_s=now_s,
        started_s=now_s if bound else None,
        job=job.key,
        role=role,
        index=index,
    )


def _status(job: Job, decision: ScaleDecision, now_s: float) -> JobStatus | None:
    if not job.is_schedulable:
        return job.status
    old = job.status or JobStatus()
    word = "True" if decision.admitted else "False"
    admitted = old.condition("Admitted")
    if admitted is None or admitted.status != word:
        admitted = Condition("Admitted", word, decision.reason, decision.message, now_s)
    resize, before = (
        old.last_resize,
        old.trainer.desired if job.was_admitted else min(decision.target, job.min_trainers),
    )
    if decision.target != before:
        resize = _resize(job, before, decision, now_s)
    start_s = old.start_s if old.start_s is not None or not decision.admitted else now_s
    return replace(
        old, conditions=(admitted,), last_resize=resize, start_s=start_s, trainer=RoleCount(desired=decision.target)
    )


def _resize(job: Job, before: int, decision: ScaleDecision, now_s: float) -> Resize:
    """The last resize as the controller stores it: it keeps a shrink for a while, and the time of a voluntary one."""
    last = job.status.last_resize if job.status is not None else None
    voluntary_s = last.voluntary_s if last is not None else None
    if decision.target < before and decision.admitted and not decision.victims:
        return last if last is not None else Resize(now_s, before, decision.target, decision.reason)
    if decision.target < before:
        reason = decision.shrink_reason or decision.reason
        is_voluntary = decision.admitted and reason in VOLUNTARY_SHRINKS
        return Resize(now_s, before, decision.target, reason, now_s if is_voluntary else voluntary_s)
    if last is not None and last.to_count < last.from_count and now_s - last.time_s < max(job.cooldown_s, 30.0):
        return last
    return Resize(now_s, before, decision.target, decision.reason, voluntary_s)


def small_jobs(*, with_fixed: bool = True, with_tiers: bool = True) -> st.SearchStrategy[Job]:
    def build(
        *, name: str, cpu: int, min_trainers: int, more: int, age_s: int, tier: int, fixed: tuple[int, int]
    ) -> Job:
        pods = (FixedPods(Role.PSERVER, make_shape(fixed[0], 1), fixed[1]),) if fixed[1] else ()
        return make_job(
            name,
            cpu=cpu,
            min_trainers=min_trainers,
            max_trainers=min_trainers + more,
            age_s=age_s,
            tier=tier,
            fixed=pods,
        )

    return st.builds(
        build,
        name=st.sampled_from(["a", "b", "c", "d"]),
        cpu=st.integers(1, 3),
        min_trainers=st.integers(1, 2),
        more=st.integers(0, 4),
        age_s=st.integers(0, 99),
        tier=st.integers(0, 1) if with_tiers else st.just(0),
        fixed=st.tuples(st.integers(1, 2), st.integers(0, 1)) if with_fixed else st.just((1, 0)),
    )


def small_nodes() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(2, 8), min_size=1, max_size=3)


def cluster_of(cores: Sequence[int], jobs: Iterable[Job] = (), pods: Iterable[Pod] = ()) -> ClusterSnapshot:
    nodes = tuple(make_node(f"n{i}", cpu, 64) for i, cpu in enumerate(cores))
    return make_snapshot(nodes, tuple({job.key: job for job in jobs}.values()), tuple(pods))


@st.composite
def fresh_worlds(draw: st.DrawFn) -> ClusterSnapshot:
    """A cluster in which no job has pods yet."""
    jobs = draw(st.lists(small_jobs(), max_size=3))
    waiting = draw(st.lists(st.integers(1, 3), max_size=3))
    return cluster_of(draw(small_nodes()), jobs, [make_serving(f"w{i}", cpu=c) for i, c in enumerate(waiting)])


@st.composite
def running_worlds(draw: st.DrawFn) -> ClusterSnapshot:
    """A cluster that runs its plan, after one or two changes."""
    world = cluster_of(draw(small_nodes()), draw(st.lists(small_jobs(), min_size=1, max_size=3)))
    world = later(apply_plan(world, plan_for(world)), 100)
    for event in draw(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=2, unique=True)):
        world = CHANGES[event](draw, world)
    return world


def _serving_comes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    cores = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return with_pods(world, *(make_serving(f"w{i}", cpu=c) for i, c in enumerate(cores)))


def _job_comes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    job = draw(small_jobs())
    return with_jobs(world, replace(job, key=job.key._replace(name="new"), created_s=world.observed_at_s))


def _node_goes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    gone = draw(st.sampled_from([n.name for n in world.nodes]))
    jobs = (replace(j, pods=tuple(p for p in j.pods if p.node != gone)) for j in world.jobs)
    return replace(world, nodes=tuple(n for n in world.nodes if n.name != gone), jobs=tuple(jobs))


def _node_is_cordoned(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    cordoned = draw(st.sampled_from([n.name for n in world.nodes] or [""]))
    return replace(world, nodes=tuple(replace(n, cordoned=n.cordoned or n.name == cordoned) for n in world.nodes))


def _spec_changes(draw: st.DrawFn, world: ClusterSnapshot) -> ClusterSnapshot:
    job = draw(st.sampled_from(world.jobs))
    changes = [
        replace(job, max_trainers=job.min_trainers),
        replace(job, max_trainers=job.max_trainers + 2),
        replace(job, suspended=True),
        replace(job, pinned=job.min_trainers),
        replace(job, finished=True),
    ]
    return with_jobs(world, draw(st.sampled_from(changes)))


CHANGES = {
    "serving comes": _serving_comes,
    "a job comes": _job_comes,
    "a node goes": _node_goes,
    "a node is cordoned": _node_is_cordoned,
    "a spec changes": _spec_changes,
}


def cores_of(shape: PodShape) -> int:
    return shape.request[CPU] // 1000


def reachable(rooms: Iterable[int], sizes: Sequence[int], most: Vector) -> set[Vector]:
    """Every vector of pod counts, at most `most`, that nodes with these free cores can hold."""
    total: set[Vector] = {(0,) * len(sizes)}
    for room in rooms:
        ways = [
            way
            for way in product(
                *(range(min(limit, room // size) + 1) for size, limit in zip(sizes, most, strict=True))
            )
            if sum(n * size for n, size in zip(way, sizes, strict=True)) <= room
        ]
        total = {
            tuple(min(a + b, limit) for a, b, limit in zip(left, right, most, strict=True))
            for left in total
            for right in ways
        }
    return total


def free_cores(snapshot: ClusterSnapshot, plan: ScalePlan) -> dict[str, int]:
    """Free cores of each open node after the plan is carried out; waiting serving pods are not placed."""
    free = {n.name: n.allocatable[CPU] // 1000 for n in snapshot.nodes if n.ready and not n.cordoned}
    after = apply_plan(snapshot, plan)
    for pod in (*after.pods, *(p for job in after.jobs for p in job.pods)):
        if pod.node in free and not pod.is_finished:
            free[pod.node] -= cores_of(pod.shape)
    return free


def jobs_that_could_grow(snapshot: ClusterSnapshot, plan: ScalePlan) -> list[JobKey]:
    """Admitted jobs below their maximum for which the plan leaves room for one more trainer."""
    if plan.serving.waiting > plan.serving.short:
        return []  # the free room is meant for serving pods: which of it, the plan does not say
    largest = max(free_cores(snapshot, plan).values(), default=0)
    return [
        job.key
        for job, decision in zip(snapshot.jobs, plan.decisions, strict=True)
        if decision.admitted
        and not job.pinned
        and decision.target < job.max_trainers
        and largest >= cores_of(job.trainer)
    ]


__all__ = [
    "CHANGES", "LIMITS", "apply_plan", "cluster_of", "cores_of", "decision_of", "essence",
    "free_cores", "fresh_worlds", "jobs_that_could_grow", "later", "make_job", "make_node",
    "make_nodes", "make_resources",
    "make_serving", "make_shape", "make_snapshot", "plan_for", "reachable", "running_worlds", "small_jobs",
    "small_nodes", "targets", "victims", "with_jobs", "with_pods", "with_status",
]  # fmt: skip
