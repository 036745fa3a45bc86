"""The guard of CPU requests: no change takes more than the rules allow, whoever decided it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.lent_cpu import running_requests
from edl.lifecycle.lent_cpu.guard import Judged, judge_requests
from edl.lifecycle.lent_cpu.running_requests import changed_requests
from edl.model.actions import ResizePod
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.lending import Lending, RunningRequest
from edl.model.limits import LendingLimits, Limits
from edl.model.pods import Pod
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot

LENDS = Limits(lending=LendingLimits(surplus_cpu_request=0.1, running=True))


def with_request(pod: Pod, requested: int, granted: int = 0, refusal: str = "") -> Pod:
    """A trainer that declares one core."""
    running = RunningRequest(1000, requested, granted or requested, refusal)
    return replace(pod, running_request=running, lent_cpu_milli=1000 - running.charged_milli)


def world(*requested: int, lending: Lending = Lending.SURPLUS, serving: tuple[Pod, ...] = ()) -> ClusterSnapshot:
    """A node of four cores with the trainers of a job, whose minimum is one, that request so many millicores."""
    job = make_job("ctr", trainers=len(requested), min_trainers=1, on=("n",))
    pods = tuple(with_request(pod, milli) for pod, milli in zip(job.pods, requested, strict=True))
    job = replace(job, lending=lending, pods=pods)
    return replace(make_snapshot((make_node("n", cpu=4),), (job,), serving), resizes_pods=True)


def judged(snapshot: ClusterSnapshot, *cpu_milli: int | None, limits: Limits = LENDS) -> Judged:
    """What becomes of these requests, one for each trainer; None changes nothing."""
    (job,) = snapshot.jobs
    changes = tuple(
        ResizePod(job.key, job.uid, pod.name, pod.uid, milli, 1000)
        for pod, milli in zip(job.pods, cpu_milli, strict=True)
        if milli is not None
    )
    return judge_requests(snapshot, limits, {job.key: changes}, (), ())


def allowed(found: Judged) -> list[int]:
    return [change.cpu_milli for some in found.allowed.values() for change in some]


@pytest.mark.parametrize(
    ("snapshot", "limits"),
    [
        (world(1000, 1000, 1000), LENDS),
        (world(1000, 100, 100), LENDS),
        (world(1000, 100, 100, lending=Lending.NEVER), LENDS),
        (world(1000, 100, 100), Limits(lending=LendingLimits(running=True))),
        (world(100, 100, lending=Lending.ALL, serving=(make_serving("web", cpu=3, node="n"),)), LENDS),
    ],
    ids=["lower", "as it should be", "never", "off", "serving"],
)
def test_what_edl_decides_is_allowed(snapshot: ClusterSnapshot, limits: Limits) -> None:
    changes = changed_requests(snapshot, limits, (), ())
    assert judge_requests(snapshot, limits, changes, (), ()) == Judged(changes)


def test_no_trainer_lends_more_than_the_floor_allows() -> None:
    found = judged(world(1000, 1000, 1000), None, 99, 100)
    assert allowed(found) == [100]
    assert found.problems == (
        "trainer ctr-trainer-1: a CPU request of 99m is refused: at least 100m of 1000m must stay",
    )
    tiny = judged(
        world(1000, 1000), None, 9, limits=replace(LENDS, lending=replace(LENDS.lending, surplus_cpu_request=0.001))
    )
    assert "at least 10m" in tiny.problems[0]


def test_a_trainer_that_may_not_lend_keeps_its_request() -> None:
    assert allowed(judged(world(1000, 1000), 100, 100)) == [100]
    assert "it may not lend" in judged(world(1000, 1000), 100, None).problems[0]
    assert allowed(judged(world(1000, 1000, lending=Lending.NEVER), None, 100)) == []


def test_no_request_is_raised_into_room_that_serving_took() -> None:
    web = make_serving("web", cpu=3, node="n")
    assert allowed(judged(world(100, 100, serving=(web,)), None, 1000)) == []
    assert allowed(judged(world(100, 100, serving=(replace(web, node="", nominated="n"),)), None, 1000)) == []
    found = judged(world(100, 100, serving=(make_serving("web", cpu=1),)), None, 1000)
    assert "serving pods wait" in found.problems[0]


def test_free_room_is_given_back_once() -> None:
    web = make_serving("web", cpu=2.8, node="n")
    found = judged(world(100, 100, serving=(web,), lending=Lending.NEVER), 1000, 1000)
    assert allowed(found) == [1000]
    assert "100m are free on its node" in found.problems[0]


def test_a_request_that_nobody_gives_back_is_reported() -> None:
    found = judged(world(1000, 100, lending=Lending.NEVER), None, None)
    assert found.problems == ("trainer ctr-trainer-1: it may lend no more, and is not given back 900m",)
    full = world(1000, 100, lending=Lending.NEVER, serving=(make_serving("web", cpu=2.9, node="n"),))
    assert judged(full, None, None).problems == ()


def test_a_change_that_is_under_way_is_not_missing() -> None:
    (job,) = world(1000, 100, lending=Lending.NEVER).jobs
    for pod in (with_request(job.pods[1], 1000, granted=100), with_request(job.pods[1], 100, 100, "Deferred")):
        snapshot = world(1000, 100, lending=Lending.NEVER)
        snapshot = replace(snapshot, jobs=(replace(job, pods=(job.pods[0], pod)),))
        assert judge_requests(snapshot, LENDS, {}, (), ()).problems == ()
    held = world(1000, 100, lending=Lending.NEVER)
    assert judge_requests(held, LENDS, {}, (), {job.pods[1].uid}).problems == ()
    assert judge_requests(held, LENDS, {}, {"n"}, ()).problems == ()


@pytest.mark.parametrize("refusal", ["Deferred", "Infeasible"])
def test_a_request_goes_back_to_what_the_kubelet_granted(refusal: str) -> None:
    (job,) = world(1000, 100).jobs
    up = with_request(job.pods[1], requested=1000, granted=100, refusal=refusal)
    snapshot = replace(world(1000, 100), jobs=(replace(job, pods=(job.pods[0], up)),))
    changes = changed_requests(snapshot, LENDS, (), ())
    assert judge_requests(snapshot, LENDS, changes, (), ()) == Judged(changes)


def test_another_pod_of_the_same_name_is_not_resized() -> None:
    snapshot = world(1000, 1000)
    (job,) = snapshot.jobs
    stranger = ResizePod(job.key, job.uid, "ctr-trainer-1", "another", 100, 1000)
    assert judge_requests(snapshot, LENDS, {job.key: (stranger,)}, (), ()).allowed == {}


def _all_is_free(snapshot: ClusterSnapshot) -> Counter[str]:
    return Counter(dict.fromkeys((node.name for node in snapshot.nodes), 10**9))


def _without_floor(declared_milli: int, fraction: float) -> int:
    return int(declared_milli * fraction / 2)


def _nothing_back(*_: Any) -> tuple[tuple[Job, ResizePod], ...]:
    return ()


FULL = world(100, 100, lending=Lending.NEVER, serving=(make_serving("web", cpu=2.8, node="n"),))


@pytest.mark.parametrize(
    ("name", "wrong", "snapshot", "problem"),
    [
        ("requested_milli", _without_floor, world(1000, 1000), "at least 100m"),
        ("_free_milli", _all_is_free, FULL, "are free on its node"),
        ("_that_fit", _nothing_back, world(1000, 100, lending=Lending.NEVER), "is not given back 900m"),
    ],
    ids=["below the floor", "into capacity that serving took", "never given back"],
)
def test_the_guard_finds_what_the_decision_got_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any], snapshot: ClusterSnapshot, problem: str
) -> None:
    monkeypatch.setattr(running_requests, name, wrong)
    changes = changed_requests(snapshot, LENDS, (), ())
    assert problem in " ".join(judge_requests(snapshot, LENDS, changes, (), ()).problems)
