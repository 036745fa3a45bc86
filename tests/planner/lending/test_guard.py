"""The guard of lent room: a plan that counts it twice, or leaves trainers slow for too long, is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.errors import PlanFailure
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import LendingLimits, Limits
from edl.model.plan import ScalePlan, ServingReport
from edl.model.resources import CPU
from edl.model.status import Reason, Resize
from edl.planner.guard import RefusedPlanError
from edl.planner.lending.guard import check_lent_capacity
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.small_clusters import plan_for, with_status

CLEAR = Limits(lending=LendingLimits(clear_after_s=120.0))


def world(*serving_cores: float, bound: bool, age_s: float = 500.0, resize: Resize | None = None) -> ClusterSnapshot:
    """A node of 12 cores with two trainers of 5, of which the second lends 4.5, and serving that came so long ago."""
    job = with_status(make_job("ctr", trainers=2, max_trainers=4, cpu=5, on=("n000",)), admitted=True, resize=resize)
    pods = tuple(replace(pod, lent_cpu_milli=4500 if pod.index else 0) for pod in job.pods)
    serving = tuple(
        replace(make_serving(f"web-{i}", cpu=cores, node="n000" if bound else ""), created_s=1000.0 - age_s)
        for i, cores in enumerate(serving_cores)
    )
    return make_snapshot(make_nodes(1, 12), (replace(job, pods=pods),), serving)


def keeps_all(snapshot: ClusterSnapshot, placed: int = 0) -> ScalePlan:
    """A plan of one decision that deletes nobody, and that places so many serving pods."""
    calm = plan_for(replace(snapshot, pods=()))
    return replace(calm, serving=ServingReport(len(snapshot.pods), placed))


def test_serving_has_what_requests_leave_and_no_more() -> None:
    """2 cores are free, and 4.5 are lent."""
    snapshot = world(3, 3, 3, bound=False)
    assert check_lent_capacity(snapshot, keeps_all(snapshot, 2), Limits()) == ()
    (problem,) = check_lent_capacity(snapshot, keeps_all(snapshot, 3), Limits())
    assert problem == (
        "serving: 3 waiting pods are placed, but by requests there is CPU for 2; "
        "capacity that trainers lend counts once"
    )


def test_pods_of_several_sizes_have_what_requests_leave_together() -> None:
    snapshot = world(1, 2, 4, bound=False)
    assert check_lent_capacity(snapshot, keeps_all(snapshot, 2), Limits()) == ()
    assert check_lent_capacity(snapshot, keeps_all(snapshot, 3), Limits()) != ()


def test_a_plan_that_counts_lent_room_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TrialPacking.for_requests

    def twice(self: TrialPacking) -> TrialPacking:
        view = right(self)
        if view is not self:
            view.free += view.lent
        return view

    monkeypatch.setattr(TrialPacking, "for_requests", twice)
    with pytest.raises(RefusedPlanError, match="capacity that trainers lend counts once"):
        plan_for(replace(world(3, 3, 3, bound=False), nodes=make_nodes(1, 14)))


def test_a_plan_that_forgets_to_take_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = world(4, bound=True)
    assert plan_for(snapshot, CLEAR).decisions[0].victims == ("ctr-trainer-1",)
    monkeypatch.setattr("edl.planner.sharing.clear_lent_capacity", lambda _: frozenset())
    with pytest.raises(RefusedPlanError, match="serving has used lent CPU for 500 s, and trainer ctr-trainer-1"):
        plan_for(snapshot, CLEAR)


def test_trainers_may_be_slow_for_as_long_as_the_operator_says() -> None:
    late, soon = world(4, bound=True), world(4, bound=True, age_s=119)
    assert check_lent_capacity(late, keeps_all(late), CLEAR) != ()
    assert check_lent_capacity(soon, keeps_all(soon), CLEAR) == ()
    assert check_lent_capacity(late, keeps_all(late), Limits()) == ()


def test_a_job_in_its_cooldown_or_at_its_minimum_need_not_give() -> None:
    gave = world(4, bound=True, resize=Resize(990.0, 3, 2, Reason.LENDING_CLEARED, voluntary_s=990.0))
    assert check_lent_capacity(gave, keeps_all(gave), CLEAR) == ()
    least = world(4, bound=True)
    least = replace(least, jobs=tuple(replace(job, min_trainers=2) for job in least.jobs))
    assert check_lent_capacity(least, keeps_all(least), CLEAR) == ()


def test_a_fallback_plan_and_a_cluster_that_lends_nothing_are_not_judged() -> None:
    snapshot = world(3, 3, 3, bound=False)
    late = replace(keeps_all(snapshot, 3), fallback=PlanFailure.LATE_SOLVER)
    assert check_lent_capacity(snapshot, late, Limits()) == ()
    own = tuple(replace(j, pods=tuple(replace(p, lent_cpu_milli=0) for p in j.pods)) for j in snapshot.jobs)
    assert check_lent_capacity(replace(snapshot, jobs=own), keeps_all(snapshot, 3), Limits()) == ()
    assert snapshot.jobs[0].pods[1].requested[CPU] == 500
