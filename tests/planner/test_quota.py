"""Quotas of queues: what they hold back, whom they do not, and that no plan passes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot, ResourceQuota
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits, Quota
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.resources import CPU, MEMORY, Resources
from edl.model.status import Reason
from edl.model.units import GIB
from edl.planner.guard import check
from edl.planner.quota import LIMITS, QuotaMeter, QuotaTable, most_alone, quota_uses_of
from tests.planner.policies.test_utility import curves, half_shares, utility
from tests.worlds.builders import make_job, make_nodes, make_serving, make_shape, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import (
    apply_plan,
    cluster_of,
    cores_of,
    decision_of,
    essence,
    free_cores,
    later,
    plan_for,
    reachable,
    running_worlds,
    small_jobs,
    small_nodes,
    targets,
    victims,
    with_jobs,
    with_pods,
)

quick = examples(100)
policies = st.sampled_from(["maxmin", "utility"])


def cpu(**cores: int) -> Limits:
    return Limits(quotas=tuple(Quota(queue, ((CPU, 1000 * n),)) for queue, n in sorted(cores.items())))


some_limits = st.one_of(
    st.builds(cpu, blue=st.integers(0, 12)),
    st.builds(cpu, blue=st.integers(2, 8), green=st.integers(2, 8)),
)


@st.composite
def queued(draw: st.DrawFn, worlds: st.SearchStrategy[ClusterSnapshot]) -> ClusterSnapshot:
    """A world whose jobs belong to queues, only some of which have a quota; its plan so far knew nothing of that."""
    world = draw(worlds)
    names = st.sampled_from(["blue", "green", "free"])
    jobs = (replace(job, queue=draw(names), throughput=draw(curves)) for job in world.jobs)
    return replace(world, jobs=tuple(jobs))


def in_queue(queue: str, job: Job) -> Job:
    return replace(job, queue=queue)


def used_cores(world: ClusterSnapshot, plan: ScalePlan, queue: str) -> int:
    after = apply_plan(world, plan)
    return sum(cores_of(pod.shape) for job in after.jobs if job.queue == queue for pod in job.pods if pod.is_live)


# Properties


@given(queued(running_worlds()), some_limits, policies)
@quick
def test_no_plan_passes_a_quota(world: ClusterSnapshot, limits: Limits, policy: str) -> None:
    plan = plan_for(world, limits, policy)
    assert check(world, plan, limits.quotas) == ()
    assert plan.certificate.bound >= plan.certificate.achieved
    for quota in limits.quotas:
        assert used_cores(world, plan, quota.queue) * 1000 <= quota.amounts[0][1]


@given(queued(running_worlds()), some_limits, policies, st.booleans())
@quick
def test_planning_again_changes_nothing(world: ClusterSnapshot, limits: Limits, policy: str, bound: bool) -> None:
    plan = plan_for(world, limits, policy)
    again = plan_for(apply_plan(world, plan, bound=bound), limits, policy)
    assert essence(again) == essence(plan)
    assert not victims(again)


@given(queued(running_worlds()), some_limits, policies)
@quick
def test_no_further_trainer_fits_into_nodes_and_quota(world: ClusterSnapshot, limits: Limits, policy: str) -> None:
    plan = plan_for(world, limits, policy)
    if plan.serving.waiting > plan.serving.short:
        return  # the free room is meant for serving pods: which of it, the plan does not say
    room = max(free_cores(world, plan).values(), default=0)
    left = {q.queue: q.amounts[0][1] // 1000 - used_cores(world, plan, q.queue) for q in limits.quotas}
    for job, decision in zip(world.jobs, plan.decisions, strict=True):
        if decision.admitted and not job.pinned and decision.target < job.max_trainers:
            assert min(room, left.get(job.queue, room)) < cores_of(job.trainer)


def needs(job: Job) -> int:
    """Cores of a job's minimum."""
    return job.min_trainers * cores_of(job.trainer) + sum(f.count * cores_of(f.shape) for f in job.fixed)


def fits(world: ClusterSnapshot, jobs: Sequence[Job], limits: Limits) -> bool:
    """Brute force: the minimums of these jobs on an empty cluster, within their quotas."""
    for quota in limits.quotas:
        if sum(needs(job) for job in jobs if job.queue == quota.queue) * 1000 > quota.amounts[0][1]:
            return False
    pods = [(cores_of(job.trainer), job.min_trainers) for job in jobs]
    pods += [(cores_of(f.shape), f.count) for job in jobs for f in job.fixed]
    sizes = sorted({size for size, _ in pods})
    goal = tuple(sum(n for s, n in pods if s == size) for size in sizes)
    return goal in reachable([node.allocatable[CPU] // 1000 for node in world.nodes], sizes, goal)


@given(small_nodes(), st.lists(small_jobs(), max_size=4), some_limits, st.data())
@quick
def test_admission_goes_by_tier_and_age_within_nodes_and_quotas(
    cores: list[int], jobs: list[Job], limits: Limits, data: st.DataObject
) -> None:
    names = st.sampled_from(["blue", "green", "free"])
    world = cluster_of(cores, [in_queue(data.draw(names), job) for job in jobs])
    plan = plan_for(world, limits)
    admitted: tuple[Job, ...] = ()
    for job in sorted(world.jobs, key=lambda j: (-j.tier, j.created_s, j.key)):
        if fits(world, (*admitted, job), limits):
            admitted = (*admitted, job)
    assert {d.job for d in plan.decisions if d.admitted} == {job.key for job in admitted}


@given(
    small_nodes(),
    st.lists(small_jobs(with_fixed=False, with_tiers=False), min_size=1, max_size=3),
    some_limits,
    policies,
    st.data(),
)
@quick
def test_no_way_within_the_quotas_is_better(
    cores: list[int], jobs: list[Job], limits: Limits, policy: str, data: st.DataObject
) -> None:
    """Max-min, of trainers of one size: nobody worst off could be better off. Utility: no way is worth more."""
    if policy == "maxmin":
        jobs = [replace(job, trainer=make_shape(1)) for job in jobs]
    names = st.sampled_from(["blue", "green", "free"])
    drawn = [replace(in_queue(data.draw(names), job), throughput=data.draw(curves)) for job in jobs]
    world = cluster_of(cores, drawn)
    plan = plan_for(world, limits, policy)
    run = [job for job, d in zip(world.jobs, plan.decisions, strict=True) if d.admitted]
    got = tuple(d.target for d in plan.decisions if d.admitted)
    rooms = [node.allocatable[CPU] // 1000 for node in world.nodes]
    quotas = {q.queue: q.amounts[0][1] // 1000 for q in limits.quotas}
    alone = [
        min(sum(room // cores_of(job.trainer) for room in rooms), quotas.get(job.queue, 99) // cores_of(job.trainer))
        for job in run
    ]
    tops = [min(job.max_trainers, most) for job, most in zip(run, alone, strict=True)]
    ways = [
        way
        for way in reachable(rooms, [cores_of(job.trainer) for job in run], tuple(tops))
        if all(n >= job.min_trainers for job, n in zip(run, way, strict=True))
        and all(
            sum(n * cores_of(job.trainer) for job, n in zip(run, way, strict=True) if job.queue == queue) <= most
            for queue, most in quotas.items()
        )
    ]
    assert not run or got in ways

    def worst(way: Sequence[int]) -> float:
        spans = ((n - j.min_trainers, t - j.min_trainers) for j, t, n in zip(run, tops, way, strict=True))
        return min((n / span if span else 1.0 for n, span in spans), default=1.0)

    if policy == "maxmin":
        assert worst(got) >= max(map(worst, ways), default=1.0) - 1e-9
        return
    floors = half_shares(world, run, tops, limits)
    allowed = [way for way in ways if all(n >= floor for n, floor in zip(way, floors, strict=True))]
    assert utility(run, got) >= max((utility(run, way) for way in allowed), default=0.0) - 1e-6


# One by one


def blue_and_free(*blue: Job, cores: int = 16) -> ClusterSnapshot:
    """Jobs of queue blue beside one of a queue without a quota."""
    jobs = tuple(in_queue("blue", job) for job in blue)
    return make_snapshot(make_nodes(1, cpu=cores), (*jobs, make_job("z-free", max_trainers=20)))


def test_a_queue_grows_up_to_its_quota_and_leaves_the_rest_to_others() -> None:
    plan = plan_for(blue_and_free(make_job("a", max_trainers=20), make_job("b", max_trainers=20)), cpu(blue=5))
    assert sum(n for name, n in targets(plan).items() if name in "ab") == 5
    assert targets(plan)["z-free"] == 11
    assert decision_of(plan, "a").reason is Reason.QUOTA_REACHED
    decision = decision_of(plan, "a")
    assert decision.message.endswith(": queue blue uses all of its quota of 5 cores; a trainer requests 1 core")
    assert decision.account.endswith(": queue blue uses 5 cores of its quota of 5 cores; a trainer requests 1 core")


def test_a_quota_that_is_too_small_for_one_more_trainer_says_what_is_left() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(0.5), 1),)
    world = blue_and_free(make_job("a", max_trainers=20, fixed=fixed), cores=30)
    decision = decision_of(plan_for(world, cpu(blue=5)), "a")
    left = "queue blue has 0.5 cores left of its quota of 5 cores; a trainer requests 1 core"
    assert decision.message == f"4 of 20: {left}"


def test_masters_and_pservers_count_to_the_quota() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(1), 2), FixedPods(Role.MASTER, make_shape(1), 1))
    plan = plan_for(blue_and_free(make_job("a", max_trainers=20, fixed=fixed)), cpu(blue=5))
    assert targets(plan)["a"] == 2


def test_a_job_larger_than_its_quota_says_so_and_is_no_head() -> None:
    huge = make_job("huge", min_trainers=6, age_s=5000)
    plan = plan_for(blue_and_free(huge, make_job("small", age_s=10)), cpu(blue=5))
    assert targets(plan) == {"huge": 0, "small": 4, "z-free": 12}
    assert decision_of(plan, "huge").reason is Reason.QUOTA_REACHED
    message = decision_of(plan, "huge").account
    assert "queue blue may never use more than its quota of 5 cores" in message


def test_quota_of_zero_allows_none() -> None:
    plan = plan_for(blue_and_free(make_job("a")), cpu(blue=0))
    assert targets(plan) == {"a": 0, "z-free": 16}


@pytest.mark.parametrize(("waited_s", "passes"), [(10, True), (700, False)])
def test_a_job_that_waits_for_quota_is_a_head_to_its_own_queue_only(waited_s: int, passes: bool) -> None:
    """Blue has 3 of 5 cores left: 'big' needs 4, 'late' needs 1. Others never wait for blue's quota."""
    running = replace(make_job("r", trainers=2, min_trainers=2, max_trainers=2, on=("n000",), age_s=9000))
    big = make_job("big", min_trainers=4, max_trainers=4, age_s=waited_s)
    late = make_job("late", min_trainers=1, max_trainers=1, age_s=5)
    world = blue_and_free(running, big, late)
    world = with_jobs(world, replace(world.jobs[-1], created_s=999.0))
    plan = plan_for(world, cpu(blue=5))
    assert targets(plan) == {"r": 2, "big": 0, "late": int(passes), "z-free": 14 - passes}
    assert decision_of(plan, "big").reason is Reason.QUOTA_REACHED
    assert "waits for quota of queue blue" in decision_of(plan, "big").account
    assert f"need at least {2 + passes} cores of its quota of 5 cores" in decision_of(plan, "big").account
    if not passes:
        assert decision_of(plan, "late").reason is Reason.QUOTA_REACHED
        assert "behind default/big" in decision_of(plan, "late").account


def test_a_new_job_takes_its_quota_from_the_surplus_of_its_queue() -> None:
    running = make_job("r", trainers=5, min_trainers=1, max_trainers=9, on=("n000",))
    free = make_job("f", trainers=11, min_trainers=1, max_trainers=11, on=("n000",))
    world = make_snapshot(
        make_nodes(1, cpu=16), (in_queue("blue", running), free, in_queue("blue", make_job("new", max_trainers=9)))
    )
    plan = plan_for(world, cpu(blue=5))
    assert targets(plan)["f"] == 11
    assert sorted((targets(plan)["r"], targets(plan)["new"])) == [2, 3]
    assert decision_of(plan, "r").shrink_reason == Reason.ADMITTED


def over(min_trainers: int) -> ClusterSnapshot:
    """Two running jobs of blue, 'old' and 'young', 6 cores each, on a node with room left."""
    jobs = (
        make_job("old", trainers=6, min_trainers=min_trainers, max_trainers=6, on=("n000",), age_s=500),
        make_job("young", trainers=6, min_trainers=min_trainers, max_trainers=6, on=("n000",), age_s=400),
    )
    return make_snapshot(make_nodes(1, cpu=16), tuple(in_queue("blue", job) for job in jobs))


def test_running_jobs_above_a_lowered_quota_lose_their_surplus() -> None:
    plan = plan_for(over(min_trainers=2), cpu(blue=8))
    assert targets(plan) == {"old": 4, "young": 4}
    assert {d.shrink_reason for d in plan.decisions} == {Reason.QUOTA_REACHED}


def test_where_the_minimums_exceed_the_quota_the_youngest_goes_whole() -> None:
    plan = plan_for(over(min_trainers=5), cpu(blue=8))
    assert targets(plan) == {"old": 6, "young": 0}
    assert decision_of(plan, "young").reason is Reason.QUOTA_REACHED
    assert check(over(min_trainers=5), plan, cpu(blue=8).quotas) == ()


def test_one_running_job_above_its_quota_shrinks_or_goes() -> None:
    world = make_snapshot(make_nodes(1), (in_queue("blue", make_job("a", trainers=6, min_trainers=3, on=("n000",))),))
    assert targets(plan_for(world, cpu(blue=4))) == {"a": 4}
    assert decision_of(plan_for(world, cpu(blue=4)), "a").shrink_reason == Reason.QUOTA_REACHED
    assert targets(plan_for(world, cpu(blue=2))) == {"a": 0}
    assert decision_of(plan_for(world, cpu(blue=2)), "a").reason is Reason.QUOTA_REACHED


def test_a_higher_tier_takes_the_quota_of_a_lower_one() -> None:
    low = make_job("low", trainers=4, min_trainers=4, max_trainers=4, on=("n000",))
    high = make_job("high", min_trainers=3, max_trainers=3, tier=1)
    world = make_snapshot(make_nodes(2), (in_queue("blue", low), in_queue("blue", high)))
    assert targets(plan_for(world, cpu(blue=5))) == {"high": 3, "low": 0}
    equal = with_jobs(world, in_queue("blue", replace(high, tier=0)))
    assert targets(plan_for(equal, cpu(blue=5))) == {"high": 0, "low": 4}


def test_trainers_that_are_dying_do_not_hold_quota() -> None:
    job = in_queue("blue", make_job("a", trainers=4, max_trainers=4, on=("n000",)))
    dying = replace(job, pods=tuple(replace(p, terminating=p.index == 0) for p in job.pods))
    assert targets(plan_for(make_snapshot(make_nodes(1), (dying,)), cpu(blue=4))) == {"a": 4}


def test_serving_is_no_part_of_a_quota_and_goes_first_all_the_same() -> None:
    world = with_pods(over(min_trainers=2), make_serving("s", cpu=8))
    plan = plan_for(world, cpu(blue=11))
    assert plan.serving.placed == 1
    assert sum(targets(plan).values()) == 8


def test_a_full_queue_shares_anew_within_itself() -> None:
    rich = make_job("rich", trainers=7, min_trainers=1, max_trainers=9, on=("n000",))
    poor = make_job("poor", trainers=1, min_trainers=1, max_trainers=9, on=("n000",))
    world = make_snapshot(make_nodes(1, cpu=16), (in_queue("blue", poor), in_queue("blue", rich)))
    for policy in ("maxmin", "utility"):
        assert targets(plan_for(world, cpu(blue=8), policy)) == {"poor": 4, "rich": 4}


def test_a_quota_has_a_price() -> None:
    plan = plan_for(blue_and_free(make_job("a", max_trainers=12)), cpu(blue=5))
    assert not [p for p in plan.prices if p.kind == "quota"]  # alone it is capped at its quota: nothing is scarce
    plan = plan_for(
        blue_and_free(make_job("a", max_trainers=12), make_job("b", max_trainers=12), cores=40), cpu(blue=5)
    )
    (price,) = (p for p in plan.prices if p.kind == "quota")
    assert (price.name, price.resource) == ("blue", CPU)
    assert price.price == pytest.approx(1 / 4)  # of one core, to a job whose cap is 5 and whose minimum is 1


@pytest.mark.parametrize("resource", [MEMORY, f"{LIMITS}{MEMORY}"])
def test_a_quota_of_memory_has_a_price_by_gib(resource: str) -> None:
    quota = ResourceQuota("default", "small", ((resource, 5 * GIB),))
    most = Resources.of({MEMORY: GIB})
    jobs = tuple(replace(make_job(name, max_trainers=12), limits=most) for name in "ab")
    plan = plan_for(replace(make_snapshot(make_nodes(1, cpu=40), jobs), resource_quotas=(quota,)))
    (price,) = (p for p in plan.prices if p.kind == "quota")
    assert (price.name, price.resource) == ("default/small", resource)
    assert price.price == pytest.approx(1 / 11)  # of one GiB, to a job whose bounds are 1 and 12


# What the guard sees


def test_a_plan_above_a_quota_is_refused() -> None:
    world = make_snapshot(make_nodes(1), (in_queue("blue", make_job("a", max_trainers=8)),))
    plan = plan_for(world)
    assert any(
        "queue blue: jobs would request 8000 of cpu; the quota is 5000" in p
        for p in check(world, plan, cpu(blue=5).quotas)
    )
    assert check(world, plan, cpu(blue=8).quotas) == ()


def test_a_running_job_is_dropped_for_a_quota_only_where_it_has_no_place_in_it() -> None:
    world = over(min_trainers=5)
    plan = plan_for(world, cpu(blue=8))
    assert any("is dropped" in problem for problem in check(world, plan, cpu(blue=12).quotas))


# The books


def test_trainers_of_an_older_and_larger_shape_count_as_such() -> None:
    job = in_queue("blue", make_job("a", trainers=2, cpu=3, on=("n000",)))
    changed = replace(job, trainer=make_shape(1))
    (quota_use,) = quota_uses_of(changed, QuotaTable(cpu(blue=7).quotas))
    assert (quota_use.each, quota_use.fixed, quota_use.total(2)) == (3000, 0, 6000)
    world = make_snapshot(make_nodes(1), (changed,))
    plan = plan_for(world, cpu(blue=7))
    assert check(world, plan, cpu(blue=7).quotas) == ()
    assert targets(plan) == {"a": 2}


def test_a_resource_that_is_not_asked_for_limits_nobody() -> None:
    quotas = (Quota("blue", (("nvidia.com/gpu", 0),)),)
    job = in_queue("blue", make_job("a", max_trainers=8))
    assert most_alone(quota_uses_of(job, QuotaTable(quotas))) == float("inf")
    assert targets(plan_for(make_snapshot(make_nodes(1), (job,)), Limits(quotas=quotas))) == {"a": 8}
    meter = QuotaMeter({0: quota_uses_of(job, QuotaTable(quotas))}, {0: 5})
    assert meter.quota_shortage(0) is None


def test_quotas_hold_from_one_round_to_the_next_as_jobs_come_and_go() -> None:
    world = make_snapshot(make_nodes(2))
    limits = cpu(blue=6, green=5)
    for i, queue in enumerate(["blue", "green", "blue", "green", "blue"]):
        job = in_queue(queue, make_job(f"j{i}", max_trainers=6))
        world = with_jobs(world, replace(job, created_s=world.observed_at_s))
        plan = plan_for(world, limits)
        assert used_cores(world, plan, "blue") <= 6
        assert used_cores(world, plan, "green") <= 5
        world = later(apply_plan(world, plan), 10)
    assert used_cores(world, plan_for(world, limits), "blue") == 6
    assert used_cores(world, plan_for(world, limits), "green") == 5
