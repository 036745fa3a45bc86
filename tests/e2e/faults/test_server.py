"""Each row of the table of faults in docs/controller.md, injected between a controller and a real API server.

One controller lives through all of them, beside one job that was there before: whatever happens, that job keeps every
pod, the process lives, and the job that arrives in the middle of the fault ends up with its pods, each created once.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

from tests.e2e.faults.faults import (
    Asked,
    Edit,
    Fault,
    hang,
    late,
    late_reply,
    lose_reply,
    refuse,
    reset,
    shuffled,
    silent,
    slow,
    twice,
    with_objects,
    without_additions,
)
from tests.e2e.faults.stage import GROWN, STEADY, Stage, attempts_within, failures_in_a_row, seconds_since

JOBS = "/trainingjobs$"
PODS = "/pods$"
STATUS = "/trainingjobs/[^/]+/status$"
FIRST_PAUSE_S = 0.5
AT_ONCE_S = 0.1
WRITES_PAUSE_S = 1.0


def assert_nobody_hurries(stage: Stage, since_s: float) -> None:
    """No request was repeated more often than a doubling pause allows, which each success starts anew."""
    for what, failed in failures_in_a_row([a for a in stage.proxy.since(since_s) if not a.is_of_lease]):
        # The client library repeats a GET at once if its connection is reset; that is one attempt.
        at_s = [b.at_s for a, b in itertools.pairwise([failed[0], *failed]) if a is b or b.at_s - a.at_s > AT_ONCE_S]
        most = 1 + attempts_within(at_s[-1] - at_s[0], FIRST_PAUSE_S)  # a watch that breaks is opened again at once
        assert len(at_s) <= most, (what, [round(one - since_s, 2) for one in at_s])


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("reset", reset),
        ("error", refuse(500, "InternalError")),
        ("busy", refuse(429, "TooManyRequests")),
    ],
)
def test_while_the_server_fails_nothing_is_decided_and_then_all_is_made_up_for(
    stage: Stage, name: str, harm: Fault
) -> None:
    began_s = time.monotonic()
    with stage.proxy.fault(harm) as hit:
        stage.proxy.cut_watches()
        stage.submit(name)
        stage.here.kube.wait_until(lambda: sum("/trainingjobs" in a.path for a in hit) >= 3, 20, "it keeps asking")
        assert not stage.proxy.writes(began_s), "without sight of the cluster nothing is written"
        assert not stage.pods_of(name)
        assert_nobody_hurries(stage, began_s)
    stage.wait_grown(name)
    stage.assert_only_grown(name)


def test_a_server_that_is_down_is_waited_for_and_what_it_forgot_is_listed_again(stage: Stage) -> None:
    plane, kube = stage.here.plane, stage.here.kube
    stage.submit("before")
    stage.wait_grown("before")
    began_s = time.monotonic()
    with stage.proxy.fault(reset, match=lambda a: a.is_watch or a.is_list):
        stage.proxy.cut_watches()
        kube.delete("pods", "before-trainer-1")
        kube.wait_until(lambda: len(stage.pods_of("before")) == GROWN, 20, "the trainer is gone")
        stage.submit("after")
        plane.stop_api_server()
        try:
            time.sleep(3.0)
            assert stage.here.controller.answers("/healthz")
        finally:
            plane.start_api_server()
        plane.compact()
        assert not stage.proxy.writes(began_s)
    stage.wait_grown("after")
    stage.assert_only_grown("after")
    stage.wait_grown("before")
    asked = stage.proxy.since(began_s)
    gone = [a for a in asked if a.is_watch and a.status == 410]
    assert gone, "a version that the server had forgotten was asked for"
    kube.wait_until(lambda: all(is_listed_after(a, stage.proxy.since(began_s)) for a in gone), 20, "and listed again")
    assert_nobody_hurries(stage, began_s)


def is_listed_after(gone: Asked, asked: list[Asked]) -> bool:
    """Whether what was forgotten has been listed since; the answer to a watch may be a moment older than that."""
    return any(a.is_list and a.path == gone.path and a.at_s > gone.at_s for a in asked)


def test_a_slow_server_makes_the_work_slow_and_nothing_else(stage: Stage) -> None:
    with stage.proxy.fault(slow(1.0)):
        stage.submit("slow")
        stage.wait_grown("slow")
    stage.assert_only_grown("slow")


def test_a_request_that_is_never_answered_is_given_up_and_made_again(stage: Stage) -> None:
    began_s = time.monotonic()
    with stage.proxy.fault(hang, "POST", PODS, times=1) as hit:
        stage.submit("hung")
        stage.wait_grown("hung")
    assert len(hit) == 1
    stage.assert_only_grown("hung")
    assert len(stage.proxy.writes(began_s, "POST", PODS)) <= 1 + 1 + GROWN


def test_busy_says_when_to_come_back_and_nobody_comes_sooner(stage: Stage) -> None:
    wait_s = 3
    with stage.proxy.fault(refuse(429, "TooManyRequests", retry_after_s=wait_s), "POST", PODS, times=1) as hit:
        stage.submit("later")
        stage.wait_grown("later")
    (refused,) = hit
    next_s = min(a.at_s for a in stage.proxy.writes(refused.at_s, "POST", PODS) if a is not refused)
    assert next_s - refused.at_s >= wait_s
    with stage.proxy.fault(refuse(429, "TooManyRequests", retry_after_s=wait_s), path=JOBS, times=1) as hit:
        stage.proxy.cut_watches("/trainingjobs")
        stage.here.kube.wait_until(lambda: hit, 10, "the watch is asked for again")
        stage.here.kube.wait_until(
            lambda: [a for a in stage.proxy.since(hit[0].at_s) if a.path == hit[0].path][1:], 10, "and once more"
        )
    again = [a for a in stage.proxy.since(hit[0].at_s) if a.path == hit[0].path][1]
    assert again.at_s - hit[0].at_s >= wait_s
    stage.assert_only_grown("later")


def test_writes_that_fail_are_repeated_ever_more_rarely(stage: Stage) -> None:
    began_s = time.monotonic()
    with stage.proxy.fault(refuse(500, "InternalError"), "POST", PODS) as hit:
        stage.submit("failing")
        stage.here.kube.wait_until(lambda: len(hit) >= 3, 30, "it tries again")
        tried_s = [a.at_s for a in hit]
        assert len(hit) <= attempts_within(seconds_since(began_s), WRITES_PAUSE_S)
        gaps = [b - a for a, b in itertools.pairwise(tried_s)]
        assert gaps[-1] >= 1.0, gaps
    stage.wait_grown("failing")
    stage.assert_only_grown("failing")


@pytest.mark.parametrize(("name", "harm", "times"), [("cut", lose_reply, 3), ("overdue", late_reply(6.0), 1)])
def test_a_write_whose_reply_is_lost_is_recognised_as_ours(stage: Stage, name: str, harm: Fault, times: int) -> None:
    began_s = time.monotonic()
    with stage.proxy.fault(harm, "POST", PODS, times=times) as hit:
        stage.submit(name)
        stage.wait_grown(name)
    assert len(hit) == times
    stage.assert_only_grown(name)
    assert len(stage.proxy.writes(began_s, "POST", PODS)) <= times + 1 + GROWN


def test_a_conflict_is_read_again_and_decided_again(stage: Stage) -> None:
    stop = threading.Event()

    def meddle() -> None:
        """Somebody else keeps changing the job."""
        count = 0
        while not stop.wait(0.01):
            count += 1
            stage.here.kube.annotate("tj", "contested", count=str(count))

    began_s = time.monotonic()
    stage.submit("contested")
    meddling = threading.Thread(target=meddle)
    with stage.proxy.fault(refuse(409, "Conflict"), "PATCH", STATUS, times=3) as hit:
        meddling.start()
        try:
            stage.here.kube.wait_until(lambda: len(hit) == 3, 40, "it has been refused three times")
        finally:
            stop.set()
            meddling.join()
    assert len(hit) == 3
    stage.wait_grown("contested")
    stage.assert_only_grown("contested")
    patches = stage.proxy.writes(began_s, "PATCH", "/contested/status")
    assert len(patches) <= 4 + 2 * seconds_since(began_s), "two a second at most"


def test_a_watch_that_is_too_old_lists_again(stage: Stage) -> None:
    began_s = time.monotonic()
    with stage.proxy.fault(refuse(410, "Expired"), match=lambda a: a.is_watch, path=JOBS, times=1) as hit:
        stage.proxy.cut_watches("/trainingjobs")
        stage.here.kube.wait_until(lambda: hit, 10, "it resumes where it was")
        stage.submit("expired")
        stage.wait_grown("expired")
    assert [a for a in stage.proxy.since(began_s) if a.is_list and a.path == hit[0].path]
    stage.assert_only_grown("expired")


def test_a_half_open_watch_is_found_out_by_our_own_writes(stage: Stage) -> None:
    began_s = time.monotonic()
    with stage.proxy.edited(silent, "/pods$"):
        stage.submit("unheard")
        stage.wait_grown("unheard")
        lists = [a for a in stage.proxy.since(began_s) if a.is_list and a.path.endswith("/pods")]
        assert lists, "the silence was not believed"
        assert_nobody_hurries(stage, began_s)
    stage.assert_only_grown("unheard")
    assert len(stage.proxy.writes(began_s, "POST", PODS)) == 1 + GROWN


@pytest.mark.parametrize(
    ("name", "edit"),
    [("twice", twice), ("shuffled", shuffled(0.7)), ("lost", without_additions), ("stale", late(1.0))],
)
def test_events_that_come_twice_in_disorder_late_or_never_lead_to_the_same_end(
    stage: Stage, name: str, edit: Edit
) -> None:
    began_s = time.monotonic()
    with stage.proxy.edited(edit, PODS if name == "lost" else f"{PODS}|{JOBS}"):
        stage.submit(name)
        stage.wait_grown(name)
        stage.assert_only_grown(name)
        assert len(stage.proxy.writes(began_s, "POST", PODS)) == 1 + GROWN, "nothing was asked for twice"
        stage.here.kube.delete("pods", f"{name}-trainer-1")
        stage.here.kube.wait_until(lambda: stage.here.running(name) == GROWN - 1, 10, "one is missing")
        stage.wait_grown(name)
    assert len(stage.proxy.writes(began_s, "POST", PODS)) == 1 + GROWN + 1
    assert stage.log.most[name] <= GROWN


def test_objects_that_nobody_can_read_are_left_out_and_named(stage: Stage) -> None:
    poisoned = {"small-3", "strange"}

    def poison(body: dict[str, Any]) -> None:
        if body.get("metadata", {}).get("name") in poisoned:
            body["spec"] = "poison"

    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "10m"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "strange"}, "spec": {"containers": [container]}}
    fault, edit = with_objects(poison)
    with stage.proxy.fault(fault, match=lambda a: a.is_list), stage.proxy.edited(edit):
        stage.here.kube.create(pod)
        stage.here.kube.annotate("nodes", "small-3", poisoned="true")
        stage.submit("beside-poison")
        stage.wait_grown("beside-poison")
        stage.assert_only_grown("beside-poison")
        stage.here.kube.wait_until(lambda: left_out(stage, poisoned) == poisoned, 15, "both are named in the log")
        stage.assert_well()
    stage.here.kube.delete("pods", "strange", grace_s=0)
    stage.here.kube.annotate("nodes", "small-3", poisoned=None)


def left_out(stage: Stage, names: set[str]) -> set[str]:
    """Those that the log names as left out; it tells them once, at the end of an interval."""
    lines = [line for line in stage.here.controller.log.read_text().splitlines() if "object left out" in line]
    return {name for line in lines for name in names if name in line}


def test_the_steady_job_has_lost_nothing_in_all_this(stage: Stage) -> None:
    assert stage.log.lowest[STEADY] == GROWN
    assert stage.log.most[STEADY] == GROWN
