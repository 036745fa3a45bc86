"""Trainers that hang are named in the status, and replaced after a stated time."""

from __future__ import annotations

from edl.lifecycle.data_progress import HungTrainer
from edl.lifecycle.hung_trainers import REPLACED_AFTER_S, TRAINER_HANGS
from edl.model.actions import DeletePod, EmitEvent
from tests.lifecycle.test_data_progress import hear, report, trained
from tests.worlds.job_by_spec import Life


def trainer(life: Life, number: int) -> str:
    return next(name for name in life.names if name.endswith(f"-trainer-{number}"))


def hangs(life: Life, name: str, seconds: float, *, is_silent: bool = True) -> None:
    hear(life, report(hung=(HungTrainer(life.uid(name), is_silent, seconds),)))


def test_a_trainer_that_hangs_is_named_and_kept_until_its_time_is_over() -> None:
    life = trained()
    name = trainer(life, 2)
    hangs(life, name, REPLACED_AFTER_S - 1)
    life.settle(3)
    degraded = life.condition("Degraded")
    node = life.world.pods(life.key)[name].node
    assert (degraded.status, degraded.reason) == ("True", TRAINER_HANGS)
    assert degraded.message.startswith(f"{name} on node {node} hangs: its process is stopped or its node")
    assert life.event_reasons.count(TRAINER_HANGS) == 1
    assert name in life.names


def test_a_trainer_that_hangs_for_too_long_is_replaced_and_the_others_are_not() -> None:
    life = trained()
    name, before = trainer(life, 1), life.uids
    hangs(life, name, REPLACED_AFTER_S, is_silent=False)
    uid = life.uid(name)
    life.round()
    assert [(a.pod, a.intent) for a in life.actions if isinstance(a, DeletePod)] == [(name, "Hung")]
    assert "its loop does not end a step" in life.condition("Degraded").message
    hear(life, report())
    life.settle(4)
    assert before - life.uids == {uid}
    assert len(life.job.live_trainers) == 4
    assert life.condition("Degraded").status == "False"
    assert life.status.failures == 0


def test_a_trainer_that_comes_back_is_not_replaced() -> None:
    life = trained()
    before = life.uids
    hangs(life, trainer(life, 1), REPLACED_AFTER_S - 1)
    life.settle(1)
    hear(life, report())
    life.settle(3)
    assert life.uids == before
    assert life.condition("Degraded").reason != TRAINER_HANGS


def test_a_pod_that_is_gone_does_not_hang() -> None:
    life = trained()
    hear(life, report(hung=(HungTrainer("another", is_silent=True, seconds=999.0),)))
    life.round()
    assert life.condition("Degraded").reason != TRAINER_HANGS
    assert not [a for a in life.actions if isinstance(a, DeletePod | EmitEvent)]
