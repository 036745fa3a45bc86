"""The sentences that users read."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import assume, given

from edl.model.cluster import ClusterSnapshot
from edl.model.headroom import Headroom
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits, ServingLimits
from edl.model.names import Role
from edl.model.resources import CPU, HOST_PORT_PREFIX, Placement, Resources, Taint
from edl.model.status import Condition, JobStatus, Reason, Resize
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import (
    cores_of,
    decision_of,
    free_cores,
    plan_for,
    running_worlds,
    targets,
    with_pods,
    with_status,
)


def message_of(name: str, *jobs: Job, cores: int = 8) -> str:
    world = make_snapshot(make_nodes(1, cpu=cores), jobs)
    return decision_of(plan_for(world), name).account


def test_a_job_at_its_maximum_says_so() -> None:
    assert message_of("a", make_job("a", max_trainers=6)) == "6 of 6: at its maximum"


def test_a_job_that_is_held_by_a_resource_says_which_and_who_has_it() -> None:
    message = message_of("a", make_job("a", max_trainers=6), make_job("b", max_trainers=6))
    assert message == (
        "4 of 6: cpu is full on node n000; default/b holds 38 % of it above its minimum (3 trainers);"
        " one more trainer would cost default/b 0.2 of fulfilment and leave it with less (0.4 against 0.8)"
    )


def test_a_job_that_has_all_there_is_says_so() -> None:
    assert message_of("a", make_job("a", max_trainers=60)) == (
        "8 of 60: cpu is full on node n000; more trainers would not fit even without other jobs"
    )


def test_a_pinned_job_says_so() -> None:
    assert message_of("a", make_job("a", pinned=4)) == "4 of 10: pinned at 4 trainers"


def test_a_waiting_job_says_what_it_needs_in_cores_and_gib() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(1.5, 2), 2), FixedPods(Role.MASTER, make_shape(0.25, 0.25), 1))
    running = make_job("r", trainers=6, min_trainers=6, on=("n000",))
    message = message_of("a", running, make_job("a", min_trainers=2, fixed=fixed))
    assert message == (
        "waits for capacity: needs 2 trainers, 1 master and 2 pservers (5.25 cores, 6.25 GiB of memory in total);"
        " serving and the minimums of running jobs leave at most 2 cores"
        " (the largest minimum there is that of default/r: 6 cores)"
    )


def test_a_job_that_gives_way_says_for_what() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a", trainers=8, max_trainers=9, on=("n000",)),))
    decision = decision_of(plan_for(with_pods(world, make_serving("s", cpu=3))), "a")
    assert decision.account == (
        "5 of 9: yields 3 trainers on node n000 to serving pod serving/s (3 cores, 3 GiB of memory)"
    )


def test_a_job_that_kube_scheduler_preempted_is_not_said_to_have_yielded_to_serving() -> None:
    """The pods of a Job have a higher priority, too, unless it has a PriorityClass."""
    lost = Resize(990.0, 7, 1, Reason.SERVING_NEEDS_ROOM)
    spared = with_status(make_job("b", trainers=4, max_trainers=8, on=("n000",)), admitted=True)
    gave = with_status(make_job("a", trainers=1, max_trainers=7, on=("n000",)), resize=lost, admitted=True)
    plan = plan_for(make_snapshot(make_nodes(1), (gave, spared)))
    a, b = decision_of(plan, "a"), decision_of(plan, "b")
    assert a.message == "1 of 7: cooling down after it yielded to pods of higher priority"
    end = "1970-01-01T00:17:00Z"
    assert a.account.endswith(f"it lost trainers to pods of higher priority; it does not grow before {end}")
    reserved = "free capacity is reserved for default/a, which yielded to pods of higher priority"
    assert f"{reserved} and does not grow before {end}" in b.account


@pytest.mark.parametrize(("voluntary_s", "cores", "has"), [(None, 8, (1, 4)), (990.0, 5, (4, 1))])
def test_while_only_time_passes_the_accounts_of_waits_stay_the_same(
    voluntary_s: float | None, cores: int, has: tuple[int, int]
) -> None:
    """Each job would get another status with each plan, and each status would bring another plan."""
    reason = Reason.SERVING_NEEDS_ROOM if voluntary_s is None else Reason.INSUFFICIENT_CAPACITY
    lost = Resize(990.0, 7, has[0], reason, voluntary_s)
    gave = with_status(make_job("a", trainers=has[0], max_trainers=7, on=("n000",)), resize=lost, admitted=True)
    waits = with_status(make_job("b", trainers=has[1], max_trainers=8, on=("n000",)), admitted=True)
    world = make_snapshot(make_nodes(1, cpu=cores), (gave, waits))
    first, later = (plan_for(replace(world, observed_at_s=at_s)) for at_s in (1000.3, 1003.6))
    assert Reason.COOLDOWN in {decision.reason for decision in first.decisions}
    assert [d.account for d in first.decisions] == [d.account for d in later.decisions]


def test_a_job_that_gives_way_to_several_pods_says_how_many_and_how_much() -> None:
    world = make_snapshot(make_nodes(2), (make_job("a", trainers=16, max_trainers=16, on=("n000", "n001")),))
    decision = decision_of(plan_for(with_pods(world, make_serving("s", cpu=3), make_serving("t", cpu=6))), "a")
    assert "to 2 serving pods (9 cores, 6 GiB of memory in total)" in decision.account


def test_a_serving_pod_is_not_named_where_another_one_finds_no_room() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a", trainers=8, max_trainers=9, on=("n000",)),))
    decision = decision_of(plan_for(with_pods(world, make_serving("huge", cpu=90), make_serving("s", cpu=3))), "a")
    assert "1 serving pod (3 cores, 3 GiB of memory in total)" in decision.account
    assert "huge" not in decision.account


def test_an_unschedulable_job_names_the_pod_the_resource_and_the_largest_node() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(2, 64), 1),)
    world = make_snapshot((make_node("n0", 8, 32), make_node("n1", 8, 48)), (make_job("a", fixed=fixed),))
    decision = decision_of(plan_for(world), "a")
    assert decision.reason is Reason.UNSCHEDULABLE
    assert (
        "a pserver requests 64 GiB of memory, and no node that accepts it has more than 48 GiB of memory"
        in decision.account
    )


def test_a_job_whose_pods_fit_only_one_by_one_says_so() -> None:
    message = message_of("a", make_job("a", min_trainers=9))
    assert "the nodes can hold at most 8 trainers, and its minimum is 9" in message


def test_a_job_whose_pods_ask_for_several_host_ports_reads_one_of_them() -> None:
    job = make_job("a", min_trainers=2)
    ports = Resources.of({"hostport/TCP/20000": 1, "hostport/TCP/20001": 1})
    job = replace(job, trainer=replace(job.trainer, request=job.trainer.request + ports))
    assert message_of("a", job).endswith(
        "the nodes can hold at most 1 trainer, and its minimum is 2 (host port TCP/20000)"
    )


def test_a_job_that_no_node_takes_says_so() -> None:
    world = make_snapshot((make_node("n0", ready=False),), (make_job("a"),))
    assert "no node accepts its trainers (of 1 node: 1 not ready)" in decision_of(plan_for(world), "a").account
    nodes = (make_node("n0", ready=False), make_node("n1", cordoned=True), make_node("n2", cordoned=True))
    message = decision_of(plan_for(make_snapshot(nodes, (make_job("a"),))), "a").account
    assert "(of 3 nodes: 1 not ready and 2 cordoned)" in message


def test_a_node_that_is_large_enough_and_shut_is_named_with_what_shuts_it() -> None:
    tainted = replace(make_node("n2", cpu=16), taints=(Taint("gpu", "", "NoSchedule"),))
    nodes = (make_node("n0"), make_node("n1", cpu=16, cordoned=True), tainted, make_node("n3", cpu=4, cordoned=True))
    message = decision_of(plan_for(make_snapshot(nodes, (make_job("a", cpu=12),))), "a").account
    assert message.endswith(
        "a trainer requests 12 cores, and no node that accepts it has more than 8 cores;"
        " 2 larger nodes: 1 cordoned and 1 tainted gpu:NoSchedule"
    )


def test_what_a_node_never_had_is_not_full_there() -> None:
    plain = make_node("plain")
    gpus = Resources.of({"nvidia.com/gpu": 2})
    nodes = (plain, replace(plain, name="gpu", allocatable=plain.allocatable + gpus))
    job = replace(make_job("a"), trainer=make_shape(1, 1, None, **{"nvidia.com/gpu": 1}))
    other = make_job("b", trainers=6, max_trainers=8, on=("plain",))
    message = decision_of(plan_for(make_snapshot(nodes, (job, other))), "a").account
    assert (
        message == "2 of 10: nvidia.com/gpu is full on node gpu; more trainers would not fit even without other jobs"
    )


def test_room_that_is_kept_for_serving_is_said_to_be() -> None:
    world = make_snapshot(make_nodes(1), (make_job("a"),), (make_serving("s", cpu=1, node="n000"),))
    message = decision_of(plan_for(world, Limits(serving=ServingLimits(headroom=3))), "a").account
    assert message == (
        "4 of 10: cpu is full on node n000; capacity for 3 serving pods is kept free (--serving-headroom 3);"
        " no other job holds more than its minimum there"
    )


def test_learned_room_is_said_with_its_reason_and_whom_it_costs() -> None:
    job = make_job("a", trainers=8, max_trainers=8, on=("n000",) * 8)
    asked = Headroom(make_shape(3), 1, "nine in ten growths are no larger", may_delete=True)
    world = replace(make_snapshot(make_nodes(1), (job,)), headroom=(asked,))
    decision = decision_of(plan_for(world), "a")
    assert decision.message == "5 of 8: yields 3 trainers to headroom"
    assert decision.account == (
        "5 of 8: yields 3 trainers on node n000 ahead of serving pods to come: capacity for 1 of 1 pod of 3 cores,"
        " 1 GiB of memory; 3 trainers deleted for it; nine in ten growths are no larger"
    )


def test_under_utility_a_trade_is_stated_with_its_effect() -> None:
    curve = ((1, 100.0), (2, 190.0), (4, 300.0), (8, 320.0))
    known = replace(make_job("a", trainers=4, cpu=2, on=("n0", "n0", "n0", "n1")), throughput=curve)
    guessed = make_job("b", trainers=3, cpu=2, on=("n1",))
    plan = plan_for(make_snapshot((make_node("n0", cpu=7), make_node("n1")), (known, guessed)), policy="utility")
    assert targets(plan) == {"a": 4, "b": 3}
    assert (
        "would cost default/a 18 % of its speed and add 24 % here; that is too little to restart a running trainer"
        in (decision_of(plan, "b").account)
    )
    assert "would cost default/b 26 % of its speed and add 1.7 % here; all jobs together would be slower" in (
        decision_of(plan, "a").account
    )


def test_only_minimums_on_nodes_that_a_job_could_use_are_in_its_way() -> None:
    small, large = make_node("small"), make_node("large", labels={"disk": "ssd"})
    here = make_job("here", trainers=2, min_trainers=2, max_trainers=2, on=("large",))
    elsewhere = make_job("elsewhere", trainers=8, min_trainers=8, max_trainers=8, on=("small",))
    picky = make_shape(1, 1, Placement(node_selector=(("disk", "ssd"),)))
    waits = replace(make_job("a", min_trainers=7), trainer=picky)
    message = decision_of(plan_for(make_snapshot((large, small), (here, elsewhere, waits))), "a").account
    assert message.endswith("leave at most 6 cores (the largest minimum there is that of default/here: 2 cores)")


def test_a_cluster_without_nodes_says_so() -> None:
    assert "the cluster has no nodes" in decision_of(plan_for(make_snapshot((), (make_job("a"),))), "a").account


def test_a_resource_that_is_not_quite_full_says_how_much_is_left() -> None:
    message = message_of("a", make_job("a", cpu=3, max_trainers=60))
    assert "cpu is full on node n000 (at most 2 cores free on a node; a trainer requests 3 cores)" in message


def test_a_larger_trainer_costs_several_smaller_ones() -> None:
    large, small = make_job("l", cpu=4, max_trainers=9), make_job("s", min_trainers=1, max_trainers=5)
    message = message_of("l", large, small, cores=9)
    assert message.endswith("would cost default/s 1 of fulfilment and leave it with less (0 against 1)"), message


def test_surplus_that_frees_no_single_node_is_no_offer() -> None:
    message = message_of("l", make_job("l", cpu=4, max_trainers=9), make_job("s", min_trainers=1, max_trainers=5))
    assert message.endswith("no single job's surplus would free capacity for one more trainer on any node")


def test_what_the_dead_band_holds_back_is_said() -> None:
    nodes = tuple(node.name for node in make_nodes(4))
    running = (
        make_job("a", trainers=15, min_trainers=1, max_trainers=31, on=nodes),
        make_job("b", trainers=17, min_trainers=1, max_trainers=31, on=nodes[3:] + nodes[:3]),
    )
    settled = tuple(replace(job, status=JobStatus(conditions=(admitted(),))) for job in running)
    decision = decision_of(plan_for(make_snapshot(make_nodes(4), settled, now_s=5000.0)), "a")
    assert decision.target == 15
    assert decision.account.endswith(
        "would cost default/b 0.033 of fulfilment;"
        " edl deletes no trainer of a job that would be at most 0.1 ahead then"
    )


def admitted(since_s: float = 0.0) -> Condition:
    return Condition("Admitted", "True", "Admitted", "", since_s)


def test_a_job_behind_the_head_says_how_long_the_queue_stays_open() -> None:
    runs = make_job("r", trainers=6, min_trainers=6, on=("n000",), age_s=9000)
    head, small = make_job("head", min_trainers=5, age_s=250), make_job("small", min_trainers=4)
    message = decision_of(plan_for(make_snapshot(make_nodes(1), (runs, head, small))), "small").account
    assert message == (
        "waits behind default/head, which has waited 4 min; after 10 min no younger job starts before it;"
        " it needs 4 trainers (4 cores, 4 GiB of memory in total)"
    )


def test_a_job_behind_a_head_that_has_waited_long_says_that_nothing_passes_it() -> None:
    runs = make_job("r", trainers=6, min_trainers=6, on=("n000",), age_s=9000)
    head, small = make_job("head", min_trainers=5, age_s=7200), make_job("small")
    message = decision_of(plan_for(make_snapshot(make_nodes(1), (runs, head, small))), "small").account
    assert message.startswith(
        "waits behind default/head, which has waited over 10 min: no younger job starts before it; it needs 1 trainer"
    )


@pytest.mark.parametrize(("age_s", "is_closed"), [(599, False), (600, True)])
def test_the_sentence_closes_the_queue_when_the_planner_does(age_s: float, is_closed: bool) -> None:
    runs = make_job("r", trainers=6, min_trainers=6, max_trainers=6, on=("n000",), age_s=9000)
    head, small = make_job("head", min_trainers=5, age_s=age_s), make_job("small", min_trainers=1, max_trainers=1)
    decision = decision_of(plan_for(make_snapshot(make_nodes(1), (runs, head, small))), "small")
    assert decision.admitted is not is_closed, "there is capacity for it"
    assert ("no younger job starts before it" in decision.account) is is_closed


def test_the_head_says_that_room_is_there_but_in_pieces() -> None:
    runs = make_job("r", trainers=2, cpu=5, min_trainers=2, max_trainers=2, on=("n000", "n001"), age_s=9000)
    world = make_snapshot(make_nodes(2), (runs, make_job("a", cpu=4)))
    message = decision_of(plan_for(world), "a").account
    assert message.endswith("leave enough in total, but not on nodes that could hold its pods")


def test_trainers_that_make_way_for_an_arrival_die_of_its_admission() -> None:
    running = make_job("a", trainers=8, max_trainers=8, on=("n000",))
    plan = plan_for(make_snapshot(make_nodes(1), (running, make_job("b", max_trainers=8))))
    assert decision_of(plan, "a").victims
    assert decision_of(plan, "a").shrink_reason == Reason.ADMITTED
    assert decision_of(plan, "a").account.startswith(
        "4 of 8: yields 4 trainers because default/b starts; cpu is full"
    )


def test_trainers_above_a_lowered_maximum_die_of_that_even_while_a_job_arrives() -> None:
    running = make_job("a", trainers=4, max_trainers=2, on=("n000",))
    plan = plan_for(make_snapshot(make_nodes(1), (running, make_job("b", max_trainers=2))))
    assert decision_of(plan, "a").shrink_reason == Reason.AT_MAX


def test_amounts_beyond_all_machines_are_no_room_however_many_ask() -> None:
    limit_gib = (2**63 - 1) / 2**30 - 1
    for min_trainers in (1, 2, 3, 10):
        huge = make_job("a", min_trainers=min_trainers, max_trainers=10_000, memory_gib=limit_gib)
        decision = decision_of(plan_for(make_snapshot(make_nodes(3), (huge,))), "a")
        assert decision.reason is Reason.UNSCHEDULABLE
        assert "8 EiB of memory" in decision.account


@examples(80)
@given(running_worlds())
def test_what_a_sentence_calls_full_is_full(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    assume(plan.serving.waiting == 0)
    free = free_cores(world, plan)
    for job, decision in zip(world.jobs, plan.decisions, strict=True):
        assert decision.account
        if "is full on" in decision.account:
            assert all(cores < cores_of(job.trainer) for cores in free.values()), decision.account


@examples(80)
@given(running_worlds())
def test_a_job_that_does_not_grow_reads_why_and_a_job_that_is_named_exists(world: ClusterSnapshot) -> None:
    plan = plan_for(world)
    names = {str(job.key) for job in world.jobs}
    for decision in plan.decisions:
        named = set(re.findall(r"default/[a-z]+", decision.account))
        assert named <= names - {str(decision.job)}
        if (
            decision.admitted
            and decision.target < decision.max_trainers
            and decision.reason is Reason.INSUFFICIENT_CAPACITY
        ):
            assert re.search(r"is full on|no node accepts", decision.account)


RUNS = make_job("r", trainers=6, min_trainers=6, max_trainers=6, on=("n000",), age_s=9000)
SHORT = {
    "at its maximum": ("6 of 6: at its maximum", (make_job("a", max_trainers=6),)),
    "pinned": ("4 of 10: pinned at 4 trainers", (make_job("a", pinned=4),)),
    "a resource is full": ("4 of 6: cpu is full on node n000", (make_job("a"), make_job("b"))),
    "waits for capacity": ("waits for capacity for 3 trainers", (make_job("a", min_trainers=3), RUNS)),
    "waits behind a head": (
        "waits behind default/b",
        (make_job("a", min_trainers=4), make_job("b", min_trainers=5, age_s=250), RUNS),
    ),
    "never fits": (
        "a trainer requests 9 cores, and the largest node has 8 cores",
        (make_job("a", cpu=9),),
    ),
    "suspended": (
        "suspended; set spec.suspend to false to start the job",
        (replace(make_job("a"), suspended=True),),
    ),
    "yields to an arrival": (
        "4 of 8: yields 4 trainers to default/b",
        (make_job("a", trainers=8, max_trainers=8, on=("n000",)), make_job("b", max_trainers=8)),
    ),
}


@pytest.mark.parametrize("case", SHORT)
def test_the_short_form_is_one_line_without_prices(case: str) -> None:
    line, jobs = SHORT[case]
    jobs = tuple(replace(job, max_trainers=6) if case == "a resource is full" else job for job in jobs)
    decision = decision_of(plan_for(make_snapshot(make_nodes(1), jobs)), "a")
    assert decision.message == line


PORT = f"{HOST_PORT_PREFIX}TCP/80"


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({CPU: 5000}, "a trainer requests 5 cores, and other pods leave at most 3 cores on a node"),
        ({CPU: 9000}, "a trainer requests 9 cores, and the largest node has 8 cores"),
        ({PORT: 1}, "a trainer requests host port TCP/80, which other pods use on every node that accepts it"),
    ],
    ids=["less than a node", "more than a node", "a port"],
)
def test_what_other_pods_hold_is_not_said_to_be_all_that_a_node_has(asked: dict[str, int], line: str) -> None:
    job, other = make_job("a"), make_serving("s", cpu=5, node="n000")
    job = replace(job, trainer=replace(job.trainer, request=Resources.of({**job.trainer.request.as_dict(), **asked})))
    other = replace(other, shape=replace(other.shape, request=other.shape.request + Resources.of({PORT: 1})))
    decision = decision_of(plan_for(make_snapshot(make_nodes(1), (job,), (other,))), "a")
    assert (decision.admitted, decision.message) == (False, line)


@examples(80)
@given(running_worlds())
def test_a_short_line_is_short_and_its_account_longer(world: ClusterSnapshot) -> None:
    for decision in plan_for(world).decisions:
        assert len(decision.message) <= 100, decision.message
        assert not decision.details or len(decision.details) > len(decision.message)
