"""What the planner of the controller remembers from one call to the next changes no answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.controller.policy_planner import PLAN_WAITS_S, PolicyPlanner
from edl.errors import PlanError
from edl.explain.decision import decide
from edl.explain.early_evictions import early_decisions
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.policies.registry import policy_named
from edl.planner.problem import Problem
from edl.planner.problem_reader import read_problem
from edl.planner.reading import pods_of_jobs
from edl.planner.starts import startable
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import apply_plan, fresh_worlds, running_worlds, with_pods

WORLD = make_snapshot(make_nodes(2), (make_job("a", max_trainers=8), make_job("b", max_trainers=8)))


@given(st.one_of(fresh_worlds(), running_worlds()), st.booleans())
@examples(60)
def test_the_same_pods_may_start_as_if_the_cluster_were_read_again(world: ClusterSnapshot, gone: bool) -> None:
    planner = PolicyPlanner(policy_named("maxmin"))
    for seen in (world, apply_plan(world, planner.decide(world, Limits()), gone=gone, bound=False)):
        plan = planner.decide(seen, Limits())
        assert planner.startable(seen, plan) == startable(seen, plan)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[ClusterSnapshot]:
    """The snapshots that were read to find out what may start."""
    found: list[ClusterSnapshot] = []

    def read(snapshot: ClusterSnapshot, limits: Limits) -> Problem:
        found.append(snapshot)
        return read_problem(snapshot, limits)

    monkeypatch.setattr("edl.planner.starts.read_problem", read)
    return found


def test_what_the_decision_has_read_is_not_read_again(reads: list[ClusterSnapshot]) -> None:
    planner = PolicyPlanner(policy_named("maxmin"))
    plan = planner.decide(WORLD, Limits())
    assert len(planner.startable(replace(WORLD, observed_at_s=WORLD.observed_at_s + 1), plan)) == 16
    assert not reads


def test_a_cluster_that_changed_meanwhile_is_read_again(reads: list[ClusterSnapshot]) -> None:
    planner = PolicyPlanner(policy_named("maxmin"))
    plan = planner.decide(WORLD, Limits())
    now = with_pods(WORLD, make_serving("s", cpu=3, node="n000"))
    assert len(planner.startable(now, plan)) == 13
    assert reads == [now]


@contextmanager
def searching(planner: PolicyPlanner, monkeypatch: pytest.MonkeyPatch, ends: threading.Event) -> Iterator[None]:
    """A search ahead of the plan runs in another thread until the event is set."""
    began = threading.Event()

    def search(*_: object) -> tuple[()]:
        began.set()
        ends.wait()
        return ()

    monkeypatch.setattr("edl.controller.policy_planner.early_decisions", search)
    thread = threading.Thread(target=planner.early_evictions, args=(WORLD, Limits()))
    thread.start()
    began.wait()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_a_plan_waits_for_a_search_ahead_of_it_and_never_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = PolicyPlanner(policy_named("maxmin"))
    before = planner.decide(WORLD, Limits())
    began_s = time.perf_counter()
    with searching(planner, monkeypatch, threading.Event()):
        plan = planner.decide(WORLD, Limits())
        assert time.perf_counter() - began_s >= PLAN_WAITS_S
    assert plan.decisions == before.decisions


def test_a_plan_goes_on_once_the_search_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    planner, ends = PolicyPlanner(policy_named("maxmin")), threading.Event()
    monkeypatch.setattr("edl.controller.policy_planner.PLAN_WAITS_S", 1e9)
    with searching(planner, monkeypatch, ends):
        threading.Timer(0.05, ends.set).start()
        assert planner.decide(WORLD, Limits()).decisions


@given(running_worlds())
@examples(30)
def test_a_plan_whose_sentences_come_later_is_the_same(world: ClusterSnapshot) -> None:
    planner, at_once = PolicyPlanner(policy_named("maxmin")), explain_at_once(world)
    plan = planner.choose(world, Limits())
    assert not any(decision.message for decision in plan.decisions)
    said = planner.explain(plan)
    assert said.decisions == at_once.decisions
    with pytest.raises(PlanError, match="once"):
        planner.explain(said)


def explain_at_once(world: ClusterSnapshot) -> ScalePlan:
    return decide(world, policy_named("maxmin"), Limits())


@given(st.lists(running_worlds(), min_size=2, max_size=3))
@examples(40)
def test_what_earlier_searches_have_read_changes_no_search(worlds: list[ClusterSnapshot]) -> None:
    planner = PolicyPlanner(policy_named("maxmin"))
    for number, world in enumerate([*worlds, worlds[0]]):
        seen = with_pods(world, make_serving(f"wide-{number}", cpu=2))
        assert planner.early_evictions(seen, Limits()) == early_decisions(seen, policy_named("maxmin"), Limits())


def test_a_search_reads_the_pods_of_jobs_that_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 15,000 nodes it takes a second to read all pods, and a serving pod waits for the search."""
    read: list[str] = []

    def noted(job: Job, *rest: Any, **more: Any) -> Any:
        read.append(job.key.name)
        return right(job, *rest, **more)

    right = pods_of_jobs.read_rows
    monkeypatch.setattr(pods_of_jobs, "read_rows", noted)
    jobs = tuple(make_job(name, trainers=4, max_trainers=8, on=("n000", "n001"), cpu=1) for name in "abc")
    world = make_snapshot(make_nodes(2), jobs, (make_serving("s", cpu=3),))
    planner = PolicyPlanner(policy_named("maxmin"))
    planner.early_evictions(world, Limits())
    assert read == ["a", "b", "c"]
    changed = replace(jobs[1], pods=jobs[1].pods[:-1])
    planner.early_evictions(replace(world, jobs=(jobs[0], changed, jobs[2])), Limits())
    assert read[3:] == ["b"]
