"""Queues that lend and borrow: against a reference that gives single units, and in whole plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.explain.decision import decide
from edl.lifecycle.tenancy import as_held
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits, Quota
from edl.model.plan import ScalePlan
from edl.model.queues import Queue, Reclaim
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.queues.borrowing import QueueUse, Steps, shares
from edl.planner.queues.shares import weighted_max_min
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.effort import examples


def queue(name: str, cores: int, *, most: int | None = None, **fields: Any) -> Queue:
    borrowing = () if most is None else (("cpu", 1000 * most),)
    made = Queue(name, (("cpu", 1000 * cores),), borrowing=borrowing)
    return replace(made, **fields)


def in_queue(name: str, job: Job) -> Job:
    return replace(job, queue=name)


def plan_of(snapshot: ClusterSnapshot, limits: Limits | None = None) -> ScalePlan:
    limits = limits or Limits()
    plan = decide(snapshot, policy_named(""), limits)
    assert not check(snapshot, plan, limits.quotas)
    return plan


def targets(plan: ScalePlan) -> dict[str, int]:
    return {decision.job.name: decision.target for decision in plan.decisions}


def unit_by_unit(uses: tuple[QueueUse, ...]) -> dict[str, int]:
    """Weighted max-min with borrowing by brute force: each unit goes to the queue that has least for its weight.

    Units of a queue's own come first. Equal queues are served by name.
    """
    given = {use.queue: min(use.wanted, use.nominal) for use in uses}
    borrowed = dict.fromkeys(given, 0)
    for _ in range(sum(use.nominal for use in uses) - sum(given.values())):
        hungry = [use for use in uses if given[use.queue] + borrowed[use.queue] < min(use.wanted, use.most)]
        if not hungry:
            break
        taker = min(hungry, key=lambda use: ((borrowed[use.queue] + 1) / use.weight, use.queue))
        borrowed[taker.queue] += 1
    return {name: given[name] + borrowed[name] for name in given}


@st.composite
def uses_of_queues(draw: st.DrawFn, *, reclaim: bool = True) -> tuple[QueueUse, ...]:
    count = draw(st.integers(1, 5))
    names = [f"q{i}" for i in range(count)]
    found = []
    for name in names:
        nominal = draw(st.integers(0, 8))
        most = nominal + draw(st.integers(0, 12))
        others = frozenset(names) - {name}
        takes = others if reclaim else frozenset(draw(st.sets(st.sampled_from(names)))) - {name}
        weight = draw(st.sampled_from([1.0, 2.0, 3.0, 4.0]))
        found.append(QueueUse(name, nominal, most, weight, draw(st.integers(0, 20)), draw(st.integers(0, 20)), takes))
    return tuple(found)


@given(uses_of_queues())
@examples(300)
def test_shares_are_those_of_the_reference_within_one_unit(uses: tuple[QueueUse, ...]) -> None:
    found, expected = shares(uses), unit_by_unit(uses)
    assert sum(found.values()) == sum(expected.values())
    assert all(abs(found[name] - expected[name]) <= 1 for name in found), (found, expected)


@given(uses_of_queues(reclaim=False))
@examples(300)
def test_shares_keep_every_limit(uses: tuple[QueueUse, ...]) -> None:
    found = shares(uses)
    assert sum(found.values()) <= sum(use.nominal for use in uses)
    for use in uses:
        own = min(use.wanted, use.nominal)
        assert min(use.used, own) <= found[use.queue] <= max(own, min(use.wanted, use.most))


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 20), st.sampled_from([1.0, 2.0, 5.0])), max_size=6))
@examples(300)
def test_max_min_gives_all_that_somebody_wants(amount: int, wants: list[tuple[int, float]]) -> None:
    named = [(f"q{i}", want, weight) for i, (want, weight) in enumerate(wants)]
    assert sum(weighted_max_min(amount, named).values()) == min(amount, sum(want for _, want, _ in named))


@pytest.mark.parametrize(
    ("reclaim", "tier", "expected"),
    [
        (Reclaim.ANY, 0, {"blue": 8, "green": 4}),
        (Reclaim.NEVER, 0, {"blue": 10, "green": 2}),
        (Reclaim.LOWER_PRIORITY, 0, {"blue": 10, "green": 2}),
        (Reclaim.LOWER_PRIORITY, 5, {"blue": 8, "green": 4}),
    ],
)
def test_who_takes_back_what_it_lent(reclaim: Reclaim, tier: int, expected: dict[str, int]) -> None:
    blue = in_queue("blue", make_job("blue", trainers=10, max_trainers=12, on=("n000", "n001")))
    green = in_queue("green", make_job("green", trainers=2, max_trainers=12, on=("n000",), tier=tier))
    queues = (queue("blue", 8), queue("green", 4, reclaim=reclaim))
    plan = plan_of(replace(make_snapshot(make_nodes(2), (blue, green)), queues=queues))
    assert targets(plan) == expected


def test_what_one_queue_leaves_another_borrows() -> None:
    blue = in_queue("blue", make_job("blue", max_trainers=16))
    snapshot = make_snapshot(make_nodes(2), (blue,))
    assert targets(plan_of(replace(snapshot, queues=(queue("blue", 4), queue("green", 6))))) == {"blue": 10}
    limited = (queue("blue", 4, most=3), queue("green", 6))
    assert targets(plan_of(replace(snapshot, queues=limited))) == {"blue": 7}


def test_what_is_left_is_shared_by_weight() -> None:
    jobs = tuple(in_queue(name, make_job(name, max_trainers=16)) for name in ("blue", "green"))
    queues = (queue("blue", 2, weight=3.0), queue("green", 2), queue("red", 8))
    assert targets(plan_of(replace(make_snapshot(make_nodes(2), jobs), queues=queues))) == {"blue": 8, "green": 4}


def test_reclaim_ends_no_more_trainers_than_the_owner_needs() -> None:
    blue = in_queue("blue", make_job("blue", trainers=12, max_trainers=12, on=("n000", "n001")))
    green = in_queue("green", make_job("green", min_trainers=2, max_trainers=3))
    plan = plan_of(replace(make_snapshot(make_nodes(2), (blue, green)), queues=(queue("blue", 8), queue("green", 4))))
    assert targets(plan) == {"blue": 9, "green": 3}
    found = plan.decision(blue.key)
    assert found is not None
    assert len(found.victims) == 3


def test_an_object_wins_over_the_file() -> None:
    blue = in_queue("blue", make_job("blue", max_trainers=8))
    limits = Limits(quotas=(Quota("blue", (("cpu", 1000),)),))
    snapshot = make_snapshot(make_nodes(1), (blue,))
    assert targets(plan_of(snapshot, limits)) == {"blue": 1}
    assert targets(plan_of(replace(snapshot, queues=(queue("blue", 5),)), limits)) == {"blue": 5}


def test_what_nobody_can_use_whole_goes_to_somebody_as_whole_trainers() -> None:
    """Five borrowed cores for three queues whose trainers request two: no queue's part of 1.67 holds one."""
    jobs = tuple(in_queue(name, make_job(name, cpu=2, max_trainers=9)) for name in ("a", "b", "c"))
    queues = (*(queue(name, 2) for name in ("a", "b", "c")), queue("idle", 5))
    assert targets(plan_of(replace(make_snapshot(make_nodes(2), jobs), queues=queues))) == {"a": 2, "b": 2, "c": 1}


def test_no_trainer_goes_for_a_part_of_a_quota_that_holds_none() -> None:
    """Green has four cores and trainers of three: it can use three of them, and the fourth stays lent."""
    blue = in_queue("blue", make_job("blue", trainers=12, max_trainers=12, on=("n000", "n001")))
    green = in_queue("green", make_job("green", cpu=3, max_trainers=9))
    snapshot = replace(make_snapshot(make_nodes(2), (blue, green)), queues=(queue("blue", 8), queue("green", 4)))
    assert targets(plan_of(snapshot)) == {"blue": 9, "green": 1}


@pytest.mark.parametrize("reason", ["no node is large enough", "its minimum is beyond its queue"])
def test_a_job_that_can_never_start_keeps_nobody_from_borrowing(reason: str) -> None:
    blue = in_queue("blue", make_job("blue", max_trainers=12))
    is_large = reason.startswith("no node")
    green = in_queue("green", make_job("green", cpu=20 if is_large else 1, min_trainers=1 if is_large else 5))
    queues = (queue("blue", 4), queue("green", 4, most=0))
    plan = plan_of(replace(make_snapshot(make_nodes(2), (blue, green)), queues=queues))
    assert targets(plan) == {"blue": 8, "green": 0}


def test_queues_of_another_cohort_lend_nothing() -> None:
    blue = in_queue("blue", make_job("blue", max_trainers=12))
    queues = (queue("blue", 4, cohort="one"), queue("green", 4, cohort="two"), queue("red", 2, cohort="one"))
    assert targets(plan_of(replace(make_snapshot(make_nodes(2), (blue,)), queues=queues))) == {"blue": 6}


def test_a_step_never_exceeds_what_a_queue_may_borrow() -> None:
    one = QueueUse("one", 0, 3, 1.0, 20, 0, whole=Steps(0, 2))
    two = QueueUse("two", 0, 9, 1.0, 20, 0, whole=Steps(0, 4))
    idle = QueueUse("idle", 9, 9, 1.0, 0, 0)
    assert shares((idle, one, two)) == {"idle": 0, "one": 3, "two": 6}


def test_trainers_of_a_former_size_count_as_large_as_they_are() -> None:
    """After a change from 2 cores to 1, the queue wants what its pods use, so that none has to go."""
    old = make_job("blue", trainers=4, max_trainers=4, cpu=2, on=("n000",))
    blue = in_queue("blue", replace(old, trainer=make_job("x").trainer))
    plan = plan_of(replace(make_snapshot(make_nodes(2), (blue,)), queues=(queue("blue", 8),)))
    assert targets(plan) == {"blue": 4}


@given(st.integers(1, 8), st.integers(0, 6), st.integers(1, 3), st.integers(0, 9), st.integers(1, 3))
@examples(25)
def test_reclaim_deletes_the_fewest_trainers_that_make_room_for_the_owner(
    blue_cores: int, green_cores: int, blue_size: int, wanted: int, green_size: int
) -> None:
    """By brute force: after so many of the borrower's trainers went, the owner has all of its own that it can use."""
    pool = blue_cores + green_cores
    running = min(8 // blue_size * 2, pool // blue_size)
    green_max = max(1, wanted)
    jobs = [in_queue("blue", make_job("blue", trainers=running, max_trainers=16, cpu=blue_size, on=("n000", "n001")))]
    jobs.append(in_queue("green", make_job("green", max_trainers=green_max, cpu=green_size)))
    queues = (queue("blue", blue_cores), queue("green", green_cores, most=0))
    snapshot = make_snapshot(make_nodes(3), tuple(jobs))
    plan = plan_of(replace(snapshot, queues=queues))
    owner = min(green_max, green_cores // green_size) * green_size
    fewest = min(n for n in range(running + 1) if (running - n) * blue_size + owner <= pool)
    decision = next(d for d in plan.decisions if d.job.name == "blue")
    assert targets(plan)["green"] * green_size == owner
    assert len(decision.victims) == fewest


def held(snapshot: ClusterSnapshot, *queues: Queue) -> dict[str, int]:
    """What the jobs get, as the controller hands them to the planner."""
    unknown = [queue.name for queue in queues if queue.is_unknown]
    jobs = tuple(as_held(job, unknown) for job in snapshot.jobs)
    return targets(plan_of(replace(snapshot, jobs=jobs, queues=queues)))


def test_the_jobs_of_a_queue_with_unknown_limits_keep_what_they_have_and_get_no_more() -> None:
    """An object that is not valid never lifts a limit: here it is broken since before the controller started."""
    running = in_queue("blue", make_job("a", min_trainers=1, max_trainers=9, trainers=2, on=("n000", "n001")))
    new = in_queue("blue", make_job("b", min_trainers=1, max_trainers=2))
    other = in_queue("green", make_job("c", min_trainers=1, max_trainers=2))
    snapshot = make_snapshot(make_nodes(4), (running, new, other))
    broken = Queue("blue", (), problem="nominalQuota: the amount -3 of cpu is negative")
    assert held(snapshot, broken, queue("green", 4)) == {"a": 2, "b": 0, "c": 2}
    assert held(snapshot, queue("green", 4))["a"] > 2
    one_left = replace(snapshot, jobs=(replace(running, pods=running.pods[:1]), new))
    assert held(one_left, broken) == {"a": 1, "b": 0}


def test_a_file_does_not_lift_the_limit_of_a_queue_that_is_not_valid() -> None:
    """Also if the API server accepts more than a job has, the plan stays at what the jobs of the queue use."""
    running = in_queue("blue", make_job("a", min_trainers=1, max_trainers=9, trainers=2, on=("n000", "n001")))
    snapshot = replace(make_snapshot(make_nodes(4), (running,)), queues=(Queue("blue", (), problem="bad"),))
    assert targets(plan_of(snapshot, Limits(quotas=(Quota("blue", (("cpu", 9000),)),)))) == {"a": 2}


def test_a_queue_with_unknown_limits_keeps_a_running_job_at_its_minimum_and_lends_nothing() -> None:
    running = in_queue("blue", make_job("a", min_trainers=2, max_trainers=9, trainers=1, on=("n000",)))
    borrower = in_queue("green", make_job("c", min_trainers=1, max_trainers=9))
    snapshot = make_snapshot(make_nodes(4), (running, borrower))
    assert held(snapshot, Queue("blue", (), problem="bad"), queue("green", 3)) == {"a": 2, "c": 3}
