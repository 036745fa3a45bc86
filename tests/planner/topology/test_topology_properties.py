"""Plans of jobs that stay in one domain, against brute force that tries every domain for every job.

The brute force lists every way to fill the nodes of each domain with whole pods. It uses no code of the planner.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.resources import CPU
from edl.model.topology import Topology, TopologyMode, in_domain, path_of
from edl.planner import decide
from edl.planner.guard import check
from edl.planner.problem import Problem
from tests.worlds.builders import make_job, make_node, make_shape, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import apply_plan, essence, plan_for

KEY = "example.com/rack"
Vector = tuple[int, ...]
Found = tuple[tuple[bool, ...], float, Vector]
"""Of the jobs by age: which run; the lowest fulfilment of these; and the trainers of each."""


@st.composite
def worlds(
    draw: st.DrawFn,
    modes: tuple[TopologyMode | None, ...] = (None, TopologyMode.REQUIRED),
    most_jobs: int = 3,
    most_pservers: int = 0,
) -> ClusterSnapshot:
    """Two racks of one or two nodes, sometimes a node without a rack, and up to three new jobs with some pservers."""
    racks = draw(st.sampled_from([("r1", "r2"), ("r1", "r1", "r2"), ("r1", "r1", "r2", "r2"), ("r1", "r2", "")]))
    nodes = tuple(
        make_node(f"n{i}", draw(st.integers(1, 5)), labels={KEY: rack} if rack else {})
        for i, rack in enumerate(racks)
    )
    jobs = []
    for i in range(draw(st.integers(1, most_jobs))):
        low = draw(st.integers(1, 3))
        job = make_job(
            f"j{i}",
            min_trainers=low,
            max_trainers=low + draw(st.integers(0, 4)),
            cpu=draw(st.integers(1, 2)),
            age_s=90.0 - i,
            fixed=pservers(draw(st.integers(0, most_pservers)), draw(st.integers(1, 2))) if most_pservers else (),
        )
        mode = draw(st.sampled_from(modes))
        jobs.append(replace(job, topology=Topology.of(KEY, mode)) if mode else job)
    return make_snapshot(nodes, tuple(jobs))


WITH_PSERVERS = worlds(most_jobs=2, most_pservers=2)


def pservers(count: int, cpu: int) -> tuple[FixedPods, ...]:
    return (FixedPods(Role.PSERVER, make_shape(cpu, 1), count),)


def is_required(job: Job) -> bool:
    return job.topology is not None and job.topology.is_required


def cpu_of(have: Job | FixedPods | Node) -> int:
    if isinstance(have, Node):
        return have.allocatable[CPU]
    return (have.trainer if isinstance(have, Job) else have.shape).request[CPU]


def kinds_of(jobs: tuple[Job, ...]) -> list[tuple[int, Job | FixedPods, int]]:
    """The pods that may be placed: the index of their job, of which size they are, and how many there may be."""
    trainers = [(i, job, job.max_trainers) for i, job in enumerate(jobs)]
    return trainers + [(i, fixed, fixed.count) for i, job in enumerate(jobs) for fixed in job.fixed]


def rack_of(node: Node) -> str:
    return dict(node.labels).get(KEY, "")


def fillings(node: Node, jobs: tuple[Job, ...], racks: tuple[str, ...]) -> Iterator[Vector]:
    """Every number of trainers of each job, and of pservers of each job, that the node holds together."""
    kinds = kinds_of(jobs)
    most = [
        min(high, cpu_of(node) // cpu_of(pod)) if racks[i] in {"*", rack_of(node)} else 0 for i, pod, high in kinds
    ]
    for counts in product(*(range(n + 1) for n in most)):
        if sum(n * cpu_of(pod) for n, (_, pod, _) in zip(counts, kinds, strict=True)) <= cpu_of(node):
            yield counts


def reachable(world: ClusterSnapshot) -> set[Vector]:
    """Every number of trainers of each job that the nodes hold, whatever rack each job is given.

    A job that runs has all its pservers, and a job that must stay together has them in its rack.
    """
    found, kinds = set[Vector](), kinds_of(world.jobs)
    most = [high for _, _, high in kinds]
    for racks in product(*(("r1", "r2") if is_required(job) else ("*",) for job in world.jobs)):
        here = {(0,) * len(kinds)}
        for node in world.nodes:
            ways = list(fillings(node, world.jobs, racks))
            sums = {tuple(a + b for a, b in zip(one, way, strict=True)) for one in here for way in ways}
            here = {each for each in sums if all(n <= high for n, high in zip(each, most, strict=True))}
        found |= {counts[: len(world.jobs)] for counts in here if is_whole(world.jobs, counts)}
    return found


def is_whole(jobs: tuple[Job, ...], counts: Vector) -> bool:
    """True if the jobs that have trainers have all their pservers, and the others have none."""
    beside = list(zip(kinds_of(jobs), counts, strict=True))[len(jobs) :]
    return all(n == (high if counts[i] else 0) for (i, _, high), n in beside)


def tops(world: ClusterSnapshot) -> list[int]:
    """The trainers at which the fulfilment of each job is 1: what the best rack holds, up to its maximum."""
    found = []
    for job in world.jobs:
        alone = max(counts[0] for counts in reachable(replace(world, jobs=(replace(job, max_trainers=20),))))
        found.append(max(job.min_trainers, min(job.max_trainers, alone)))
    return found


def fulfilment(job: Job, count: int, top: int) -> float:
    return (count - job.min_trainers) / (top - job.min_trainers) if top > job.min_trainers else 1.0


def judged(world: ClusterSnapshot, counts: Vector) -> Found | None:
    """How good these counts are; None if a job runs below its minimum or above its maximum."""
    runs = tuple(count > 0 for count in counts)
    bounds = [n in range(job.min_trainers, job.max_trainers + 1) for n, job in zip(counts, world.jobs, strict=True)]
    if any(run and not within for run, within in zip(runs, bounds, strict=True)):
        return None
    each = zip(world.jobs, counts, tops(world), strict=True)
    return runs, min((fulfilment(job, n, top) for job, n, top in each if n), default=1.0), counts


def counts_of(plan: ScalePlan) -> Vector:
    return tuple(decision.target for decision in plan.decisions)


def carried_out(world: ClusterSnapshot, plan: ScalePlan) -> ClusterSnapshot:
    """The cluster once the pods run; those that stay together require their domain, as edl creates them."""
    labels = {node.name: node.labels for node in world.nodes}

    def required(job: Job, pod: Pod) -> Pod:
        if job.topology is None or not is_required(job):
            return pod
        domain = path_of(labels[pod.node], (KEY,))
        shape = next((fixed.shape for fixed in job.fixed if fixed.role is pod.role), job.trainer)
        return replace(pod, shape=in_domain(shape, replace(job.topology, domain=domain)))

    after = apply_plan(world, plan)
    return replace(
        after, jobs=tuple(replace(job, pods=tuple(required(job, pod) for pod in job.pods)) for job in after.jobs)
    )


@given(worlds())
@examples(150)
def test_the_same_jobs_run_and_the_worst_off_has_as_much_as_in_the_best_choice_of_racks(
    world: ClusterSnapshot,
) -> None:
    mine = judged(world, counts_of(plan_for(world)))
    assert mine is not None
    best = max(found for counts in reachable(world) if (found := judged(world, counts)) is not None)
    assert mine[0] == best[0]
    assert mine[1] >= best[1] - 1e-9


@given(st.one_of(worlds(), WITH_PSERVERS))
@examples(100)
def test_no_choice_of_racks_is_worth_more_than_the_bound(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    mine = counts_of(plan)
    for counts in reachable(world):
        found = judged(world, counts)
        if found is None or any((a > 0) != (b > 0) or a < b for a, b in zip(counts, mine, strict=True)):
            continue
        each = zip(world.jobs, counts, tops(world), strict=True)
        assert sum(fulfilment(job, n, top) for job, n, top in each if n) <= plan.certificate.bound + 1e-6


@given(st.one_of(worlds(), WITH_PSERVERS), worlds())
@examples(100)
def test_trainers_are_in_one_rack_and_stay_there(world: ClusterSnapshot, other: ClusterSnapshot) -> None:
    """The second plan begins with what the first one made; then a rack may change its size, and jobs come and go."""
    first = carried_out(world, plan_for(world))
    again = plan_for(first)
    assert essence(again) == essence(plan_for(world))
    assert not any(decision.nodes or decision.victims for decision in again.decisions)
    later_jobs = tuple(replace(job, key=job.key._replace(name=f"x{job.key.name}")) for job in other.jobs)
    changed = make_snapshot(first.nodes, (*first.jobs, *later_jobs))
    for before, after in ((world, first), (changed, carried_out(changed, plan_for(changed)))):
        racks = {node.name: rack_of(node) for node in before.nodes}
        for job in filter(is_required, after.jobs):
            homes = {racks[pod.node] for pod in job.pods if pod.is_live}
            assert len(homes) <= 1
            assert "" not in homes
            assert not job.live_trainers or len(job.live_trainers) >= job.min_trainers


@given(worlds(modes=(None, TopologyMode.PREFERRED)))
@examples(60)
def test_a_preference_costs_no_trainer(world: ClusterSnapshot) -> None:
    without = replace(world, jobs=tuple(replace(job, topology=None) for job in world.jobs))
    plan, plain = plan_for(world), plan_for(without)
    assert essence(plan) == essence(plain)
    assert plan.certificate == plain.certificate


@given(worlds(modes=(TopologyMode.REQUIRED,), most_jobs=2, most_pservers=2))
@examples(60)
def test_a_plan_over_two_racks_is_refused(world: ClusterSnapshot) -> None:
    free = replace(world, jobs=tuple(replace(job, topology=None) for job in world.jobs))
    plan = plan_for(free)
    racks = {node.name: rack_of(node) for node in world.nodes}
    apart = {
        str(d.job)
        for d in plan.decisions
        if len(homes := {racks[name] for _, name in [*d.fixed_nodes, *((0, n) for n, _ in d.nodes)]}) > 1
        or "" in homes
    }
    refused = {
        problem.split(":")[0].removeprefix("job ") for problem in check(world, plan) if "one domain" in problem
    }
    assert refused == apart


@contextmanager
def fluid_engine() -> Iterator[None]:
    """Plans are made by the fluid program and by swaps, however few the sizes are."""

    def forced(problem: Problem) -> Problem:
        return replace(problem, is_many=True, plans_in_bulk=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide, "with_engine", forced)
        yield


@given(worlds())
@examples(60)
def test_with_pods_of_many_sizes_the_same_rules_hold(world: ClusterSnapshot) -> None:
    """The fluid engine may give less, but within the bound, and never two racks."""
    with fluid_engine():
        plan = plan_for(world)
    assert check(world, plan) == ()
    mine = counts_of(plan)
    assert judged(world, mine) is not None
    for counts in reachable(world):
        found = judged(world, counts)
        if found is None or any((a > 0) != (b > 0) or a < b for a, b in zip(counts, mine, strict=True)):
            continue
        each = zip(world.jobs, counts, tops(world), strict=True)
        assert sum(fulfilment(job, n, top) for job, n, top in each if n) <= plan.certificate.bound + 1e-6


@given(WITH_PSERVERS)
@examples(100)
def test_pservers_are_in_the_rack_of_their_trainers_and_the_best_choice_of_racks_is_found(
    world: ClusterSnapshot,
) -> None:
    plan = plan_for(world)
    racks = {node.name: rack_of(node) for node in world.nodes}
    for job, decision in zip(world.jobs, plan.decisions, strict=True):
        places = [name for name, _ in decision.nodes] + [name for _, name in decision.fixed_nodes]
        assert not is_required(job) or len({racks[name] for name in places}) <= 1
    mine = judged(world, counts_of(plan))
    assert mine is not None
    best = max(found for counts in reachable(world) if (found := judged(world, counts)) is not None)
    assert mine[0] == best[0]
    assert mine[1] >= best[1] - 1e-9
