"""A job whose pods fail says so, also while their successors run."""

from __future__ import annotations

from edl.lifecycle.pod_events import STEADY_AFTER_S
from edl.model.status import JobPhase, Reason
from tests.worlds.job_by_target import KEY, Story, running


def shown(here: Story) -> tuple[str, str, str]:
    """The reason in the status, and the reason and the message of condition Degraded."""
    status = here.job.status
    assert status is not None
    degraded = status.condition("Degraded")
    assert degraded is not None
    return status.reason, degraded.reason, degraded.message


def fail(here: Story, name: str, message: str) -> None:
    """Let a trainer fail while all pods have just started."""
    for pod in here.job.pods:
        here.world.change(KEY, pod.name, started_s=here.now_s)
    here.world.change(KEY, name, container_message=message)
    here.world.finish(KEY, name, 1)


def test_a_job_whose_pods_fail_says_so_until_each_of_its_pods_has_run_for_a_minute() -> None:
    here = running(target=6, backoff_limit=3)
    for number, so_far in enumerate(("1 pod failure", "2 pod failures", "3 pod failures")):
        fail(here, f"a-trainer-{number}", "no data")
        here.settle(6, reason=Reason.AT_MAX)
        said = f"a-trainer-{number} exited with code 1 (no data); {so_far} so far, spec.backoffLimit is 3"
        assert shown(here) == ("PodFailed", "PodFailed", said)
        assert here.phase() is JobPhase.RUNNING
    assert here.event_reasons().count("PodFailed") == 3, "one event each"
    here.now_s = max(pod.started_s or 0.0 for pod in here.job.pods) + STEADY_AFTER_S - 1.0
    here.round(6, hold=True)
    assert shown(here)[:2] == ("PodFailed", "PodFailed"), "also without a new plan"
    here.now_s += 1.0
    here.round(6, hold=True)
    assert shown(here)[:2] == ("AtMax", "AsExpected")


def test_what_limits_the_count_of_a_job_is_named_before_the_failures_of_its_pods() -> None:
    here = running()
    fail(here, "a-trainer-1", "")
    here.settle(4, reason=Reason.INSUFFICIENT_CAPACITY)
    assert shown(here)[:2] == ("InsufficientCapacity", "PodFailed")


def test_a_job_without_a_pod_left_has_not_recovered() -> None:
    here = running(target=6)
    fail(here, "a-trainer-1", "")
    here.settle(6, reason=Reason.AT_MAX)
    for name in here.names:
        here.world.drop(KEY, name)
    here.now_s += 1000.0
    here.round(6, starts=0, reason=Reason.AT_MAX)
    assert shown(here)[:2] == ("PodFailed", "PodFailed")


def test_a_job_that_waits_after_a_failure_says_only_why_it_waits() -> None:
    here = running()
    fail(here, "a-trainer-1", "")
    here.round(4)
    assert shown(here)[1] == "PodFailed"
    here.settle(0, admitted=False, reason=Reason.MIN_UNSATISFIED)
    assert shown(here)[:2] == ("MinUnsatisfied", "AsExpected")
