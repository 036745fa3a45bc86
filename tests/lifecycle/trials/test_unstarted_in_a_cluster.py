"""Pods that never start, or crash, keep no capacity from others and are not made again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from edl.model.actions import CreatePod, EmitEvent, PatchStatus
from edl.model.jobs import FixedPods
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.status import JobPhase
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.simulated_controller import Living

BAD, GOOD, LATER = (JobKey("default", name) for name in ("bad", "good", "later"))
NOT_PULLED = "image x cannot be pulled; check the image name and tag, imagePullSecrets and the registry"
MASTER = (FixedPods(Role.MASTER, make_shape(0.05, 0.1), 1),)
Fate = Callable[[Pod], dict[str, Any] | None]


@pytest.fixture
def living() -> Iterator[Living]:
    """Four nodes of eight cores."""
    with closing(Living(make_nodes(4, cpu=8), runs=True)) as made:
        yield made


def enter(living: Living, name: str, low: int, high: int, **fields: Any) -> None:
    job = replace(make_job(name, min_trainers=low, max_trainers=high, fixed=MASTER), **fields)
    living.do(lambda world: world.add(job))


def spend(living: Living, seconds: int) -> None:
    for _ in range(seconds // 3):
        living.step(1.0)


def created(living: Living, key: JobKey) -> int:
    return sum(isinstance(write, CreatePod) and write.job == key for write in living.world.writes)


def told(living: Living, key: JobKey) -> tuple[str, str, str]:
    status = living.status_of(key)
    condition = status.condition("Degraded")
    assert condition is not None
    return status.reason, condition.reason, condition.message


def never(**changed: Any) -> Fate:
    """The trainers of the bad job never start; nothing happens to others."""
    return lambda pod: changed if pod.job == BAD and pod.role is Role.TRAINER else None


def shapes(living: Living) -> dict[str, int]:
    return {key.name: living.trainers(key) for key in sorted(living.world.jobs)}


def test_a_job_whose_image_cannot_be_pulled_gives_its_surplus_back_and_does_not_grow(living: Living) -> None:
    living.world.fate = never(container_message=NOT_PULLED)
    enter(living, "bad", 12, 24)
    spend(living, 15)
    assert living.trainers(BAD) == 12
    reason, degraded, message = told(living, BAD)
    assert (reason, degraded) == ("PodCannotStart", "PodCannotStart")
    assert message.startswith("bad-trainer-0, bad-trainer-1, bad-trainer-2 and 9 more pods cannot start: image x")
    enter(living, "good", 4, 30)
    spend(living, 45)
    assert shapes(living) == {"bad": 12, "good": 19}
    assert created(living, BAD) <= 25
    living.world.fate = never()
    living.world.fate = lambda _: None
    spend(living, 30)
    assert living.trainers(BAD) > 12, "one has run, so it grows again"
    assert told(living, BAD)[1] == "AsExpected"


def test_pods_that_a_kubelet_never_starts_are_named_after_two_minutes_and_give_way(living: Living) -> None:
    living.world.fate = never()
    enter(living, "bad", 12, 24)
    spend(living, 60)
    assert living.trainers(BAD) == 24, "a large image takes a while"
    enter(living, "later", 16, 16, fault_tolerant=False)
    spend(living, 120)
    assert shapes(living) == {"bad": 12, "later": 16}
    assert living.status_of(LATER).phase is JobPhase.RUNNING
    reason, degraded, message = told(living, BAD)
    assert (reason, degraded) == ("PodsNotStarted", "PodsNotStarted")
    assert "and 9 more pods have not started for 2 minutes" in message
    assert "kubectl describe pod bad-trainer-0" in message


@pytest.mark.parametrize("role", [Role.MASTER, Role.PSERVER])
def test_a_master_or_a_pserver_that_is_never_started_is_named(living: Living, role: Role) -> None:
    living.world.fate = lambda pod: {} if pod.role is role else None
    enter(living, "bad", 2, 4, fixed=(FixedPods(role, make_shape(0.5), 1),))
    spend(living, 180)
    assert told(living, BAD)[1] == "PodsNotStarted"
    assert f"bad-{role.value}-0 has not started for" in told(living, BAD)[2]


@pytest.mark.parametrize("crash_s", [3.0, 30.0])
def test_a_crash_loop_is_tried_with_one_trainer_after_growing_pauses(living: Living, crash_s: float) -> None:
    living.world.crash_s = lambda pod: crash_s if pod.job == BAD and pod.role is Role.TRAINER else inf
    enter(living, "bad", 12, 24, backoff_limit=1000)
    spend(living, 120)
    assert created(living, BAD) <= 24 + 1 + 5
    reason, degraded, message = told(living, BAD)
    assert (reason, degraded) == ("PodFailed", "PodFailed")
    assert len(message) < 700
    enter(living, "good", 12, 30)
    spend(living, 60)
    assert living.trainers(GOOD) >= 19, "only the minimum of the other one is kept free"
    spend(living, 3600)
    assert created(living, BAD) <= 24 + 1 + 20
    living.world.crash_s = lambda _: inf
    spend(living, 600)
    assert living.trainers(BAD) >= 12
    assert living.status_of(BAD).phase is JobPhase.RUNNING


def test_a_gang_that_crashes_restarts_after_growing_pauses(living: Living) -> None:
    living.world.crash_s = lambda pod: 3.0 if pod.role is Role.TRAINER and pod.index == 1 else inf
    enter(living, "bad", 8, 8, fault_tolerant=False, backoff_limit=1000)
    spend(living, 120)
    assert created(living, BAD) <= 9 * 5


def test_one_trainer_that_crashes_in_a_healthy_job_is_replaced_and_slows_nobody(living: Living) -> None:
    enter(living, "bad", 4, 24)
    spend(living, 90)
    assert living.trainers(BAD) == 24
    living.world.crash_s = lambda pod: 3.0 if pod.index == 23 else inf
    spend(living, 12)
    assert living.trainers(BAD) >= 23
    spend(living, 60)
    living.world.crash_s = lambda _: inf
    spend(living, 360)
    assert living.trainers(BAD) == 24


def test_many_failures_at_once_are_three_names_and_a_number_in_every_line(living: Living) -> None:
    living.world.crash_s = lambda pod: 3.0 if pod.job == BAD else inf
    enter(living, "bad", 12, 24, backoff_limit=1000)
    spend(living, 60)
    texts = [w.message for w in living.world.writes if isinstance(w, EmitEvent)]
    for write in living.world.writes:
        if isinstance(write, PatchStatus):
            texts += [write.status.explanation, *(c.message for c in write.status.conditions)]
    assert max(map(len, texts)) < 700
    assert any("more" in text for text in texts)
