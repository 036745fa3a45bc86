"""The order of writes: worth, turns of jobs, stages of lanes."""

from __future__ import annotations

from dataclasses import replace

from edl.controller.write_queue import (
    TURN_OF_WORDS,
    Lane,
    Turns,
    Worth,
    Write,
    WriteQueue,
    creation_lane,
    deletion_lane,
    node_lane,
    status_lane,
)
from edl.model.actions import (
    CreatePod,
    DeletePod,
    EmitEvent,
    EnsureService,
    EventKind,
    MarkPod,
    PatchStatus,
    RequestNode,
    WithdrawNodeRequest,
)
from edl.model.names import Role
from edl.model.node_groups import NodeGroup
from edl.model.resources import Resources
from edl.model.status import JobPhase, JobStatus
from tests.worlds.builders import make_job

JOB = make_job("a", min_trainers=2, max_trainers=9)


def pod(role: Role, index: int, job: str = "a") -> CreatePod:
    key = make_job(job).key
    return CreatePod(key, f"uid-{job}", role, index)


def lane(job: str, worth: Worth, count: int = 1) -> Lane:
    return (tuple(Write((pod(Role.TRAINER, index, job),), worth) for index in range(count)),)


def taken(queue: WriteQueue, *, is_ok: bool = True) -> list[Write]:
    """Take everything, each write ending before the next one begins."""
    found = []
    while (one := queue.take()) is not None:
        queue.end(one, is_ok=is_ok)
        found.append(one.write)
    return found


def test_the_worthiest_writes_come_first() -> None:
    lanes = [lane(f"j{worth}", worth) for worth in reversed(Worth)]
    assert [write.worth for write in taken(WriteQueue(lanes, Turns()))] == list(Worth)


def test_jobs_take_turns() -> None:
    lanes = [lane("a", Worth.SURPLUS, 3), lane("b", Worth.SURPLUS, 3)]
    assert [write.job_uid for write in taken(WriteQueue(lanes, Turns()))] == ["uid-a", "uid-b"] * 3


def test_a_job_that_was_served_last_comes_last_in_the_next_round() -> None:
    turns = Turns()
    lanes = [lane(name, Worth.SURPLUS, 3) for name in ("a", "b", "c")]
    first = WriteQueue(lanes, turns)
    for _ in range(4):
        first.take()
    assert [write.job_uid for write in taken(WriteQueue(lanes, turns))][:3] == ["uid-b", "uid-c", "uid-a"]


def test_every_eighth_write_is_one_of_words_while_there_is_growth() -> None:
    lanes = [lane("a", Worth.SURPLUS, 30), lane("b", Worth.WORDS, 2)]
    order = [write.worth for write in taken(WriteQueue(lanes, Turns()))]
    assert [number for number, worth in enumerate(order, 1) if worth is Worth.WORDS] == [
        TURN_OF_WORDS,
        2 * TURN_OF_WORDS,
    ]


def test_masters_and_pservers_end_before_a_trainer_begins() -> None:
    job = make_job("a", min_trainers=1)
    actions = (EnsureService(job.key, "uid-a"), pod(Role.TRAINER, 0), pod(Role.PSERVER, 0), pod(Role.MASTER, 0))
    queue = WriteQueue([creation_lane(job, actions)], Turns())
    service = queue.take()
    assert service is not None
    assert queue.take() is None, "pods need the Service"
    queue.end(service, is_ok=True)
    base = [queue.take(), queue.take()]
    assert queue.take() is None
    for one in base:
        assert one is not None
        assert queue.left == 1
        queue.end(one, is_ok=True)
    assert [write.actions[0] for write in taken(queue)] == [pod(Role.TRAINER, 0)]


def test_nothing_follows_a_failure() -> None:
    actions = (EnsureService(JOB.key, "uid-a"), pod(Role.TRAINER, 0))
    queue = WriteQueue([creation_lane(JOB, actions)], Turns())
    assert len(taken(queue, is_ok=False)) == 1
    assert queue.left == 0


def test_one_failure_of_a_stage_is_enough() -> None:
    job = make_job("a", min_trainers=1)
    actions = (pod(Role.PSERVER, 0), pod(Role.PSERVER, 1), pod(Role.TRAINER, 0))
    queue = WriteQueue([creation_lane(job, actions)], Turns())
    first, second = queue.take(), queue.take()
    assert first is not None
    assert second is not None
    queue.end(first, is_ok=False)
    queue.end(second, is_ok=True)
    assert queue.take() is None


def test_trainers_up_to_the_minimum_are_worth_more_than_surplus() -> None:
    job = make_job("a", trainers=1, min_trainers=3, max_trainers=9)
    made = creation_lane(job, [pod(Role.TRAINER, index) for index in (1, 2, 3)])
    assert [write.worth for write in made[0]] == [Worth.MINIMUM, Worth.MINIMUM, Worth.SURPLUS]


def test_deletions_for_serving_are_worth_more_than_other_ends_of_pods() -> None:
    key = JOB.key
    made = deletion_lane(
        (
            MarkPod(key, "u", "p0", "u0", "PodFailed/1"),
            DeletePod(key, "u", "p1", "u1", "ServingNeedsRoom"),
            DeletePod(key, "u", "p2", "u2", "InsufficientCapacity"),
        )
    )
    assert [write.worth for write in made[0]] == [Worth.SHRINK, Worth.SERVING, Worth.SHRINK]


def test_the_first_and_the_last_status_are_news_and_their_events_go_with_them() -> None:
    event = EmitEvent(JOB.key, JOB.uid, EventKind.NORMAL, "Admitted", "")

    def worth(before: JobStatus | None, phase: JobPhase) -> Worth:
        job = replace(make_job("a"), status=before)
        made = status_lane(job, (PatchStatus(job.key, job.uid, JobStatus(phase)), event))
        ((write,),) = made
        assert write.actions[1] == event
        return write.worth

    assert worth(None, JobPhase.PENDING) is Worth.NEWS
    assert worth(JobStatus(JobPhase.RUNNING), JobPhase.SUCCEEDED) is Worth.NEWS
    assert worth(JobStatus(JobPhase.RUNNING), JobPhase.SCALING) is Worth.WORDS
    assert worth(JobStatus(JobPhase.FAILED), JobPhase.FAILED) is Worth.WORDS
    assert status_lane(JOB, ()) == ()


def test_the_event_of_a_request_pod_belongs_to_its_write() -> None:
    event = EmitEvent(JOB.key, JOB.uid, EventKind.NORMAL, "NodeRequested", "asks")
    group = NodeGroup("spot", Resources(), (("pool", "spot"),))
    asks = [RequestNode(JOB.key, JOB.uid, number, group, Resources(), event) for number in (0, 1)]
    assert node_lane(asks) == (tuple(Write((ask, event), Worth.SURPLUS) for ask in asks),)
    gone = WithdrawNodeRequest(JOB.key, JOB.uid, "a-node-0", "uid", event)
    assert deletion_lane([gone]) == ((Write((gone, event), Worth.SHRINK),),)
    silent = replace(gone, event=None)
    assert deletion_lane([silent]) == ((Write((silent,), Worth.SHRINK),),)
