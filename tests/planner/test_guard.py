"""`check` finds every broken rule: each test plants one fault in a good plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods
from edl.model.names import Role
from edl.model.plan import Certificate, ScaleDecision, ScalePlan, ServingReport
from edl.model.resources import Taint
from edl.planner.guard import RefusedPlanError, check
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import apply_plan, decision_of, later, plan_for, with_jobs, with_pods

PSERVERS = (FixedPods(Role.PSERVER, make_shape(1), 2),)


def world() -> ClusterSnapshot:
    """Job a runs on both nodes, job b is new; the second node is small."""
    start = make_snapshot((make_node("n0", 8), make_node("n1", 4)), (make_job("a", min_trainers=1, max_trainers=8),))
    return with_jobs(
        later(apply_plan(start, plan_for(start)), 100), make_job("b", min_trainers=1, cpu=2, fixed=PSERVERS)
    )


def replaced(plan: ScalePlan, name: str, change: Callable[[ScaleDecision], ScaleDecision]) -> ScalePlan:
    return replace(plan, decisions=tuple(change(d) if d.job.name == name else d for d in plan.decisions))


def test_a_good_plan_breaks_no_rule() -> None:
    assert check(world(), plan_for(world())) == ()


def crowded(d: ScaleDecision) -> ScaleDecision:
    return replace(d, nodes=(("n1", 3),), target=d.current - len(d.victims) + 3)


def with_foreign_victim(d: ScaleDecision) -> ScaleDecision:
    return replace(d, victims=(*d.victims[1:], "b-trainer-0"))


FAULTS: dict[str, tuple[str, Callable[[ScaleDecision], ScaleDecision], str]] = {
    "overcommit": ("b", crowded, "overcommitted"),
    "below min": ("b", lambda d: replace(d, target=0, nodes=()), "not within 1..10"),
    "above max": ("a", lambda d: replace(d, target=9), "not within 1..8"),
    "wrong sum": ("a", lambda d: replace(d, target=d.target - 1), "is not"),
    "foreign victim": ("a", with_foreign_victim, "not a live trainer"),
    "victim twice": ("a", lambda d: replace(d, victims=(d.victims[0],) * len(d.victims)), "is listed"),
    "victims without a reason": ("a", lambda d: replace(d, shrink_reason=""), "reason"),
    "wrong current": ("a", lambda d: replace(d, current=d.current - 1, target=d.target - 1), "live trainers"),
    "no pservers": ("b", lambda d: replace(d, fixed_nodes=()), "new pserver pods"),
    "unknown node": ("b", lambda d: replace(d, nodes=tuple(("n9", n) for _, n in d.nodes)), "does not exist"),
    "no trainer on a node": ("b", lambda d: replace(d, nodes=(*d.nodes, ("n0", 0))), "0 new trainers"),
    "half dropped": ("a", lambda d: replace(d, admitted=False), "not admitted, but"),
    "old generation": ("a", lambda d: replace(d, generation=0), "generation"),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_named(fault: str) -> None:
    name, change, says = FAULTS[fault]
    problems = check(world(), replaced(plan_for(world()), name, change))
    assert any(says in problem and (name in problem or "node" in problem) for problem in problems), problems


def test_a_decision_for_each_job_is_required() -> None:
    plan = plan_for(world())
    assert check(world(), replace(plan, decisions=plan.decisions[:1]))
    assert check(world(), replace(plan, decisions=plan.decisions[::-1]))


def test_a_pod_on_a_node_that_takes_no_new_pods_is_refused() -> None:
    plan, snapshot = plan_for(world()), world()
    tainted = tuple(replace(n, taints=(Taint("x", "", "NoExecute"),)) for n in snapshot.nodes)
    assert any("is not eligible" in p for p in check(replace(snapshot, nodes=tainted), plan))


def test_capacity_of_a_nominated_pod_is_not_given_to_another_pod() -> None:
    snapshot, plan = world(), plan_for(world())
    promised = with_pods(snapshot, *(make_serving(f"s{i}", cpu=8, nominated=f"n{i}") for i in range(2)))
    assert any("overcommitted" in p for p in check(promised, plan))


def test_a_running_job_keeps_its_admission_unless_something_needs_its_capacity() -> None:
    snapshot = make_snapshot((make_node("n0", 8),), (make_job("a", trainers=2, on=("n0",)),))
    dropped = replaced(
        plan_for(snapshot),
        "a",
        lambda d: replace(
            d,
            admitted=False,
            target=0,
            nodes=(),
            victims=("a-trainer-0", "a-trainer-1"),
            shrink_reason="MinUnsatisfied",
        ),
    )
    assert any("dropped" in p for p in check(snapshot, dropped))
    assert not check(with_pods(snapshot, make_serving("s")), replace(dropped, serving=ServingReport(1, 1, 0)))


def test_the_serving_report_must_match_the_snapshot() -> None:
    plan = plan_for(world())
    assert check(world(), replace(plan, serving=ServingReport(1, 1, 0)))
    assert check(world(), replace(plan, serving=ServingReport(0, 1, 0)))


def test_a_bound_below_what_is_achieved_is_refused() -> None:
    plan = plan_for(world())
    assert any("bound" in p for p in check(world(), replace(plan, certificate=Certificate("fulfilment", 2.0, 1.9))))
    assert check(world(), replace(plan, certificate=Certificate("fulfilment", 2.0, float("nan"))))


def test_a_suspended_job_gets_no_pods() -> None:
    snapshot, plan = world(), plan_for(world())
    job = next(j for j in snapshot.jobs if j.key.name == "b")
    assert any("suspended" in p for p in check(with_jobs(snapshot, replace(job, suspended=True)), plan))


def test_the_error_of_a_refused_plan_names_the_broken_rule() -> None:
    error = RefusedPlanError(plan_for(world()), ("job a/b: too many",))
    assert isinstance(error, PlanError)
    assert "job a/b: too many" in str(error)
    assert decision_of(error.plan, "a").current == 8
