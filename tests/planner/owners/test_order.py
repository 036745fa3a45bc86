"""Workloads whose own controller chooses the victims: the plan predicts them, or leaves the workload alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl.explain.decision import decide, explained_study
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import PodPhase
from edl.model.queues import Queue, Reclaim
from edl.model.resources import CPU
from edl.planner import decide as decisions
from edl.planner.clock import Clock
from edl.planner.consolidation import Moving, without
from edl.planner.guard import check
from edl.planner.owners.order import as_predicted, in_deletion_order
from edl.planner.policies.registry import policy_named
from edl.planner.queues.borrowing import borrowing_quotas
from tests.planner.admission.test_stopgap import real
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape, make_snapshot


def batch(
    name: str, on: tuple[str, ...], *, low: int = 1, high: int = 10, cpu: float = 1, memory_gib: float = 1
) -> Job:
    """A `batch/v1` Job with a pod on each of these nodes; the last one is the first that its controller deletes.

    Pods without a node come last.
    """
    job = make_job(name, trainers=len(on), min_trainers=low, max_trainers=high, on=on, cpu=cpu, memory_gib=memory_gib)
    key = JobKey.of(WorkloadKind.BATCH_JOB, "default", name)
    pods = tuple(
        replace(p, job=key, phase=p.phase if p.node else PodPhase.PENDING, ready=bool(p.node)) for p in job.pods
    )
    return replace(job, key=key, pods=pods, owner_count=len(on))


def plan_of(snapshot: ClusterSnapshot) -> ScalePlan:
    plan = decide(snapshot, policy_named(""), Limits())
    assert not check(snapshot, plan)
    return plan


def decision_of(plan: ScalePlan, job: Job) -> ScaleDecision:
    found = plan.decision(job.key)
    assert found is not None
    return found


def is_first_in_order(job: Job, decision: ScaleDecision) -> bool:
    first = in_deletion_order(job)[: len(decision.victims)]
    return sorted(decision.victims) == sorted(pod.name for pod in first)


def test_the_victims_are_those_that_the_owner_deletes() -> None:
    job = batch("train", ("n000", "n000", "n001", "n001", "n001"), high=5, cpu=2)
    nodes = make_nodes(2, cpu=6)
    plan = plan_of(make_snapshot(nodes, (job,), (make_serving("web", cpu=4),)))
    found = decision_of(plan, job)
    assert is_first_in_order(job, found)
    assert (found.target, found.shrink_reason) == (3, "ServingNeedsRoom")
    assert plan.serving.placed == 1


def test_more_pods_go_if_the_room_that_serving_needs_is_not_among_the_first() -> None:
    # The owner deletes its pods on n001 first, and only n000 is open to the serving pod's size.
    job = batch("train", ("n000", "n000", "n001", "n001"), low=1, high=4, cpu=2)
    nodes = (make_node("n000", cpu=7), make_node("n001", cpu=4))
    plan = plan_of(make_snapshot(nodes, (job,), (make_serving("web", cpu=5),)))
    found = decision_of(plan, job)
    assert (found.target, is_first_in_order(job, found)) == (1, True)
    assert plan.serving.placed == 1


def test_a_workload_that_cannot_free_the_room_and_stay_above_its_minimum_stops_as_any_job_does() -> None:
    job = batch("train", ("n000", "n000", "n001", "n001"), low=3, high=4, cpu=2)
    nodes = (make_node("n000", cpu=7), make_node("n001", cpu=4))
    plan = plan_of(make_snapshot(nodes, (job,), (make_serving("web", cpu=5),)))
    found = decision_of(plan, job)
    assert (found.admitted, len(found.victims), plan.serving.placed) == (False, 4, 1)


@pytest.mark.parametrize(
    ("after", "low", "cut"), [("to_predict", 1, True), ("stopped", 3, True), ("stopped", 3, False)]
)
def test_without_time_for_a_further_plan_the_last_one_counts(
    after: str, low: int, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first plan alone names other victims than the controller; the second one stops the workload."""
    now_s, function = [0.0], real(decisions, after)

    def late(*given: object) -> object:
        now_s[0] = 11.0 if cut else 0.0
        return function(*given)

    monkeypatch.setattr(decisions, after, late)
    job = batch("train", ("n000", "n000", "n001", "n001"), low=low, high=4, cpu=2)
    snapshot = make_snapshot(
        (make_node("n000", cpu=7), make_node("n001", cpu=4)), (job,), (make_serving("web", cpu=5),)
    )
    plan = explained_study(snapshot, policy_named(""), Limits(), clock=Clock(10.0, lambda: now_s[0])).plan
    assert not check(snapshot, plan)
    assert plan.serving.placed == 1
    assert ("owner order" in plan.cut) is cut
    assert decision_of(plan, job).admitted is (low == 1)


def test_a_plan_says_that_the_further_plan_in_it_was_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, predict, admit = [0.0], real(decisions, "to_predict"), real(decisions, "admit")

    def late(*given: Any) -> Any:
        now_s[0] = max(7.0, now_s[0])  # the first plan is made, and the second one has 3 s
        return predict(*given)

    def stalled(*given: Any) -> Any:
        now_s[0] += 2.5 * (now_s[0] > 0.0)
        return admit(*given)

    monkeypatch.setattr(decisions, "to_predict", late)
    monkeypatch.setattr(decisions, "admit", stalled)
    job = batch("train", ("n000", "n000", "n001", "n001"), high=4, cpu=2)
    nodes = (make_node("n000", cpu=7), make_node("n001", cpu=4))
    snapshot = make_snapshot(nodes, (job,), (make_serving("web", cpu=5),))
    plan = explained_study(snapshot, policy_named(""), Limits(), clock=Clock(10.0, lambda: now_s[0])).plan
    assert not check(snapshot, plan)
    assert "admission" in plan.cut


def test_a_workload_below_its_minimum_grows_where_it_is_and_is_not_moved_for_a_new_job() -> None:
    # Both fit if the pod on n000 moves to n001, and its controller moves no pod.
    small = batch("train", ("n000",), low=2, high=2, cpu=3)
    new = make_job("new", trainers=0, min_trainers=2, max_trainers=2, cpu=2, age_s=50)
    plan = plan_of(make_snapshot((make_node("n000", cpu=4), make_node("n001", cpu=6)), (small, new)))
    found = decision_of(plan, small)
    assert (found.current, found.target, found.victims, found.nodes) == (1, 2, (), (("n001", 1),))
    assert (found.min_trainers, found.max_trainers, decision_of(plan, new).admitted) == (2, 2, False)


def test_a_workload_whose_new_pods_find_no_node_goes_on_beside_a_job_that_waits() -> None:
    # The new job fits if the workload keeps one pod on n001, and its controller keeps the one on n000.
    ours = batch("train", ("n000", "n000", "n001", "", ""), low=1, high=5, cpu=2)
    new = make_job("new", trainers=0, min_trainers=2, max_trainers=2, cpu=3, age_s=50)
    plan = plan_of(make_snapshot((make_node("n000", cpu=4), make_node("n001", cpu=5)), (ours, new)))
    found = decision_of(plan, ours)
    assert (found.admitted, found.target, found.victims) == (True, 5, ())
    assert not decision_of(plan, new).admitted


@pytest.mark.parametrize("lost", ["", "gone"], ids=["finds no node", "loses its node"])
def test_a_pod_that_finds_or_keeps_no_node_does_not_stop_the_others(lost: str) -> None:
    job = batch("train", (lost, "full", "full", "shut", "shut"), high=5)
    job = replace(job, pods=(replace(job.pods[0], tried=not lost), *job.pods[1:]))
    nodes = (make_node("full", 2), make_node("gone", 2, ready=False), make_node("shut", 8, cordoned=True))
    found = decision_of(plan_of(make_snapshot(nodes, (job,))), job)
    assert found.admitted
    assert is_first_in_order(job, found)
    assert found.target >= 3


def test_queues_share_alike_in_all_plans_of_one_decision() -> None:
    """What green does not take back must not come free in a plan that assumes that blue has given it."""
    train = replace(batch("train", ("n000",) * 4 + ("n001",) * 4, low=2), queue="blue")
    new = replace(make_job("new", min_trainers=2), queue="green")
    queues = tuple(Queue(name, ((CPU, 4000),), reclaim=Reclaim.NEVER) for name in ("blue", "green"))
    seen = replace(make_snapshot(make_nodes(2, 4), (train, new)), queues=queues)
    victims = {train.key: tuple(pod.name for pod in in_deletion_order(train)[:4])}
    assert dict(borrowing_quotas(seen)[1].amounts) == {CPU: 0}
    assert borrowing_quotas(as_predicted(seen, victims)) == borrowing_quotas(seen)
    assert borrowing_quotas(without(seen, Moving({}, victims))) == borrowing_quotas(seen)


def test_a_workload_above_its_minimum_stays_where_it_is_in_the_last_plan_too() -> None:
    # Three Jobs have to be predicted one after the other, and one of them waits for a node with a pod.
    nodes = (make_node("n000", cpu=9), make_node("n001", cpu=8), make_node("n002", cpu=7), make_node("n003", cpu=8))
    lacks = batch("lacks", ("n003", "n003"), low=3, high=4, cpu=3)
    waits = batch("waits", ("n000", "n001", ""), low=2, high=3)
    stops = batch("stops", ("n002", "n002"), low=3, high=5, cpu=3)
    ours = make_job("ours", trainers=2, min_trainers=2, max_trainers=2, cpu=3, on=("n000", "n000"))
    plan = plan_of(make_snapshot(nodes, (lacks, waits, stops, ours), (make_serving("web", cpu=4),)))
    found = decision_of(plan, waits)
    assert (found.admitted, found.target, found.victims, found.nodes) == (True, 3, (), ())
    assert (decision_of(plan, ours).target, plan.serving.placed) == (2, 1)


def test_a_workload_at_its_minimum_has_a_speed_without_new_pods() -> None:
    small = replace(batch("train", ("n000",), low=1, high=1, cpu=3), throughput=((1, 100.0), (2, 180.0)))
    new = make_job("new", trainers=0, min_trainers=2, max_trainers=2, cpu=2, age_s=50)
    snapshot = make_snapshot((make_node("n000", cpu=4), make_node("n001", cpu=3)), (small, new))
    plan = decide(snapshot, policy_named("utility"), Limits())
    assert not check(snapshot, plan)
    assert decision_of(plan, small).target == 1


def test_another_job_makes_room_if_the_workload_cannot() -> None:
    kept = batch("train", ("n000", "n001", "n001"), low=2, high=3, cpu=2)
    ours = make_job("ours", trainers=2, on=("n000",), cpu=2, max_trainers=2, age_s=50)
    nodes = (make_node("n000", cpu=6), make_node("n001", cpu=4))
    plan = plan_of(make_snapshot(nodes, (kept, ours), (make_serving("web", cpu=2),)))
    assert decision_of(plan, ours).target == 1
    assert decision_of(plan, kept).target == 3


def test_a_workload_gives_what_it_can_before_another_job_is_stopped() -> None:
    """No controller deletes the pods whose room was wanted at first, and all minimums fit beside serving."""
    a = batch("a", ("n000",) * 5 + ("n002",), low=2, high=11)
    b = batch("b", ("n002",) + ("n001",) * 5, low=3, high=11)
    c = batch("c", ("n002",) * 4, low=1, high=10)
    fixed = (FixedPods(Role.PSERVER, make_shape(1, 1), 3),)
    ours = make_job("ours", trainers=5, max_trainers=12, on=("n000", "n001", "n001", "n002", "n002"), fixed=fixed)
    places = ("n000", "n000", "n001")
    pservers = tuple(
        replace(ours.pods[0], name=f"ours-pserver-{i}", uid=f"p{i}", role=Role.PSERVER, index=i, node=node)
        for i, node in enumerate(places)
    )
    ours = replace(ours, pods=(*pservers, *ours.pods))
    web = tuple(make_serving(f"web-{i}", cpu=2, memory_gib=1) for i in range(4))
    plan = plan_of(make_snapshot(make_nodes(3), (a, b, c, ours), web))
    counts = {decision.job.object_name: decision.target for decision in plan.decisions}
    assert (plan.serving.placed, plan.serving.short) == (4, 0)
    assert counts["ours"] >= 1, counts
    assert all(is_first_in_order(job, decision_of(plan, job)) for job in (a, b, c))


def test_a_workload_gives_what_it_can_before_another_workload_is_stopped() -> None:
    """Room is wanted on n000, where the controllers delete no pods first, and all minimums fit beside serving."""
    a = replace(batch("a", ("n000",) * 4, low=1, high=7), created_s=823.0)  # the youngest
    b = replace(batch("b", ("n001",) * 7, low=3, high=12), created_s=499.0)
    c = replace(batch("c", ("n001",) + ("n000",) * 4, low=1, high=5), created_s=567.0)
    fixed = (FixedPods(Role.PSERVER, make_shape(1, 1), 1),)
    ours = make_job("ours", trainers=7, min_trainers=2, max_trainers=8, on=("n002",) * 7, fixed=fixed, age_s=828)
    pserver = replace(ours.pods[0], name="ours-pserver-0", uid="p0", role=Role.PSERVER)
    ours = replace(ours, pods=(pserver, *ours.pods))
    web = tuple(make_serving(f"web-{i}", cpu=1, memory_gib=1) for i in range(11))
    plan = plan_of(make_snapshot(make_nodes(3), (a, b, c, ours), web))
    assert (plan.serving.placed, plan.serving.short) == (11, 0)
    assert all(d.admitted and d.target >= d.min_trainers for d in plan.decisions)
    assert all(is_first_in_order(job, decision_of(plan, job)) for job in (a, b, c))


def test_pods_that_a_quota_wants_are_given_although_no_other_job_starts_for_them() -> None:
    """The queue of the workload has 4 cpus, and a job that borrows from it waits for a node."""
    kept = batch("kept", ("n000",) * 3 + ("",) * 4, low=3, high=15)
    kept = replace(kept, queue="red", fault_tolerant=False, gang=True)
    other = make_job("other", trainers=1, max_trainers=13)
    queues = (
        Queue("default", ((CPU, 9000),), weight=0.001, cohort="x"),
        Queue("red", ((CPU, 4000),), weight=1000, cohort="x", reclaim=Reclaim.LOWER_PRIORITY),
    )
    snapshot = replace(make_snapshot(make_nodes(1, cpu=4), (kept, other)), queues=queues)
    assert decision_of(plan_of(snapshot), kept).target <= 4


def test_a_workload_that_keeps_its_pods_says_why() -> None:
    # One pod less on n000 is enough, and that of the workload is the last one that its controller deletes.
    kept = batch("train", ("n000", "n001", "n001"), low=2, high=3, cpu=2)
    ours = make_job("ours", trainers=2, min_trainers=1, on=("n000",), cpu=2, max_trainers=10)
    nodes = (make_node("n000", cpu=7), make_node("n001", cpu=4))
    plan = plan_of(make_snapshot(nodes, (kept, ours), (make_serving("web", cpu=3),)))
    assert (decision_of(plan, kept).target, decision_of(plan, ours).target) == (3, 1)
    because = "keeps its pods, because its own controller would not delete those whose capacity is needed"
    assert decision_of(plan, kept).message == f"3 of 3: {because}"


def test_a_training_job_and_a_batch_job_share_fairly() -> None:
    nodes = make_nodes(2, cpu=8)
    first = batch("train", ("n000",) * 8 + ("n001",) * 8, high=16)
    second = make_job("ours", trainers=0, min_trainers=1, max_trainers=16)
    plan = plan_of(make_snapshot(nodes, (first, second)))
    found = decision_of(plan, first)
    assert is_first_in_order(first, found)
    assert (found.target, decision_of(plan, second).target) == (8, 8)


def test_the_line_says_who_chooses() -> None:
    job = batch("train", ("n000", "n000", "n001", "n001", "n001"), high=5, cpu=2)
    plan = plan_of(make_snapshot(make_nodes(2, cpu=6), (job,), (make_serving("web", cpu=4),)))
    line = "3 of 5: gives up 2 pods (ServingNeedsRoom); its own controller chooses which"
    assert decision_of(plan, job).message == line


def test_the_line_says_that_edl_names_the_workers_of_a_ray_cluster() -> None:
    job = batch("train", ("n000", "n000", "n001", "n001", "n001"), high=5, cpu=2)
    key = JobKey.of(WorkloadKind.RAY_CLUSTER, job.key.namespace, "train")
    cluster = replace(job, key=key, pods=tuple(replace(pod, job=key) for pod in job.pods))
    plan = plan_of(make_snapshot(make_nodes(2, cpu=6), (cluster,), (make_serving("web", cpu=4),)))
    line = "3 of 5: gives up 2 pods (ServingNeedsRoom); edl names them to its own controller"
    assert decision_of(plan, cluster).message == line


def test_pods_that_wait_for_a_node_are_not_swapped_for_others() -> None:
    job = batch("train", ("n000", "n000", "", ""), low=2, high=4, cpu=2)
    plan = plan_of(make_snapshot(make_nodes(2, cpu=5), (job,)))
    found = decision_of(plan, job)
    assert (found.target, found.victims, found.nodes) == (4, (), ())


def test_a_pod_whose_room_serving_needs_goes_even_if_another_one_would_fit_elsewhere() -> None:
    job = batch("train", ("n000", "n000", "n000"), low=1, high=3)
    snapshot = make_snapshot((make_node("n000", cpu=5), make_node("n001", cpu=1)), (job,), (make_serving("web"),))
    plan = plan_of(snapshot)
    found = decision_of(plan, job)
    assert (found.target, found.nodes, plan.serving.placed) == (2, (), 1)
    assert is_first_in_order(job, found)


def test_the_search_ends_with_pods_that_wait_beside_serving() -> None:
    job = batch("train", ("n000", "n000", "n001", "n001", "", ""), low=2, high=6)
    web = tuple(make_serving(f"web-{i}", cpu=3) for i in range(4))
    snapshot = make_snapshot(make_nodes(2, cpu=8), (job,), web)
    plan = plan_of(snapshot)
    assert (plan.cut, plan.serving.placed) == ((), 4)
    assert decision_of(plan, job).target == 4


def test_without_such_a_workload_one_plan_is_made() -> None:
    plan = plan_of(make_snapshot(make_nodes(2), (make_job("a", trainers=2, on=("n000",)),)))
    assert "owner order" not in dict(plan.stages)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    """Small clusters in which TrainingJobs and batch Jobs of several sizes run beside waiting serving pods."""
    nodes = tuple(make_node(f"n{i:03d}", cpu=draw(st.integers(4, 10))) for i in range(draw(st.integers(1, 4))))
    free = {node.name: node.allocatable["cpu"] for node in nodes}
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        cpu = draw(st.integers(1, 3))
        on = []
        for name in draw(st.lists(st.sampled_from(sorted(free)), max_size=6)):
            if free[name] >= cpu * 1000:
                free[name] -= cpu * 1000
                on.append(name)
        on += [""] * draw(st.integers(0, 2))
        low = draw(st.integers(1, 3))
        high = max(low, len(on)) + draw(st.integers(0, 3))
        if draw(st.booleans()):
            jobs.append(batch(f"b{number}", tuple(on), low=low, high=high, cpu=cpu))
        else:
            job = make_job(f"t{number}", trainers=len(on), min_trainers=low, max_trainers=high, cpu=cpu, on=tuple(on))
            jobs.append(job)
    serving = tuple(make_serving(f"web-{i}", cpu=draw(st.integers(1, 6))) for i in range(draw(st.integers(0, 3))))
    return make_snapshot(nodes, tuple(jobs), serving)


@given(clusters())
@settings(deadline=None)
def test_every_plan_deletes_in_the_order_of_the_owner_and_keeps_the_rules(snapshot: ClusterSnapshot) -> None:
    plan = plan_of(snapshot)
    for job, decision in zip(snapshot.jobs, plan.decisions, strict=True):
        if job.owner_count is None or not decision.admitted:
            continue
        assert is_first_in_order(job, decision)
        assert job.min_trainers <= decision.target <= job.max_trainers
        assert not (decision.victims and decision.nodes), "its controller cannot shrink and grow at once"


@pytest.mark.parametrize("index", [0, 3])
def test_the_highest_index_goes_first(index: int) -> None:
    job = batch("train", ("n000",) * 4)
    assert in_deletion_order(job)[index].index == 3 - index


def test_a_workload_gives_nothing_for_a_job_that_does_not_start() -> None:
    gives = batch("gives", ("n3", "n4", "n2", "n3", "n3"), low=3, high=7, cpu=0.5)
    waits, full = batch("waits", (), low=3, high=15, cpu=2), batch("full", ("n3",), high=1, cpu=2)
    other = make_job("other", trainers=2, min_trainers=2, max_trainers=2, on=("n2", "n3"), cpu=2)
    jobs = (replace(gives, tier=1), replace(full, tier=1), replace(waits, tier=1), other)
    nodes = (make_node("n2", 2), make_node("n3", 8, pods=8))
    plan = plan_of(make_snapshot(nodes, jobs, (make_serving("web", cpu=1),)))
    decision = decision_of(plan, gives)
    assert not decision_of(plan, waits).admitted
    assert (decision.admitted, decision.target, decision.victims) == (True, 5, ())
