"""Who runs when serving waits for more than surplus can free: found in few packings, and the same as one by one."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.overload_worlds import half_lost, outage, overload
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.status import Reason
from edl.planner import victims
from edl.planner.admission import trial
from edl.planner.admission.admit import Admission, admit
from edl.planner.admission.capping import cap
from edl.planner.admission.trial import AdmissionTrial
from edl.planner.minimums import serving
from edl.planner.minimums.serving import count_serving
from edl.planner.problem_reader import read_problem
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import plan_for

DEADLINE_S = 60.0


def admitted(snapshot: ClusterSnapshot) -> Admission:
    problem = read_problem(snapshot, Limits())
    served = count_serving(problem, DEADLINE_S)
    capped, infeasible = cap(problem, served, DEADLINE_S)
    return admit(AdmissionTrial(capped, served, DEADLINE_S), infeasible)


def one_by_one(snapshot: ClusterSnapshot) -> tuple[int, ...]:
    """Each running job by age, kept if it fits beside those kept before, without any proof that is kept."""
    problem = read_problem(snapshot, Limits())
    served = count_serving(problem, DEADLINE_S)
    problem, _ = cap(problem, served, DEADLINE_S)
    kept: tuple[int, ...] = ()

    def seniority(j: int) -> tuple[bool, float]:
        demand = problem.demands[j]
        return bool(demand.needs) or len(demand.live_trainers) < demand.min_trainers, demand.job.created_s

    for j in sorted(range(len(problem.demands)), key=seniority):
        if AdmissionTrial(problem, served, DEADLINE_S).packing_of((*kept, j)) is not None:
            kept = (*kept, j)
    return tuple(sorted(kept))


@examples(12)
@given(st.integers(20, 60), st.integers(22, 40), st.integers(0, 1000))
def test_who_stays_is_whom_trying_jobs_one_by_one_would_keep(nodes: int, jobs: int, seed: int) -> None:
    snapshot = overload(nodes, jobs, seed)
    assert admitted(snapshot).packing.members == one_by_one(snapshot)


class _Counted:
    """Counts the calls of a function."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch, module: ModuleType = trial) -> None:
        self.calls = 0
        self._function = getattr(module, name)
        monkeypatch.setattr(module, name, self)

    def __call__(self, *given: object) -> object:
        self.calls += 1
        return self._function(*given)


@pytest.mark.parametrize("seed", range(4))
def test_an_overload_takes_a_handful_of_packings_and_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    packings, programs = _Counted("place_required", monkeypatch), _Counted("place_most_priced", monkeypatch)
    found = admitted(overload(400, 100, seed))
    assert 0 < len(found.packing.members) < 100
    assert packings.calls <= 4
    assert programs.calls <= 12


def test_half_of_the_nodes_lost_takes_a_handful_of_packings_and_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    packings, programs = _Counted("place_required", monkeypatch), _Counted("place_most_priced", monkeypatch)
    plan_for(half_lost(300, 80, 3))
    assert packings.calls <= 30
    assert programs.calls <= 30


@pytest.mark.parametrize(("nodes", "jobs", "least"), [(40, 16, 3), (300, 80, 10)])
def test_jobs_stay_in_the_room_that_the_packing_of_serving_leaves(nodes: int, jobs: int, least: int) -> None:
    """Where no order of placing serves the most pods, jobs are kept beside the packing that does."""
    plan = plan_for(half_lost(nodes, jobs, 1), Limits(deadline_s=600.0))

    served = count_serving(read_problem(half_lost(nodes, jobs, 1), Limits()), 60.0)

    assert served.places
    assert not served.order
    assert plan.serving.placed == sum(pods for _, _, pods in served.places)
    assert sum(decision.admitted for decision in plan.decisions) >= least


def test_orders_of_placing_are_not_tried_again_if_none_serves_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of serving pods, each of these trials takes a second."""
    orders = _Counted("permutations", monkeypatch, serving)

    plan = plan_for(half_lost(40, 16, 1), Limits(deadline_s=600.0))

    assert orders.calls == 1  # that of `count_serving`, which finds out
    assert sum(decision.admitted for decision in plan.decisions) >= 3


def test_serving_pods_that_fill_every_free_slot_are_placed_without_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = _Counted("cheapest", monkeypatch, victims)

    served = count_serving(read_problem(half_lost(300, 80, 1), Limits()), DEADLINE_S)

    assert served.short
    assert tables.calls == 0


def test_an_outage_is_explained_without_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    packings, programs = _Counted("place_required", monkeypatch), _Counted("place_most_priced", monkeypatch)
    plan = plan_for(outage(300, 200))
    assert packings.calls == programs.calls == 0
    assert {decision.reason for decision in plan.decisions} == {Reason.UNSCHEDULABLE}
    details = {decision.details for decision in plan.decisions}
    assert all("no node accepts its trainers (of 300 nodes: 300 not ready)" in line for line in details)


def test_who_stays_has_its_minimum_and_all_serving_that_fits_is_placed() -> None:
    found = admitted(overload(300, 80, 5))
    packing, problem = found.packing, found.packing.problem
    assert all(packing.count[j] >= problem.demands[j].min_trainers for j in packing.members)
    assert (packing.free >= 0).all()
    alone = TrialPacking(problem, ())
    due = sum(group.due for group in problem.waiting)
    slots = sum(int(alone.slots(group.shape).sum()) for group in problem.waiting)
    assert sum(place.role is None for place in packing.placed) == min(due, slots)


def test_a_job_is_not_rejected_because_the_master_of_another_stands_in_the_way() -> None:
    nodes = (make_node("large", 8, 64), make_node("small", 4, 64))
    master = FixedPods(Role.MASTER, make_shape(0.1, 0.1), 1)
    jobs = []
    for name, node in (("a", "large"), ("b", "small")):
        job = make_job(name, trainers=1, on=(node,), fixed=(master,))
        pods = tuple(replace(p, role=Role.MASTER, name=f"{name}-master", shape=master.shape) for p in job.pods)
        jobs.append(replace(job, pods=pods))
    problem = read_problem(make_snapshot(nodes, tuple(jobs), (make_serving("s", cpu=8),)), Limits())
    found = AdmissionTrial(problem, count_serving(problem, DEADLINE_S), DEADLINE_S)

    assert found.beside((), 0) is None
    assert found.beside((), 1) is not None
