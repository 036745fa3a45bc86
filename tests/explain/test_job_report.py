"""What is said of one job on demand: that prices are confirmed by another solution, and what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from edl.controller.planning import plan_snapshot, report_snapshot
from edl.explain.decision import explained_study
from edl.explain.job_report import JobReport, OneMore, report_on_job
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, WorkloadKind
from edl.model.status import Reason
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import decision_of, plan_for, running_worlds, targets, with_pods

DEADLINE_S = 10.0


def report(world: ClusterSnapshot, name: str, policy: str = "maxmin") -> JobReport:
    return report_on_job(explained_study(world, policy_named(policy), Limits()), JobKey("default", name), DEADLINE_S)


def pair(**fields: Any) -> tuple[Job, Job]:
    return make_job("a", max_trainers=6), make_job("b", max_trainers=6, **fields)


def test_a_price_is_confirmed_by_what_all_jobs_together_would_lose() -> None:
    cheap, dear = make_job("a", max_trainers=11), make_job("b", max_trainers=6)
    found = report(make_snapshot(make_nodes(1, cpu=10), (cheap, dear)), "a")
    assert found.one_more is not None
    assert found.one_more.verdict is OneMore.COSTS
    gains = {
        d.job.name: 1 / (d.max_trainers - d.min_trainers)
        for d in plan_for(make_snapshot((), (cheap, dear))).decisions
    }
    assert found.one_more.cost == pytest.approx(gains["b"] - 1 / 9, abs=1e-5)


def test_two_jobs_alike_lose_nothing_together_and_yet_one_would_fall_below_its_share() -> None:
    found = report(make_snapshot(make_nodes(1), pair()), "a")
    assert found.one_more is not None
    assert found.one_more.verdict is OneMore.BELOW_SHARES


def test_what_does_not_fit_beside_minimums_is_called_impossible() -> None:
    world = make_snapshot(
        make_nodes(1), (make_job("a", max_trainers=3, cpu=2), make_job("b", min_trainers=5, max_trainers=6))
    )
    found = report(world, "a")
    assert found.decision.target == 1
    assert found.one_more is not None
    assert found.one_more.verdict is OneMore.IMPOSSIBLE


@pytest.mark.parametrize("name", ["pinned", "full", "waits"])
def test_nothing_is_confirmed_where_no_price_is_asked(name: str) -> None:
    jobs = (make_job("pinned", pinned=1), make_job("full", max_trainers=1), make_job("waits", min_trainers=90))
    assert report(make_snapshot(make_nodes(1), jobs), name).one_more is None


def test_under_utility_the_same_is_asked_in_utility() -> None:
    fast = replace(make_job("a", max_trainers=8), throughput=((1, 100.0), (8, 800.0)))
    slow = replace(make_job("b", max_trainers=8), throughput=((1, 100.0), (8, 200.0)))
    found = report(make_snapshot(make_nodes(1), (fast, slow)), "b", "utility")
    assert found.objective == "utility"
    assert found.one_more is not None
    assert found.one_more.verdict in {OneMore.COSTS, OneMore.BELOW_SHARES}
    assert "of its speed and add" in found.decision.account


def test_where_trainers_run_start_and_end_is_listed_by_node() -> None:
    nodes = (make_node("n0", 8, labels={"agentpool": "x"}), make_node("n1", 4))
    world = make_snapshot(nodes, (make_job("a", trainers=8, max_trainers=12, on=("n0",)),))
    (first, second) = report(world, "a").by_node
    assert (first.node, first.pool, first.stay, first.come, first.go) == ("n0", "pool x", 8, 0, 0)
    assert (second.node, second.pool, second.stay, second.come, second.go) == ("n1", "", 0, 4, 0)
    shrinking = report(with_pods(world, make_serving("web", cpu=8)), "a").by_node
    assert [(one.node, one.go) for one in shrinking] == [("n0", 8), ("n1", 0)]


def test_what_it_says_would_help_does_help() -> None:
    world = make_snapshot(make_nodes(1), pair())
    found = report(world, "a")
    assert found.remedies == (
        "free 1 core more on node n000, or add a node that accepts its trainers",
        "take 1 trainer from default/b: lower its max-instance, or end that job",
    )
    before = targets(plan_for(world))["a"]
    assert targets(plan_for(make_snapshot(make_nodes(1, cpu=9), pair())))["a"] == before + 1
    lowered = replace(pair()[1], max_trainers=3)
    assert targets(plan_for(make_snapshot(make_nodes(1), (pair()[0], lowered))))["a"] == before + 1


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (make_job("a", max_trainers=1), "raise spec.trainer.max-instance"),
        (make_job("a", pinned=1), "set spec.trainer.instances to another number"),
        (replace(make_job("a"), suspended=True), "set spec.suspend to false"),
        (replace(make_job("a"), problem="min-instance 4 exceeds max-instance 2"), "correct the spec"),
        (make_job("a", cpu=90), "lower the requests of its pods"),
        (make_job("a", min_trainers=5, age_s=-10), "end another job or lower its min-instance"),
    ],
)
def test_each_state_has_its_remedy(job: Job, says: str) -> None:
    other = make_job("r", trainers=4, min_trainers=4, max_trainers=4, on=("n000",))
    assert report(make_snapshot(make_nodes(1), (job, other)), "a").remedies[0].startswith(says)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (make_job("a", max_trainers=1), "raise annotation paddlepaddle.org/max-instance"),
        (
            make_job("a", cpu=90),
            "lower the requests of its pods or annotation paddlepaddle.org/min-instance, relax node selectors,"
            " or add a larger node",
        ),
    ],
)
def test_another_kind_reads_of_the_annotations_that_it_has(job: Job, says: str) -> None:
    key = JobKey.of(WorkloadKind.RAY_CLUSTER, "default", "a")
    assert report_snapshot(make_snapshot(make_nodes(1), (replace(job, key=key),)), key, "", Limits()).remedies == (
        says,
    )


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (WorkloadKind.TRAINING_JOB, "set spec.suspend to false"),
        (WorkloadKind.BATCH_JOB, "set spec.suspend to false"),
        (WorkloadKind.PYTORCH_JOB, "set spec.runPolicy.suspend to false"),
        (WorkloadKind.VOLCANO_JOB, "resume it with a Command of Volcano (`vcctl job resume`)"),
    ],
)
def test_a_suspended_job_is_resumed_as_its_kind_is(kind: WorkloadKind, says: str) -> None:
    job = replace(make_job("a"), suspended=True)
    key = JobKey.of(kind, "default", "a")
    snapshot = make_snapshot(make_nodes(1), (replace(job, key=key),))
    assert report_snapshot(snapshot, key, "", Limits()).remedies == (says,)
    (decision,) = plan_snapshot(snapshot, "", Limits()).decisions
    assert decision.message == f"suspended; {says} to start the job"


def test_a_job_behind_the_head_reads_which_job_it_waits_for() -> None:
    runs = make_job("r", trainers=6, min_trainers=6, on=("n000",), age_s=9000)
    jobs = (runs, make_job("head", min_trainers=5, age_s=250), make_job("small", min_trainers=4))
    assert "wait until default/head" in report(make_snapshot(make_nodes(1), jobs), "small").remedies[0]


def test_a_finished_job_needs_nothing() -> None:
    assert report(make_snapshot((), (replace(make_job("a"), finished=True),)), "a").remedies == ()


@examples(60)
@given(running_worlds())
def test_every_job_of_every_world_can_be_accounted_for(world: ClusterSnapshot) -> None:
    made = explained_study(world, policy_named("maxmin"), Limits())
    for job in world.jobs:
        found = report_on_job(made, job.key, DEADLINE_S)
        assert found.decision == decision_of(made.plan, job.key.name)
        assert sum(s.stay + s.come for s in found.by_node) == (found.decision.target if found.by_node else 0)
        if found.decision.reason is Reason.INSUFFICIENT_CAPACITY and found.one_more is not None:
            assert found.one_more.cost >= 0
            assert found.full, found.decision.account
