"""Serving pods that leave room unused: marked after half a minute, longer each time; no victims then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from edl.errors import PlanFailure
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ServingReport
from edl.model.pods import Pod
from edl.planner.fallback import without_growth
from edl.planner.guard import check
from edl.planner.problem import Problem
from edl.planner.problem_reader import read_problem
from edl.planner.starts import startable
from edl.planner.unplaceable import LONGEST_PAUSE_S, WaitRecord, mark, watch
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for, targets, victims, with_pods

WaitRecords = dict[str, WaitRecord]
FREE = make_snapshot((make_node("n0", 4),), (make_job("a", max_trainers=4),))


def tried(name: str, cpu: float = 3, *, unplaceable: bool = False) -> Pod:
    return replace(make_serving(name, cpu=cpu), tried=True, unplaceable=unplaceable)


def seen(records: WaitRecords, world: ClusterSnapshot, times_s: Iterable[float]) -> WaitRecords:
    for now_s in times_s:
        records = watch(records, world, now_s)
    return records


def marked(world: ClusterSnapshot, records: WaitRecords, now_s: float) -> set[str]:
    return {pod.name for pod in mark(world, records, now_s).pods if pod.unplaceable}


def test_a_pod_that_leaves_room_unused_for_half_a_minute_is_marked_for_as_long() -> None:
    world = with_pods(FREE, tried("s"))
    records = seen({}, world, (0, 5, 29.9))
    assert marked(world, records, 29.9) == set()
    records = seen(records, world, [30])
    assert marked(world, records, 30) == {"s"}
    assert marked(world, records, 59.9) == {"s"}
    assert marked(world, records, 60) == set()


def test_a_pod_of_another_namespace_that_names_the_same_owner_passes_no_pause_on() -> None:
    """Anybody may write the UID of a set of others into a pod of his own, which then leaves room unused."""
    honest = replace(tried("s-1"), owner="uid-of-the-set")
    forged = replace(tried("f-1"), owner="uid-of-the-set", namespace="mallory")
    records = seen({}, with_pods(FREE, forged), (0, 30))
    assert marked(with_pods(FREE, forged), records, 30) == {"f-1"}
    records = seen(records, with_pods(FREE, honest), (40, 41))
    assert marked(with_pods(FREE, honest), records, 41) == set()


def test_a_pod_that_replaces_a_marked_one_continues_its_pauses() -> None:
    first, second = (replace(tried(name), owner="uid-of-the-set") for name in ("s-1", "s-2"))
    records = seen({}, with_pods(FREE, first), (0, 30))
    records = seen(records, with_pods(FREE, second), (40, 41))
    assert marked(with_pods(FREE, second), records, 59.9) == {"s-2"}
    records = seen(records, with_pods(FREE, second), (60, 90))
    assert marked(with_pods(FREE, second), records, 149.9) == {"s-2"}, "the second pause is twice as long"


def test_a_pod_of_another_owner_or_size_begins_anew() -> None:
    first = replace(tried("s-1"), owner="uid-of-the-set")
    records = seen({}, with_pods(FREE, first), (0, 30))
    for other in (replace(tried("t"), owner="uid-of-another"), replace(tried("u", cpu=2), owner="uid-of-the-set")):
        world = with_pods(FREE, other)
        assert marked(world, seen(records, world, (40,)), 41) == set()


def test_a_replacement_that_comes_late_begins_anew() -> None:
    first, second = (replace(tried(name), owner="uid-of-the-set") for name in ("s-1", "s-2"))
    records = seen({}, with_pods(FREE, first), (0, 30))
    records = seen(records, FREE, (59, 91))
    assert marked(with_pods(FREE, second), seen(records, with_pods(FREE, second), (92,)), 93) == set()


def test_nobody_looks_for_room_for_a_pod_that_has_just_come(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[ClusterSnapshot] = []

    def read(snapshot: ClusterSnapshot, limits: Limits) -> Problem:
        reads.append(snapshot)
        return read_problem(snapshot, limits)

    monkeypatch.setattr("edl.planner.unplaceable.read_problem", read)
    young = with_pods(FREE, replace(tried("s"), created_s=FREE.observed_at_s - 4.9))
    records = watch({}, young, 0.0)
    assert (records["serving-s"], reads) == (WaitRecord(), [])
    records = watch(records, replace(young, observed_at_s=young.observed_at_s + 0.1), 0.1)
    assert (records["serving-s"], len(reads)) == (WaitRecord(since_s=0.1), 1)


def test_without_a_look_what_was_found_last_holds_until_a_pod_of_the_shape_is_bound() -> None:
    world = with_pods(FREE, tried("s"), tried("b", cpu=1))
    records = watch(watch({}, world, 0.0), world, 20.0, looks=False)
    assert {record.since_s for record in records.values()} == {0.0}
    bound = with_pods(FREE, tried("s"), replace(tried("b", cpu=1), node="n0"), tried("c", cpu=1))
    records = watch(records, bound, 21.0, looks=False)
    assert {uid: record.since_s for uid, record in records.items()} == {"serving-s": 0.0, "serving-c": None}
    records = watch(watch({}, world, 0.0), with_pods(FREE, tried("s"), tried("x", cpu=3)), 20.0, looks=False)
    assert records["serving-x"] == WaitRecord()
    gone = replace(tried("t"), node="n0")
    records = watch(
        {"serving-s": WaitRecord(0.0), "serving-t": WaitRecord(0.0)},
        with_pods(FREE, tried("s"), gone),
        9.0,
        looks=False,
    )
    assert records == {"serving-s": WaitRecord()}


def test_each_mark_lasts_twice_as_long_as_the_one_before_up_to_some_hours() -> None:
    world = with_pods(FREE, tried("s"))
    records: WaitRecords = {}
    lengths, length = [], 0
    for now_s in range(0, 58_000, 30):
        records = watch(records, world, float(now_s))
        if marked(world, records, float(now_s)):
            length += 30
        elif length:
            lengths.append(length)
            length = 0
    assert lengths == [30, 60, 120, 240, 480, 960, 1920, 3840, 7680, 14_400, 14_400]
    assert lengths[-1] == LONGEST_PAUSE_S


BLOCKED: dict[str, Callable[[], ClusterSnapshot]] = {
    "not tried": lambda: with_pods(FREE, make_serving("s")),
    "no capacity": lambda: with_pods(FREE, tried("s"), make_serving("b", cpu=2, node="n0")),
    "no capacity until others are gone": lambda: with_pods(
        FREE, tried("s"), replace(make_serving("b", cpu=2, node="n0"), terminating=True)
    ),
    "capacity of trainers that still hold it": lambda: with_pods(
        replace(FREE, jobs=(make_job("a", trainers=4, max_trainers=4, on=("n0",)),)), tried("s")
    ),
    "capacity on a node that takes nobody": lambda: with_pods(
        replace(FREE, nodes=(make_node("n0", 4, cordoned=True),)), tried("s")
    ),
    "gated": lambda: with_pods(FREE, replace(tried("s"), gated=True)),
    "of low priority": lambda: with_pods(FREE, replace(tried("s"), priority=-1)),
    "nominated": lambda: with_pods(FREE, replace(tried("s"), nominated="n0")),
    "bound": lambda: with_pods(FREE, replace(tried("s"), node="n0")),
}


@pytest.mark.parametrize("build", BLOCKED.values(), ids=BLOCKED.keys())
def test_who_is_not_offered_room_is_never_marked(build: Callable[[], ClusterSnapshot]) -> None:
    world = build()
    records = seen({}, world, range(0, 600, 5))
    assert {record.pause_s for record in records.values()} <= {0.0}


def test_an_offer_that_is_interrupted_begins_anew() -> None:
    world, full = with_pods(FREE, tried("s")), BLOCKED["no capacity"]()
    records = seen(seen({}, world, (0, 25)), full, [26])
    assert marked(world, seen(records, world, (27, 50)), 50) == set()
    assert marked(world, seen(records, world, (27, 57)), 57) == {"s"}


def test_while_pods_of_its_shape_are_being_bound_a_pod_is_in_a_queue_and_not_stuck() -> None:
    """One slot after the other comes free, and each is taken by the next of forty."""
    records: WaitRecords = {}
    nodes = (make_node("n0", 400, 400),)
    for now_s in range(0, 80, 2):
        queue = [tried(f"s{i:02d}") for i in range(40)]
        pods = [replace(pod, node="n0") if i < now_s // 2 else pod for i, pod in enumerate(queue)]
        world = make_snapshot(nodes, (), tuple(pods))
        records = watch(records, world, float(now_s))
        assert marked(world, records, now_s) == set()


def test_who_is_bound_or_gone_is_forgotten_and_who_is_nominated_is_not() -> None:
    world = with_pods(FREE, tried("s"))
    records = seen({}, world, (0, 30))
    uid = tried("s").uid
    assert watch(records, FREE, 31) == {}
    assert watch(records, with_pods(FREE, replace(tried("s"), node="n0")), 31) == {}
    promised = watch(records, with_pods(FREE, replace(tried("s"), nominated="n0")), 31)
    assert promised[uid].pause_s == 30
    assert marked(world, seen(promised, world, (61, 91)), 150) == {"s"}


def test_what_is_remembered_does_not_grow() -> None:
    records: WaitRecords = {}
    for now_s in range(100):
        records = watch(records, with_pods(FREE, tried(f"s{now_s}")), float(now_s))
    assert len(records) == 1


def test_a_mark_is_for_waiting_serving_only() -> None:
    records = {tried("s").uid: WaitRecord(None, 100.0, 30.0)}
    assert marked(with_pods(FREE, replace(tried("s"), nominated="n0")), records, 50) == set()


# What a plan makes of it


def crowded(*pods: Pod) -> ClusterSnapshot:
    """Trainers hold the whole of one node; serving waits."""
    return make_snapshot((make_node("n0", 4),), (make_job("a", trainers=4, max_trainers=4, on=("n0",)),), pods)


def test_nobody_dies_for_a_pod_that_leaves_room_unused_and_it_is_short() -> None:
    plan = plan_for(crowded(tried("s")))
    assert len(victims(plan)) == 3
    assert plan.serving == ServingReport(waiting=1, placed=1, short=0)
    spared = plan_for(crowded(tried("s", unplaceable=True)))
    assert victims(spared) == []
    assert targets(spared) == {"a": 4}
    assert spared.serving == ServingReport(waiting=1, placed=0, short=1)


def test_the_others_are_still_served() -> None:
    plan = plan_for(crowded(tried("s", unplaceable=True), tried("t", cpu=2)))
    assert len(victims(plan)) == 2
    assert plan.serving == ServingReport(waiting=2, placed=1, short=1)


def test_room_that_is_left_unused_is_given_to_trainers() -> None:
    world = with_pods(FREE, tried("s", unplaceable=True))
    plan = plan_for(world)
    assert targets(plan) == {"a": 4}
    assert len(startable(world, plan)) == 4


def test_a_running_job_is_not_dropped_for_a_pod_that_leaves_room_unused() -> None:
    job = make_job("a", trainers=4, min_trainers=4, max_trainers=4, on=("n0",))
    world = make_snapshot((make_node("n0", 4),), (job,), (tried("s", unplaceable=True),))
    plan = plan_for(world)
    assert targets(plan) == {"a": 4}
    gone = replace(
        plan.decisions[0], admitted=False, target=0, victims=tuple(p.name for p in job.pods), shrink_reason="x"
    )
    assert any("is dropped" in problem for problem in check(world, replace(plan, decisions=(gone,))))


def test_a_plan_that_hides_who_is_short_is_refused() -> None:
    world = crowded(tried("s", unplaceable=True))
    plan = plan_for(world)
    assert check(world, plan) == ()
    assert check(world, replace(plan, serving=ServingReport(waiting=1))) != ()


def test_a_last_plan_kills_nobody_for_whom_leaves_room_unused_since() -> None:
    world = crowded(tried("s"))
    old = plan_for(world)
    assert decision_of(without_growth(old, world, PlanFailure.LATE_SOLVER), "a").victims
    now = crowded(tried("s", unplaceable=True))
    kept = without_growth(old, now, PlanFailure.LATE_SOLVER)
    assert decision_of(kept, "a").victims == ()
    assert check(now, kept) == ()


def test_each_shape_is_judged_by_the_room_that_it_could_use() -> None:
    large, small = tried("large", cpu=5), replace(tried("small"), shape=make_shape(2, 2))
    world = with_pods(FREE, large, small)
    assert marked(world, seen({}, world, (0, 30)), 30) == {"small"}
