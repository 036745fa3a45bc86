"""Pservers move once nothing happens, where trainers gain room by it; never else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from edl.model.cluster import ClusterSnapshot
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import FixedPods, Job, RolePolicy
from edl.model.names import JobKey, Role
from edl.model.plan import Limits, Quota
from edl.model.pods import Pod, PodPhase
from edl.model.status import Resize
from edl.planner.consolidation import Moving, may_move, moves, rest_of, unrest
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.pserver_jobs import REST, with_pservers
from tests.worlds.small_clusters import (
    apply_plan,
    decision_of,
    later,
    plan_for,
    targets,
    victims,
    with_jobs,
    with_pods,
    with_status,
)

KEY = JobKey("default", "a")
A = "a-pserver-0"
KEPT = (RolePolicy(Role.PSERVER, JobEvent.POD_EVICTED, JobAction.RESTART_POD),)


def job_a(**fields: Any) -> Job:
    job = with_pservers(make_job("a", trainers=1, max_trainers=4, cpu=4, on=("n0",), age_s=100), 3, on=("n0",))
    return replace(with_status(job, admitted=True), **fields)


def pieces(*jobs: Job) -> ClusterSnapshot:
    """One core is left beside pserver and trainer on n0, three beside serving on n1: too little for a trainer."""
    nodes = (make_node("n0", 8), make_node("n1", 8))
    return make_snapshot(nodes, jobs or (job_a(),), (make_serving("web", cpu=5, node="n1"),), now_s=2000.0)


def moved(snapshot: ClusterSnapshot, limits: Limits = REST) -> dict[str, tuple[str, ...]]:
    return {d.job.name: d.moves for d in plan_for(snapshot, limits).decisions if d.moves}


def without_pod(snapshot: ClusterSnapshot, *names: str) -> ClusterSnapshot:
    jobs = (replace(j, pods=tuple(p for p in j.pods if p.name not in names)) for j in snapshot.jobs)
    return replace(snapshot, jobs=tuple(jobs))


def change_pod(snapshot: ClusterSnapshot, name: str, **fields: Any) -> ClusterSnapshot:
    def changed(pod: Pod) -> Pod:
        return replace(pod, **fields) if pod.name == name else pod

    return replace(snapshot, jobs=tuple(replace(j, pods=tuple(map(changed, j.pods))) for j in snapshot.jobs))


def test_a_pserver_in_the_way_of_a_trainer_moves_to_a_piece_that_is_too_small_for_one() -> None:
    world = pieces()
    now = decision_of(plan_for(world, REST), "a")
    assert (now.moves, now.victims, now.target) == ((A,), (), 2)
    for state in (world, change_pod(world, A, terminating=True), without_pod(world, A)):
        then = decision_of(plan_for(state, REST), "a")
        assert (then.fixed_nodes, then.nodes, then.victims) == (((Role.PSERVER, "n1"),), (("n0", 1),), ())


def test_a_trainer_makes_way_and_takes_the_place_of_the_pserver() -> None:
    """On n1 the trainer leaves too little for another; a pserver there would leave nothing, and give n0 its own."""
    job = with_pservers(make_job("a", trainers=2, max_trainers=4, cpu=4, on=("n0", "n1"), age_s=100), 5, on=("n0",))
    nodes = (make_node("n0", 12), make_node("n1", 5))
    world = make_snapshot(nodes, (with_status(job, admitted=True),), now_s=2000.0)
    now = decision_of(plan_for(world, REST), "a")
    assert (now.moves, now.victims, now.shrink_reason) == ((A,), ("a-trainer-1",), "Moved")
    assert (now.current, now.target, now.nodes) == (2, 3, (("n0", 2),))
    assert now.fixed_nodes == ((Role.PSERVER, "n1"),)


def test_a_trainer_makes_way_for_a_pserver_and_goes_to_a_node_that_only_it_fits_on() -> None:
    a = with_pservers(make_job("a", trainers=1, max_trainers=4, cpu=4, on=("t0",), age_s=100), 2, on=("p0",))
    d = make_job("d", trainers=2, max_trainers=2, cpu=1, on=("d0", "s0"), age_s=100)
    nodes = (make_node("p0", 4), make_node("t0", 4), make_node("s0", 5.5), make_node("d0", 1), make_node("v0", 1))
    jobs = tuple(with_status(job, admitted=True) for job in (a, d))
    world = make_snapshot(nodes, jobs, (make_serving("web", cpu=3, node="s0"),), now_s=2000.0)
    plan = plan_for(world, REST)
    assert targets(plan) == {"a": 2, "d": 2}
    assert decision_of(plan, "d").victims == ("d-trainer-1",)
    assert decision_of(plan, "d").nodes == (("v0", 1),)
    assert decision_of(plan, "a").fixed_nodes == ((Role.PSERVER, "s0"),)


def test_a_trainer_of_the_minimum_or_one_to_be_left_alone_makes_no_way() -> None:
    job = with_pservers(make_job("a", trainers=2, max_trainers=4, cpu=4, on=("n0", "n1"), age_s=100), 5, on=("n0",))
    job = with_status(job, admitted=True)
    nodes = (make_node("n0", 12), make_node("n1", 5))
    world = make_snapshot(nodes, (job,), now_s=2000.0)
    assert moved(world) == {"a": (A,)}
    assert moved(with_jobs(world, replace(job, min_trainers=2))) == {}
    assert moved(change_pod(world, "a-trainer-1", safe_to_evict=False)) == {}


def test_it_has_moved_for_good() -> None:
    world = pieces()
    for _ in range(3):
        world = later(apply_plan(world, plan_for(world, REST)), 1000)
    assert targets(plan_for(world, REST)) == {"a": 2}
    assert moved(world) == {}


def test_it_is_asked_for_and_takes_its_time() -> None:
    world = pieces()
    assert rest_of(world) == (1010, "pod serving/web started")
    assert moved(world, Limits()) == {}
    assert moved(world, Limits(consolidate_after_s=1011)) == {}
    assert moved(world, Limits(consolidate_after_s=1010)) == {"a": (A,)}


def quota(cores: int) -> Limits:
    return replace(REST, quotas=(Quota("default", (("cpu", cores * 1000),)),))


def leaving_trainer() -> Pod:
    return replace(job_a().pods[-1], name="a-trainer-1", index=1, uid="x", terminating=True)


def finished_trainer() -> Pod:
    return replace(leaving_trainer(), terminating=False, phase=PodPhase.SUCCEEDED)


UNREST: dict[str, Callable[[ClusterSnapshot], ClusterSnapshot]] = {
    "a serving pod has come": lambda w: with_pods(w, replace(make_serving("x", cpu=1, node="n1"), created_s=1900.0)),
    "a trainer has started": lambda w: change_pod(w, "a-trainer-0", started_s=1900.0),
    "a pserver has started": lambda w: change_pod(w, A, created_s=1900.0),
    "a job has come": lambda w: with_jobs(w, make_job("b", cpu=99, age_s=-900)),
    "a job was resized": lambda w: with_jobs(
        w, replace(job_a(), status=with_status(job_a(), admitted=True, resize=Resize(1900.0, 2, 1, "x")).status)
    ),
    "a pod of others leaves": lambda w: with_pods(w, replace(make_serving("x", cpu=1, node="n1"), terminating=True)),
    "a trainer leaves": lambda w: with_jobs(w, job_a(pods=(*job_a().pods, leaving_trainer()))),
    "a pserver leaves": lambda w: change_pod(w, A, terminating=True),
    "a trainer waits for its image": lambda w: change_pod(w, "a-trainer-0", phase=PodPhase.PENDING),
    "serving waits": lambda w: with_pods(w, make_serving("x", cpu=2)),
}


@pytest.mark.parametrize("event", UNREST)
def test_nothing_moves_while_something_happens(event: str) -> None:
    world = UNREST[event](pieces())
    assert moved(world) == {}
    assert unrest(world, plan_for(world, REST), 600)


def test_what_keeps_pservers_from_moving_is_told() -> None:
    def told(world: ClusterSnapshot) -> str:
        return unrest(world, plan_for(world), 600)

    assert told(pieces()) == ""
    assert told(change_pod(pieces(), A, started_s=1900.0)) == (
        "pod default/a-pserver-0 started 100 s ago, and nothing may change for 600 s"
    )
    assert (
        told(with_pods(pieces(), replace(make_serving("x", cpu=1), terminating=True))) == "pod serving/x is leaving"
    )
    assert told(with_pods(pieces(), make_serving("x", cpu=2))) == "serving pods wait for room"
    assert told(UNREST["a trainer waits for its image"](pieces())) == "pod default/a-trainer-0 does not run yet"


def test_a_serving_pod_that_fits_nowhere_is_no_unrest() -> None:
    assert moved(with_pods(pieces(), make_serving("huge", cpu=99))) == {"a": (A,)}


GAINLESS: dict[str, tuple[Job, Limits]] = {
    "the job has its maximum": (job_a(max_trainers=1), REST),
    "its queue has no quota left": (job_a(), quota(10)),
    "training may not grow": (job_a(), replace(REST, max_load_desired=0.7)),
    "the pserver may not be disturbed": (
        job_a(pods=tuple(replace(p, safe_to_evict=p.name != A) for p in job_a().pods)),
        REST,
    ),
    "a gang would start anew": (job_a(fault_tolerant=False, min_trainers=1, max_trainers=1), REST),
    "its trainers have begun to finish": (job_a(pods=(*job_a().pods, finished_trainer())), REST),
    "its policy gives up the job with the pserver": (
        job_a(policies=(RolePolicy(Role.PSERVER, JobEvent.POD_EVICTED, JobAction.ABORT_JOB),)),
        REST,
    ),
    "the spec asks for other pservers now": (job_a(fixed=(FixedPods(Role.PSERVER, make_shape(2.5), 1),)), REST),
    "it is a master": (
        job_a(
            fixed=(FixedPods(Role.MASTER, make_shape(3), 1),),
            pods=tuple(replace(p, role=Role.MASTER) if p.name == A else p for p in job_a().pods),
        ),
        REST,
    ),
}


@pytest.mark.parametrize("why", GAINLESS)
def test_nothing_moves_that_may_not_or_for_nothing(why: str) -> None:
    job, limits = GAINLESS[why]
    assert moved(pieces(job), limits) == {}


def test_a_gang_is_never_asked() -> None:
    job = job_a()
    assert [p.name for p in job.pods if may_move(job, p)] == [A]
    assert not any(may_move(replace(job, fault_tolerant=False, policies=KEPT), p) for p in job.pods)


def room_of(limits: Limits) -> TrialPacking:
    """Beside a there is b, with a trainer on a full node of its own."""
    b = with_status(make_job("b", trainers=1, max_trainers=4, cpu=4, on=("m0",), age_s=100), admitted=True)
    world = pieces(job_a(), b)
    world = replace(world, nodes=(make_node("m0", 4), *world.nodes))
    return study(world, policy_named("maxmin"), replace(limits, consolidate_after_s=0)).context.shared.packing


def test_no_program_is_tried_for_trainers_that_no_limit_allows() -> None:
    assert moves(room_of(Limits()), 10.0).pservers == {KEY: (A,)}
    assert moves(room_of(quota(15)), 10.0).pservers == {KEY: (A,)}
    assert moves(room_of(quota(14)), 10.0).pservers == {}
    assert moves(room_of(Limits(max_load_desired=0.7)), 10.0).pservers == {}


def test_a_move_that_the_next_plan_would_not_use_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is made to name a pserver from whose end nobody gains."""
    world = pieces(job_a(max_trainers=1))
    monkeypatch.setattr("edl.planner.decide.moves", lambda *_: Moving({KEY: (A,)}, {}))
    assert moved(world) == {}


def test_what_quota_and_load_still_allow_moves() -> None:
    assert moved(pieces(), quota(11)) == {"a": (A,)}
    assert moved(pieces(), replace(REST, max_load_desired=1.0)) == {"a": (A,)}


def test_of_pservers_that_nothing_is_said_of_one_moves_at_a_time() -> None:
    world = two_jobs(nodes=6)
    assert [len(pods) for pods in moved(world).values()] == [3, 3]
    unsaid = replace(world, jobs=tuple(map(unsafe, world.jobs)))
    for step in range(1, 4):
        assert [len(pods) for pods in moved(unsaid).values()] == [1, 1], f"step {step}"
        unsaid = later(apply_plan(unsaid, plan_for(unsaid, REST)), 1000)
    assert moved(unsaid) == {}


def unsafe(job: Job) -> Job:
    return replace(job, pods=tuple(replace(p, safe_to_evict=None) for p in job.pods))


def two_jobs(*, nodes: int) -> ClusterSnapshot:
    """Pairs of nodes as in `pieces`; each of the first nodes holds a pserver of a, then one of b, in turn."""
    heavy, light = [f"h{i}" for i in range(nodes)], [f"l{i}" for i in range(nodes)]
    jobs = [
        with_status(
            with_pservers(
                make_job(name, trainers=len(mine), min_trainers=1, max_trainers=9, cpu=4, on=mine, age_s=100),
                3,
                on=mine,
            ),
            admitted=True,
        )
        for name, mine in (("a", tuple(heavy[::2])), ("b", tuple(heavy[1::2])))
        if mine
    ]
    serving = tuple(make_serving(f"web-{node}", cpu=5, node=node) for node in light)
    return make_snapshot(tuple(make_node(n, 8) for n in (*heavy, *light)), tuple(jobs), serving, now_s=2000.0)


def test_every_interrupted_job_pays_with_room_for_a_trainer() -> None:
    assert moved(two_jobs(nodes=2)) == {"a": (A,), "b": ("b-pserver-0",)}
    one_place = replace(two_jobs(nodes=2), nodes=tuple(n for n in two_jobs(nodes=2).nodes if n.name != "l1"), pods=())
    one_place = with_pods(one_place, make_serving("web", cpu=5, node="l0"))
    assert [len(pods) for pods in moved(one_place).values()] == [1]


def test_pods_of_few_jobs_move() -> None:
    """Three pservers of a and three of b are in the way, and there is room elsewhere for three."""
    world = two_jobs(nodes=6)
    world = replace(
        world,
        nodes=tuple(n for n in world.nodes if n.name not in {"l3", "l4", "l5"}),
        pods=tuple(p for p in world.pods if p.node not in {"l3", "l4", "l5"}),
    )
    assert sorted(len(pods) for pods in moved(world).values()) == [3]


def test_one_job_is_interrupted_rather_than_two_even_if_more_of_its_pods_move() -> None:
    """Two trainers are to be had by one pserver of a and one of b, or by all three of a."""
    a = with_pservers(
        make_job("a", trainers=2, max_trainers=9, cpu=4, on=("h0", "h2"), age_s=100), 1.5, on=("h0", "h2", "h2")
    )
    b = with_pservers(make_job("b", trainers=1, max_trainers=9, cpu=4, on=("h1",), age_s=100), 3, on=("h1",))
    nodes = (*(make_node(f"h{i}", 8) for i in range(3)), make_node("l0", 3), make_node("l1", 3))
    world = make_snapshot(nodes, tuple(with_status(job, admitted=True) for job in (a, b)), now_s=2000.0)
    assert {name: len(pods) for name, pods in moved(world).items()} == {"a": 3}


def test_nobody_makes_way_for_nothing() -> None:
    plan = plan_for(two_jobs(nodes=6), REST)
    assert any(d.moves for d in plan.decisions)
    assert victims(plan) == []


def test_two_pservers_move_for_one_trainer_where_one_would_not_do() -> None:
    job = with_pservers(make_job("a", trainers=1, max_trainers=4, cpu=4, on=("n0",), age_s=100), 2, on=("n0", "n0"))
    nodes = (make_node("n0", 8), make_node("n1", 7), make_node("n2", 7))
    serving = tuple(make_serving(f"web-{n}", cpu=5, node=n) for n in ("n1", "n2"))
    world = make_snapshot(nodes, (with_status(job, admitted=True),), serving, now_s=2000.0)
    assert moved(world) == {"a": (A, "a-pserver-1")}


def test_the_same_snapshot_moves_the_same_pods() -> None:
    world = two_jobs(nodes=6)
    first, second = (plan_for(world, REST) for _ in range(2))
    assert [d.moves for d in first.decisions] == [d.moves for d in second.decisions]


def problems(world: ClusterSnapshot, **fields: Any) -> str:
    """What is wrong with the good plan, changed, in a world that may be changed, too."""
    plan = plan_for(pieces(), REST)
    changed = tuple(replace(d, **fields) for d in plan.decisions)
    return "; ".join(check(world, replace(plan, decisions=changed)))


def test_a_plan_that_moves_what_must_stay_is_refused() -> None:
    world = pieces()
    assert problems(world) == ""
    assert "a-trainer-0 is to move, yet it is no live pserver" in problems(world, moves=("a-trainer-0",))
    assert "a-pserver-0 is to move, yet" in problems(change_pod(world, A, safe_to_evict=False))
    assert "does not run on without them" in problems(pieces(job_a(fault_tolerant=False)))
    assert "given 0 of 1 missing pserver pods" in problems(world, fixed_nodes=())
    assert "node n1: overcommitted" in problems(world, nodes=(("n1", 1),))


def test_jobs_are_told_apart_by_their_namespaces() -> None:
    twin = job_a()
    key = JobKey("other", "a")
    pods = tuple(replace(p, namespace="other", job=key, uid=f"o-{p.uid}", node="m0") for p in twin.pods)
    nodes = (make_node("n0", 8), make_node("n1", 8), make_node("m0", 8))
    world = make_snapshot(
        nodes,
        (job_a(), replace(twin, key=key, uid="other", pods=pods)),
        (make_serving("web", cpu=5, node="n1"),),
        now_s=2000.0,
    )
    plan = plan_for(world, REST)
    assert [len(d.moves) for d in plan.decisions].count(1) == 1
    assert check(world, plan) == ()
