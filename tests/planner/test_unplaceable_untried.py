"""Waiting pods that no scheduler tries keep no room for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from edl.model.limits import Limits, ServingLimits
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.planner.unplaceable import LONGEST_PAUSE_S, WaitRecord, mark_untried, watch
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.simulated_controller import Living

A = JobKey("default", "a")
LIMITS = Limits(serving=ServingLimits(untried_s=120.0))


def waiting(name: str, *, age_s: float, scheduler: str = "", **fields: Any) -> Pod:
    pod = replace(make_serving(name, cpu=1), created_s=1000.0 - age_s, scheduler=scheduler)
    return replace(pod, **fields)


def marked(*pods: Pod, limits: Limits = LIMITS) -> set[str]:
    found = mark_untried(make_snapshot(make_nodes(1), pods=pods), limits)
    return {pod.name for pod in found.pods if pod.unplaceable}


def test_a_pod_that_nobody_tries_counts_for_a_bounded_time() -> None:
    assert marked(waiting("new", age_s=119), waiting("old", age_s=121)) == {"old"}
    assert marked(waiting("tried", age_s=1000, tried=True)) == set()


def test_a_long_queue_of_a_scheduler_that_works_is_waited_for() -> None:
    first = waiting("first", age_s=900, node="n000", answered_s=950.0)
    assert marked(first, waiting("next", age_s=890)) == set()
    assert marked(first, waiting("other", age_s=890, scheduler="gone")) == {"other"}


def test_the_option_names_the_schedulers_whose_pods_count() -> None:
    limits = Limits(serving=ServingLimits(schedulers=("default-scheduler",)))
    pods = (waiting("ours", age_s=1), waiting("theirs", age_s=1, scheduler="mine", tried=True))
    assert marked(*pods, limits=limits) == {"theirs"}


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(5, cpu=4), LIMITS)) as made:
        yield made


def test_pods_of_a_dead_scheduler_keep_trainers_out_for_two_minutes_and_not_for_an_hour(living: Living) -> None:
    async def put() -> None:
        for i in range(5):
            pod = make_serving(f"web-{i}", cpu=3, memory_gib=1)
            living.world.serving[pod.name] = replace(pod, created_s=1000.0, scheduler="mistyped")

    living.run(put())
    living.world.holds_serving = True
    living.do(lambda w: w.add(make_job("a", min_trainers=1, max_trainers=20)))
    living.step(2.0)
    assert len(living.world.job(A).live_trainers) <= 5
    for _ in range(20):
        living.step(10.0)
    assert len(living.world.job(A).live_trainers) == 20
    assert sum("scheduler mistyped has not tried it" in line for line in living.recorder.put_off) == 5


def test_the_pause_for_a_pod_that_never_uses_its_room_grows_to_hours() -> None:
    snapshot = make_snapshot(make_nodes(1), pods=(waiting("web", age_s=10, tried=True),))
    records: dict[str, WaitRecord] = {}
    pauses: dict[float, float] = {}
    now_s = 0.0
    while now_s < 24 * 3600:
        records = watch(records, snapshot, now_s)
        record = records["serving-web"]
        if record.pause_s:
            pauses[record.until_s] = record.pause_s
        now_s = max(now_s + 15.0, record.until_s)
    assert max(pauses.values()) == LONGEST_PAUSE_S == 14_400
    assert len(pauses) <= 15, "trainers die for it so often in a day at most, and not 169 times"
