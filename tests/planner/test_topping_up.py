"""Slots that exist once new pods are placed differently: they are given out, and *full* is said only without any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from benchmarks.contended_worlds import contended
from edl.explain.decision import explained_study
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, Quota
from edl.model.names import Role
from edl.model.resources import CPU
from edl.planner.decide import Study
from edl.planner.guard import check
from edl.planner.minimums.batches import Served
from edl.planner.objective import Division
from edl.planner.packing import grow
from edl.planner.policies.maxmin import Fulfilment
from edl.planner.policies.registry import policy_named
from edl.planner.problem_reader import read_problem
from edl.planner.sharing import share
from edl.planner.topping_up import topped_up, without_proved
from edl.planner.trial_packing import SERVING, Placed, TrialPacking
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for, targets


def studied(snapshot: ClusterSnapshot, policy: str = "maxmin", limits: Limits | None = None) -> Study:
    return explained_study(snapshot, policy_named(policy), limits or Limits())


def has_slot_in_some_arrangement(packing: TrialPacking, shape: int) -> bool:
    """Whether all pods that the plan starts and one more of a shape fit, by an integer program of its own."""
    problem, empty = packing.problem, packing.copy()
    empty.drop_all()
    wanted = Counter(place.shape for place in packing.placed)
    wanted[shape] += 1
    shapes, nodes = sorted(wanted), len(empty.free)
    size = len(shapes) * nodes
    rows, low, high = [], list[float](), list[float]()
    for k, s in enumerate(shapes):
        row = np.zeros(size)
        row[k * nodes : (k + 1) * nodes] = 1
        rows.append(row)
        low.append(wanted[s])
        high.append(wanted[s])
    for node in range(nodes):
        for r, scale in enumerate(problem.largest.tolist()):
            row = np.zeros(size)
            row[node::nodes] = [problem.request[s, r] / scale for s in shapes]
            rows.append(row)
            low.append(-np.inf)
            high.append(max(0, int(empty.free[node, r])) / scale)
    most = [wanted[s] * bool(problem.opened[s, node]) for s in shapes for node in range(nodes)]
    constraints = LinearConstraint(np.array(rows), low, high)
    whole = np.ones(size, dtype=np.int64)
    found = milp(np.zeros(size), constraints=constraints, integrality=whole, bounds=Bounds(0, most))
    return found.x is not None


def jobs_at_full_nodes(made: Study) -> list[int]:
    """The jobs whose message says that something is full."""
    said = {d.job for d in made.plan.decisions if " is full on " in d.message}
    return [d.index for d in made.context.problem.demands if d.job.key in said]


@pytest.mark.parametrize("policy", ["maxmin", "utility"])
@pytest.mark.parametrize(
    ("nodes", "jobs", "sizes", "seed"), [(6, 6, 4, 3), (12, 15, 4, 0), (12, 15, 4, 1), (30, 15, 4, 0), (6, 15, 12, 2)]
)
def test_full_is_said_only_if_no_arrangement_has_a_slot(
    nodes: int, jobs: int, sizes: int, seed: int, policy: str
) -> None:
    snapshot = contended(nodes, jobs, sizes, seed)
    made = studied(snapshot, policy)
    packing = made.context.shared.packing
    wrong = {
        packing.problem.demands[j].job.key.name
        for j in jobs_at_full_nodes(made)
        if has_slot_in_some_arrangement(packing, packing.problem.demands[j].shape)
    }
    assert wrong == set()
    assert jobs_at_full_nodes(made)
    assert check(snapshot, made.plan) == ()


def in_pieces(*, queued: bool = False) -> tuple[TrialPacking, int]:
    """Two nodes of 4 cores: trainers of 2 cores of `small` are spread, so that one of 3 cores does not fit.

    With `queued`, two more jobs of the same shape as `wide`, on nodes of their own, have used up their quota.
    """
    jobs = [make_job("small", min_trainers=2, max_trainers=2, cpu=2), make_job("wide", min_trainers=1, cpu=3)]
    nodes, limits = [*make_nodes(2, cpu=4), make_node("n9", 3)], Limits()
    if queued:
        jobs[:0] = [replace(make_job(name, min_trainers=1, cpu=3), queue="blue") for name in ("one", "two")]
        nodes += [make_node("n98", 3), make_node("n99", 3)]
        limits = Limits(quotas=(Quota("blue", ((CPU, 6000),)),))
    made = studied(make_snapshot(tuple(nodes), tuple(jobs)), limits=limits)
    packing = made.context.shared.packing.copy()
    packing.drop_all()
    role, node = Role.TRAINER, {node.name: k for k, node in enumerate(packing.problem.snapshot.nodes)}
    demand = {d.job.key.name: d for d in packing.problem.demands}
    places = [
        ("small", "n000"),
        ("small", "n001"),
        ("wide", "n9"),
        *([("one", "n98"), ("two", "n99")] if queued else []),
    ]
    packing.hold_all([Placed(demand[job].index, role, demand[job].shape, node[name]) for job, name in places])
    return packing, demand["wide"].index


def test_new_pods_make_a_slot_together() -> None:
    packing, wide = in_pieces()
    assert not packing.slots(packing.problem.demands[wide].shape).any()

    def give(trial: TrialPacking, _: Mapping[int, int]) -> None:
        trial.place_trainer(wide, trial.tightest(trial.problem.demands[wide].shape))

    topped, unsure = topped_up(packing, dict.fromkeys(packing.members, 2), give, 10.0)
    assert (topped.count[wide], unsure) == (2, frozenset())
    assert (topped.free >= 0).all()
    assert packing.count[wide] == 1


def test_a_job_at_its_quota_does_not_hide_a_slot_that_a_job_of_the_same_shape_can_use() -> None:
    """Two nodes of 4 cores, each with one trainer of 2 cores: both on one node leave the other to a trainer of 3."""
    packing, wide = in_pieces(queued=True)
    one = next(d for d in packing.problem.demands if d.job.key.name == "one")
    assert one.shape == packing.problem.demands[wide].shape
    assert packing.meter().quota_shortage(one.index) is not None

    def give(trial: TrialPacking, _: Mapping[int, int]) -> None:
        trial.place_trainer(wide, trial.tightest(trial.problem.demands[wide].shape))

    topped, unsure = topped_up(packing, dict.fromkeys(packing.members, 2), give, 10.0)
    assert (topped.count[wide], unsure) == (2, frozenset())


def with_a_victim(*, serves: bool) -> tuple[TrialPacking, dict[str, int]]:
    """As `in_pieces`, and `loser` has lost its trainer of 3 cores on `n98`, which is free or kept for serving."""
    jobs = (
        make_job("small", min_trainers=2, max_trainers=2, cpu=2),
        make_job("wide", trainers=1, cpu=3, on=("n97",)),
        make_job("loser", trainers=2, cpu=3, on=("n98", "n99")),
    )
    nodes = (*make_nodes(2, cpu=4), *(make_node(f"n{number}", 3) for number in (97, 98, 99)))
    waiting = make_serving("web", cpu=3)
    problem = read_problem(make_snapshot(nodes, jobs, (waiting,) if serves else ()), Limits())
    packing, node = TrialPacking(problem, range(3)), {node.name: k for k, node in enumerate(nodes)}
    demand = {d.job.key.name: d for d in problem.demands}
    victim = next(i for i, one in enumerate(problem.live_trainers) if one.pod.node == "n98")
    packing.delete(victim)
    small = demand["small"]
    packing.hold_all([Placed(small.index, Role.TRAINER, small.shape, node[name]) for name in ("n000", "n001")])
    if serves:
        packing.for_serving.add(victim)
        packing.hold_all([Placed(SERVING, None, problem.waiting[0].shape, node["n98"])])
    return packing, {name: d.index for name, d in demand.items()}


def test_a_job_that_loses_a_trainer_in_this_plan_gets_none_by_it() -> None:
    packing, index = with_a_victim(serves=True)
    given: list[Mapping[int, int]] = []

    def give(trial: TrialPacking, most: Mapping[int, int]) -> None:
        given.append(most)
        grow(trial, most, dict.fromkeys(most, 0))

    topped, _ = topped_up(packing, dict.fromkeys(packing.members, 3), give, 10.0)
    assert (topped.count[index["wide"]], topped.count[index["loser"]]) == (2, 1)
    assert given[0] == {index["small"]: 3, index["wide"]: 3, index["loser"]: 1}


class NoDivision(Fulfilment):
    """Leaves everything where it is, and names ceilings; `wide` may grow, and `loser` may not."""

    def divide(
        self, packing: TrialPacking, ceiling: Mapping[int, int], level: Mapping[int, float], deadline_s: float
    ) -> Division:
        del ceiling, deadline_s
        names = {j: packing.problem.demands[j].job.key.name for j in packing.members}
        return Division(packing, level, {j: 9 if names[j] == "wide" else packing.count[j] for j in packing.members})


def test_a_trainer_that_runs_keeps_its_place_before_another_one_starts_there() -> None:
    """`wide` could start in the room of the victim, but it also has a slot once both pods of `small` share a node."""
    packing, index = with_a_victim(serves=False)
    made = share(packing, Served({}, {}, 0), NoDivision(), 10.0)
    assert made.packing.victims == []
    assert (made.packing.count[index["wide"]], made.packing.count[index["loser"]]) == (2, 2)


def test_a_bound_says_nothing_of_a_shape_whose_job_is_at_its_quota() -> None:
    packing, wide = in_pieces(queued=True)
    shape = packing.problem.demands[wide].shape
    gains = {d.index: 1.0 if d.job.key.name == "one" else 0.1 for d in packing.problem.demands}
    assert without_proved(frozenset({shape}), packing, 0.5, gains.__getitem__) == {shape}
    assert without_proved(frozenset({shape}), packing, 0.05, gains.__getitem__) == frozenset()


def test_a_job_at_its_ceiling_gets_none_of_it() -> None:
    packing, _ = in_pieces()
    topped, unsure = topped_up(packing, {j: packing.count[j] for j in packing.members}, lambda *_: None, 10.0)
    assert topped is packing
    assert unsure == frozenset()


def test_without_time_it_is_not_said_that_a_node_is_full() -> None:
    packing, wide = in_pieces()
    packing.problem.clock.allow(0.0)
    topped, unsure = topped_up(packing, dict.fromkeys(packing.members, 2), lambda *_: None, 10.0)
    assert topped is packing
    assert unsure == {packing.problem.demands[wide].shape}


def test_what_is_not_proved_is_short_and_not_full(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = contended(12, 15, 4, 0)
    proved = studied(snapshot)

    def unproved(packing: TrialPacking, *_: object) -> tuple[TrialPacking, frozenset[int]]:
        return packing, frozenset(range(len(packing.problem.shapes)))

    monkeypatch.setattr("edl.planner.sharing.topped_up", unproved)
    monkeypatch.setattr("edl.planner.decide.without_proved", lambda unsure, *_: unsure)
    made = studied(snapshot)
    assert any(" is full on " in d.message for d in proved.plan.decisions)
    assert not any(" full " in d.account for d in made.plan.decisions)
    short = [d for d in made.plan.decisions if " is short on " in d.message]
    assert short
    assert all(
        "another arrangement of the pods that start may have a slot, but none was found" in d.account for d in short
    )


def test_the_bound_of_a_plan_in_bulk_proves_what_its_size_leaves_no_time_for() -> None:
    nodes = make_nodes(300, cpu=8)
    plan = plan_for(
        make_snapshot(nodes, (make_job("a", max_trainers=900, cpu=4), make_job("b", max_trainers=900, cpu=4)))
    )
    assert sum(targets(plan).values()) == 600
    assert "cpu is full on" in decision_of(plan, "a").message
