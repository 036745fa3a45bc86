"""A pinned count that does not fit takes nothing away that runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from benchmarks.random_worlds import random_world
from edl.controller.planning import plan_snapshot, report_snapshot
from edl.errors import PlanError
from edl.model.actions import DeletePod
from edl.model.cluster import ResourceQuota
from edl.model.jobs import Job
from edl.model.limits import Limits, Quota
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision
from edl.planner import decide
from edl.planner.admission import pins
from edl.planner.admission.pins import Admitted
from edl.planner.admission.trial import AdmissionTrial
from edl.planner.clock import OutOfTimeError
from edl.planner.guard import check
from edl.planner.solvers.integer_program import IntegerProgram, SolvedPrograms
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

NODES = make_nodes(4, cpu=8)
ON = tuple(node.name for node in NODES)
HPA, OTHER = JobKey("default", "hpa"), JobKey("default", "other")


def pinned(count: int, running: int = 26, *, low: int = 2) -> Job:
    return make_job("hpa", trainers=running, min_trainers=low, max_trainers=40, on=ON, pinned=count)


def other(running: int = 6) -> Job:
    return make_job("other", trainers=running, min_trainers=4, max_trainers=20, on=(*ON[2:], *ON[:2]), age_s=50.0)


def planned(*jobs: Job, limits: Limits = Limits()) -> dict[str, ScaleDecision]:  # noqa: B008 - it is frozen
    snapshot = make_snapshot(NODES, jobs)
    plan = plan_snapshot(snapshot, "", limits)
    assert check(snapshot, plan, limits.quotas) == ()
    return {decision.job.name: decision for decision in plan.decisions}


@pytest.mark.parametrize("running", [0, 2, 20])
def test_a_quota_of_the_namespace_bounds_what_a_pin_adds(running: int) -> None:
    quota = ResourceQuota("default", "small", hard=(("cpu", 22_000),))
    snapshot = replace(make_snapshot(NODES, (pinned(34, running),)), resource_quotas=(quota,))
    plan = plan_snapshot(snapshot, "", Limits())
    (decision,) = plan.decisions
    assert (decision.target, decision.reason, decision.victims) == (22, "QuotaReached", ())
    assert decision.details.startswith("34 asked, 22 fit: ResourceQuota small of namespace default")
    assert check(snapshot, plan) == ()


def test_what_runs_stays_if_more_is_asked_than_fits() -> None:
    found = planned(pinned(34), other())
    assert (found["hpa"].admitted, found["hpa"].victims) == (True, ())
    assert (found["hpa"].target, found["other"].target) == (28, 4), "all that the minimum of the other job leaves"
    assert found["hpa"].reason == "InsufficientCapacity"
    assert found["hpa"].message.startswith("34 asked, 28 fit: cpu is full")


def test_a_count_that_fits_is_the_count() -> None:
    found = planned(pinned(10, running=17), other(15))
    assert (found["hpa"].target, found["hpa"].reason, found["hpa"].message) == (
        10,
        "Pinned",
        "10 of 40: pinned at 10 trainers",
    )
    grown = planned(pinned(26, running=10), other(20))
    assert (grown["hpa"].target, grown["other"].target) == (26, 6)


def test_a_new_job_starts_with_what_fits() -> None:
    found = planned(pinned(40, running=0), other(4))
    assert (found["hpa"].admitted, found["other"].target >= 4) == (True, True)
    assert found["hpa"].target + found["other"].target == 32


def test_where_not_even_what_runs_fits_its_minimum_counts() -> None:
    serving = tuple(
        replace(make_serving(f"s{number}", cpu=8), node="", tried=True, created_s=0.0) for number in range(3)
    )
    snapshot = make_snapshot(NODES, (pinned(34, running=26),), pods=serving)
    (decision,) = plan_snapshot(snapshot, "", Limits()).decisions
    assert (decision.admitted, decision.target) == (True, 8)


def test_below_its_minimum_it_stops_as_any_job_does() -> None:
    found = planned(pinned(34, running=0, low=33), other(4))
    assert (found["hpa"].admitted, found["hpa"].reason) == (False, "Unschedulable")


def test_neither_of_two_counts_ends_what_runs_of_the_other() -> None:
    """12 and 26 are asked of 32 slots, and ten of each run."""
    older = make_job("older", trainers=10, min_trainers=2, max_trainers=40, on=ON, pinned=26, age_s=50.0)
    found = planned(pinned(12, running=10), older)
    assert [(decision.admitted, decision.victims) for decision in found.values()] == [(True, ())] * 2
    assert sum(decision.target for decision in found.values()) == 32
    assert min(decision.target for decision in found.values()) >= 10


def test_a_quota_that_allows_fewer_is_named() -> None:
    limits = Limits(quotas=(Quota("default", (("cpu", 20_000),)),))
    found = planned(pinned(34, running=20), limits=limits)
    assert (found["hpa"].target, found["hpa"].reason) == (20, "QuotaReached")
    assert found["hpa"].message.startswith("34 asked, 20 fit: queue default uses all of its quota of 20 cores")


@pytest.mark.parametrize("policy", ["maxmin", "utility"])
def test_a_gang_loses_nothing_either(policy: str) -> None:
    gang = replace(pinned(34), fault_tolerant=False, gang=True)
    plan = plan_snapshot(make_snapshot(NODES, (gang, other())), policy, Limits())
    assert [decision.target for decision in plan.decisions] == [28, 4]


def test_explain_offers_what_would_let_it_have_them() -> None:
    snapshot = make_snapshot(NODES, (pinned(34), other()))
    report = report_snapshot(snapshot, HPA, "", Limits())
    assert any("trainers from default/other" in remedy or "add a node" in remedy for remedy in report.remedies)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each stage ran."""
    counts: Counter[str] = Counter()
    for module, stage in ((decide, "admit"), (decide, "share"), (pins, "with_repacking")):
        monkeypatch.setattr(module, stage, partial(_counted, counts, stage, getattr(module, stage)))
    return counts


def _counted(counts: Counter[str], stage: str, real: Callable[..., object], *given: object) -> object:
    counts[stage] += 1
    return real(*given)


def test_where_the_pin_fits_jobs_are_admitted_once(stages: Counter[str]) -> None:
    assert planned(pinned(26), other())["hpa"].target == 26
    assert stages == {"admit": 1, "share": 1, "with_repacking": 1}


def test_where_it_does_not_fit_jobs_are_admitted_once_more_and_all_else_comes_once(stages: Counter[str]) -> None:
    assert planned(pinned(34), other())["hpa"].target == 28
    assert stages == {"admit": 2, "share": 1, "with_repacking": 1}


def test_where_not_even_its_minimum_fits_beside_older_jobs_no_more_is_tried(stages: Counter[str]) -> None:
    older = make_job("other", trainers=20, min_trainers=20, max_trainers=20, on=ON, age_s=50.0)
    assert not planned(pinned(34, running=0, low=13), older)["hpa"].admitted
    assert stages == {"admit": 1, "share": 1, "with_repacking": 1}


def test_a_packing_of_a_waiting_job_is_searched_once_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def in_vain(trial: AdmissionTrial, _members: object, newcomer: int) -> None:
        searched.append(trial.problem.demands[newcomer].job.key.name)

    monkeypatch.setattr(AdmissionTrial, "may_fit", lambda *_: True)
    monkeypatch.setattr(AdmissionTrial, "repacked", in_vain)
    found = planned(pinned(34), other(), make_job("wide", cpu=8, min_trainers=1, max_trainers=1))
    assert (found["hpa"].target, found["wide"].admitted) == (28, False)
    assert searched == ["wide"]


@pytest.mark.parametrize(("running", "least"), [(0, 6), (5, 6), (24, 3), (20, 12), (2, 8)])
def test_the_most_that_fits_beside_the_minimums_is_found_from_what_runs(running: int, least: int) -> None:
    hungry = make_job("other", trainers=least, min_trainers=least, max_trainers=20, on=ON, age_s=50.0)
    assert planned(pinned(34, running), hungry)["hpa"].target == 32 - least


def test_of_two_counts_that_do_not_fit_the_older_job_has_the_most() -> None:
    older = make_job("older", trainers=4, min_trainers=2, max_trainers=40, on=ON, pinned=33, age_s=50.0)
    found = planned(pinned(40, running=4), older)
    assert [found["older"].target, found["hpa"].target] == [28, 4]


def test_only_sizes_of_the_job_are_tried() -> None:
    """Eight do not fit beside the other minimum, and a job that must have more than four has four all the same."""
    sized = replace(make_job("hpa", min_trainers=2, max_trainers=8, pinned=8), sizes=(2, 4, 8))
    small = replace(make_job("other", min_trainers=2, max_trainers=8, age_s=50.0), sizes=(2, 5, 8))
    plan = plan_snapshot(make_snapshot(make_nodes(1, cpu=9), (sized, small)), "", Limits())
    assert [decision.target for decision in plan.decisions] == [4, 5]


def test_without_time_what_runs_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "COUNTS_BY", 0.0)
    found = planned(pinned(34), other())["hpa"]
    assert (found.admitted, found.victims) == (True, ())


def test_what_runs_stays_if_there_is_no_time_for_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> object:
        raise OutOfTimeError("late")

    monkeypatch.setattr(decide, "admit", late)
    found = planned(pinned(34), other())["hpa"]
    assert (found.admitted, found.victims) == (True, ())


@pytest.mark.parametrize("error", [OutOfTimeError, PlanError])
def test_what_runs_stays_if_no_bound_is_found(monkeypatch: pytest.MonkeyPatch, error: type[PlanError]) -> None:
    def failing(*_: object) -> object:
        raise error("no bound")

    monkeypatch.setattr(AdmissionTrial, "may_fit", failing)
    monkeypatch.setattr(pins, "with_repacking", lambda _trial, packing, *_: packing)  # it asks for bounds too
    found = planned(pinned(34), other())["hpa"]
    assert (found.admitted, found.target, found.victims) == (True, 28, ())


@pytest.mark.parametrize("failing", ["packing_of", "__init__"])
def test_counts_found_before_an_error_are_good(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    real, with_floor, tried = getattr(AdmissionTrial, failing), pins._with_floor, list[int]()

    def in_trials(made: Admitted, j: int, floor: int) -> Admitted | None:
        tried.append(floor)
        return with_floor(made, j, floor)

    def after_one(*given: object) -> object:
        if len(tried) > 1:
            raise PlanError("the solver failed")
        return real(*given)

    monkeypatch.setattr(pins, "_with_floor", in_trials)
    monkeypatch.setattr(AdmissionTrial, failing, after_one)
    assert planned(pinned(34, running=20), other(4))["hpa"].target >= 21
    assert len(tried) > 1


def test_no_size_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    real, tried = pins._with_floor, list[int]()

    def noted(made: Admitted, j: int, floor: int) -> Admitted | None:
        tried.append(floor)
        return real(made, j, floor)

    monkeypatch.setattr(pins, "_with_floor", noted)
    sized = replace(make_job("hpa", min_trainers=1, max_trainers=64, pinned=64), sizes=(*range(1, 17), 36, 64))
    needy = make_job("other", min_trainers=10, max_trainers=12, age_s=50.0)
    plan = plan_snapshot(make_snapshot(make_nodes(4, cpu=10), (sized, needy)), "", Limits())
    assert {decision.job.name: decision.target for decision in plan.decisions}["hpa"] == 16
    assert tried == [2, 4, 8, 16, 36]


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(NODES)) as made:
        made.do(lambda world: world.add(make_job("other", min_trainers=4, max_trainers=20)))
        made.do(lambda world: world.add(make_job("hpa", min_trainers=2, max_trainers=40)))
        made.settle()
        yield made


def test_scaling_up_and_down_ends_nothing_that_was_asked_for(living: Living) -> None:
    counts = []
    for asked in (10, 26, 34, 10):
        before = len(living.world.writes)
        living.do(partial(World.edit, key=HPA, pinned=asked))
        living.settle()
        counts.append(living.trainers(HPA))
        ended = [a for a in living.world.writes[before:] if isinstance(a, DeletePod) and a.job == HPA]
        if asked == 34:
            assert (ended, living.status_of(HPA).trainer.desired) == ([], counts[-1])
            assert living.status_of(HPA).explanation.startswith(f"34 asked, {counts[-1]} fit")
    assert counts[:2] == [10, 26]
    assert 26 <= counts[2] <= 28
    assert (counts[3], living.trainers(OTHER) >= 4) == (10, True)


def test_further_admissions_solve_no_integer_program_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SolvedPrograms] = []
    solve = IntegerProgram.solve

    def noted(program: IntegerProgram, limit_s: float, solved: SolvedPrograms | None = None) -> list[int] | None:
        seen.extend([solved] if solved is not None else [])
        return solve(program, limit_s, solved)

    monkeypatch.setattr(IntegerProgram, "solve", noted)
    world = random_world(118)
    plan_snapshot(world.snapshot, "", world.limits)
    assert len({id(each) for each in seen}) == 1, "all admissions of a decision know the same programs"
    assert len(seen[0].counts) < len(seen)
