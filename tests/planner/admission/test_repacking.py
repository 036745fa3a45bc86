"""The first jobs that wait for room are looked at once more, by a longer search, where all who run are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.limits import Limits
from edl.planner.admission import repacking
from edl.planner.admission.repacking import with_repacking
from edl.planner.admission.trial import AdmissionTrial
from edl.planner.clock import Clock
from edl.planner.minimums.batches import Served
from edl.planner.problem_reader import read_problem
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_nodes, make_snapshot

NOTHING_SERVED = Served({}, {}, 0)
OLD, YOUNG, LARGE = 0, 1, 2


def trial(*, head_wait_s: float = 600.0, clock: Clock | None = None, running: int = 0) -> AdmissionTrial:
    """Two nodes of 8 cores, jobs `old` and `young` of 5 cores, and `wide` of 3 trainers of 8 cores."""
    jobs = (
        make_job("old", cpu=5, min_trainers=1, max_trainers=1, age_s=100.0, trainers=running, on=("n000",)),
        make_job("young", cpu=5, min_trainers=1, max_trainers=1, age_s=50.0),
        make_job("zz-wide", cpu=8, min_trainers=3, max_trainers=3, age_s=200.0),
    )
    limits = replace(Limits(), sharing=replace(Limits().sharing, head_wait_s=head_wait_s))
    return AdmissionTrial(
        read_problem(make_snapshot(make_nodes(2), jobs), limits, clock=clock or Clock()), NOTHING_SERVED, 9.0
    )


def nobody(tried: AdmissionTrial) -> TrialPacking:
    return TrialPacking(tried.problem, ())


def test_admits_jobs_that_fit_and_takes_them_out_of_the_queue() -> None:
    tried, head = trial(), {LARGE: LARGE, OLD: LARGE, YOUNG: LARGE}

    packing = with_repacking(tried, nobody(tried), head, {})

    assert packing is not None
    assert packing.members == (OLD, YOUNG)
    assert (packing.free >= 0).all()
    assert head == {LARGE: LARGE}


def test_those_behind_an_admitted_job_wait_behind_the_first_of_them() -> None:
    tried = trial()
    head = {OLD: OLD, YOUNG: OLD, LARGE: OLD}

    with_repacking(tried, nobody(tried), head, {YOUNG: "quota"})

    assert head == {YOUNG: YOUNG, LARGE: YOUNG}


def test_no_job_passes_a_head_that_has_waited_too_long() -> None:
    tried, head = trial(head_wait_s=150.0), {LARGE: LARGE, OLD: LARGE, YOUNG: LARGE}

    packing = with_repacking(tried, nobody(tried), head, {})

    assert packing is not None
    assert packing.members == ()


def test_jobs_that_wait_for_quota_are_left_alone() -> None:
    tried, head = trial(), {OLD: OLD, YOUNG: YOUNG}

    packing = with_repacking(tried, nobody(tried), head, {OLD: "quota"})

    assert packing is not None
    assert packing.members == (YOUNG,)


def test_a_large_cluster_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repacking, "MOST_NODES", 1)
    tried, head = trial(), {OLD: OLD}
    before = nobody(tried)

    assert with_repacking(tried, before, head, {}) is before


def test_serving_pods_do_not_wait_for_the_search() -> None:
    tried, head = trial(), {OLD: OLD}
    tried.served = replace(NOTHING_SERVED, due={0: 1})
    before = nobody(tried)

    assert with_repacking(tried, before, head, {}) is before


def test_few_searches_may_fail_and_equal_jobs_fail_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    monkeypatch.setattr(AdmissionTrial, "may_fit", lambda *_: True)
    monkeypatch.setattr(AdmissionTrial, "repacked", lambda _, __, j: searched.append(j))
    tried = trial()

    with_repacking(tried, nobody(tried), {OLD: OLD, YOUNG: YOUNG, LARGE: LARGE}, {})
    assert searched == [LARGE, OLD]

    searched.clear()
    monkeypatch.setattr(repacking, "MOST_FAILURES", 1)
    with_repacking(tried, nobody(tried), {OLD: OLD, YOUNG: YOUNG, LARGE: LARGE}, {})
    assert searched == [LARGE]


def test_what_a_program_rejects_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdmissionTrial, "repacked", lambda *_: pytest.fail("searched"))
    tried = trial()

    packing = with_repacking(tried, nobody(tried), {LARGE: LARGE}, {})

    assert packing is not None
    assert packing.members == ()


def test_at_the_deadline_those_who_run_are_kept() -> None:
    clock = Clock(10.0)
    tried = trial(clock=clock)
    with_first = with_repacking(tried, nobody(tried), {OLD: OLD}, {})
    assert with_first is not None
    clock.allow(-1.0)

    assert with_repacking(tried, with_first, {YOUNG: YOUNG}, {}) is with_first
    assert clock.cut == ["admission"]


def test_where_trainers_run_the_search_is_not_made() -> None:
    tried = trial(running=1)

    assert tried.repacked((OLD,), YOUNG) is None
