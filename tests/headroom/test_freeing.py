"""The time that freeing takes, as snapshots show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.headroom.freeing import DEFAULT_START_S, DEFAULT_STOP_S, KEPT_SAMPLES, REACTION_S, FreeingTime
from edl.model.cluster import ClusterSnapshot
from edl.model.pods import PodPhase
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot


def at(
    second: float, *, leaving: bool = False, started_s: float | None = None, gone: bool = False
) -> ClusterSnapshot:
    job = make_job("a", trainers=2, on=("n000",))
    last = replace(job.pods[-1], terminating=leaving)
    job = replace(job, pods=job.pods[:-1] if gone else (*job.pods[:-1], last))
    pod = make_serving("web", cpu=1, node="n000")
    pod = replace(
        pod, started_s=started_s, phase=PodPhase.PENDING if started_s is None else PodPhase.RUNNING, created_s=0.0
    )
    return replace(make_snapshot(make_nodes(1), (job,), (pod,)), observed_at_s=second)


def test_until_something_was_seen_a_default_counts() -> None:
    time = FreeingTime()
    assert not time.is_measured
    assert time.seconds == REACTION_S + DEFAULT_STOP_S + DEFAULT_START_S


def test_it_is_measured_from_what_ends_and_what_starts() -> None:
    time = FreeingTime()
    shots = (at(10), at(12, leaving=True), at(30, leaving=True), at(42, gone=True), at(43, gone=True, started_s=15.0))
    for shot in shots:
        time.observe(shot, shot.pods)
    assert time.is_measured
    assert time.seconds == pytest.approx(REACTION_S + 30.0 + 5.0)
    assert time.ticks == 15


def test_its_memory_is_bounded() -> None:
    time = FreeingTime()
    for turn in range(300):
        for shot in (at(100.0 * turn, leaving=True), at(100.0 * turn + 8, gone=True)):
            time.observe(shot, shot.pods)
    assert len(time._stops) == KEPT_SAMPLES
    assert not time._leaving
    assert len(time._arriving) <= 1
