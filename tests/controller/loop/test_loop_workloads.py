"""Workloads whose own controller makes the pods, in the loop: their number follows the plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from edl.model.actions import Action, ChangeWorkloads, EmitEvent, Outcome, ResizeWorkload, Result
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.quota_trees import KueueState
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.job_owner import make_batch, make_groups
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

KEY, OURS = make_batch("train", 0).key, JobKey("default", "ours")
GROUPS = make_groups("llm", 0).key


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(2, cpu=8))) as made:
        yield made


def enter(living: Living, *jobs: Job) -> None:
    for job in jobs:
        living.do(partial(World.add, job=job))
    living.settle()


def pods(living: Living, key: JobKey = KEY) -> int:
    return len(living.world.job(key).live_trainers)


def resizes(living: Living) -> list[tuple[int, int]]:
    return [(a.before, a.count) for a in living.world.writes if isinstance(a, ResizeWorkload)]


def reasons(living: Living) -> list[str]:
    return [event.reason for event in living.world.events if event.job == KEY]


def test_a_workload_grows_to_its_maximum(living: Living) -> None:
    enter(living, make_batch("train", 2, high=6))
    assert (pods(living), resizes(living)) == (6, [(2, 6)])
    assert reasons(living) == ["AtMax"]


def test_it_yields_to_serving_and_grows_again(living: Living) -> None:
    enter(living, make_batch("train", 2, low=2, high=16))
    assert pods(living) == 16
    for name in ("w1", "w2"):
        living.do(partial(World.serve, name=name, cpu=4))
    living.settle()
    assert all(pod.node for pod in living.world.serving.values()), "serving has its capacity"
    assert 2 <= pods(living) <= 8
    living.do(lambda w: w.serving.clear())
    living.wait(60)
    living.settle()
    assert pods(living) == 16


def test_it_shares_with_a_training_job(living: Living) -> None:
    enter(living, make_batch("train", 16, high=16), make_job("ours", max_trainers=16))
    assert (pods(living), pods(living, OURS)) == (8, 8)


def test_a_workload_whose_minimum_does_not_fit_has_no_pods(living: Living) -> None:
    enter(living, make_job("ours", min_trainers=14, max_trainers=14))
    enter(living, make_batch("train", 3, low=3, high=3))
    assert (pods(living), pods(living, OURS)) == (0, 14)
    assert "MinUnsatisfied" in reasons(living)
    living.do(lambda w: w.delete_job(OURS))
    living.settle()
    assert pods(living) == 3


def test_nothing_else_is_written_for_it(living: Living) -> None:
    enter(living, make_batch("train", 2, high=6))
    assert {type(a) for a in living.world.writes} == {ResizeWorkload, EmitEvent}


def test_pods_that_its_controller_is_slow_to_make_are_not_asked_for_twice(living: Living) -> None:
    living.world.job_owner.stands_still = True
    enter(living, make_batch("train", 2, high=6))
    living.wait(30)
    assert (resizes(living), pods(living)) == ([(2, 6)], 0)
    living.world.job_owner.stands_still = False
    living.settle()
    assert pods(living) == 6


def test_a_controller_that_starts_in_mid_resize_goes_on_from_the_record(living: Living) -> None:
    living.world.job_owner.stands_still = True
    enter(living, make_batch("train", 2, high=6))
    living.crash()
    living.wait(30)
    assert resizes(living) == [(2, 6)]
    living.world.job_owner.stands_still = False
    living.settle()
    assert (pods(living), resizes(living), reasons(living)) == (6, [(2, 6)], ["AtMax"])


def test_a_resize_of_a_job_that_has_changed_meanwhile_is_not_done(living: Living) -> None:
    def edit_first(action: Action) -> None:
        if isinstance(action, ResizeWorkload) and not resizes(living):
            living.world.fault = lambda _: None
            living.world.edit(KEY, max_trainers=3)

    living.world.fault = edit_first
    enter(living, make_batch("train", 2, high=6))
    assert (pods(living), resizes(living)) == (3, [(2, 3)])


def test_why_it_is_not_resized_is_said_once(living: Living) -> None:
    enter(living, replace(make_batch("train", 2), problem="max-instance is missing"))
    living.wait(60)
    assert (reasons(living), resizes(living)) == (["NotResized"], [])
    living.do(lambda w: w.edit(KEY, problem="max-instance is many"))
    living.settle()
    assert reasons(living) == ["NotResized", "NotResized"]


def test_a_resize_that_is_refused_is_told_once_and_is_tried_again_after_a_pause(living: Living) -> None:
    tried = []

    def refuse(action: Action) -> tuple[bool, Outcome] | None:
        if not isinstance(action, ResizeWorkload):
            return None
        tried.append(action)
        return False, Outcome(action, Result.REFUSED, "Forbidden", "no right to patch jobs")

    living.world.fault = refuse
    enter(living, make_batch("train", 2, high=6))
    living.wait(120)
    assert reasons(living) == ["NotResized"], "no event claims a resize"
    assert 1 < len(tried) < 10, "with growing pauses"
    living.world.fault = lambda _: None
    living.wait(300)
    living.settle()
    assert pods(living) == 6


def test_workloads_of_kueue_that_cannot_be_made_are_told_once_and_tried_again_after_a_pause(living: Living) -> None:
    tried = []

    def refuse(action: Action) -> tuple[bool, Outcome] | None:
        if not isinstance(action, ChangeWorkloads):
            return None
        tried.append(action)
        return False, Outcome(action, Result.REFUSED, "Forbidden", "no right to make Workloads")

    living.world.fault = refuse
    state = KueueState("blue", "trainer", is_owned=True)
    enter(living, replace(make_batch("train", 0), kueue=state))
    living.wait(120)
    assert 1 < len(tried) < 10, "with growing pauses"
    assert reasons(living) == ["NotResized"]
    assert living.world.events[-1].message == "edl does not resize this workload: no right to make Workloads"
    assert resizes(living) == []


@pytest.mark.parametrize("result", [Result.REFUSED, Result.FAILED])
@pytest.mark.parametrize(("count", "others"), [(2, 14), (16, 0), (0, 16)])
def test_nobody_waits_for_a_workload_that_cannot_be_resized(
    living: Living, result: Result, count: int, others: int
) -> None:
    """It grows, shrinks or starts no more: the others have the rest, and each sentence is true."""
    tried: list[ResizeWorkload] = []

    def refuse(action: Action) -> tuple[bool, Outcome] | None:
        if not isinstance(action, ResizeWorkload):
            return None
        tried.append(action)
        return False, Outcome(action, result, "Forbidden", "a webhook denies it")

    living.world.fault = refuse
    enter(living, make_batch("train", count, low=2, high=16))
    enter(living, make_job("ours", max_trainers=20))
    counts: list[int] = []
    for _ in range(180):
        living.step(20.0)
        counts.append(pods(living, OURS))
    assert len(tried) <= 20
    assert pods(living) == count
    assert sum(have == others for have in counts) >= 150, "nearly all the time"
    assert min(counts[10:]) >= others - 2, "an attempt costs no more than its next size"
    held = "a trainer requests 1 core, and other pods leave none on a node"
    said = f"{others} of 20: cpu is full" if others else held
    assert living.status_of(OURS).explanation.startswith(said)
    told = [event.message for event in living.world.events if event.job == KEY and event.reason == "NotResized"]
    assert told == ["edl does not resize this workload: a webhook denies it; edl tries again after growing pauses"]
    living.world.fault = lambda _: None
    for _ in range(180):
        living.step(20.0)
    assert pods(living) == pods(living, OURS) == 8


def groups_of(living: Living) -> set[int]:
    """The indexes of the pods of groups that have a node."""
    return {pod.index or 0 for pod in living.world.job(GROUPS).live_trainers if pod.node}


def serve(living: Living, count: int) -> None:
    for i in range(count):
        living.do(partial(World.serve, name=f"w{i}", cpu=1))
    living.settle()


def test_groups_grow_whole_and_no_further_than_they_fit(living: Living) -> None:
    enter(living, make_groups("llm", 1, size=5, high=5))
    assert (groups_of(living), resizes(living)) == ({*range(15)}, [(5, 15)]), "16 cpus take three of five"
    assert {type(a) for a in living.world.writes} == {ResizeWorkload, EmitEvent}


def test_the_last_group_goes_for_serving_and_comes_back(living: Living) -> None:
    enter(living, make_groups("llm", 3))
    serve(living, 5)
    assert all(pod.node for pod in living.world.serving.values())
    assert groups_of(living) == {*range(8)}
    living.do(lambda world: world.serving.clear())
    living.wait(60)
    living.settle()
    assert groups_of(living) == {*range(12)}
    assert resizes(living) == [(12, 8), (8, 12)]


def test_one_whose_least_group_does_not_fit_has_no_pods_and_starts_when_it_fits(living: Living) -> None:
    enter(living, make_groups("llm", 1))
    serve(living, 13)
    assert groups_of(living) == set()
    assert all(pod.node for pod in living.world.serving.values())
    living.do(lambda world: world.serving.clear())
    living.wait(120)
    living.settle()
    assert groups_of(living) == {*range(12)}


def test_groups_share_with_a_training_job(living: Living) -> None:
    enter(living, make_groups("llm", 1), make_job("ours", max_trainers=16))
    assert (pods(living, GROUPS), pods(living, OURS)) == (8, 8)
