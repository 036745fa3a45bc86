"""Which jobs have changed between two snapshots: those that are other Python objects."""

from __future__ import annotations

from dataclasses import replace

from edl.model.cluster import changed_jobs
from edl.model.names import JobKey
from tests.worlds.builders import make_job, make_snapshot


def test_jobs_that_came_changed_or_went_are_named_and_the_others_are_not() -> None:
    a, b, c, d = (make_job(name) for name in "abcd")
    before = make_snapshot((), (a, b, c))
    after = replace(before, jobs=(a, replace(b, generation=9), d))
    assert changed_jobs(before, after) == {JobKey("default", name) for name in "bcd"}


def test_a_job_that_was_created_again_has_changed() -> None:
    a = make_job("a")
    before = make_snapshot((), (a,))
    assert changed_jobs(before, replace(before, jobs=(replace(a, uid="again"),))) == {a.key}


def test_nothing_has_changed_between_a_snapshot_and_itself() -> None:
    before = make_snapshot((), (make_job("a"),))
    assert changed_jobs(before, replace(before, observed_at_s=9.0)) == frozenset()
    assert changed_jobs(before, replace(before, jobs=(*before.jobs,))) == frozenset()
