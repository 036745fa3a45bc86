"""Trainers that kube-scheduler finds no node for: their share goes to others, and one is tried after pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from edl.controller.pauses.unscheduled import FIRST_S, LONGEST_S, WAITS_S, UnscheduledTrainers
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.quota_trees import KueueState
from edl.model.status import Reason
from edl.planner.policies.registry import policy_named
from tests.worlds import simulated_cluster
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.job_owner import make_batch, make_groups, make_volcano
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living
from tests.worlds.simulated_objects import Owned

WHY = "0/2 nodes are available: 2 cannot allocate all claims."


def trainers(job: Job, running: int, waiting: int = 0, *, planned: str = "n000") -> Job:
    """The job with so many trainers that run, and so many that have no node."""

    def pod(index: int) -> Pod:
        runs = index < running
        return Pod(
            namespace=job.key.namespace,
            name=f"{job.key.name}-trainer-{index}",
            uid=f"{job.key.name}-{index}",
            shape=job.trainer,
            node=f"n00{index % 2}" if runs else "",
            phase=PodPhase.RUNNING if runs else PodPhase.PENDING,
            planned=planned,
            tried=not runs,
            unscheduled="" if runs else WHY,
            job=job.key,
            role=Role.TRAINER,
            index=index,
        )

    return replace(job, pods=tuple(map(pod, range(running + waiting))))


def at(*jobs: Job) -> ClusterSnapshot:
    return make_snapshot(make_nodes(2, cpu=8), jobs)


def allowed(pauses: UnscheduledTrainers, job: Job, now_s: float) -> int | None:
    """The most trainers that the job may have; None if nothing is held back."""
    seen = pauses.apply(at(job), now_s).jobs[0]
    return None if seen.refusal is None else seen.refusal.allowed


JOB = make_job("a", min_trainers=2, max_trainers=12)


def test_a_slot_that_is_refused_for_a_minute_is_withdrawn_and_tried_again_later_and_later() -> None:
    pauses, stuck = UnscheduledTrainers(), trainers(JOB, 4, 3)
    assert allowed(pauses, stuck, 0.0) is None
    assert pauses.next_end_s(0.0) == WAITS_S
    assert allowed(pauses, stuck, WAITS_S - 1) is None
    now_s, pause_s = WAITS_S, FIRST_S
    for _ in range(8):
        assert allowed(pauses, stuck, now_s) == 4
        assert allowed(pauses, trainers(JOB, 4), now_s + pause_s - 1) == 4
        now_s += pause_s
        assert allowed(pauses, trainers(JOB, 4), now_s) == 5, "one is tried"
        assert allowed(pauses, trainers(JOB, 4, 1), now_s + 1) == 5
        now_s += 1 + WAITS_S
        stuck, pause_s = trainers(JOB, 4, 1), min(2 * pause_s, LONGEST_S)


def test_the_job_says_what_kube_scheduler_says_and_others_get_the_share() -> None:
    pauses = UnscheduledTrainers()
    stuck, other = trainers(JOB, 4, 8), make_job("b", min_trainers=1, max_trainers=12)
    pauses.apply(at(stuck, other), 0.0)
    plan = decide(pauses.apply(at(stuck, other), WAITS_S), policy_named("maxmin"), Limits())
    mine, theirs = plan.decisions
    assert (mine.target, mine.reason) == (4, Reason.UNSCHEDULABLE)
    assert sorted(mine.victims) == sorted(pod.name for pod in stuck.pods if not pod.node)
    later = pauses.apply(at(trainers(JOB, 4), other), WAITS_S + 1)
    assert WHY in decide(later, policy_named("maxmin"), Limits()).decisions[0].message
    assert theirs.target == 12


def test_a_trainer_that_gets_a_node_ends_the_pauses() -> None:
    pauses = UnscheduledTrainers()
    for now_s in (0.0, WAITS_S):
        allowed(pauses, trainers(JOB, 4, 3), now_s)
    assert allowed(pauses, trainers(JOB, 5), WAITS_S + FIRST_S) is None


def test_a_job_that_cannot_have_its_minimum_gives_everything_back_and_is_tried_again() -> None:
    pauses, none = UnscheduledTrainers(), trainers(JOB, 0, 12)
    for now_s in (0.0, WAITS_S):
        (seen,) = pauses.apply(at(none), now_s).jobs
    assert seen.is_barred
    (seen,) = pauses.apply(at(JOB), WAITS_S + FIRST_S).jobs
    assert not seen.is_barred
    assert seen.refusal is not None
    assert seen.refusal.allowed == JOB.min_trainers


def test_a_job_below_its_minimum_keeps_the_trainers_that_have_nodes() -> None:
    pauses, one = UnscheduledTrainers(), trainers(JOB, 1, 5)
    for now_s in (0.0, WAITS_S):
        (seen,) = pauses.apply(at(one), now_s).jobs
    assert seen.bounds.min_trainers == 1
    assert not seen.is_barred


@pytest.mark.parametrize(("job", "planned"), [(JOB, "n000"), (make_batch("a", 7, low=2, high=12), "")])
def test_a_trainer_whose_node_still_empties_waits_for_that(job: Job, planned: str) -> None:
    pauses, stuck = UnscheduledTrainers(), trainers(job, 4, 3, planned=planned)
    ending = replace(make_serving("web", cpu=4), node="n000", terminating=True, phase=PodPhase.RUNNING)
    for now_s in (0.0, WAITS_S, 2 * WAITS_S):
        (seen,) = pauses.apply(make_snapshot(make_nodes(2, cpu=8), (stuck,), (ending,)), now_s).jobs
    assert seen.refusal is None


def test_a_trainer_that_an_error_keeps_from_its_node_gives_its_slot_back() -> None:
    stuck = trainers(JOB, 4, 3)
    error = 'running PreBind plugin "VolumeBinding": timed out'
    pods = (replace(pod, tried=False, unscheduled=error if pod.tried else "") for pod in stuck.pods)
    pauses, failing = UnscheduledTrainers(), replace(stuck, pods=tuple(pods))
    assert [allowed(pauses, failing, at_s) for at_s in (0.0, WAITS_S, WAITS_S + FIRST_S)] == [None, 4, 5]


def test_a_changed_spec_is_tried_at_once() -> None:
    pauses, stuck = UnscheduledTrainers(), trainers(JOB, 4, 3)
    for now_s in (0.0, WAITS_S):
        allowed(pauses, stuck, now_s)
    assert allowed(pauses, replace(stuck, generation=2), WAITS_S + 1) is None


WORKLOAD = make_batch("a", 7, low=2, high=12)


def test_a_workload_gives_back_what_its_scheduler_does_not_place_and_keeps_its_minimum() -> None:
    pauses, stuck = UnscheduledTrainers(), trainers(WORKLOAD, 4, 3, planned="")
    assert [allowed(pauses, stuck, at_s) for at_s in (0.0, WAITS_S, WAITS_S + FIRST_S)] == [None, 4, 5]
    pauses, few = UnscheduledTrainers(), trainers(WORKLOAD, 1, 6, planned="")
    for at_s in (0.0, WAITS_S):
        (seen,) = pauses.apply(at(few), at_s).jobs
    assert seen.refusal is not None
    assert (seen.refusal.allowed, seen.is_barred, seen.bounds.min_trainers) == (2, False, 2)


@pytest.mark.parametrize("job", [make_groups("a", 2), make_volcano("a", 8, low=2, high=12)])
def test_nothing_is_taken_from_a_workload_whose_first_trainers_wait(job: Job) -> None:
    """Its controller would end those that run: they have the highest indexes."""
    stuck = trainers(job, 4, 4, planned="")
    pods = (replace(pod, index=((pod.index or 0) + 4) % 8) for pod in stuck.pods)
    pauses, stuck = UnscheduledTrainers(), replace(stuck, pods=tuple(pods))
    for now_s in (0.0, WAITS_S):
        view = pauses.apply(at(stuck), now_s)
    (decision,) = decide(view, policy_named("maxmin"), Limits()).decisions
    assert (decision.target, decision.victims) == (8, ())
    refusal = view.jobs[0].refusal
    assert refusal is not None
    assert refusal.message.startswith("its scheduler finds no node for further trainers of it (0/2")


def test_kueue_says_itself_what_a_workload_of_its_may_have() -> None:
    pauses, stuck = UnscheduledTrainers(), replace(trainers(WORKLOAD, 4, 3), kueue=KueueState("q", "main"))
    assert [allowed(pauses, stuck, at_s) for at_s in (0.0, WAITS_S)] == [None, None]


@pytest.mark.parametrize("job", [replace(JOB, sizes=(2, 4, 8, 12)), make_groups("llm", 2)])
def test_a_job_with_sizes_tries_the_next_one(job: Job) -> None:
    pauses, stuck = UnscheduledTrainers(), trainers(job, 4, 4)
    found = [allowed(pauses, stuck, at_s) for at_s in (0.0, WAITS_S)]
    assert [*found, allowed(pauses, trainers(job, 4), WAITS_S + FIRST_S)] == [None, 4, 8]


@pytest.mark.parametrize("make", [make_batch, make_volcano])
def test_the_cluster_is_full_beside_a_workload_whose_queue_is(
    make: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Volcano places no pod beyond the capability of its queue, whatever is free (volcano 3198)."""
    start, mine = World._start, make("bad", 2, low=2, high=24)

    def start_four(world: World, owned: Owned) -> None:
        has_node = sum(one.pod.job == mine.key and bool(one.pod.node) for one in world.pods.values())
        if owned.pod.job != mine.key or owned.pod.node or has_node < 4:
            start(world, owned)
        elif not owned.pod.tried:
            said = replace(owned.pod, tried=True, answered_s=owned.pod.created_s, unscheduled="queue is full")
            world._put_pod(replace(owned, pod=said))

    monkeypatch.setattr(World, "_start", start_four)
    with closing(Living(make_nodes(4, cpu=8), runs=True)) as living:
        living.do(lambda world: world.add(mine))
        living.do(lambda world: world.add(make_job("good", min_trainers=4, max_trainers=40)))
        seen = set()
        for step in range(90):
            living.step()
            if step >= 40:
                seen.add((living.trainers(mine.key), living.trainers(JobKey("default", "good"))))
        assert (4, 28) in seen
        assert min(theirs for _, theirs in seen) >= 27, "one more is tried now and then"


def _add(job: Job, world: World) -> None:
    world.add(job)


@pytest.mark.parametrize("make", [make_batch, make_volcano])
def test_a_workload_waits_for_the_trainers_that_end_for_it(
    make: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The containers of others take four minutes to end: its slots are not given away and taken anew meanwhile."""
    mine, other = make("mine", 2, low=2, high=16), make_job("good", min_trainers=4, max_trainers=40)
    with closing(Living(make_nodes(4, cpu=8), runs=True)) as living:
        for job in (mine, other):
            living.do(partial(_add, job))
            for _ in range(40):
                living.step()
        monkeypatch.setattr(simulated_cluster, "GRACE_S", 240.0)
        on = Counter(one.pod.node for one in living.world.pods.values() if one.pod.job == mine.key)
        ((lost, _),) = on.most_common(1)

        def lose(world: World) -> None:
            world.nodes[lost] = replace(world.nodes[lost], cordoned=True)
            for key in [key for key, one in world.pods.items() if one.pod.node == lost]:
                world._drop_pod(*key)

        living.do(lose)
        living.step()
        ending: set[str] = set()
        counts = set()
        for _ in range(110):
            living.step()
            there = [one.pod for one in living.world.pods.values()]
            ending |= {pod.uid for pod in there if pod.terminating and pod.job == other.key}
            counts.add(living.world.job(mine.key).owner_count)
        assert (counts, len(ending)) == ({9}, 6)
