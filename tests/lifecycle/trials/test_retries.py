"""Pods that fail or that a node rejects are replaced after pauses, those of each name for themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.trials.retries import Retries
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import Condition, JobStatus
from tests.worlds.builders import make_job

SLOT = (Role.TRAINER, 1)
REJECTION = "OutOfcpu: not enough cpu"


class Trials:
    """A job whose trainer 1 comes to an end again and again."""

    def __init__(self) -> None:
        self.retries, self.job, self.now_s = Retries(), make_job("a", trainers=3, on=("n0", "n1", "n2")), 1000.0
        self.born = 0

    def note(self, **fields: Any) -> None:
        """The pod of that slot becomes such a pod; the controller looks at the job."""
        pods = tuple(replace(p, **fields) if p.index == 1 else p for p in self.job.pods)
        self.job = replace(self.job, pods=pods)
        self.retries.note(self.job, self.now_s, self.now_s)

    def fail(self, *, after_s: float = 1.0, **fields: Any) -> None:
        self.born += 1
        phase = PodPhase.PENDING if "rejection" in fields else PodPhase.RUNNING
        self.note(uid=f"new-{self.born}", phase=phase, started_s=self.now_s, rejection="")
        self.now_s += after_s
        self.note(phase=PodPhase.FAILED, **fields)

    def pause(self) -> float:
        """How long the slot is paused; the time passes."""
        began_s = self.now_s
        while SLOT in self.retries.paused(self.job.uid, self.now_s):
            self.now_s += 1.0
        return self.now_s - began_s


def test_each_failure_doubles_the_pause_of_its_name_up_to_six_minutes() -> None:
    here = Trials()
    found = []
    for _ in range(8):
        here.fail()
        here.retries.note(here.job, here.now_s + 1.0, here.now_s + 1.0)
        assert here.retries.paused(here.job.uid, here.now_s) == {SLOT}
        found.append(here.pause())
    assert found == [10, 20, 40, 80, 160, 320, 360, 360]


def test_a_pod_that_ran_for_long_begins_anew_and_one_that_ran_a_little_does_not() -> None:
    here = Trials()
    for after_s, pause_s in ((1.0, 10), (100.0, 20), (599.0, 40), (601.0, 10)):
        here.fail(after_s=after_s)
        assert here.pause() == pause_s


def test_what_others_did_to_a_pod_pauses_nothing() -> None:
    here = Trials()
    for disruption, intent in (("EvictionByEvictionAPI", ""), ("", "ServingNeedsRoom"), ("", "Restart")):
        here.fail(disruption=disruption, intent=intent)
        assert here.pause() == 0


def test_a_counted_failure_pauses_once() -> None:
    here = Trials()
    here.fail(intent="PodFailed/1")
    assert here.pause() == 10


def test_a_new_spec_is_tried_at_once_and_another_job_is_not_concerned() -> None:
    here = Trials()
    here.fail()
    assert here.retries.paused("another", here.now_s) == frozenset()
    here.job = replace(here.job, generation=2)
    here.retries.note(here.job, here.now_s, here.now_s)
    assert here.pause() == 0
    here.fail()
    here.retries.forget(here.job.uid)
    assert here.pause() == 0


def test_a_node_that_rejects_is_avoided_by_the_job_for_longer_each_time() -> None:
    here = Trials()
    times = []
    for _ in range(4):
        here.fail(rejection=REJECTION, started_s=None)
        (node,) = here.retries.rejecting(here.job, here.now_s)
        assert (node.name, node.jobs) == ("n1", (here.job.key,))
        assert node.is_closed_to(here.job.key)
        times.append(node.until_s - here.now_s)
        here.now_s = node.until_s
        assert here.retries.rejecting(here.job, here.now_s) == ()
    assert times == [60, 120, 240, 480]


def rejected_once() -> tuple[Trials, float]:
    """A job with a node that rejected a pod of it, when the pause of that node has ended; when that was."""
    here = Trials()
    here.fail(rejection=REJECTION, started_s=None)
    rejected_s = here.now_s
    here.now_s += 60.0
    return here, rejected_s


def test_after_the_pause_a_node_is_tried_until_a_pod_that_came_later_has_begun_there() -> None:
    here, rejected_s = rejected_once()
    assert here.retries.tried(here.job, here.now_s - 1.0) == ()
    (node,) = here.retries.tried(here.job, here.now_s)
    assert (node.name, node.probe, node.until_s) == ("n1", here.job.key, here.now_s)
    assert not node.is_closed_to(here.job.key)
    here.note(uid="early", phase=PodPhase.RUNNING, started_s=here.now_s, created_s=rejected_s + 1.0, rejection="")
    assert here.retries.tried(here.job, here.now_s), "it was sent together with the one that was rejected"
    here.note(uid="trial", phase=PodPhase.PENDING, created_s=here.now_s, started_s=None)
    assert here.retries.tried(here.job, here.now_s)
    here.note(phase=PodPhase.RUNNING, started_s=here.now_s)
    assert here.retries.tried(here.job, here.now_s) == ()


def test_a_trial_that_is_rejected_begins_the_next_pause_and_one_that_ran_does_not_shorten_it() -> None:
    here, _ = rejected_once()
    here.fail(rejection=REJECTION, started_s=None)
    assert here.retries.tried(here.job, here.now_s) == ()
    (node,) = here.retries.rejecting(here.job, here.now_s)
    assert node.until_s - here.now_s == 120
    here.now_s = node.until_s
    here.note(uid="trial", phase=PodPhase.RUNNING, created_s=here.now_s, started_s=here.now_s, rejection="")
    assert here.retries.tried(here.job, here.now_s) == ()
    here.fail(rejection=REJECTION, started_s=None)
    (node,) = here.retries.rejecting(here.job, here.now_s)
    assert node.until_s - here.now_s == 240
    assert here.retries.tried(here.job, node.until_s) != ()


@pytest.mark.parametrize("kind", [{"gang": True}, {"fault_tolerant": False}, {"sizes": (1, 4)}])
def test_what_starts_together_is_tried_together(kind: dict[str, Any]) -> None:
    here, _ = rejected_once()
    assert here.retries.tried(here.job, here.now_s) != ()
    assert here.retries.tried(replace(here.job, **kind), here.now_s) == ()


def test_pods_that_a_node_rejects_at_one_time_are_one_time() -> None:
    job = make_job("a", trainers=9, on=("n0", "n1"))
    pods = tuple(replace(p, phase=PodPhase.FAILED, rejection=REJECTION) for p in job.pods)
    retries = Retries()
    retries.note(replace(job, pods=pods[:6]), 1000.0, 1000.0)
    retries.note(replace(job, pods=pods), 1001.0, 1001.0)
    assert [node.until_s for node in retries.rejecting(job, 1001.0)] == [1060.0, 1060.0]


def test_a_rejection_is_told_with_the_words_of_the_kubelet_until_a_pod_has_begun() -> None:
    here = Trials()
    for number in (1, 2):
        here.fail(rejection=REJECTION, started_s=None)
        reason, message = here.retries.problem(here.job) or ("", "")
        assert reason == "PodRejected"
        assert f"node n1 rejected a-trainer-1 ({REJECTION})" in message
        assert ("2 times" in message) is (number == 2)
        here.note(uid="pending", phase=PodPhase.PENDING, rejection="")
        assert here.retries.problem(here.job) is not None
    here.note(uid="runs", phase=PodPhase.RUNNING, started_s=here.now_s)
    assert here.retries.problem(here.job) is None


def test_many_rejections_are_three_names_and_a_number() -> None:
    job: Job = make_job("a", trainers=9, on=("n0", "n1"))
    pods = tuple(replace(p, phase=PodPhase.FAILED, rejection=REJECTION) for p in job.pods)
    here, job = Retries(), replace(job, pods=pods)
    here.note(job, 1000.0, 1000.0)
    _, message = here.problem(job) or ("", "")
    assert message.count("a-trainer-") == 3
    assert "6 more" in message
    assert len(message) < 500


def starting(trainers: int = 3, **fields: Any) -> Job:
    """A job whose trainers began a second ago, one second after they were created."""
    job = make_job("a", trainers=trainers, on=("n0", "n1", "n2"))
    pods = tuple(replace(p, created_s=998.0, started_s=999.0) for p in job.pods)
    return replace(job, pods=pods, **fields)


def with_ends(job: Job, *indexes: int, run: str = "") -> Job:
    """These trainers have failed."""
    pods = (
        replace(p, uid=f"{p.uid}{run}", phase=PodPhase.FAILED if p.index in indexes else p.phase) for p in job.pods
    )
    return replace(job, pods=tuple(pods))


def test_while_no_trainer_does_well_one_is_tried_at_a_time() -> None:
    here, job = Retries(), starting()
    assert here.most_new(job, 1000.0, 1000.0) is None
    all_failed = with_ends(job, 0, 1, 2)
    here.note(all_failed, 1000.0, 1000.0)
    none_left = replace(job, pods=())
    assert [here.most_new(none_left, t, t) for t in (1000.0, 1009.0, 1010.0)] == [0, 0, 1]
    one = replace(job, pods=job.pods[:1])
    assert here.most_new(one, 1010.0, 1010.0) == 0, "it may do well"
    waiting = replace(one, pods=tuple(replace(p, phase=PodPhase.PENDING, started_s=None) for p in one.pods))
    assert here.most_new(waiting, 1010.0, 1010.0) == 0, "it may begin"
    assert here.most_new(waiting, 1118.0, 1118.0) == 1, "it does not begin"
    here.note(with_ends(one, 0, run="b"), 1012.0, 1012.0)
    assert [here.most_new(none_left, t, t) for t in (1031.0, 1032.0)] == [0, 1], "the pauses double"
    here.note(one, 1058.0, 1058.0)
    assert here.most_new(one, 1058.0, 1058.0) == 0
    here.note(one, 1059.0, 1059.0)
    assert here.most_new(one, 1059.0, 1059.0) is None, "one has run for a minute"


def test_the_other_trainers_of_a_job_that_does_well_do_not_wait() -> None:
    here, job = Retries(), starting()
    well = replace(job, pods=(replace(job.pods[0], started_s=900.0), *job.pods[1:]))
    here.note(with_ends(well, 1), 1000.0, 1000.0)
    assert here.most_new(well, 1000.0, 1000.0) is None
    assert here.paused(job.uid, 1000.0) == {(Role.TRAINER, 1)}


def test_a_gang_pauses_as_a_whole_for_longer_each_time_whoever_fails() -> None:
    here, job = Retries(), starting(fault_tolerant=False)
    now_s = 1000.0
    for number, pause_s in enumerate((10, 20, 40)):
        here.note(with_ends(job, number, (number + 1) % 3, run=str(number)), now_s, now_s)
        assert here.most_new(job, now_s + pause_s - 1, now_s + pause_s - 1) == 0
        assert here.most_new(job, now_s + pause_s, now_s + pause_s) is None
        now_s += pause_s


def test_a_controller_that_starts_anew_tries_a_failing_job_with_one_trainer() -> None:
    failing = JobStatus(conditions=(Condition("Degraded", "True", "PodFailed", "a-trainer-0 exited", 900.0),))
    here, job = Retries(), starting(status=failing)
    here.note(with_ends(job, 0, 1, 2), 1000.0, 1000.0)
    assert [here.most_new(replace(job, pods=()), t, t) for t in (1019.0, 1020.0)] == [0, 1]


def test_the_next_end_of_a_pause_is_known() -> None:
    here = Trials()
    assert here.retries.next_end_s(here.job.uid, here.now_s) == float("inf")
    here.fail(rejection=REJECTION)
    assert here.retries.next_end_s(here.job.uid, here.now_s) == here.now_s + 10
    assert here.retries.next_end_s(here.job.uid, here.now_s + 10) == here.now_s + 60
