"""Which writes are sent again although they succeeded, and when."""

from __future__ import annotations

import pytest

from edl.model.actions import Action, CreatePod, DeletePod, Outcome, Result
from tests.controller.core.core_stage import A, CoreStage, at_rest, of_type


def test_pods_that_finalizers_hold_are_deleted_by_force_once() -> None:
    stage = at_rest(trainers=4)
    for index in range(3):
        stage.world.change(A, f"a-trainer-{index}", terminating=True)
    stage.lost = frozenset(pod.uid for pod in stage.world.jobs[A].pods if pod.terminating)

    def holds(action: Action) -> Outcome | None:
        if not isinstance(action, DeletePod):
            return None
        assert action.force
        stage.world.change(A, action.pod, intent=action.intent, held=True)
        return Outcome(action, Result.DONE)

    stage.answer = holds
    deleted = []
    for _ in range(3000):
        stage.see()
        for _ in range(9):  # those that are deleted again and again would never end
            for write in stage.take(1):
                deleted += [action.pod for action in of_type(DeletePod, [write])]
                stage.end(write)
        stage.wait(0.1)
    assert sorted(deleted) == ["a-trainer-0", "a-trainer-1", "a-trainer-2"]


def test_what_a_job_needs_after_an_edit_is_not_held_back_because_the_same_was_sent_before_other_writes() -> None:
    stage = CoreStage()
    stage.add("a", max_trainers=40)
    stage.send()
    for number in range(1, 12):
        stage.alter(A, generation=1 + number)
        created = False
        for _ in range(12):
            stage.plan({"a": number})
            created |= bool(of_type(CreatePod, stage.send()))
            stage.wait(0.1)
        assert created, f"edit {number}"


@pytest.mark.parametrize("period", [7, 9, 15, 30])
def test_a_status_that_comes_again_and_again_is_not_held_back_for_long(period: int) -> None:
    """Tenths of a second between two changes of one pod, while another one is not ready."""
    stage = at_rest(trainers=4)
    stage.world.change(A, "a-trainer-3", ready=False)
    for _ in range(3):
        stage.wait(2.0)
        stage.send()
    differs = longest = 0
    for tenth in range(1, 2400):
        if tenth < 1200 and tenth % period == 0:
            stage.world.change(A, "a-trainer-0", ready=bool(tenth // period % 2 == 0))
        stage.send()
        job = stage.world.jobs[A]
        assert job.status is not None
        differs = differs + 1 if job.status.trainer.ready != sum(pod.ready for pod in job.live_trainers) else 0
        longest = max(longest, differs)
        stage.wait(0.1)
    assert longest <= 30
