"""What room is asked of each plan, and how often trainers may be deleted for it."""

from __future__ import annotations

from dataclasses import replace

from edl.headroom.advisor import COOLDOWN_S, GRANT_S, MOST_SHAPES, Advisor, is_serving
from edl.model.cluster import ClusterSnapshot
from edl.model.headroom import KeptHeadroom
from edl.model.plan import Certificate, ScalePlan
from edl.model.resources import Resources
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot


def at(second: float, pods: int, cpu: float = 1) -> ClusterSnapshot:
    serving = tuple(make_serving(f"web-{i:03d}", cpu=cpu, node="n000") for i in range(pods))
    return replace(make_snapshot(make_nodes(1, 64), (make_job("a"),), serving), observed_at_s=second)


def waved(advisor: Advisor, until_s: float = 1400.0, every_s: float = 100.0) -> None:
    """Show it a rise of four once in `every_s`, too few times to know the moments after a change."""
    second = 0.0
    while second < until_s:
        advisor.advise(at(second, 2 if second % every_s < every_s / 2 else 6))
        second += 5.0


def plan(deleted: int) -> ScalePlan:
    return ScalePlan(
        (), Certificate("fulfilment", 0.0, 0.0), headroom=(KeptHeadroom(Resources(), 4, 4, deleted, ""),)
    )


def test_a_new_advisor_starts_cold_and_says_so() -> None:
    (found,) = Advisor(500.0).advise(at(0.0, 3))
    assert (found.pods, found.may_delete) == (0, False)
    assert "cold start" in found.reason


def test_it_asks_for_room_for_the_growth_that_it_saw() -> None:
    advisor = Advisor(500.0)
    waved(advisor)
    (found,) = advisor.advise(at(1401.0, 2))
    assert (found.pods, found.may_delete) == (4, True)
    assert found.shape == at(0.0, 1).pods[0].shape


def test_each_shape_is_judged_alone() -> None:
    advisor = Advisor(500.0)
    waved(advisor)
    other = at(1401.0, 2)
    both = replace(other, pods=(*other.pods, make_serving("x", cpu=7, node="n000")))
    assert [found.pods for found in advisor.advise(both)] == [4, 0]


def test_deletions_for_room_pause() -> None:
    advisor = Advisor(500.0)
    waved(advisor)
    now = at(1401.0, 2)
    advisor.advise(now)
    advisor.planned(now, plan(0))
    assert advisor.advise(at(1402.0, 2))[0].may_delete
    advisor.planned(at(1402.0, 2), plan(3))
    may = {s: advisor.advise(at(1402.0 + s, 2))[0].may_delete for s in (GRANT_S - 1, GRANT_S + 1, COOLDOWN_S - 1)}
    assert may == {GRANT_S - 1: True, GRANT_S + 1: False, COOLDOWN_S - 1: False}
    advisor.planned(at(1430.0, 2), plan(3))
    assert advisor.advise(at(1403.0 + COOLDOWN_S, 2))[0].may_delete


def test_it_remembers_a_bounded_number_of_shapes() -> None:
    advisor = Advisor(20.0)
    for number in range(3 * MOST_SHAPES):
        found = advisor.advise(at(float(number), 1, cpu=1 + number / 10))
    assert len(found) == MOST_SHAPES
    assert found[-1].shape == at(0.0, 1, cpu=1 + (3 * MOST_SHAPES - 1) / 10).pods[0].shape


def test_trainers_daemons_and_low_priorities_do_not_serve() -> None:
    pod = make_serving("web", cpu=1, node="n000")
    assert is_serving(pod)
    assert not is_serving(replace(pod, daemon=True))
    assert not is_serving(replace(pod, priority=-1))
    assert not is_serving(make_job("a", trainers=2, on=("n000",)).pods[0])
