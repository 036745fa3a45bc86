"""Trainers of a job that prefers one domain come together once the cluster is quiet, and no other job loses by it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.topology import Topology, TopologyMode
from edl.planner.guard import check
from edl.planner.topology.gathering import Gathering, holds_together
from edl.planner.waits import HORIZON_S
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.pserver_jobs import REST
from tests.worlds.small_clusters import apply_plan, decision_of, later, plan_for, with_status

KEY = "example.com/rack"
RACKS = (make_node("a1", 4, labels={KEY: "a"}), make_node("b1", 4, labels={KEY: "b"}))
SPLIT = ("a1", "a1", "a1", "b1")  # of four trainers


def split(on: tuple[str, ...] = SPLIT, mode: TopologyMode = TopologyMode.PREFERRED, **fields: Any) -> Job:
    low = fields.pop("low", 2)
    job = make_job("job", trainers=len(on), min_trainers=low, max_trainers=len(on), on=on, age_s=100)
    job = with_status(job, admitted=True)
    return replace(job, topology=Topology.of(KEY, mode), **fields)


def at_rest(*jobs: Job, nodes: Any = RACKS, now_s: float = 5000.0, pods: Any = ()) -> ClusterSnapshot:
    return make_snapshot(nodes, jobs, pods, now_s=now_s)


def planned(snapshot: ClusterSnapshot, limits: Limits = REST) -> ScaleDecision:
    plan = plan_for(snapshot, limits)
    assert check(snapshot, plan) == ()
    return decision_of(plan, "job")


def web(node: str, *, cpu: float = 1, since_s: float = 0.0) -> Pod:
    return replace(make_serving(f"web-{node}", cpu=cpu, node=node), created_s=since_s)


def racks(snapshot: ClusterSnapshot, name: str = "job") -> dict[str, int]:
    """How many trainers the job has in each rack."""
    job = next(job for job in snapshot.jobs if job.key.name == name)
    return dict(Counter(pod.node[0] for pod in job.live_trainers))


def test_a_trainer_moves_to_the_rack_of_the_others() -> None:
    decision = planned(at_rest(split()))
    assert (decision.victims, decision.nodes) == (("job-trainer-3",), (("a1", 1),))
    assert (decision.target, decision.shrink_reason) == (4, "Moved")


def test_nothing_moves_unless_the_operator_allows_it() -> None:
    assert planned(at_rest(split()), Limits()).victims == ()


def test_nothing_moves_before_the_cluster_is_quiet() -> None:
    assert planned(at_rest(split(), pods=(web("b1", since_s=4900.0),))).victims == ()
    assert planned(at_rest(split(), pods=(web("b1", since_s=4400.0),))).victims


@pytest.mark.parametrize(
    ("why", "job"),
    [
        ("its trainers must stay where they are", split(mode=TopologyMode.REQUIRED)),
        ("it would have fewer than its minimum", split(low=4)),
        ("it does not go on with fewer", split(fault_tolerant=False)),
        ("it pays more for two resizes than a tenth of its speed brings", split(resize_cost_s=31.0)),
        ("it is together", split(("a1",) * 4)),
    ],
)
def test_a_job_stays_if(why: str, job: Job) -> None:
    assert planned(at_rest(job)).victims == (), why


def test_a_pod_that_must_not_be_evicted_keeps_its_job_where_it_is() -> None:
    job = split()
    *first, last = job.pods
    stays = replace(job, pods=(*first, replace(last, safe_to_evict=False)))
    assert planned(at_rest(stays)).victims == ()


def test_a_job_stays_if_the_rack_has_no_room_for_all() -> None:
    assert planned(at_rest(split(), pods=(web("a1"),))).victims == ()


def test_a_job_stays_if_the_rack_would_not_be_that_of_most_of_its_trainers() -> None:
    """The trainer that is deleted would start again where most are, which is another rack, and that would not end."""
    nodes = tuple(make_node(f"{rack}1", 8, labels={KEY: rack}) for rack in "abc")
    on = tuple(node.name for node in nodes)
    assert planned(at_rest(split((*on, *on), low=5), nodes=nodes)).victims == ()
    assert len(planned(at_rest(split((*on, *on), low=3), nodes=nodes)).victims) == 3


def test_a_move_is_only_made_if_each_trainer_comes_back_in_that_rack() -> None:
    world, gathering = at_rest(split()), Gathering(JobKey("default", "job"), ("a",), ("job-trainer-3",))
    still, made = plan_for(world), plan_for(world, REST)

    def holds(*nodes: tuple[str, int]) -> bool:
        after = replace(made, decisions=tuple(replace(d, victims=(), nodes=nodes) for d in made.decisions))
        return holds_together(world, still, after, gathering)

    assert holds(("a1", 1))
    assert not holds(("b1", 1))
    assert not holds()


def test_a_job_whose_trainers_are_young_waits() -> None:
    assert (
        planned(
            at_rest(split(), now_s=900.0 + HORIZON_S - 1),
            replace(REST, sharing=replace(REST.sharing, consolidate_after_s=1.0)),
        ).victims
        == ()
    )
    assert planned(
        at_rest(split(), now_s=900.0 + HORIZON_S),
        replace(REST, sharing=replace(REST.sharing, consolidate_after_s=1.0)),
    ).victims


def test_a_job_at_its_minimum_and_one_moves_one_trainer_at_a_time() -> None:
    nodes = (make_node("a1", 6, labels={KEY: "a"}), RACKS[1])
    world = at_rest(split(("a1", "a1", "a1", "b1", "b1"), low=4), nodes=nodes)
    sizes, lowest = [], 9
    for _ in range(12):
        plan = plan_for(world, REST)
        sizes.append(len(decision_of(plan, "job").victims))
        world = later(carried_out(world, plan), 0.0)
        lowest = min(lowest, len(world.jobs[0].live_trainers))
        world = later(apply_plan(world, plan_for(world, REST)), 700.0)
    assert max(sizes) == 1
    assert (sum(sizes), lowest, racks(world)) == (2, 4, {"a": 5})


def carried_out(world: ClusterSnapshot, plan: ScalePlan) -> ClusterSnapshot:
    """The cluster once the victims are gone, and nothing new has started: deletions come first."""
    without = tuple(replace(d, nodes=(), fixed_nodes=()) if d.victims else d for d in plan.decisions)
    return apply_plan(world, replace(plan, decisions=without))


def two_jobs() -> ClusterSnapshot:
    """Three racks of eight cores, and two jobs of up to six trainers, both in the first rack."""
    nodes = tuple(make_node(f"{rack}{i}", 4, labels={KEY: rack}) for rack in "abc" for i in range(2))
    jobs = []
    for name in ("one", "two"):
        job = with_status(make_job(name, trainers=4, min_trainers=2, max_trainers=6, on=("a0", "a1")), admitted=True)
        jobs.append(replace(job, topology=Topology.of(KEY, TopologyMode.PREFERRED)))
    return at_rest(*jobs, nodes=nodes)


def without_trainers_on(job: Job, crowded: set[str]) -> Job:
    """The job after kube-scheduler has preempted its trainers on some nodes."""
    return replace(job, pods=tuple(pod for pod in job.pods if pod.node not in crowded))


def a_minute(world: ClusterSnapshot, limits: Limits) -> tuple[ClusterSnapshot, dict[str, int]]:
    """The cluster a minute later, and how many trainers of each job have moved: they end first, then others start."""
    plan = plan_for(world, limits)
    assert check(world, plan) == ()
    moved = {d.job.name: len(d.victims) for d in plan.decisions if d.shrink_reason == "Moved"}
    low = {job.key.name: job.min_trainers for job in world.jobs}
    assert all(d.current - len(d.victims) >= low[d.job.name] for d in plan.decisions if d.job.name in moved)
    if any(decision.victims for decision in plan.decisions):
        world = carried_out(world, plan)
        plan = plan_for(world, limits)
    return later(apply_plan(world, plan), 60.0), moved


def test_over_two_hours_of_serving_waves_jobs_move_seldom_and_then_come_to_rest() -> None:
    """Serving takes two racks for ten minutes in each half hour, so jobs are split again and again."""
    world, limits = two_jobs(), replace(REST, sharing=replace(REST.sharing, consolidate_after_s=60.0))
    moves: dict[str, list[int]] = {"one": [], "two": []}
    for minute in range(120):
        crowded = {"a0", "b0", "b1"} if 5 <= minute % 30 < 15 else set[str]()
        since_s = world.observed_at_s - 60.0 * (minute % 30 - 5)
        pods = tuple(web(node, cpu=4, since_s=since_s) for node in sorted(crowded))
        jobs = tuple(without_trainers_on(job, crowded) for job in world.jobs)
        world, moved = a_minute(replace(world, pods=pods, jobs=jobs), limits)
        for name in moved:
            moves[name].append(minute)
    for minutes in moves.values():
        assert all(later_on - before >= HORIZON_S / 60 for before, later_on in pairwise(minutes))
    assert any(moves.values()), "no job was split, so the test shows nothing"
    world = replace(world, pods=())
    for _ in range(30):
        world, _ = a_minute(world, limits)
    assert [len(racks(world, name)) for name in moves] == [1, 1]
    assert not any(decision.victims or decision.nodes for decision in plan_for(world, limits).decisions)


@st.composite
def spread(draw: st.DrawFn) -> ClusterSnapshot:
    """Up to three racks, and up to three jobs at rest whose trainers are anywhere; some room is left by others."""
    racks_of = draw(st.sampled_from([("a", "b"), ("a", "a", "b"), ("a", "b", "c"), ("a", "b", "")]))
    nodes = tuple(
        make_node(f"{rack or 'x'}{i}", 6, labels={KEY: rack} if rack else {}) for i, rack in enumerate(racks_of)
    )
    free, jobs = {node.name: 6 for node in nodes}, []
    for name in ("one", "two", "three")[: draw(st.integers(1, 3))]:
        on = []
        for _ in range(draw(st.integers(1, 5))):
            on.append(draw(st.sampled_from([node for node, left in sorted(free.items()) if left])))
            free[on[-1]] -= 1
        low = draw(st.integers(1, len(on)))
        job = make_job(name, trainers=len(on), min_trainers=low, max_trainers=len(on), on=tuple(on), age_s=50.0)
        mode = draw(st.sampled_from([TopologyMode.PREFERRED, TopologyMode.PREFERRED, None]))
        job = with_status(job, admitted=True)
        jobs.append(replace(job, topology=Topology.of(KEY, mode) if mode else None))
    return at_rest(*jobs, nodes=nodes)


@given(spread())
@examples(60)
def test_moves_end_and_take_no_trainer_from_anybody(world: ClusterSnapshot) -> None:
    """Each move brings trainers of its job into one rack, so after a few the cluster is at rest."""
    counts = {job.key.name: len(job.live_trainers) for job in world.jobs}
    for _ in range(12):
        world, moved = a_minute(later(world, HORIZON_S), REST)
        assert {job.key.name: len(job.live_trainers) for job in world.jobs} == counts
        if not moved:
            return
    raise AssertionError(f"trainers still move: {moved}")
