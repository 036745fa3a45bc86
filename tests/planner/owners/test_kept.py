"""Workloads that must not be stopped: their minimum is no capacity for anybody else."""

from __future__ import annotations

from dataclasses import replace

from edl.explain.decision import decide
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, WorkloadKind
from edl.model.plan import ScalePlan
from edl.model.queues import Queue
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot

NODES = make_nodes(1, cpu=8)


def kept(name: str, count: int, *, low: int, high: int = 6) -> Job:
    """A RayCluster of so many workers on the node, whose job runs."""
    job = make_job(name, trainers=count, min_trainers=low, max_trainers=high, on=("n000",) * count)
    key = JobKey.of(WorkloadKind.RAY_CLUSTER, "default", name)
    pods = tuple(replace(pod, job=key) for pod in job.pods)
    return replace(job, key=key, pods=pods, owner_count=count, keeps_minimum=True, fault_tolerant=False)


def plan_of(*jobs: Job, serving: int = 0, queues: tuple[Queue, ...] = ()) -> ScalePlan:
    waiting = tuple(make_serving(f"web-{i}", cpu=1) for i in range(serving))
    snapshot = replace(make_snapshot(NODES, tuple(sorted(jobs, key=lambda job: job.key)), waiting), queues=queues)
    plan = decide(snapshot, policy_named(""), Limits())
    assert not check(snapshot, plan)
    return plan


def targets(plan: ScalePlan) -> dict[str, int]:
    return {decision.job.object_name: decision.target for decision in plan.decisions}


def test_serving_gets_what_others_have_instead_of_its_minimum() -> None:
    other = make_job("other", trainers=3, min_trainers=1, max_trainers=3, on=("n000",) * 3)
    plan = plan_of(kept("ray", 5, low=4), other, serving=7)
    assert targets(plan) == {"other": 0, "ray": 0}, "the decision still says that there is no capacity for it"
    assert plan.serving.placed == 4, "8 less its minimum"
    assert plan.serving.short == 3


def test_what_it_gives_beyond_its_minimum_others_get_if_serving_cannot_use_it() -> None:
    waiting = make_job("other", min_trainers=1, max_trainers=4)
    snapshot = make_snapshot(NODES, (waiting, kept("ray", 6, low=4)), (make_serving("web", cpu=7),))
    plan = decide(snapshot, policy_named(""), Limits())
    assert not check(snapshot, plan)
    assert (targets(plan), plan.serving.placed) == ({"other": 4, "ray": 0}, 0)


def test_one_that_fits_above_its_minimum_is_shrunk_like_any_other() -> None:
    plan = plan_of(kept("ray", 6, low=2), serving=3)
    assert (targets(plan), plan.serving.placed) == ({"ray": 5}, 3)


def test_one_that_may_be_stopped_is() -> None:
    plan = plan_of(replace(kept("ray", 5, low=4), keeps_minimum=False), serving=7)
    assert (targets(plan), plan.serving.placed) == ({"ray": 0}, 7)


def test_one_without_a_pod_on_a_node_waits_like_any_other() -> None:
    waiting = kept("ray", 0, low=4)
    running = make_job("other", trainers=6, min_trainers=6, max_trainers=6, on=("n000",) * 6)
    assert targets(plan_of(waiting, running)) == {"other": 6, "ray": 0}
