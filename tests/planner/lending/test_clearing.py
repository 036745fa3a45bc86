"""Trainers that lend CPU: serving uses the room at once, the planner adds no trainer there, and clears up later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import LendingLimits, Limits, ServingLimits
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.progress import Measured
from edl.model.resources import CPU
from edl.model.status import Reason, Resize
from edl.planner.lending.clearing import clear_lent_capacity, reserve_lent_capacity, slowed_since_s
from edl.planner.problem_reader import read_problem
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for, targets, with_status

CLEAR = Limits(lending=LendingLimits(clear_after_s=120.0))


def lending(job: Job, part: float = 0.1) -> Job:
    """The job, whose surplus trainers request only a part of their CPU."""
    pods = tuple(
        replace(pod, lent_cpu_milli=round(pod.shape.request[CPU] * (1 - part)))
        if (pod.index or 0) >= job.min_trainers
        else pod
        for pod in job.pods
    )
    return replace(job, pods=pods)


def one_node(*serving: Pod, cpu: float = 12, trainers: int = 2) -> ClusterSnapshot:
    """A node with two trainers of 5 cores, of which the second lends 4.5."""
    job = with_status(lending(make_job("ctr", trainers=trainers, max_trainers=4, cpu=5, on=("n000",))), admitted=True)
    return make_snapshot(make_nodes(1, cpu), (job,), serving)


def test_waiting_serving_uses_lent_room_and_no_trainer_is_deleted() -> None:
    plan = plan_for(one_node(make_serving("web-0"), make_serving("web-1")))
    assert decision_of(plan, "ctr").victims == ()
    assert (plan.serving.placed, plan.serving.short) == (2, 0)


def test_without_lending_the_same_serving_costs_a_trainer() -> None:
    snapshot = one_node(make_serving("web-0"), make_serving("web-1"))
    jobs = tuple(replace(j, pods=tuple(replace(p, lent_cpu_milli=0) for p in j.pods)) for j in snapshot.jobs)
    plan = plan_for(replace(snapshot, jobs=jobs))
    assert decision_of(plan, "ctr").victims == ("ctr-trainer-1",)


def test_lent_room_is_used_once() -> None:
    waiting = [make_serving(f"web-{i}") for i in range(3)]
    assert decision_of(plan_for(one_node(*waiting[:2], cpu=14)), "ctr").victims == ()  # 4 free and 4.5 lent
    plan = plan_for(one_node(*waiting, cpu=14))
    assert decision_of(plan, "ctr").victims == ("ctr-trainer-1",)
    assert plan.serving.placed == 3


def test_serving_beyond_lent_room_deletes_the_trainer_that_lends() -> None:
    waiting = [make_serving(f"web-{i}", cpu=3.5) for i in range(2)]  # 6.5 for 7 without the deletion
    plan = plan_for(one_node(*waiting))
    assert decision_of(plan, "ctr").victims == ("ctr-trainer-1",)
    assert plan.serving.placed == 2


def test_memory_is_not_lent() -> None:
    snapshot = one_node(make_serving("web-0", memory_gib=31))
    assert decision_of(plan_for(snapshot), "ctr").victims == ("ctr-trainer-1",)


def test_no_trainer_is_added_to_a_node_whose_declared_cpu_is_in_use() -> None:
    serving = [make_serving(f"web-{i}", node="n000") for i in range(2)]
    for cpu in (14, 17.9):  # requests leave room for a trainer on the second, but what is declared leaves 1.9 cores
        plan = plan_for(one_node(*serving, cpu=cpu))
        assert decision_of(plan, "ctr").nodes == ()
        assert targets(plan) == {"ctr": 2}


def test_a_job_starts_in_room_that_nobody_declared() -> None:
    """Requests leave 6.4 cores for the 5 of the new job; what is declared leaves 1.9."""
    serving = [make_serving(f"web-{i}", node="n000") for i in range(2)]
    snapshot = one_node(*serving, cpu=17.9)
    new = make_job("new", cpu=5, max_trainers=1)
    plan = plan_for(replace(snapshot, jobs=(*snapshot.jobs, new)))
    assert decision_of(plan, "new").nodes == (("n000", 1),)
    assert decision_of(plan, "ctr").victims == ("ctr-trainer-1",)


def test_trainers_that_lend_teach_no_smaller_slot() -> None:
    plan = plan_for(one_node(cpu=19.9))  # 9.9 free: one more trainer of 5 cores, not ten of half a core
    assert decision_of(plan, "ctr").nodes == (("n000", 1),)


def test_a_plan_over_lent_room_keeps_its_certificate() -> None:
    serving = [make_serving(f"web-{i}", node="n000") for i in range(2)]
    plan = plan_for(one_node(*serving))
    assert plan.certificate.bound >= plan.certificate.achieved > 0


def stays(age_s: float, *nodes: Node, resize: Resize | None = None) -> ClusterSnapshot:
    """Serving that came so long ago uses 2 lent cores of n000; more nodes may be free."""
    serving = replace(make_serving("web-0", cpu=4, node="n000"), created_s=1000 - age_s, started_s=1000.0 - age_s)
    snapshot = one_node(serving)
    (job,) = snapshot.jobs
    jobs = (with_status(job, admitted=True, resize=resize),)
    return replace(snapshot, nodes=(*snapshot.nodes, *nodes), jobs=jobs)


def cleared(plan: ScalePlan) -> tuple[str, ...]:
    """The trainers that the plan deletes so that others have what they declare."""
    decision = decision_of(plan, "ctr")
    assert not decision.victims or decision.shrink_reason == Reason.LENDING_CLEARED
    return decision.victims


def test_a_trainer_that_lends_for_long_is_deleted_and_starts_where_there_is_room() -> None:
    plan = plan_for(stays(121, make_node("n001", 8)), CLEAR)
    assert cleared(plan) == ("ctr-trainer-1",)
    assert decision_of(plan, "ctr").nodes == (("n001", 1),)
    assert targets(plan) == {"ctr": 2}


def test_without_room_elsewhere_the_count_falls() -> None:
    plan = plan_for(stays(121), CLEAR)
    assert cleared(plan) == ("ctr-trainer-1",)
    assert targets(plan) == {"ctr": 1}


def test_short_lending_is_left_alone() -> None:
    assert cleared(plan_for(stays(119), CLEAR)) == ()


def test_nothing_is_cleared_without_the_operators_time() -> None:
    assert cleared(plan_for(stays(10_000), Limits())) == ()


def test_no_job_falls_below_its_minimum_for_a_clearing() -> None:
    snapshot = stays(121)
    jobs = tuple(replace(job, min_trainers=2) for job in snapshot.jobs)
    assert cleared(plan_for(replace(snapshot, jobs=jobs), CLEAR)) == ()


def test_a_job_gives_trainers_at_most_once_in_its_cooldown() -> None:
    gave = Resize(950.0, 3, 2, Reason.LENDING_CLEARED, voluntary_s=950.0)
    assert cleared(plan_for(stays(121, resize=gave), CLEAR)) == ()
    assert cleared(plan_for(stays(121, resize=replace(gave, voluntary_s=939.0)), CLEAR)) == ("ctr-trainer-1",)


def test_a_job_whose_trainers_just_started_elsewhere_gives_no_more() -> None:
    snapshot = stays(121)
    pods = tuple(replace(pod, created_s=950.0) for pod in snapshot.jobs[0].pods)
    assert cleared(plan_for(replace(snapshot, jobs=(replace(snapshot.jobs[0], pods=pods),)), CLEAR)) == ()


def test_the_nodes_that_are_slowed_most_come_first() -> None:
    """Two nodes are due and the job may give one trainer: the one beside more serving."""
    job = lending(make_job("ctr", trainers=4, min_trainers=3, cpu=5, max_trainers=4, on=("n000", "n001")), 0.1)
    pods = tuple(replace(p, lent_cpu_milli=4500) if p.index in {2, 3} else p for p in job.pods)
    job = with_status(replace(job, pods=pods), admitted=True)
    old = [
        replace(make_serving(f"web-{i}", cpu=c, node=n), created_s=0.0)
        for i, c, n in ((0, 3, "n000"), (1, 5, "n001"))
    ]
    assert cleared(plan_for(make_snapshot(make_nodes(2, 12), (job,), tuple(old)), CLEAR)) == ("ctr-trainer-3",)


def priced(job: Job, price: float) -> Job:
    """The job with a measured price of lending."""
    assert job.status is not None
    return replace(job, status=replace(job.status, measured=Measured(lending_price=price)))


@pytest.mark.parametrize(("price", "cleared_node"), [(1.0, "n001"), (3.0, "n000")])
def test_where_lending_costs_most_is_cleared_first(price: float, cleared_node: str) -> None:
    """Both jobs are due; `dear` is beside less serving."""
    jobs = []
    for name, node in (("dear", "n000"), ("slow", "n001")):
        job = with_status(lending(make_job(name, trainers=2, cpu=5, max_trainers=4, on=(node,))), admitted=True)
        jobs.append(priced(job, price if name == "dear" else 1.0))
    old = [
        replace(make_serving(f"web-{i}", cpu=c, node=n), created_s=0.0)
        for i, c, n in ((0, 3, "n000"), (1, 5, "n001"))
    ]
    packing = TrialPacking(read_problem(make_snapshot(make_nodes(2, 12), tuple(jobs), tuple(old)), CLEAR), range(2))
    clear_lent_capacity(packing)
    first = packing.problem.live_trainers[packing.victims[0]]
    assert first.pod.node == cleared_node


@pytest.mark.parametrize(("prices", "kept_on"), [((1.0, 1.0), 0), ((1.0, 0.2), 1), ((0.2, 1.0), 0)])
def test_headroom_counts_on_the_cheapest_lenders_first(prices: tuple[float, float], kept_on: int) -> None:
    jobs = [
        priced(
            with_status(lending(make_job(n, trainers=2, cpu=5, max_trainers=2, on=(f"n00{i}",))), admitted=True), p
        )
        for i, (n, p) in enumerate(zip(("a", "b"), prices, strict=True))
    ]
    running = make_serving("web-0", cpu=4, node="n002")
    snapshot = make_snapshot((*make_nodes(2, 10), make_node("n002", 4)), tuple(jobs), (running,))
    packing = TrialPacking(read_problem(snapshot, Limits(serving=ServingLimits(headroom=1))), range(2))
    before = packing.lent.copy()
    assert reserve_lent_capacity(packing, packing.problem.headroom[0], 1) == 1
    assert np.flatnonzero((packing.lent < before).any(axis=1)).tolist() == [kept_on]


def test_headroom_that_trainers_lend_costs_no_trainer() -> None:
    running = make_serving("web-0", cpu=4, node="n001")
    job = with_status(lending(make_job("ctr", trainers=2, max_trainers=4, cpu=5, on=("n000",))), admitted=True)
    snapshot = make_snapshot((make_node("n000", 15), make_node("n001", 4)), (job,), (running,))
    assert targets(plan_for(snapshot, Limits(serving=ServingLimits(headroom=1)))) == {"ctr": 3}
    own = replace(job, pods=tuple(replace(p, lent_cpu_milli=0) for p in job.pods))
    assert targets(plan_for(replace(snapshot, jobs=(own,)), Limits(serving=ServingLimits(headroom=1)))) == {"ctr": 2}


def test_headroom_keeps_memory_although_cpu_is_lent() -> None:
    running = make_serving("web-0", cpu=4, memory_gib=30, node="n001")
    job = with_status(lending(make_job("ctr", trainers=2, max_trainers=4, cpu=5, on=("n000",))), admitted=True)
    snapshot = make_snapshot((make_node("n000", 15), make_node("n001", 4)), (job,), (running,))
    assert targets(plan_for(snapshot, Limits(serving=ServingLimits(headroom=1)))) == {"ctr": 2}


def test_the_time_begins_with_the_pod_that_passed_what_was_free() -> None:
    pods = [replace(make_serving(f"web-{i}", cpu=3), started_s=100.0 * i) for i in range(4)]
    assert slowed_since_s(12_000, 5_000, pods) == 200.0
    assert slowed_since_s(12_000, 0, pods) is None


def test_flapping_serving_begins_anew_each_time() -> None:
    stayed = replace(make_serving("web-0", cpu=2, node="n000"), created_s=0.0)
    came = replace(make_serving("web-1", cpu=2, node="n000"), created_s=990.0)
    assert cleared(plan_for(one_node(stayed, came), CLEAR)) == ()


@pytest.mark.parametrize("lends", [True, False])
def test_a_cluster_at_rest_has_one_plan_whether_or_not_trainers_lend(lends: bool) -> None:
    job = make_job("ctr", trainers=3, max_trainers=9, cpu=5, on=("n000", "n001"))
    snapshot = make_snapshot(make_nodes(3, 12), (with_status(lending(job) if lends else job, admitted=True),))
    assert targets(plan_for(snapshot, CLEAR)) == {"ctr": 6}


def test_the_account_says_what_is_lent_and_whom_serving_slows() -> None:
    serving = [make_serving(f"web-{i}", node="n000") for i in range(2)]
    slow = decision_of(plan_for(one_node(*serving)), "ctr")
    assert (slow.lent_cpu_milli, slow.slowed) == (4500, 1)
    assert "its trainers lend 4.5 cores, and serving slows 1 trainer" in slow.account
    calm = decision_of(plan_for(one_node()), "ctr")
    assert calm.account.endswith("its trainers lend 4.5 cores")
