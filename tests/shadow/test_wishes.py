"""Evictions that plans want: each once, with the serving pods that would get the room."""

from __future__ import annotations

from dataclasses import replace

from edl.controller.planning import plan_snapshot
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.shadow.document import Evictions
from edl.shadow.wishes import MOST, Wishes
from tests.shadow.objects import Times
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot

LIMITS = Limits()


def full(*waiting: str, cpu: float = 3) -> ClusterSnapshot:
    """A node of 8 cores with 8 trainers of a job that needs 2 of them, and serving pods that wait."""
    job = make_job("ctr", trainers=8, min_trainers=2, max_trainers=8, on=("n1",))
    pods = tuple(replace(make_serving(name, cpu=cpu), tried=True) for name in waiting)
    return make_snapshot((make_node("n1"),), (job,), pods)


def planned(wishes: Wishes, view: ClusterSnapshot) -> None:
    wishes.planned(view, plan_snapshot(view, "", LIMITS))


def test_trainers_would_go_for_the_pod_that_waits_and_it_fits_then() -> None:
    wishes = Wishes(Times().now_s)
    planned(wishes, full("web"))
    found = wishes.evictions
    assert (found.trainers, found.for_serving, found.serving_pods, found.fits) == (3, 3, 1, 1)
    assert {(one.job, one.node, one.reason, *one.serving) for one in found.evictions} == {
        ("default/ctr", "n1", "ServingNeedsRoom", "serving/web")
    }
    (served,) = found.served
    assert (served.pod, served.node, served.fits, len(served.trainers)) == ("serving/web", "n1", True, 3)


def test_a_wish_that_each_plan_repeats_counts_once() -> None:
    times = Times()
    wishes = Wishes(times.now_s)
    planned(wishes, full("web"))
    times.s += 5
    planned(wishes, full("web"))
    assert wishes.evictions.trainers == 3
    assert {one.plans for one in wishes.evictions.evictions} == {2}
    assert {(one.first, one.last) for one in wishes.evictions.evictions} == {
        ("1970-01-01T00:16:40Z", "1970-01-01T00:16:45Z")
    }


def test_what_became_of_the_pod_without_edl_is_noted() -> None:
    times = Times()
    wishes = Wishes(times.now_s)
    planned(wishes, full("one", "two"))
    times.s += 7
    wishes.ended("serving-one", True)
    wishes.ended("serving-two", False)
    wishes.ended("serving-one", False)
    wishes.ended("nobody", True)
    assert [(one.outcome, one.waited_s) for one in wishes.evictions.served] == [("bound", 7.0), ("gone", 7.0)]
    assert wishes.evictions.bound_anyway == 1


def test_nothing_is_wanted_for_a_pod_that_fits_nowhere_or_without_evictions() -> None:
    wishes = Wishes(Times().now_s)
    planned(wishes, full("huge", cpu=20))
    job = make_job("ctr", trainers=4, min_trainers=2, max_trainers=4, on=("n1",))
    planned(wishes, make_snapshot((make_node("n1"),), (job,), (make_serving("web"),)))
    assert wishes.evictions == Evictions()


def test_room_that_victims_leave_beside_a_pod_is_used_by_the_next_one() -> None:
    """Two trainers of 4 cores: one that goes leaves room for a pod of 3 cores, and for one of 1 core besides."""
    job = make_job("ctr", trainers=2, min_trainers=1, max_trainers=2, cpu=4, on=("n1",))
    pods = (make_serving("a", cpu=3), make_serving("b", cpu=1))
    view = make_snapshot((make_node("n1"),), (job,), tuple(replace(pod, tried=True) for pod in pods))
    wishes = Wishes(Times().now_s)
    planned(wishes, view)
    assert wishes.evictions.trainers == 1
    assert [(one.pod, one.fits) for one in wishes.evictions.served] == [("serving/a", True)]


def test_trainers_that_go_for_another_job_serve_no_pod() -> None:
    wishes = Wishes(Times().now_s)
    full_job = make_job("ctr", trainers=8, min_trainers=1, max_trainers=8, on=("n1",))
    young = make_job("new", min_trainers=4, max_trainers=4)
    planned(wishes, make_snapshot((make_node("n1"),), (full_job, young)))
    found = wishes.evictions
    assert (found.trainers, found.for_serving, found.served) == (4, 0, [])


def test_a_later_run_knows_what_was_counted() -> None:
    wishes = Wishes(Times().now_s)
    planned(wishes, full("web"))
    kept = Evictions.model_validate_json(wishes.evictions.model_dump_json())
    again = Wishes(Times().now_s, kept)
    planned(again, full("web"))
    assert (again.evictions.trainers, again.evictions.serving_pods) == (3, 1)


def test_only_the_first_are_kept_and_the_others_counted() -> None:
    wishes = Wishes(Times().now_s)
    jobs = tuple(
        make_job(f"job-{i}", trainers=1, min_trainers=1, max_trainers=1, on=("n1",)) for i in range(MOST + 1)
    )
    view = make_snapshot((make_node("n1", cpu=0.001),), jobs)
    empty = plan_snapshot(make_snapshot((make_node("n1"),)), "", LIMITS)
    decision = plan_snapshot(full("web"), "", LIMITS).decisions[0]
    gone = tuple(replace(decision, job=job.key, victims=(job.pods[0].name,)) for job in jobs)
    wishes.planned(view, replace(empty, decisions=gone))
    assert (wishes.evictions.trainers, len(wishes.evictions.evictions), wishes.evictions.left_off) == (
        MOST + 1,
        MOST,
        1,
    )


def test_a_pod_fits_once_a_later_plan_makes_room_for_it() -> None:
    wishes = Wishes(Times().now_s)
    view = full("web")
    plan = plan_snapshot(view, "", LIMITS)
    few = tuple(replace(one, victims=one.victims[:1]) for one in plan.decisions)
    wishes.planned(view, replace(plan, decisions=few))
    (served,) = wishes.evictions.served
    assert (served.fits, wishes.evictions.fits) == (False, 0)
    for _ in range(2):
        wishes.planned(view, plan)
        assert (served.node, served.fits, len(served.trainers)) == ("n1", True, 3)
        assert (wishes.evictions.fits, wishes.evictions.serving_pods) == (1, 1)
