"""Cuts: what one program proves holds for every other set of jobs, and rejects none that fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods
from edl.model.limits import Limits
from edl.model.names import Role
from edl.planner.admission.trial import AdmissionTrial
from edl.planner.minimums.serving import count_serving
from edl.planner.problem import free_beside_fixed
from edl.planner.problem_reader import read_problem
from edl.planner.programs.most_pods import place_most_priced
from edl.planner.programs.shortage import FEW_PRICED, Screen
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.effort import examples

DEADLINE_S = 60.0
HALF_CORES = st.integers(1, 9).map(lambda halves: halves / 2)


@st.composite
def worlds(draw: st.DrawFn, shapes: int = 3) -> ClusterSnapshot:
    """A few nodes, serving pods that wait, and jobs that wait for trainers and pservers of odd sizes."""
    nodes = tuple(make_node(f"n{i}", draw(st.integers(2, 12)), 40) for i in range(draw(st.integers(1, 4))))
    sizes = draw(st.lists(HALF_CORES, min_size=shapes, max_size=shapes, unique=True))
    jobs = tuple(
        make_job(
            f"j{i}",
            cpu=draw(st.sampled_from(sizes)),
            min_trainers=draw(st.integers(1, 3)),
            fixed=(FixedPods(Role.PSERVER, make_shape(draw(st.sampled_from(sizes)), 1), draw(st.integers(0, 1))),),
            age_s=float(10 - i),
        )
        for i in range(draw(st.integers(2, 6)))
    )
    waiting = tuple(make_serving(f"s{i}", cpu=draw(HALF_CORES)) for i in range(draw(st.integers(0, 3))))
    return make_snapshot(nodes, jobs, waiting, now_s=2000.0)


def learned(snapshot: ClusterSnapshot) -> tuple[AdmissionTrial, Screen]:
    """A trial of the cluster, and a screen with the cuts of all pairs of jobs and of all jobs together."""
    problem = read_problem(snapshot, Limits())
    served = count_serving(problem, DEADLINE_S)
    screen, everyone = Screen(problem, served.due), range(len(problem.demands))
    for members in (tuple(everyone), *((i, j) for i in everyone for j in everyone if i < j)):
        wanted = screen.wanted(members)
        _, prices = place_most_priced(
            problem, free_beside_fixed(problem, screen.capacity, members), wanted, DEADLINE_S
        )
        screen.learn(members, prices)
    return AdmissionTrial(problem, served, DEADLINE_S), screen


@examples(60)
@given(worlds(), st.data())
def test_no_cut_rejects_a_job_that_fits(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    trial, screen = learned(snapshot)
    order = data.draw(st.permutations(range(len(snapshot.jobs))))
    screen.start(())
    taken: tuple[int, ...] = ()
    for j in order:
        fits = trial.packing_of((*taken, j)) is not None
        assert screen.admits(j) or not fits
        if fits:
            screen.add(j)
            taken = (*taken, j)


def many_sizes(jobs: int) -> ClusterSnapshot:
    """One node of ten cores, and jobs of so many sizes of which a few fit."""
    found = tuple(make_job(f"j{i:02d}", cpu=2 + i / 100, min_trainers=1) for i in range(jobs))
    return make_snapshot((make_node("n", 10, 200),), found)


def test_more_shapes_than_are_priced_exactly_are_rejected_as_well() -> None:
    problem = read_problem(many_sizes(FEW_PRICED + 4), Limits())
    screen, members = Screen(problem, {}), tuple(range(FEW_PRICED + 4))
    _, prices = place_most_priced(problem, problem.empty, screen.wanted(members), DEADLINE_S)
    assert screen.learn(members, prices)
    screen.start(())
    for j in members:
        if screen.admits(j):
            screen.add(j)
        else:
            break
    assert 3 <= j <= 6  # four of the sizes fit; parts of pods would allow one more


def test_a_set_that_fits_leaves_no_cut() -> None:
    problem = read_problem(many_sizes(3), Limits())
    screen = Screen(problem, {})
    assert not screen.learn((0, 1), dict.fromkeys(range(len(problem.shapes)), 1.0))
    assert screen.start((0, 1))
    assert screen.admits(2)


def test_a_master_that_blocks_a_slot_counts_against_its_job() -> None:
    blocker = make_shape(0.5, 1)
    jobs = tuple(
        make_job(f"j{i}", cpu=1, min_trainers=0, fixed=(FixedPods(Role.MASTER, blocker, 1),)) for i in range(2)
    )
    snapshot = make_snapshot((make_node("n", 3.5, 40),), jobs, tuple(make_serving(f"s{i}", cpu=3) for i in range(1)))
    problem = read_problem(snapshot, Limits())
    screen = Screen(problem, {problem.waiting[0].shape: 1})
    members = (0, 1)
    _, prices = place_most_priced(problem, problem.empty, screen.wanted(members), DEADLINE_S)
    assert screen.learn(members, prices)
    screen.start((0,))
    assert not screen.admits(1)
