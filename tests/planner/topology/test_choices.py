"""Which domains a job may get, in which order, and what the plan sees of the choice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.topology import Topology, TopologyMode
from edl.planner.topology.choices import Choice, Choices, read_choices
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for

KEY = "example.com/rack"
RACKS = (
    make_node("a1", 4, labels={KEY: "a"}),
    make_node("a2", 4, labels={KEY: "a"}),
    make_node("b1", 6, labels={KEY: "b"}),
    make_node("none", 16),
)


def together(job: Job, mode: TopologyMode = TopologyMode.REQUIRED) -> Job:
    return replace(job, topology=Topology.of(KEY, mode))


def choices_of(*jobs: Job) -> Choices:
    found = read_choices(make_snapshot(RACKS, jobs), Limits())
    assert found is not None
    return found


def domains_of(*jobs: Job) -> dict[str, tuple[str, ...]]:
    return {
        key.name: tuple(dict.fromkeys("/".join(c.domain or c.order[0]) for c in options))
        for key, options in choices_of(*jobs).options.items()
    }


def test_a_snapshot_without_such_jobs_is_not_even_read() -> None:
    assert read_choices(make_snapshot(RACKS, (make_job("plain"),)), Limits()) is None


def test_a_domain_that_holds_the_minimum_comes_before_one_that_does_not() -> None:
    assert domains_of(together(make_job("job", min_trainers=7, max_trainers=12))) == {"job": ("a",)}
    assert domains_of(together(make_job("job", min_trainers=2, max_trainers=12))) == {"job": ("a", "b")}
    assert domains_of(together(make_job("job", min_trainers=2, max_trainers=6))) == {"job": ("b", "a")}


def test_a_domain_that_could_hold_a_pinned_count_comes_before_one_that_is_free() -> None:
    """Rack b could hold all seven, once trainers of another job above its minimum have gone."""
    racks = (make_node("a1", 4, labels={KEY: "a"}), make_node("b1", 8, labels={KEY: "b"}))
    other = make_job("other", trainers=7, min_trainers=1, max_trainers=8, on=("b1",), age_s=1000.0)
    pinned = together(make_job("pinned", min_trainers=2, max_trainers=8, pinned=7))
    found = read_choices(make_snapshot(racks, (other, pinned)), Limits())
    assert found is not None
    assert [choice.domain for choice in found.options[pinned.key]] == [("b",), ("a",)]


def test_of_domains_that_could_hold_a_pinned_count_one_that_stops_no_other_job_comes_first() -> None:
    racks = (make_node("a1", 8, labels={KEY: "a"}), make_node("b1", 8, labels={KEY: "b"}))
    others = (
        make_job("in-a", trainers=5, min_trainers=3, max_trainers=5, on=("a1",), age_s=1000.0),
        make_job("in-b", trainers=6, min_trainers=1, max_trainers=6, on=("b1",), age_s=1000.0),
    )
    pinned = together(make_job("pinned", min_trainers=2, max_trainers=8, pinned=7))
    found = read_choices(make_snapshot(racks, (*others, pinned)), Limits())
    assert found is not None
    assert [choice.domain for choice in found.options[pinned.key]] == [("b",), ("a",)]


def test_a_job_that_no_domain_holds_is_given_the_largest_one() -> None:
    assert domains_of(together(make_job("job", min_trainers=9, max_trainers=9))) == {"job": ("a",)}


def test_a_job_keeps_the_domain_of_most_of_its_trainers() -> None:
    job = together(make_job("job", trainers=3, min_trainers=1, on=("b1", "a1", "b1")))
    assert domains_of(job) == {"job": ("b",)}


def test_pods_on_their_way_count_where_they_are_planned() -> None:
    job = together(make_job("job", trainers=1))
    pods = tuple(replace(pod, planned="b1") for pod in job.pods)
    assert domains_of(replace(job, pods=pods)) == {"job": ("b",)}


def test_pods_that_have_a_node_say_where_the_job_is_before_those_on_their_way() -> None:
    job = make_job("job", trainers=3, on=("a1", "a2", "b1"))
    on_its_way = (replace(pod, node="", planned=pod.node, phase=PodPhase.PENDING) for pod in job.pods[:2])
    job = together(replace(job, pods=(*on_its_way, job.pods[2])))
    assert domains_of(job) == {"job": ("b",)}
    plan = plan_for(make_snapshot(RACKS, (job,)))
    assert {name for name, _ in decision_of(plan, "job").nodes} == {"b1"}


def test_room_of_terminating_trainers_is_free_for_the_choice() -> None:
    """Otherwise the choice of one plan would not be that of the next, and trainers would end in both racks."""
    gone = make_job("gone", trainers=6, on=("b1",))
    gone = replace(gone, pods=tuple(replace(pod, terminating=True) for pod in gone.pods))
    assert domains_of(gone, together(make_job("job", min_trainers=6, max_trainers=6)))["job"] == ("b", "a")


@pytest.mark.parametrize(("ends_by_s", "domains"), [(1010.0, ("b", "a")), (0.0, ("a", "b")), (2.0**31, ("a", "b"))])
def test_room_of_trainers_that_do_not_end_is_not(ends_by_s: float, domains: tuple[str, ...]) -> None:
    gone = make_job("gone", trainers=1, on=("b1",))
    gone = replace(gone, pods=(replace(gone.pods[0], terminating=True, ends_by_s=ends_by_s),))
    other = make_job("other", trainers=3, min_trainers=3, max_trainers=3, on=("a1",))
    assert domains_of(gone, other, together(make_job("job", min_trainers=2, max_trainers=6)))["job"] == domains


def test_the_guess_for_a_younger_job_leaves_the_older_one_its_room() -> None:
    old, young = (
        together(make_job(name, min_trainers=6, max_trainers=6, age_s=age_s))
        for name, age_s in (("old", 9), ("young", 1))
    )
    assert {key.name: choice.domain for key, choice in choices_of(old, young).guess.items()} == {
        "old": ("b",),
        "young": ("a",),
    }


def test_the_plan_sees_the_domain_and_what_the_largest_could_hold() -> None:
    choices = choices_of(together(make_job("job", min_trainers=2)), make_job("plain"))
    placed = {job.key.name: job for job in choices.applied({JobKey("default", "job"): Choice(("b",))}).jobs}
    assert placed["job"].topology == replace(Topology.of(KEY, TopologyMode.REQUIRED), domain=("b",), most=8)
    assert placed["plain"] == make_job("plain")
    assert read_choices(choices.applied(choices.guess), Limits()) is None


def test_a_preference_fills_one_rack_first() -> None:
    job = together(make_job("job", min_trainers=2, max_trainers=6), TopologyMode.PREFERRED)
    plan = plan_for(make_snapshot(RACKS[:3], (job,)))
    assert decision_of(plan, "job").nodes == (("b1", 6),)


def test_a_running_job_grows_only_where_it_is() -> None:
    job = together(make_job("job", trainers=2, min_trainers=1, max_trainers=20, on=("b1",)))
    choices = choices_of(job)
    pinned = choices.applied(choices.guess).jobs[0].trainer
    job = replace(job, pods=tuple(replace(pod, shape=pinned) for pod in job.pods))
    decision = decision_of(plan_for(make_snapshot(RACKS, (job,))), "job")
    assert (decision.nodes, decision.victims) == ((("b1", 4),), ())


def test_serving_that_takes_a_rack_sends_the_whole_job_to_the_other() -> None:
    """The job is never in two racks, and never below its minimum: it ends whole, then starts from nothing."""
    job = together(make_job("job", trainers=4, min_trainers=4, max_trainers=6, on=("b1",)))
    choices = choices_of(job)
    pinned = choices.applied(choices.guess).jobs[0].trainer
    job = replace(job, pods=tuple(replace(pod, shape=pinned) for pod in job.pods))
    web = tuple(replace(make_serving(f"web-{i}", cpu=4), tried=True) for i in range(1))
    nodes = (make_node("a1", 3, labels={KEY: "a"}), make_node("a2", 3, labels={KEY: "a"}), RACKS[2])
    ended = decision_of(plan_for(make_snapshot(nodes, (job,), web)), "job")
    assert (ended.admitted, len(ended.victims), ended.nodes) == (False, 4, ())
    served = tuple(replace(pod, node="b1") for pod in web)
    again = decision_of(plan_for(make_snapshot(nodes, (replace(job, pods=()),), served)), "job")
    assert again.nodes == (("a1", 3), ("a2", 3))


def with_pservers(job: Job, count: int, *, on: str = "", mode: TopologyMode = TopologyMode.REQUIRED) -> Job:
    """The job with pservers of one core; they run if a node is named."""
    shape = make_shape(1, 1)

    def pserver(index: int) -> Pod:
        name = f"{job.key.name}-pserver-{index}"
        return Pod("default", name, name, shape, PodPhase.RUNNING, on, job=job.key, role=Role.PSERVER, index=index)

    live = tuple(pserver(i) for i in range(count)) if on else ()
    return replace(together(job, mode), fixed=(FixedPods(Role.PSERVER, shape, count),), pods=(*live, *job.pods))


def test_a_domain_holds_a_job_only_with_its_pservers() -> None:
    seven = make_job("job", min_trainers=5, max_trainers=6)
    assert domains_of(with_pservers(seven, 1)) == {"job": ("a", "b")}
    assert domains_of(with_pservers(seven, 2)) == {"job": ("a",)}
    assert choices_of(with_pservers(seven, 2)).most == {JobKey("default", "job"): 6}


def test_pservers_name_the_domain_of_a_job_without_trainers() -> None:
    job = with_pservers(make_job("job", min_trainers=1), 2, on="b1")
    assert domains_of(job) == {"job": ("b",)}
    trainers = make_job("job", trainers=1, on=("a1",)).pods
    assert domains_of(replace(job, pods=(*job.pods, *trainers))) == {"job": ("a",)}


def test_pservers_wish_for_the_domain_of_a_preference_and_masters_for_none() -> None:
    job = with_pservers(make_job("job", min_trainers=2, max_trainers=3), 1, mode=TopologyMode.PREFERRED)
    job = replace(job, fixed=(*job.fixed, FixedPods(Role.MASTER, make_shape(1, 1), 1)))
    choices = choices_of(job)
    placed = choices.applied(choices.guess).jobs[0]
    pserver, master = placed.fixed
    assert (pserver.preferred, master.preferred) == (placed.preferred, ())
    assert placed.fixed[0].shape == make_shape(1, 1)
    decision = decision_of(plan_for(make_snapshot(RACKS[:3], (job,))), "job")
    assert decision.nodes == (("b1", 3),)
    assert (Role.PSERVER, "b1") in decision.fixed_nodes


def test_a_preference_counts_without_pservers_where_these_do_not_fit() -> None:
    job = with_pservers(make_job("job", min_trainers=6, max_trainers=6), 1, mode=TopologyMode.PREFERRED)
    large = replace(job, fixed=(FixedPods(Role.PSERVER, make_shape(16, 1), 1),))
    assert domains_of(large) == {"job": ("b",)}


def test_a_pserver_that_is_lost_is_replaced_in_the_domain_of_its_trainers() -> None:
    job = make_job("job", trainers=2, min_trainers=2, max_trainers=2, on=("b1",))
    decision = decision_of(plan_for(make_snapshot(RACKS, (with_pservers(job, 1),))), "job")
    assert decision.fixed_nodes == ((Role.PSERVER, "b1"),)


def test_what_is_free_for_an_elastic_job_is_left_to_it_by_the_guess_for_the_next_one() -> None:
    """Both would fit in the larger rack with what is left of their maximums, and one rack would stay empty."""
    old, young = (
        together(make_job(name, min_trainers=1, max_trainers=high, age_s=age_s))
        for name, high, age_s in (("old", 8, 9), ("young", 7, 1))
    )
    guess = {key.name: choice.domain for key, choice in choices_of(old, young).guess.items()}
    assert guess == {"old": ("a",), "young": ("b",)}
