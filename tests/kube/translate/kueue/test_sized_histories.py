"""Every history of two elastic Jobs in one cohort beside models of Kueue, an HPA and a node autoscaler: no fight."""

from __future__ import annotations

import pytest

from tests.worlds.kueue.loops import loops
from tests.worlds.kueue.sized_histories import BLUE, GREEN, LOW, OTHERS, Sized, SizedHistories, State
from tests.worlds.kueue.surroundings import Around

JOBS = (Sized("a", "blue"), Sized("b", "green"))
OWNER, URGENT, LOAD = {"owner comes", "owner goes"}, {"urgent comes", "urgent goes"}, {"load rises", "load falls"}
PAUSE = ("goes on",)
MOST = 60
FULL = State(
    (Sized("a", "blue", asked=2, held=2, live=2), Sized("b", "green", asked=2, held=2, live=2)), admitted=("a", "b")
)
BORROWED = State(
    tuple(Sized(name, "green", asked=3, held=3) for name in ("a", "b")),
    admitted=("a", "b"),
    around=Around(has_extra=True),
    nominal=(("blue", 4), ("green", 2)),
)
GROWING = State((Sized("a", "blue", asked=3, held=2, wished=3, live=2),), admitted=("a",))


@pytest.mark.parametrize(
    ("start", "events", "reclaims"),
    [(JOBS, OWNER, True), (JOBS, OWNER, False), (JOBS, URGENT, True), (JOBS, LOAD, True), (FULL, OWNER | LOAD, True)],
)
def test_every_state_comes_to_rest_without_a_circle_and_no_job_is_below_its_minimum(
    start: tuple[Sized, ...] | State, events: set[str], reclaims: bool
) -> None:
    state = start if isinstance(start, State) else State(start)
    histories = SizedHistories(reclaims)
    found = histories.search(state._replace(left=frozenset(events)), MOST)
    assert not [(what, found.get(state)) for what, state in histories.broken]
    assert not [name for name, _ in loops(found, histories.steps, PAUSE) if name.endswith("acts")]
    for state, way in found.items():
        rest = histories.rest(state)
        assert rest is not None, f"never at rest after {way}"
        for job in rest.jobs:  # one may wait whose quota others of its own ClusterQueue have
            assert job.held >= LOW or rest.exceeds(job.queue, LOW), f"a job waits after {way}"
        assert all(is_admitted for _, is_admitted in rest.others), f"somebody waits after {way}"
        left = BLUE + GREEN - sum(OTHERS[name][1] for name, _ in rest.others)
        room = min(left, rest.around.cpus - rest.around.placed)
        if not any(job.is_paused for job in rest.jobs):
            assert sum(job.held for job in rest.jobs) == room, f"of {room} pods are unused after {way}"


def test_the_search_finds_the_preemption_loop_of_kueue_which_needs_no_step_of_edl() -> None:
    """Kueue issue 13662: of two that are evicted together the first is admitted again before the second is gone."""
    histories = SizedHistories(reclaims=True)
    found = histories.search(BORROWED._replace(left=frozenset({"rightful comes"})), 300)
    circle = {name for name, _ in loops(found, histories.steps, (*PAUSE, "plan", "acts"))}
    assert {"admit", "a reconciled"} <= circle


def test_the_search_finds_the_scale_up_that_is_stuck_and_only_with_what_edl_refuses() -> None:
    """Kueue issue 16052: of a size in part, the least that Kueue admits is not lowered any more."""

    def stuck(partial: bool) -> list[State | None]:
        histories = SizedHistories(reclaims=True, partial=partial)
        found = histories.search(GROWING._replace(left=frozenset({"urgent comes"})), 200)
        rests = [histories.rest(state) for state in found]
        return [rest for rest in rests if rest is None or not all(job.held >= LOW for job in rest.jobs)]

    assert stuck(partial=True)
    assert not stuck(partial=False)


@pytest.mark.parametrize(
    "job",
    [
        Sized("a", "blue", wished=1, granting=1),
        Sized("a", "blue", asked=2, held=1, wished=2, live=1, granting=2),
    ],
    ids=["waits", "runs"],
)
def test_no_size_is_raised_while_kueue_may_be_admitting_another_one(job: Sized) -> None:
    """Kueue would write the admission of the size that it has read, and let all pods of the larger one run."""

    def broken(hasty: bool) -> list[str]:
        histories = SizedHistories(reclaims=True, hasty=hasty)
        histories.search(State((job,)), 200)
        return [what for what, _ in histories.broken]

    assert "a reconciled: more pods than quota" in broken(hasty=True)
    assert not broken(hasty=False)


@pytest.mark.parametrize("events", [{"owner comes"}, {"urgent comes"}, {"rightful comes"}])
def test_a_plan_that_does_not_know_who_waits_raises_no_count(events: set[str]) -> None:
    """Kueue evicts the newest Workload first, and a job that grows has the newest one of all."""
    alone = Sized("a", "blue", asked=1, held=1, live=1)
    histories = SizedHistories(reclaims=True)
    histories.search(State((alone,), admitted=("a",), left=frozenset(events)), 100)
    assert not histories.broken


def test_a_size_that_runs_without_having_been_admitted_is_taken_back_and_admitted() -> None:
    start = State((Sized("a", "blue", asked=3, held=2, live=3, counted=3),), admitted=("a",))
    histories = SizedHistories(reclaims=True)
    taken = dict(histories.steps(dict(histories.steps(start))["plan"]))["a acts"]
    assert [job.asked for job in taken.jobs] == [2]
    (job,) = (histories.rest(start) or start).jobs
    assert (job.held, job.live, job.counted) == (4, 4, 0)


def test_an_autoscaler_keeps_a_node_that_pods_need_and_removes_it_afterwards() -> None:
    assert dict(Around(load=2, replicas=2).steps(4)) == {"adds node": Around(2, 2, 0, has_extra=True)}
    assert Around(load=2, replicas=2).rested(4) == Around(2, 2, 2, has_extra=True)
    assert Around(load=2, replicas=2, placed=2, has_extra=True).rested(2) == Around(2, 2, 2)
