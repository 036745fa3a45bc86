"""A plan is kept while a new decision would be the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from edl.controller import kept_plan
from edl.controller.kept_plan import (
    KEPT_FOR_S,
    KEPT_TIMES,
    MOST_GROUPED_S,
    MOST_KEPT_FOR_S,
    QUICK_S,
    KeptPlan,
)
from edl.controller.observer import SLICE_OF_JOBS, Observer
from edl.controller.plan_maker import PlanMaker, Planner
from edl.controller.policy_planner import planner_of
from edl.errors import PlanFailure
from edl.explain.decision import decide
from edl.lifecycle.node_watch import UNWATCHED
from edl.model.cluster import ClusterSnapshot, Node, ResourceQuota
from edl.model.jobs import Job
from edl.model.limits import Limits, ServingLimits
from edl.model.plan import Certificate, ScalePlan
from edl.model.pods import Pod
from edl.model.status import Condition, JobPhase, JobStatus, Reason, Resize
from edl.model.tenants import TenantRule, Tenants, UnknownQueues
from edl.model.topology import Topology, TopologyMode
from edl.planner.policies.registry import policy_named
from edl.planner.waits import HORIZON_S
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.worlds.builders import make_job, make_nodes, make_serving
from tests.worlds.fakes import FakeRecorder

NOW_S = 5000.0
PLAN = ScalePlan((), Certificate("fulfilment", 1.0, 1.0))
LIMITS = Limits(serving=ServingLimits(grace_s=2.0))


def view(*jobs: Job, nodes: tuple[Node, ...] = make_nodes(2), pods: tuple[Pod, ...] = ()) -> ClusterSnapshot:
    return ClusterSnapshot(NOW_S, nodes, pods, jobs or (make_job("a"),))


def at(snapshot: ClusterSnapshot, left_s: float) -> ClusterSnapshot:
    return replace(snapshot, observed_at_s=snapshot.observed_at_s + left_s)


def next_timer_s(snapshot: ClusterSnapshot, limits: Limits, took_s: float = 0.0) -> float:
    """When a decision on that snapshot may differ, for who has looked at it for the first time."""
    plans: KeptPlan[object] = KeptPlan(limits)
    return plans.next_timer_s(snapshot, took_s)


def kept(snapshot: ClusterSnapshot, plan: ScalePlan = PLAN) -> KeptPlan[object]:
    found: KeptPlan[object] = KeptPlan(LIMITS)
    found.keep(snapshot, plan)
    return found


def test_a_plan_is_kept_while_only_time_passes_and_made_anew_after_a_minute() -> None:
    here = view()
    plans = kept(here)
    assert plans.plan_for(at(here, KEPT_FOR_S - 0.1)) is PLAN
    assert plans.plan_for(at(here, KEPT_FOR_S)) is None
    assert plans.plan_for(at(here, -1.0)) is None


@pytest.mark.parametrize(("took_s", "kept_s"), [(0.1, KEPT_FOR_S), (0.5, 0.5 * KEPT_TIMES), (60.0, MOST_KEPT_FOR_S)])
def test_a_plan_that_took_long_is_kept_for_longer(took_s: float, kept_s: float) -> None:
    here = view()
    plan = replace(PLAN, seconds=took_s)
    plans = kept(here, plan)
    assert plans.plan_for(at(here, kept_s - 0.1)) is plan
    assert plans.plan_for(at(here, kept_s)) is None


CHANGES: dict[str, Callable[[ClusterSnapshot], ClusterSnapshot]] = {
    "a node": lambda v: replace(v, nodes=v.nodes[:1]),
    "a pod": lambda v: replace(v, pods=(make_serving("web"),)),
    "a job": lambda v: replace(v, jobs=(replace(v.jobs[0], max_trainers=3),)),
    "a quota": lambda v: replace(v, resource_quotas=(ResourceQuota("default", "q", (("pods", 3),)),)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_needs_a_new_decision(what: str) -> None:
    here = view()
    assert kept(here).plan_for(at(CHANGES[what](here), 1.0)) is None


@pytest.mark.parametrize(
    "plan", [replace(PLAN, fallback=PlanFailure.BUSY), replace(PLAN, cut=("admission",))], ids=["fallback", "cut"]
)
def test_a_plan_that_could_be_better_is_not_kept(plan: ScalePlan) -> None:
    assert kept(view(), plan).plan_for(view()) is None


def test_starts_belong_to_the_kept_plan_alone() -> None:
    plans = kept(view())
    plans.starts = ("a pod",)
    assert plans.is_kept(view(), PLAN)
    assert not plans.is_kept(view(), replace(PLAN))
    plans.keep(view(), PLAN)
    assert plans.starts is None


def admitted(job: Job, since_s: float, resize: Resize | None = None, *, status: str = "True") -> Job:
    condition = Condition("Admitted", status, "", "", since_s)
    found = JobStatus(JobPhase.RUNNING, conditions=(condition,), start_s=since_s, last_resize=resize)
    return replace(job, status=found)


def starting(job: Job) -> Job:
    return replace(job, pods=tuple(replace(pod, started_s=None) for pod in job.pods))


def shrunk(reason: Reason, voluntary_s: float | None = None) -> Resize:
    return Resize(NOW_S - 10.0, 4, 2, reason, voluntary_s)


ON_NODE = ("n000", "n001")
SCENES: dict[str, tuple[ClusterSnapshot, float]] = {
    "a rest after a resize": (
        view(
            replace(
                admitted(make_job("a", trainers=2, on=ON_NODE), 100.0, shrunk(Reason.ADMITTED)), resize_cost_s=15.0
            )
        ),
        20.0,
    ),
    "a hold after serving": (
        view(admitted(make_job("a", trainers=2, on=ON_NODE), 100.0, shrunk(Reason.SERVING_NEEDS_ROOM))),
        20.0,
    ),
    "a cooldown": (
        view(
            admitted(make_job("a", trainers=8, on=ON_NODE), 100.0, shrunk(Reason.INSUFFICIENT_CAPACITY, NOW_S - 10.0))
        ),
        50.0,
    ),
    "an arrival": (view(admitted(starting(make_job("a", trainers=2, on=ON_NODE)), NOW_S - 15.0)), 45.0),
    "a head that waits": (
        view(
            replace(make_job("a", min_trainers=7), created_s=NOW_S - 580.0),
            admitted(make_job("b", trainers=2, min_trainers=2, on=("n000",)), 100.0),
            nodes=make_nodes(1),
        ),
        20.0,
    ),
    "the grace of a serving pod": (view(pods=(replace(make_serving("web"), created_s=NOW_S - 0.5),)), 1.5),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_timer_ends_when_the_wait_is_over(scene: str) -> None:
    here, left_s = SCENES[scene]
    assert next_timer_s(here, LIMITS) == pytest.approx(NOW_S + left_s)


def test_a_rest_is_a_timer_only_under_a_policy_in_which_jobs_rest() -> None:
    here, left_s = SCENES["a rest after a resize"]
    for policy, end_s in (("maxmin", KEPT_FOR_S), ("goodput", left_s)):
        planner = planner_of(policy_named(policy), tuple)
        assert PlanMaker(planner, LIMITS, FakeRecorder()).next_timer_s(here) == NOW_S + end_s
        plans: KeptPlan[object] = KeptPlan(LIMITS, rests=planner.rests)
        plans.keep(here, PLAN)
        assert plans.plan_for(at(here, end_s - 0.1)) is PLAN
        assert plans.plan_for(at(here, end_s)) is None


def test_the_time_since_its_admission_is_no_timer_of_a_job_that_runs() -> None:
    job = admitted(make_job("a", trainers=2, on=ON_NODE), NOW_S - 590.0)
    assert next_timer_s(view(job), LIMITS) == NOW_S + KEPT_FOR_S
    lost = admitted(make_job("a"), NOW_S - 590.0, status="False")
    assert next_timer_s(view(lost), LIMITS) == NOW_S + 10.0


@pytest.mark.parametrize(("took_s", "end_s"), [(QUICK_S, 20.0), (QUICK_S + 0.15, 30.0), (5.0, MOST_GROUPED_S)])
def test_after_a_plan_that_took_long_the_waits_of_jobs_end_together(took_s: float, end_s: float) -> None:
    later = replace(shrunk(Reason.SERVING_NEEDS_ROOM), time_s=NOW_S - 2.0)
    jobs = (SCENES["a hold after serving"][0].jobs[0], admitted(make_job("b", trainers=2, on=ON_NODE), 100.0, later))
    assert next_timer_s(view(*jobs), LIMITS, took_s) == pytest.approx(NOW_S + end_s)


def test_a_serving_pod_waits_no_longer_after_a_plan_that_took_long() -> None:
    here, left_s = SCENES["the grace of a serving pod"]
    assert next_timer_s(here, LIMITS, 5.0) == pytest.approx(NOW_S + left_s)


@pytest.mark.parametrize("scene", SCENES)
def test_until_the_next_timer_a_decision_is_the_same(scene: str) -> None:
    here, _ = SCENES[scene]
    late = at(here, next_timer_s(here, LIMITS) - NOW_S - 0.01)
    assert decisions(late) == decisions(here)


def test_after_a_hold_the_decision_is_another_one() -> None:
    here, left_s = SCENES["a hold after serving"]
    assert decisions(at(here, left_s)) != decisions(here)


def decisions(snapshot: ClusterSnapshot) -> list[tuple[object, ...]]:
    """What a decision comes to; texts may name the time."""
    plan = decide(snapshot, policy_named("maxmin"), LIMITS)
    return [(d.job, d.target, d.admitted, d.victims, d.nodes, d.reason) for d in plan.decisions]


def test_the_waits_of_a_job_are_looked_for_once_until_it_changes_or_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At rest a plan is asked for each five seconds, and thousands of jobs have not changed."""
    looked: list[str] = []

    def noted(job: Job, *rest: Any, **more: Any) -> Iterator[float]:
        looked.append(job.uid)
        return right(job, *rest, **more)

    right = kept_plan._waits
    monkeypatch.setattr(kept_plan, "_waits", noted)
    here, left_s = SCENES["a hold after serving"]
    plans: KeptPlan[object] = KeptPlan(LIMITS)
    for after_s in (0.0, 5.0, left_s - 0.1):
        assert plans.next_timer_s(at(here, after_s), 0.0) == pytest.approx(NOW_S + left_s)
    assert len(looked) == 1
    assert plans.next_timer_s(at(here, left_s), 0.0) > NOW_S + left_s
    assert len(looked) == 2
    plans.next_timer_s(replace(here, jobs=tuple(replace(job, queue="other") for job in here.jobs)), 0.0)
    assert len(looked) == 3


def test_the_quiet_time_of_pservers_is_a_timer() -> None:
    limits = replace(LIMITS, sharing=replace(LIMITS.sharing, consolidate_after_s=30.0))
    here = view(replace(make_job("a"), created_s=NOW_S - 20.0))
    assert next_timer_s(here, limits) == pytest.approx(NOW_S + 10.0)


def test_so_is_the_time_after_which_trainers_may_come_together() -> None:
    limits = replace(LIMITS, sharing=replace(LIMITS.sharing, consolidate_after_s=30.0))
    job = make_job("a", trainers=1, on=("n000",))
    pods = tuple(replace(pod, created_s=NOW_S - HORIZON_S + 5.0) for pod in job.pods)
    split = replace(job, pods=pods, topology=Topology.of("rack", TopologyMode.PREFERRED))
    assert next_timer_s(view(split), limits) == NOW_S + 5.0
    assert next_timer_s(view(split), LIMITS) == NOW_S + KEPT_FOR_S


def test_a_plan_ends_when_a_node_that_lends_is_due_and_when_its_job_may_give_again() -> None:
    job = make_job("a", trainers=2, on=("n000",))
    pods = tuple(replace(pod, lent_cpu_milli=900, created_s=NOW_S - 45.0) for pod in job.pods)
    serving = replace(make_serving("web", node="n000"), created_s=NOW_S - 20.0)
    here = view(replace(job, pods=pods), pods=(serving,))
    clears = replace(LIMITS, lending=replace(LIMITS.lending, clear_after_s=30.0))
    assert next_timer_s(here, clears) == NOW_S + 10.0
    assert next_timer_s(replace(here, pods=()), clears) == NOW_S + 15.0
    assert next_timer_s(here, LIMITS) == NOW_S + KEPT_FOR_S


# --- What the planner sees: a job that has not changed remains the same object, so views are quickly compared


def no_plan(_: ClusterSnapshot, _limits: Limits) -> ScalePlan:
    raise AssertionError("these tests make no plan")


def observer() -> Observer:
    recorder = FakeRecorder()
    planner = Planner(no_plan, lambda _s, _p: (), lambda _s, _p: ())
    return Observer(LoopClock(), recorder, PlanMaker(planner, Limits(), recorder), 30.0, Limits())


def answer(is_finishing: bool, _: Job) -> bool:
    return is_finishing


def views(*seen: tuple[ClusterSnapshot, bool]) -> list[tuple[Job, ...]]:
    found = []

    async def main() -> None:
        one = observer()
        for snapshot, is_finishing in seen:
            view = await one.planner_view(snapshot, UNWATCHED, partial(answer, is_finishing))
            found.append(view.jobs)

    run_virtual(main())
    return found


def test_an_unchanged_job_is_not_viewed_again_and_a_changed_one_is() -> None:
    a, b = (make_job(name, trainers=2, on=("n000",)) for name in "ab")
    more = replace(b, max_trainers=b.max_trainers + 1)
    first, again, changed = views((view(a, b), True), (view(a, b), True), (view(a, more), True))
    assert all(x is y for x, y in zip(first, again, strict=True))
    assert changed[0] is first[0]
    assert changed[1].generation == more.generation
    assert changed[1] is not first[1]


def test_while_the_jobs_of_a_large_cluster_are_viewed_others_get_their_turn() -> None:
    jobs = [make_job(f"j{number:03}") for number in range(3 * SLICE_OF_JOBS)]

    async def turns() -> int:
        viewing = asyncio.ensure_future(observer().planner_view(view(*jobs), UNWATCHED, partial(answer, False)))
        found = 0
        while not viewing.done():
            found += 1
            await asyncio.sleep(0)
        return found

    assert run_virtual(turns()) > 3


def test_a_job_whose_master_says_that_the_data_is_consumed_is_viewed_again() -> None:
    a = make_job("a", trainers=2, on=("n000",))
    before, after = views((view(a), False), (view(a), True))
    assert before[0].max_trainers == a.max_trainers
    assert after[0].max_trainers == 2


def test_jobs_that_are_gone_are_not_remembered_for_ever() -> None:
    a, b, c = (make_job(name, trainers=2, on=("n000",)) for name in "abc")
    first, _, again = views((view(a, b, c), True), (view(b), True), (view(a), True))
    assert first[0] == again[0]
    assert first[0] is not again[0]


def test_a_job_that_has_not_changed_is_viewed_again_with_changed_limits() -> None:
    important = make_job("a", trainers=2, on=("n000",), tier=10)

    async def tiers() -> list[int]:
        one, found = observer(), []
        for most in (10, 0):
            one.use(Limits(tenants=Tenants((TenantRule("*", max_priority=most),), UnknownQueues.ALLOW)))
            found += [
                job.tier for job in (await one.planner_view(view(important), UNWATCHED, partial(answer, False))).jobs
            ]
        return found

    assert run_virtual(tiers()) == [10, 0]
