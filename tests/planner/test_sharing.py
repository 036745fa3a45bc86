"""How many trainers each admitted job has, and on which nodes: room, growth, staying; and odd inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.errors import ConfigError
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits, ServingLimits, SharingLimits
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.resources import PODS, Resources
from edl.model.status import Condition, JobStatus, Reason, Resize
from edl.planner.policies.registry import POLICIES, policy_named
from tests.worlds.builders import (
    make_job,
    make_node,
    make_nodes,
    make_resources,
    make_serving,
    make_shape,
    make_snapshot,
)
from tests.worlds.small_clusters import (
    apply_plan,
    decision_of,
    essence,
    later,
    plan_for,
    targets,
    victims,
    with_jobs,
    with_pods,
    with_status,
)

# Nodes


@pytest.mark.parametrize("closed", [make_node("n0", 8, ready=False), make_node("n0", 8, cordoned=True)])
def test_trainers_on_a_closed_node_stay_and_nothing_new_goes_there(closed: Node) -> None:
    nodes = (closed, make_node("n1", 4))
    plan = plan_for(make_snapshot(nodes, (make_job("a", trainers=3, max_trainers=10, on=("n0",)),)))
    decision = decision_of(plan, "a")
    assert decision.victims == ()
    assert decision.target == 7
    assert decision.nodes == (("n1", 4),)


def test_trainers_of_a_node_that_is_gone_count_until_they_are_gone() -> None:
    plan = plan_for(make_snapshot(make_nodes(1), (make_job("a", trainers=3, max_trainers=5, on=("gone",)),)))
    assert decision_of(plan, "a").current == 3
    assert decision_of(plan, "a").target == 5
    assert decision_of(plan, "a").victims == ()


def test_foreign_and_reserved_room_is_not_given_away() -> None:
    node = replace(make_node("n0", 8), reserved=make_resources(0.5))
    plan = plan_for(make_snapshot((node,), (make_job("a", max_trainers=10),), (make_serving("s", cpu=3, node="n0"),)))
    assert targets(plan) == {"a": 4}


def test_the_pod_count_devices_and_host_ports_are_resources() -> None:
    job = make_job("a", max_trainers=10)
    ported = replace(job.trainer, request=job.trainer.request + Resources.of({"hostport/TCP/80": 1}))
    gpu = replace(job.trainer, request=job.trainer.request + Resources.of({"nvidia.com/gpu": 1}))
    assert targets(plan_for(make_snapshot((make_node("n0", pods=3),), (job,)))) == {"a": 3}
    assert targets(plan_for(make_snapshot(make_nodes(2), (replace(job, trainer=ported),)))) == {"a": 2}
    refused = decision_of(plan_for(make_snapshot(make_nodes(2), (replace(job, trainer=gpu),))), "a")
    assert refused.reason is Reason.UNSCHEDULABLE
    assert "nvidia.com/gpu" in refused.account


def test_terminating_trainers_hold_no_room_in_the_plan() -> None:
    job = make_job("a", trainers=8, max_trainers=8, on=("n000",))
    dying = replace(job, pods=tuple(replace(p, terminating=p.index == 0) for p in job.pods))
    plan = plan_for(make_snapshot(make_nodes(1), (dying,)))
    assert decision_of(plan, "a").current == 7
    assert decision_of(plan, "a").target == 8


# Pods of ours on their way to a node


def unbound(job: Job, planned: str, phase: PodPhase = PodPhase.PENDING) -> Job:
    pods = tuple(replace(p, node="", planned=planned, phase=phase, started_s=None) for p in job.pods)
    return replace(job, pods=pods)


def test_unbound_trainers_count_and_keep_their_room() -> None:
    job = unbound(make_job("a", trainers=3, max_trainers=5), "n001")
    plan = plan_for(make_snapshot(make_nodes(2, cpu=3), (job,)))
    decision = decision_of(plan, "a")
    assert (decision.current, decision.target, decision.victims) == (3, 5, ())
    assert decision.nodes == (("n000", 2),)


def test_an_unbound_trainer_that_serving_displaces_goes_elsewhere_or_dies_first() -> None:
    waiting = unbound(make_job("new", trainers=1, min_trainers=1, max_trainers=1, cpu=3), "n000")
    running = make_job("r", trainers=1, min_trainers=1, max_trainers=1, cpu=3, on=("n001",))
    serving = make_serving("s", cpu=4)
    world = with_pods(make_snapshot((make_node("n000", 4), make_node("n001", 6)), (waiting, running)), serving)
    plan = plan_for(world)
    assert victims(plan) == []
    assert targets(plan) == {"new": 1, "r": 1}


def test_an_unbound_trainer_with_no_room_left_is_the_first_victim() -> None:
    running = make_job("a", trainers=3, max_trainers=8, on=("n000",))
    late = replace(running.pods[2], node="", planned="n000", phase=PodPhase.PENDING)
    world = make_snapshot(make_nodes(1, cpu=4), (replace(running, pods=(*running.pods[:2], late)),))
    plan = plan_for(with_pods(world, make_serving("s", cpu=2, node="n000")))
    assert victims(plan) == ["a-trainer-2"]


# Growth


def test_growth_stops_at_the_part_of_the_total_that_is_desired() -> None:
    world = make_snapshot(make_nodes(2, cpu=10), (make_job("a", min_trainers=1, max_trainers=30),))
    decision = decision_of(plan_for(world, Limits(sharing=SharingLimits(max_load_desired=0.8))), "a")
    assert decision.target == 16
    assert "--max-load-desired 0.8" in decision.account


def test_the_desired_part_does_not_stop_a_minimum() -> None:
    world = make_snapshot(make_nodes(1, cpu=10), (make_job("a", min_trainers=9, max_trainers=30),))
    assert targets(plan_for(world, Limits(sharing=SharingLimits(max_load_desired=0.5)))) == {"a": 9}


def test_headroom_for_serving_is_kept_from_growth() -> None:
    world = make_snapshot(make_nodes(2), (make_job("a", max_trainers=30),), (make_serving("s", cpu=3, node="n000"),))
    assert targets(plan_for(world)) == {"a": 13}
    assert targets(plan_for(world, Limits(serving=ServingLimits(headroom=2)))) == {"a": 7}


def shrunk_for_serving(age_s: float) -> ClusterSnapshot:
    resize = Resize(1000.0 - age_s, 6, 3, Reason.SERVING_NEEDS_ROOM)
    job = with_status(
        make_job("a", trainers=3, min_trainers=1, max_trainers=8, on=("n000",)), resize=resize, admitted=True
    )
    return make_snapshot(make_nodes(1), (job,))


def test_a_job_that_gave_way_to_serving_waits_before_it_grows() -> None:
    held = decision_of(plan_for(shrunk_for_serving(10)), "a")
    assert held.target == 3
    assert held.reason is Reason.COOLDOWN
    assert "1970-01-01T00:17:00Z" in held.account
    assert targets(plan_for(shrunk_for_serving(31))) == {"a": 8}


def test_its_minimum_is_restored_all_the_same() -> None:
    world = shrunk_for_serving(10)
    raised = replace(world.jobs[0], min_trainers=5)
    assert targets(plan_for(with_jobs(world, raised))) == {"a": 5}


# Staying


def unequal(*, poor: int, rich: int, resize: Resize | None = None) -> ClusterSnapshot:
    jobs = (
        with_status(make_job("poor", trainers=poor, max_trainers=9, on=("n000",)), admitted=True),
        with_status(make_job("rich", trainers=rich, max_trainers=9, on=("n000",)), resize=resize, admitted=True),
    )
    return make_snapshot(make_nodes(1, cpu=poor + rich), jobs)


def test_a_running_job_is_shrunk_for_another_where_much_is_gained() -> None:
    assert targets(plan_for(unequal(poor=1, rich=7))) == {"poor": 4, "rich": 4}


def test_but_not_for_a_little_and_not_in_its_cooldown() -> None:
    wide = [replace(job, max_trainers=41) for job in unequal(poor=9, rich=11).jobs]
    assert targets(plan_for(make_snapshot(make_nodes(1, cpu=20), tuple(wide)))) == {"poor": 9, "rich": 11}
    cooling = plan_for(unequal(poor=1, rich=7, resize=Resize(970.0, 8, 7, Reason.INSUFFICIENT_CAPACITY, 970.0)))
    assert targets(cooling) == {"poor": 1, "rich": 7}
    assert decision_of(cooling, "poor").reason is Reason.COOLDOWN
    assert "1970-01-01T00:17:10Z" in decision_of(cooling, "poor").account


def test_trainers_that_die_for_a_share_do_so_whatever_keeps_their_job_from_growing() -> None:
    def job(name: str, trainers: int, resize: Resize | None = None) -> Job:
        return with_status(
            make_job(name, trainers=trainers, max_trainers=14, on=("n000",)), resize=resize, admitted=True
        )

    cooling = Resize(970.0, 14, 12, Reason.INSUFFICIENT_CAPACITY, 970.0)
    jobs = (job("poor", 1), job("middling", 7), job("rich", 12, cooling))
    plan = plan_for(make_snapshot(make_nodes(1, cpu=20), jobs))
    assert targets(plan) == {"poor": 4, "middling": 4, "rich": 12}
    gives = decision_of(plan, "middling")
    assert (gives.reason, gives.shrink_reason) == (Reason.COOLDOWN, Reason.INSUFFICIENT_CAPACITY)


@pytest.mark.parametrize(
    "resize",
    [
        Resize(990.0, 6, 7, Reason.INSUFFICIENT_CAPACITY),
        Resize(990.0, 8, 7, Reason.SERVING_NEEDS_ROOM),
        Resize(990.0, 8, 7, Reason.ADMITTED),
        Resize(990.0, 8, 7, Reason.SERVING_NEEDS_ROOM, 939.0),
    ],
    ids=["growth", "serving", "an admission", "long after a voluntary shrink"],
)
def test_only_a_shrink_for_the_share_of_another_starts_the_cooldown(resize: Resize) -> None:
    assert targets(plan_for(unequal(poor=1, rich=7, resize=resize))) == {"poor": 4, "rich": 4}


def test_a_cooldown_goes_on_when_the_job_gives_way_to_serving() -> None:
    resize = Resize(990.0, 8, 7, Reason.SERVING_NEEDS_ROOM, 970.0)
    assert targets(plan_for(unequal(poor=1, rich=7, resize=resize))) == {"poor": 1, "rich": 7}


def test_nobody_is_shrunk_for_another_in_the_plan_that_makes_room_for_serving() -> None:
    world = with_pods(unequal(poor=1, rich=7), make_serving("s", cpu=1))
    assert targets(plan_for(world)) == {"poor": 1, "rich": 6}


@pytest.mark.parametrize(("ends_by_s", "rich"), [(1010.0, 7), (0.0, 4), (2.0**31, 4)])
def test_trainers_that_do_not_end_delay_no_transfer(ends_by_s: float, rich: int) -> None:
    world = unequal(poor=1, rich=7)
    stays = make_job("stays", trainers=1, on=("n001",))
    stays = replace(stays, suspended=True, pods=(replace(stays.pods[0], terminating=True, ends_by_s=ends_by_s),))
    world = replace(world, nodes=(*world.nodes, make_node("n001", 1)), jobs=(*world.jobs, stays))
    assert targets(plan_for(world))["rich"] == rich


def ebbing(cores: int, *, node: Node | None = None) -> ClusterSnapshot:
    """`poor` would have three trainers of `rich`; a serving pod of so many cores is on its way out."""
    second = node or make_node("n001", 8)
    world = unequal(poor=1, rich=7)
    world = replace(world, nodes=(*world.nodes, second))
    stays = make_serving("stays", cpu=8 - cores, node=second.name)
    return with_pods(world, stays, replace(make_serving("goes", cpu=cores, node=second.name), terminating=True))


def test_nobody_is_shrunk_for_another_where_room_that_serving_is_leaving_will_do() -> None:
    plan = plan_for(ebbing(5))
    assert targets(plan) == {"poor": 1, "rich": 7}
    assert "terminating pods will free enough capacity, and edl waits for them" in decision_of(plan, "poor").account
    stays = replace(ebbing(5), pods=tuple(replace(pod, ends_by_s=0.0) for pod in ebbing(5).pods))
    assert targets(plan_for(stays)) == {"poor": 4, "rich": 4}
    gone = replace(ebbing(5), pods=tuple(pod for pod in ebbing(5).pods if not pod.terminating))
    plan = plan_for(gone)
    assert targets(plan) == {"poor": 6, "rich": 7}
    assert not any(decision.victims for decision in plan.decisions)


@pytest.mark.parametrize(
    "world",
    [
        ebbing(1),
        ebbing(4, node=make_node("n001", 8, ready=False)),
        ebbing(4, node=make_node("n001", 8, cordoned=True)),
    ],
    ids=["too little", "on a lost node", "on a cordoned node"],
)
def test_but_somebody_is_where_it_will_not_do(world: ClusterSnapshot) -> None:
    assert targets(plan_for(world)) == {"poor": 4, "rich": 4}


def test_a_job_that_starts_takes_no_trainer_of_another_for_room_that_serving_is_leaving() -> None:
    rich = with_status(make_job("rich", trainers=8, max_trainers=9, on=("n000",)), admitted=True)
    leaving = replace(make_serving("goes", cpu=8, node="n001"), terminating=True)
    world = make_snapshot(make_nodes(2), (rich, make_job("new", max_trainers=9)), (leaving,))
    assert targets(plan_for(world)) == {"new": 1, "rich": 7}
    assert targets(plan_for(replace(world, pods=()))) == {"new": 8, "rich": 8}


def test_the_plan_that_admits_a_job_shares_anew_whatever_the_cooldown() -> None:
    resize = Resize(990.0, 13, 12, Reason.INSUFFICIENT_CAPACITY, 990.0)
    rich = with_status(make_job("rich", trainers=12, max_trainers=12, on=("n000",)), resize=resize, admitted=True)
    plan = plan_for(make_snapshot(make_nodes(1, cpu=12), (rich, make_job("new", max_trainers=12))))
    assert targets(plan) == {"new": 6, "rich": 6}


def test_an_arrival_ends_in_the_same_shares_as_a_start_together() -> None:
    """The fair share is 3.5 and 1.5 trainers; of 4 and 1 the newcomer would have nothing, of 3 and 2 both gain."""
    nodes = (make_node("n000", 5),)
    old, new = make_job("old", min_trainers=2, max_trainers=5), make_job("new", min_trainers=1, max_trainers=2)
    together = plan_for(make_snapshot(nodes, (old, new)))
    running = make_job("old", trainers=5, min_trainers=2, max_trainers=5, on=("n000",))
    assert targets(plan_for(make_snapshot(nodes, (running, new)))) == targets(together) == {"new": 2, "old": 3}


def test_a_wide_job_gives_up_a_rounded_share_where_narrow_ones_would_have_nothing() -> None:
    """The fair share is 3, 1.5 and 1.5 trainers: 3, 2 and 1 would leave one job at its minimum, 2, 2 and 2 nobody."""
    jobs = (make_job("a", max_trainers=5), make_job("b", max_trainers=2), make_job("c", max_trainers=2))
    world = make_snapshot((make_node("n0", 6),), jobs)
    plan = plan_for(world)
    assert targets(plan) == {"a": 2, "b": 2, "c": 2}
    settled = later(apply_plan(world, plan), 100)
    assert targets(plan_for(settled)) == targets(plan)


def test_nobody_is_shrunk_for_another_to_below_where_that_one_was() -> None:
    """After the newcomer came, it is not raised from 2 to 3 of 5 at the cost of all that b has above its minimum."""
    a = make_job("a", trainers=5, max_trainers=5, memory_gib=2, on=("n0", "n0", "n1", "n1", "n1"), tier=1)
    b = make_job("b", trainers=2, max_trainers=2, memory_gib=3, on=("n0",))
    new = make_job("new", max_trainers=5, cpu=2, memory_gib=3, tier=1)
    world = make_snapshot((make_node("n0", 8, 10), make_node("n1", 8, 10)), (a, b, new))
    plan = plan_for(world)
    assert targets(plan) == {"a": 4, "b": 2, "new": 2}
    assert essence(plan_for(later(apply_plan(world, plan), 100))) == essence(plan)


def test_nobody_is_shrunk_for_another_where_that_leaves_somebody_worse_off_than_anybody_was() -> None:
    """`wide` has two of its three trainers, `narrow` two of ten; three more for it would leave `wide` its minimum."""
    jobs = (
        make_job("wide", trainers=2, min_trainers=1, max_trainers=3, cpu=3, on=("n0", "n2")),
        make_job("narrow", trainers=1, min_trainers=1, max_trainers=10, on=("n1",)),
    )
    nodes = tuple(make_node(f"n{i}", cpu) for i, cpu in enumerate((3, 2, 3)))
    plan = plan_for(make_snapshot(nodes, tuple(with_status(job, admitted=True) for job in jobs)))
    assert targets(plan) == {"narrow": 2, "wide": 2}


def test_trainers_on_a_node_that_others_overcommit_take_nothing_from_what_the_job_may_have() -> None:
    others = tuple(make_serving(f"s{i}", cpu=4, node="n0") for i in range(3))
    world = make_snapshot(
        (make_node("n0"), make_node("n1", 4)), (make_job("a", trainers=2, max_trainers=10, on=("n0",)),), others
    )
    assert targets(plan_for(world)) == {"a": 6}


def test_a_maximum_beyond_the_cluster_buys_nothing() -> None:
    jobs = (make_job("greedy", max_trainers=10000), make_job("modest", max_trainers=12))
    assert targets(plan_for(make_snapshot(make_nodes(1, cpu=12), jobs))) == {"greedy": 6, "modest": 6}


# Policies, certificate, failure


def test_static_policies_hold_jobs_at_a_bound() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a", min_trainers=2, max_trainers=5, trainers=3, on=("n000",)),))
    assert targets(plan_for(world, policy="static-min")) == {"a": 2}
    assert targets(plan_for(world, policy="static-max")) == {"a": 5}
    assert plan_for(world, policy="static-max").policy == "static-max"


def test_an_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=", ".join(sorted(POLICIES))):
        policy_named("best")


def test_an_empty_cluster_and_an_idle_one_have_a_plan() -> None:
    assert plan_for(make_snapshot(())).decisions == ()
    assert plan_for(make_snapshot((), (make_job("a"),))).decisions[0].reason is Reason.UNSCHEDULABLE
    assert plan_for(make_snapshot(make_nodes(1))).certificate.gap == 0


def test_a_decision_that_takes_too_long_admits_nobody_and_says_so() -> None:
    plan = plan_for(make_snapshot(make_nodes(1), (make_job("a"),)), Limits(deadline_s=0.0))
    assert plan.cut[0] == "admission"
    assert {*plan.cut} <= {"admission", "proof", "sentences"}
    assert [d.admitted for d in plan.decisions] == [False]


def test_prices_name_what_is_scarce() -> None:
    plan = plan_for(make_snapshot(make_nodes(2), (make_job("a", max_trainers=30), make_job("b", max_trainers=30))))
    kinds = {price.kind: price for price in plan.prices}
    assert kinds["shape"].resource == "cpu"
    assert kinds["shape"].price > 0
    assert kinds["class"].name == "n000 and 1 node like it"
    assert PODS not in {price.resource for price in plan.prices}


# Odd inputs


def test_a_role_without_pods_and_a_template_that_changed_since_are_planned_around() -> None:
    none = (FixedPods(Role.PSERVER, make_shape(2), 0),)
    assert targets(plan_for(make_snapshot(make_nodes(1), (make_job("a", max_trainers=3, fixed=none),)))) == {"a": 3}
    start = make_snapshot(
        make_nodes(1), (make_job("a", max_trainers=3, fixed=(FixedPods(Role.PSERVER, make_shape(2), 1),)),)
    )
    running = apply_plan(start, plan_for(start)).jobs[0]
    changed = replace(running, trainer=make_shape(2), fixed=(FixedPods(Role.PSERVER, make_shape(3), 1),))
    decision = decision_of(plan_for(make_snapshot(make_nodes(1), (changed,))), "a")
    assert (decision.current, decision.target, decision.victims, decision.fixed_nodes) == (3, 3, (), ())


def test_a_node_that_others_overcommit_keeps_its_trainers_and_gets_none() -> None:
    world = make_snapshot(
        make_nodes(1), (make_job("a", trainers=6, on=("n000",)),), (make_serving("s", node="n000"),)
    )
    assert decision_of(plan_for(world), "a").victims == ()
    assert targets(plan_for(world)) == {"a": 6}


def test_pods_that_differ_from_their_template_by_now_do_not_confuse_the_plan() -> None:
    fixed = (FixedPods(Role.MASTER, make_shape(0.25, 0.25), 1),)
    job = make_job("a", min_trainers=2, max_trainers=6, fixed=fixed)
    empty = make_snapshot(make_nodes(2), (job,))
    started = apply_plan(empty, plan_for(empty))
    changed = replace(
        started,
        jobs=tuple(
            replace(j, pods=tuple(replace(p, shape=make_shape(0.5, 0.5)) for p in j.pods)) for j in started.jobs
        ),
    )
    decision = decision_of(plan_for(changed), "a")
    assert (decision.current, decision.target, decision.victims) == (6, 6, ())


def test_absurd_requests_of_bound_pods_do_not_add_up_to_room() -> None:
    absurd = (2**63 - 1) / 2**30 - 1
    bound = tuple(make_serving(f"s{i}", cpu=0, memory_gib=absurd, node="n000") for i in range(2))
    plan = plan_for(make_snapshot(make_nodes(1), (make_job("a"),), bound))
    assert decision_of(plan, "a").target == 0


@pytest.mark.parametrize(("resized_after_s", "taken"), [(0.0, 1), (3.0, 0)], ids=["arriving", "arrived"])
def test_only_an_arriving_job_takes_for_a_small_difference(resized_after_s: float, taken: int) -> None:
    """One trainer of eleven is less than the dead band; a job that has grown since its admission waits for more."""
    admitted = Condition("Admitted", "True", "Admitted", "", 990.0)
    status = JobStatus(conditions=(admitted,), last_resize=Resize(990.0 + resized_after_s, 1, 5, "Admitted"))
    old = make_job("a", trainers=7, min_trainers=1, max_trainers=12, on=("n000",))
    new = make_job("b", trainers=5, min_trainers=1, max_trainers=12, on=("n000",))
    starting = replace(new.pods[-1], started_s=None, phase=PodPhase.PENDING)
    new = replace(new, pods=(*new.pods[:-1], starting), status=status)
    settled = replace(old, status=JobStatus(conditions=(replace(admitted, since_s=0.0),)))
    plan = plan_for(make_snapshot(make_nodes(1, cpu=12), (settled, new)))
    assert len(victims(plan)) == taken
