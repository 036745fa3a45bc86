"""Pods that a node rejects before any container of them runs: they are replaced, and they are no failures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edl.lifecycle.desired_state import JobContext
from edl.lifecycle.trials.unstarted import NOT_STARTED_AFTER_S
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import POD_REJECTED, JobPhase
from tests.worlds.job_by_spec import Life, fault_tolerant, gang


def reject(life: Life, name: str) -> None:
    life.world.change(
        life.key, name, phase=PodPhase.FAILED, ready=False, started_s=None, rejection="OutOfcpu: not enough"
    )


@pytest.mark.parametrize(
    ("make", "name"), [(gang, "a-trainer-1"), (gang, "a-pserver-1"), (fault_tolerant, "a-master-0")]
)
def test_a_rejected_pod_is_replaced_alone_and_does_not_count(make: Callable[..., Life], name: str) -> None:
    life = make(backoff_limit=0)
    others = {pod.name: pod.uid for pod in life.job.pods if pod.name != name}
    reject(life, name)
    life.settle(4)
    assert life.phase is JobPhase.RUNNING
    assert life.status.failures == 0
    assert {pod.name: pod.uid for pod in life.job.pods if pod.name != name} == others
    assert "Restarting" not in life.event_reasons


def test_it_is_created_again_once_its_pause_is_over() -> None:
    life = fault_tolerant(4, 4, backoff_limit=0)
    reject(life, "a-trainer-1")
    life.context = JobContext(paused=frozenset({(Role.TRAINER, 1)}))
    life.settle(4)
    assert "a-trainer-1" not in life.names, "the rejected pod is gone, and no other one is made in its place"
    assert len(life.job.live_trainers) == 3
    life.context = JobContext()
    life.settle(2)
    assert len(life.job.live_trainers) == 4


def test_a_gang_waits_for_the_pause_as_a_whole() -> None:
    life = gang(3, backoff_limit=3)
    life.world.finish(life.key, "a-trainer-1", 1)
    life.context = JobContext(paused=frozenset({(Role.TRAINER, 1)}))
    life.settle(6)
    assert life.names == set()
    life.context = JobContext()
    life.settle(3)
    assert life.phase is JobPhase.RUNNING


def test_the_last_trainer_is_replaced_until_a_node_takes_it() -> None:
    life = fault_tolerant(1, 2, wanted=2)
    life.world.finish(life.key, "a-trainer-0")
    life.evict("a-trainer-1")
    life.settle(1)
    (new,) = life.job.live_trainers
    reject(life, new.name)
    life.round()
    assert life.condition("Complete").reason == "TrainerLost"
    life.settle(2)
    assert life.phase == "Running"
    life.finish_all(Role.TRAINER)
    life.settle(3)
    assert life.phase == "Succeeded"


@pytest.mark.parametrize(
    ("stuck", "said"),
    [
        ({"container_message": "image train:2 cannot be pulled"}, "a-trainer-2 cannot start: image train:2"),
        ({}, "a-trainer-2 has not started for 2 minutes"),
    ],
)
@pytest.mark.parametrize("reason", [POD_REJECTED, "Forbidden"])
def test_pods_that_do_not_start_are_named_also_while_others_are_rejected_or_refused(
    reason: str, stuck: dict[str, str], said: str
) -> None:
    life = fault_tolerant(3, 3, wanted=3)
    reject(life, "a-trainer-1")
    life.world.change(
        life.key, "a-trainer-2", phase=PodPhase.PENDING, ready=False, started_s=None, created_s=life.now_s, **stuck
    )
    life.now_s += NOT_STARTED_AFTER_S
    life.context = JobContext(paused=frozenset({(Role.TRAINER, 1)}), degraded=(reason, "n1 wants none of them"))
    life.round()
    shown = life.condition("Degraded")
    assert (shown.status, shown.reason) == ("True", reason)
    assert shown.message.startswith("n1 wants none of them; ")
    assert said in shown.message
