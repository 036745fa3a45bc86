"""The search over domains: what it tries, when it ends, and that the bound holds for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.topology import Topology, TopologyMode
from edl.planner.problem_reader import read_problem
from edl.planner.scores import PlanScore
from edl.planner.topology.choices import Assignment, Choices, read_choices
from edl.planner.topology.relaxed import without_domains
from edl.planner.topology.search import MOST_CELLS, MOST_TRIED, decide_together
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for

KEY = "example.com/rack"
LIMITS = Limits()


def world(jobs: int, racks: int) -> ClusterSnapshot:
    nodes = tuple(make_node(f"n{i}", 8, labels={KEY: f"r{i}"}) for i in range(racks))
    made = (make_job(f"j{i}", max_trainers=8, age_s=float(i)) for i in range(jobs))
    topology = Topology.of(KEY, TopologyMode.REQUIRED)
    return make_snapshot(nodes, tuple(replace(job, topology=topology) for job in made))


def domains(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    return tuple("/".join(job.topology.domain) for job in snapshot.jobs if job.topology is not None)


def rated(value: Callable[[tuple[str, ...]], float]) -> Callable[[tuple[str, ...]], PlanScore]:
    return lambda made: PlanScore(0, (2,), (), min(0.99, value(made)), 0.0, 0)


def choices_of(snapshot: ClusterSnapshot) -> Choices:
    choices = read_choices(snapshot, LIMITS)
    assert choices is not None
    return choices


def search(snapshot: ClusterSnapshot, value: Callable[[tuple[str, ...]], float]) -> tuple[tuple[str, ...], int]:
    """The domains that are chosen if decisions are worth this, and how many were tried."""
    tried: list[tuple[str, ...]] = []

    choices = choices_of(snapshot)

    def decide(chosen: Assignment) -> tuple[str, ...]:
        tried.append(domains(choices.applied(chosen)))
        return tried[-1]

    best = decide_together(choices, LIMITS, decide, rated(value), lambda: 0.0)
    assert len(set(tried)) == len(tried)
    return best, len(tried)


def test_a_cluster_without_such_jobs_has_no_choices() -> None:
    snapshot = make_snapshot(make_nodes(2), (make_job("plain"),))
    assert read_choices(snapshot, LIMITS) is None
    packing = TrialPacking(read_problem(snapshot, LIMITS), (0,))
    assert without_domains(packing) is packing


def test_few_choices_are_all_tried() -> None:
    best, tried = search(world(2, 3), lambda made: 0.9 if made == ("r1", "r1") else 0.1)
    assert (best, tried) == (("r1", "r1"), 9)


def test_with_many_choices_the_domains_of_one_job_after_the_other_are_changed() -> None:
    best, tried = search(world(3, 4), lambda made: sum(name == "r3" for name in made) / 4)
    assert best == ("r3", "r3", "r3")
    assert tried <= MOST_TRIED


def test_no_more_is_tried_once_every_job_has_all() -> None:
    decided: list[Assignment] = []

    def decide(chosen: Assignment) -> int:
        decided.append(chosen)
        return 1

    full = PlanScore(0, (2, 2), (), 1.0, 2.0, 0)
    decide_together(choices_of(world(2, 3)), LIMITS, decide, lambda _: full, lambda: 0.0)
    assert len(decided) == 1


def test_no_more_is_tried_once_its_part_of_the_time_is_over() -> None:
    tried: list[Assignment] = []
    limits = replace(LIMITS, deadline_s=10.0)
    decide_together(
        choices_of(world(2, 3)), limits, tried.append, lambda _: PlanScore(0, (), (), 0.0, 0.0, 0), lambda: 3.1
    )
    assert len(tried) == 1


def test_a_large_cluster_gets_the_first_guess() -> None:
    small = world(2, 3)
    snapshot = replace(small, nodes=(*small.nodes, *make_nodes(MOST_CELLS // 2)))
    tried: list[Assignment] = []
    decide_together(
        choices_of(snapshot), LIMITS, tried.append, lambda _: PlanScore(0, (), (), 0.0, 0.0, 0), lambda: 0.0
    )
    assert len(tried) == 1


def test_another_choice_may_fail_and_the_first_may_not() -> None:
    choices = choices_of(world(2, 2))

    def only(wanted: tuple[str, ...]) -> Callable[[Assignment], tuple[str, ...]]:
        def decide(chosen: Assignment) -> tuple[str, ...]:
            if domains(choices.applied(chosen)) != wanted:
                raise PlanError("no plan")
            return wanted

        return decide

    guess, _ = search(world(2, 2), lambda _: 0.5)
    assert decide_together(choices_of(world(2, 2)), LIMITS, only(guess), rated(lambda _: 0.5), lambda: 0.0) == guess
    other = tuple("r0" if name == "r1" else "r1" for name in guess)
    with pytest.raises(PlanError):
        decide_together(choices_of(world(2, 2)), LIMITS, only(other), rated(lambda _: 0.5), lambda: 0.0)


def job_of(name: str, low: int, high: int, age_s: float = 0.0) -> Job:
    job = make_job(name, min_trainers=low, max_trainers=high, age_s=age_s)
    return replace(job, topology=Topology.of(KEY, TopologyMode.REQUIRED))


def test_the_guess_is_corrected_where_a_younger_job_needs_the_larger_rack() -> None:
    """The first guess gives the older job the rack with most room, in which alone the younger one fits."""
    nodes = (make_node("a", 8, labels={KEY: "a"}), make_node("b", 5, labels={KEY: "b"}))
    plan = plan_for(make_snapshot(nodes, (job_of("old", 2, 16, age_s=50), job_of("young", 8, 8))))
    assert decision_of(plan, "old").nodes == (("b", 5),)
    assert decision_of(plan, "young").nodes == (("a", 8),)


def test_the_bound_allows_every_rack() -> None:
    """One job runs in the smaller rack. Within that rack nothing is better, but another choice would be."""
    nodes = (make_node("a", 8, labels={KEY: "a"}), make_node("b", 4, labels={KEY: "b"}))
    job = job_of("one", 2, 8)
    there = replace(make_job("one", trainers=4, min_trainers=2, max_trainers=8, on=("b",)), topology=job.topology)
    plan = plan_for(make_snapshot(nodes, (there,)))
    assert plan.certificate.achieved == pytest.approx(1 / 3)
    assert plan.certificate.bound == pytest.approx(1.0)


def test_the_bound_allows_racks_that_a_job_of_one_size_is_not_tried_on() -> None:
    """Without the fewest racks that hold it, the job would leave the other one its maximum."""
    nodes = (make_node("a", 4, labels={KEY: "a"}), make_node("b", 6, labels={KEY: "b"}))
    gang = replace(job_of("gang", 3, 3, age_s=9.0), topology=Topology.of(KEY, TopologyMode.PREFERRED))
    choices = read_choices(make_snapshot(nodes, (gang, make_job("other", cpu=2, max_trainers=9))), LIMITS)
    assert choices is not None
    (limited, free) = choices.options[gang.key]
    assert (limited.area, free.area) == ((("a",),), ())
    problem = read_problem(choices.applied(choices.guess), LIMITS)
    shape = problem.demands[0].shape
    assert problem.opened[shape].tolist() == [True, False]
    assert without_domains(TrialPacking(problem, (0,))).problem.opened[shape].tolist() == [True, True]


def test_the_bound_allows_pservers_every_rack_too() -> None:
    nodes = (make_node("a", 8, labels={KEY: "a"}), make_node("b", 4, labels={KEY: "b"}), make_node("none", 4))
    job = replace(job_of("one", 2, 8), fixed=(FixedPods(Role.PSERVER, make_shape(2, 1), 1),))
    choices = read_choices(make_snapshot(nodes, (job,)), LIMITS)
    assert choices is not None
    problem = read_problem(choices.applied(choices.guess), LIMITS)
    (need,) = problem.demands[0].needs
    assert problem.opened[need.shape].tolist() == [True, False, False]
    relaxed = without_domains(TrialPacking(problem, (0,))).problem
    assert relaxed.opened[need.shape].tolist() == [True, True, False]


@pytest.mark.parametrize("serving", [4, 6, 8])
@pytest.mark.parametrize("on", [("a", "c"), ("a", "c", "a"), ("a", "c", "c"), ("c", "a", "a", "c")])
def test_trainers_that_a_change_of_labels_divided_refuse_no_plan(on: tuple[str, ...], serving: int) -> None:
    racks = {"a": "r1", "b": "r1", "c": "r2"}
    nodes = tuple(make_node(name, 8, labels={KEY: rack}) for name, rack in racks.items())
    divided = make_job("divided", trainers=len(on), min_trainers=1, max_trainers=6, cpu=3, on=on)
    divided = replace(divided, topology=Topology.of(KEY, TopologyMode.REQUIRED))
    full = (make_serving("full", cpu=5, node="b"), make_serving("waits", cpu=serving))
    plan = plan_for(make_snapshot(nodes, (divided,), full))
    assert plan.serving.placed == 1
