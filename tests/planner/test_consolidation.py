"""Pservers move once the cluster is quiet, if more trainers fit then; otherwise they stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from edl.model.cluster import ClusterSnapshot
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import FixedPods, Job, RolePolicy
from edl.model.limits import Limits, Quota, SharingLimits
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import Resize
from edl.planner.consolidation import Moving, may_move, moves, reason_to_wait, time_unchanged
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.trial_packing import TrialPacking
from edl.planner.waits import HORIZON_S, price_in_trainers
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


def scattered(*jobs: Job) -> ClusterSnapshot:
    """One core is free beside pserver and trainer on n0, three beside serving on n1: neither fits a trainer."""
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


def test_a_pserver_moves_to_free_capacity_that_is_too_small_for_a_trainer() -> None:
    world = scattered()
    now = decision_of(plan_for(world, REST), "a")
    assert (now.moves, now.victims, now.target) == ((A,), (), 2)
    for state in (world, change_pod(world, A, terminating=True), without_pod(world, A)):
        then = decision_of(plan_for(state, REST), "a")
        assert (then.fixed_nodes, then.nodes, then.victims) == (((Role.PSERVER, "n1"),), (("n0", 1),), ())


def test_a_trainer_and_a_pserver_swap_nodes() -> None:
    """Beside the trainer on n1 no second one fits; the pserver fills n1, and n0 then fits two trainers."""
    job = with_pservers(make_job("a", trainers=2, max_trainers=4, cpu=4, on=("n0", "n1"), age_s=100), 5, on=("n0",))
    nodes = (make_node("n0", 12), make_node("n1", 5))
    world = make_snapshot(nodes, (with_status(job, admitted=True),), now_s=2000.0)
    now = decision_of(plan_for(world, REST), "a")
    assert (now.moves, now.victims, now.shrink_reason) == ((A,), ("a-trainer-1",), "Moved")
    assert (now.current, now.target, now.nodes) == (2, 3, (("n0", 2),))
    assert now.fixed_nodes == ((Role.PSERVER, "n1"),)


def test_a_trainer_is_deleted_for_a_pserver_and_restarts_on_a_node_that_only_it_fits_on() -> None:
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


def test_a_base_trainer_or_one_that_is_not_safe_to_evict_is_not_deleted_for_a_pserver() -> None:
    job = with_pservers(make_job("a", trainers=2, max_trainers=4, cpu=4, on=("n0", "n1"), age_s=100), 5, on=("n0",))
    job = with_status(job, admitted=True)
    nodes = (make_node("n0", 12), make_node("n1", 5))
    world = make_snapshot(nodes, (job,), now_s=2000.0)
    assert moved(world) == {"a": (A,)}
    assert moved(with_jobs(world, replace(job, min_trainers=2))) == {}
    assert moved(change_pod(world, "a-trainer-1", safe_to_evict=False)) == {}


def test_a_pserver_that_has_moved_stays() -> None:
    world = scattered()
    for _ in range(3):
        world = later(apply_plan(world, plan_for(world, REST)), 1000)
    assert targets(plan_for(world, REST)) == {"a": 2}
    assert moved(world) == {}


def test_pservers_move_only_if_asked_and_after_the_quiet_time() -> None:
    world = scattered()
    assert time_unchanged(world) == (1010, "pod serving/web started")
    assert moved(world, Limits()) == {}
    assert moved(world, Limits(sharing=SharingLimits(consolidate_after_s=1011))) == {}
    assert moved(world, Limits(sharing=SharingLimits(consolidate_after_s=1010))) == {"a": (A,)}


def quota(cores: int) -> Limits:
    return replace(REST, quotas=(Quota("default", (("cpu", cores * 1000),)),))


def terminating_trainer() -> Pod:
    return replace(job_a().pods[-1], name="a-trainer-1", index=1, uid="x", terminating=True)


def finished_trainer() -> Pod:
    return replace(terminating_trainer(), terminating=False, phase=PodPhase.SUCCEEDED)


CHANGES: dict[str, Callable[[ClusterSnapshot], ClusterSnapshot]] = {
    "a serving pod was created": lambda w: with_pods(
        w, replace(make_serving("x", cpu=1, node="n1"), created_s=1900.0)
    ),
    "a trainer started": lambda w: change_pod(w, "a-trainer-0", started_s=1900.0),
    "a pserver started": lambda w: change_pod(w, A, created_s=1900.0),
    "a job was created": lambda w: with_jobs(w, make_job("b", cpu=99, age_s=-900)),
    "a job was resized": lambda w: with_jobs(
        w, replace(job_a(), status=with_status(job_a(), admitted=True, resize=Resize(1900.0, 2, 1, "x")).status)
    ),
    "a serving pod terminates": lambda w: with_pods(
        w, replace(make_serving("x", cpu=1, node="n1"), terminating=True)
    ),
    "a trainer terminates": lambda w: with_jobs(w, job_a(pods=(*job_a().pods, terminating_trainer()))),
    "a pserver terminates": lambda w: change_pod(w, A, terminating=True),
    "a trainer waits for its image": lambda w: change_pod(w, "a-trainer-0", phase=PodPhase.PENDING),
    "serving waits": lambda w: with_pods(w, make_serving("x", cpu=2)),
}


@pytest.mark.parametrize("event", CHANGES)
def test_no_pserver_moves_soon_after_a_change(event: str) -> None:
    world = CHANGES[event](scattered())
    assert moved(world) == {}
    assert reason_to_wait(world, plan_for(world, REST), 600)


@pytest.mark.parametrize("ends_by_s", [0.0, 2.0**31], ids=["overdue", "has for ever"])
def test_pservers_do_not_wait_for_pods_that_do_not_end(ends_by_s: float) -> None:
    foreign = replace(make_serving("x", cpu=1), terminating=True, ends_by_s=ends_by_s)
    own = replace(terminating_trainer(), ends_by_s=ends_by_s)
    for world in (with_pods(scattered(), foreign), with_jobs(scattered(), job_a(pods=(*job_a().pods, own)))):
        assert time_unchanged(world)[0] == 1010


def test_the_reason_to_wait_names_the_last_change() -> None:
    def reason(world: ClusterSnapshot) -> str:
        return reason_to_wait(world, plan_for(world), 600)

    assert reason(scattered()) == ""
    assert reason(change_pod(scattered(), A, started_s=1900.0)) == (
        "pod default/a-pserver-0 started 100 s ago; pservers move only after 600 s without a change"
    )
    assert (
        reason(with_pods(scattered(), replace(make_serving("x", cpu=1), terminating=True)))
        == "pod serving/x is terminating"
    )
    assert reason(with_pods(scattered(), make_serving("x", cpu=2))) == "serving pods are waiting for capacity"
    assert (
        reason(CHANGES["a trainer waits for its image"](scattered())) == "pod default/a-trainer-0 is not running yet"
    )


def test_a_pending_serving_pod_that_fits_nowhere_does_not_stop_moves() -> None:
    assert moved(with_pods(scattered(), make_serving("huge", cpu=99))) == {"a": (A,)}


NO_MOVE: dict[str, tuple[Job, Limits]] = {
    "the job has its maximum": (job_a(max_trainers=1), REST),
    "its queue has no quota left": (job_a(), quota(10)),
    "training may not grow": (job_a(), replace(REST, sharing=replace(REST.sharing, max_load_desired=0.7))),
    "the pserver is not safe to evict": (
        job_a(pods=tuple(replace(p, safe_to_evict=p.name != A) for p in job_a().pods)),
        REST,
    ),
    "the job is not fault-tolerant": (job_a(fault_tolerant=False, min_trainers=1, max_trainers=1), REST),
    "its trainers have begun to finish": (job_a(pods=(*job_a().pods, finished_trainer())), REST),
    "its policy aborts the job if a pserver is lost": (
        job_a(policies=(RolePolicy(Role.PSERVER, JobEvent.POD_EVICTED, JobAction.ABORT_JOB),)),
        REST,
    ),
    "its trainer would repeat more than one more trainer does in the horizon": (job_a(unsaved_s=HORIZON_S), REST),
    "the spec has other pservers now": (job_a(fixed=(FixedPods(Role.PSERVER, make_shape(2.5), 1),)), REST),
    "it is a master": (
        job_a(
            fixed=(FixedPods(Role.MASTER, make_shape(3), 1),),
            pods=tuple(replace(p, role=Role.MASTER) if p.name == A else p for p in job_a().pods),
        ),
        REST,
    ),
}


@pytest.mark.parametrize("why", NO_MOVE)
def test_no_pserver_moves_that_may_not_or_without_a_gain(why: str) -> None:
    job, limits = NO_MOVE[why]
    assert moved(scattered(job), limits) == {}


def test_a_pserver_moves_soon_after_a_checkpoint() -> None:
    assert moved(scattered(job_a(unsaved_s=HORIZON_S - 1))) == {"a": (A,)}


def test_what_has_to_be_repeated_is_paid_for_with_trainers() -> None:
    assert [price_in_trainers(job_a(unsaved_s=seconds)) for seconds in (0.0, 599.0, 600.0, 1800.0)] == [1, 1, 2, 4]
    more = make_job("a", trainers=3, on=("n0",))
    assert price_in_trainers(replace(more, unsaved_s=600.0)) == 4


def test_pservers_of_a_job_that_is_not_fault_tolerant_do_not_move() -> None:
    job = job_a()
    assert [p.name for p in job.pods if may_move(job, p)] == [A]
    assert not any(may_move(replace(job, fault_tolerant=False, policies=KEPT), p) for p in job.pods)


def packing_of(limits: Limits) -> TrialPacking:
    """The packing of job a and of job b, which has a trainer on a full node of its own."""
    b = with_status(make_job("b", trainers=1, max_trainers=4, cpu=4, on=("m0",), age_s=100), admitted=True)
    world = scattered(job_a(), b)
    world = replace(world, nodes=(make_node("m0", 4), *world.nodes))
    return study(
        world, policy_named("maxmin"), replace(limits, sharing=replace(limits.sharing, consolidate_after_s=0))
    ).context.shared.packing


def test_no_pserver_moves_for_trainers_that_quota_or_load_forbids() -> None:
    assert moves(packing_of(Limits()), 10.0).pservers == {KEY: (A,)}
    assert moves(packing_of(quota(15)), 10.0).pservers == {KEY: (A,)}
    assert moves(packing_of(quota(14)), 10.0).pservers == {}
    assert moves(packing_of(Limits(sharing=SharingLimits(max_load_desired=0.7))), 10.0).pservers == {}


def test_no_pserver_moves_if_the_next_plan_would_not_gain_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is replaced by one that names a pserver whose move adds no trainer."""
    world = scattered(job_a(max_trainers=1))
    monkeypatch.setattr("edl.planner.decide.moves", lambda *_: Moving({KEY: (A,)}, {}))
    assert moved(world) == {}


def test_pservers_move_for_trainers_that_quota_and_load_allow() -> None:
    assert moved(scattered(), quota(11)) == {"a": (A,)}
    assert moved(scattered(), replace(REST, sharing=replace(REST.sharing, max_load_desired=1.0))) == {"a": (A,)}


def test_pservers_that_are_not_marked_safe_to_evict_move_one_at_a_time() -> None:
    world = two_jobs(nodes=6)
    assert [len(pods) for pods in moved(world).values()] == [3, 3]
    unmarked = replace(world, jobs=tuple(map(without_safe_mark, world.jobs)))
    for step in range(1, 4):
        assert [len(pods) for pods in moved(unmarked).values()] == [1, 1], f"step {step}"
        unmarked = later(apply_plan(unmarked, plan_for(unmarked, REST)), 1000)
    assert moved(unmarked) == {}


def without_safe_mark(job: Job) -> Job:
    return replace(job, pods=tuple(replace(p, safe_to_evict=None) for p in job.pods))


def two_jobs(*, nodes: int) -> ClusterSnapshot:
    """Pairs of nodes as in `scattered`; the first nodes hold a pserver of a and one of b in turn."""
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


def test_each_interrupted_job_adds_a_trainer() -> None:
    assert moved(two_jobs(nodes=2)) == {"a": (A,), "b": ("b-pserver-0",)}
    one_place = replace(two_jobs(nodes=2), nodes=tuple(n for n in two_jobs(nodes=2).nodes if n.name != "l1"), pods=())
    one_place = with_pods(one_place, make_serving("web", cpu=5, node="l0"))
    assert [len(pods) for pods in moved(one_place).values()] == [1]


def test_as_few_jobs_as_possible_are_interrupted() -> None:
    """Three pservers of a and three of b could move, but only three fit elsewhere."""
    world = two_jobs(nodes=6)
    world = replace(
        world,
        nodes=tuple(n for n in world.nodes if n.name not in {"l3", "l4", "l5"}),
        pods=tuple(p for p in world.pods if p.node not in {"l3", "l4", "l5"}),
    )
    assert sorted(len(pods) for pods in moved(world).values()) == [3]


def test_one_job_is_interrupted_rather_than_two_even_if_more_of_its_pods_move() -> None:
    """Two trainers fit after a move of one pserver of a and one of b, or of all three of a."""
    a = with_pservers(
        make_job("a", trainers=2, max_trainers=9, cpu=4, on=("h0", "h2"), age_s=100), 1.5, on=("h0", "h2", "h2")
    )
    b = with_pservers(make_job("b", trainers=1, max_trainers=9, cpu=4, on=("h1",), age_s=100), 3, on=("h1",))
    nodes = (*(make_node(f"h{i}", 8) for i in range(3)), make_node("l0", 3), make_node("l1", 3))
    world = make_snapshot(nodes, tuple(with_status(job, admitted=True) for job in (a, b)), now_s=2000.0)
    assert {name: len(pods) for name, pods in moved(world).items()} == {"a": 3}


def test_no_trainer_is_deleted_without_a_gain() -> None:
    plan = plan_for(two_jobs(nodes=6), REST)
    assert any(d.moves for d in plan.decisions)
    assert victims(plan) == []


def test_two_pservers_move_for_one_trainer_if_one_is_not_enough() -> None:
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
    """What `check` reports for the good plan with some fields changed."""
    plan = plan_for(scattered(), REST)
    changed = tuple(replace(d, **fields) for d in plan.decisions)
    return "; ".join(check(world, replace(plan, decisions=changed)))


def test_a_plan_that_moves_a_pod_that_must_stay_is_refused() -> None:
    world = scattered()
    assert problems(world) == ""
    assert "a-trainer-0 is to move, but it is not a live pserver" in problems(world, moves=("a-trainer-0",))
    assert "a-pserver-0 is to move, but" in problems(change_pod(world, A, safe_to_evict=False))
    assert "not fault-tolerant" in problems(scattered(job_a(fault_tolerant=False)))
    assert "gets 0 new pserver pods and lacks 1" in problems(world, fixed_nodes=())
    assert "node n1: overcommitted" in problems(world, nodes=(("n1", 1),))


def test_jobs_of_one_name_in_two_namespaces_are_distinct() -> None:
    other = job_a()
    key = JobKey("other", "a")
    pods = tuple(replace(p, namespace="other", job=key, uid=f"o-{p.uid}", node="m0") for p in other.pods)
    nodes = (make_node("n0", 8), make_node("n1", 8), make_node("m0", 8))
    world = make_snapshot(
        nodes,
        (job_a(), replace(other, key=key, uid="other", pods=pods)),
        (make_serving("web", cpu=5, node="n1"),),
        now_s=2000.0,
    )
    plan = plan_for(world, REST)
    assert [len(d.moves) for d in plan.decisions].count(1) == 1
    assert check(world, plan) == ()
