"""The writes of one job: their lanes, what comes first, and what goes together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.allotment import Usable
from edl.controller.assumed import as_if_done
from edl.controller.job_writes import REPAIR_S, Facts, JobWrites, is_exclusive
from edl.controller.pending_writes import Lane, Write
from edl.model.actions import (
    CreatePod,
    DeletePod,
    EmitEvent,
    EnsureService,
    MarkPod,
    Need,
    PatchStatus,
    ProbePod,
    RequestNode,
    ResizePod,
    WithdrawNodeRequest,
)
from edl.model.cluster import NodeRequest
from edl.model.jobs import FixedPods, Job
from edl.model.lending import RunningRequest
from edl.model.limits import Limits, NodeLimits
from edl.model.names import Role
from edl.model.node_groups import NodeAsk, NodeGroup
from edl.model.pods import Pod, PodPhase
from edl.model.status import Reason
from tests.controller.core.core_stage import NODE, NODES, A, CoreStage, of_type
from tests.controller.loop_stage import plan_of
from tests.worlds.builders import make_job, make_resources, make_shape, make_snapshot


def told(job: Job) -> Job:
    """The job with the status that it has after a plan that changes nothing."""
    stage = CoreStage()
    stage.world.add(job)
    stage.settle({job.key.name: len(job.live_trainers)})
    return replace(job, status=stage.world.jobs[job.key].status)


def granted(job: Job, target: int, reason: str = "AtMax", requests: tuple[ResizePod, ...] = ()) -> Usable:
    decision = plan_of(make_snapshot(NODES, (job,)), {job.key.name: target}, reason).decisions[0]
    slots = [(Role.TRAINER, NODE)] * max(0, target - len(job.live_trainers))
    slots += [(fixed.role, NODE) for fixed in job.fixed for _ in range(fixed.count)]
    return Usable(decision, slots, requests)


def of(job: Job, given: Usable | None = None, facts: Facts | None = None, *, ensured: bool = True) -> list[Write]:
    stage = CoreStage()
    if ensured:
        stage.writes.sent(EnsureService(job.key, job.uid), generation=job.generation)
    return stage.writes.of(job, job, given or Usable(), facts or Facts(NODES), ())


def test_what_pods_need_is_made_first_and_taken_for_granted_afterwards() -> None:
    job = told(make_job("a"))
    first = of(job, granted(job, 2), ensured=False)
    assert of_type(Need, first)
    assert not of_type(CreatePod, first)
    assert len(of_type(CreatePod, of(job, granted(job, 2)))) == 2


def test_masters_and_pservers_are_created_before_trainers() -> None:
    job = replace(make_job("a"), fixed=(FixedPods(Role.PSERVER, make_shape(0.5), 2),))
    writes = of(job, granted(job, 2))
    created = of_type(CreatePod, writes)
    assert [action.role for action in created] == [Role.PSERVER, Role.PSERVER]
    assert {write.lane for write in writes if of_type(CreatePod, [write])} == {Lane.BASE}


def test_no_trainer_is_created_while_a_pserver_is_under_way() -> None:
    job = replace(make_job("a"), fixed=(FixedPods(Role.PSERVER, make_shape(0.5), 1),))
    stage = CoreStage()
    stage.writes.sent(EnsureService(job.key, job.uid), generation=job.generation)
    pserver = CreatePod(job.key, job.uid, Role.PSERVER, 0, NODE)
    assumed = as_if_done(job, [pserver])
    given = Usable(granted(job, 2).decision, [(Role.TRAINER, NODE)] * 2)
    assert not of_type(CreatePod, stage.writes.of(job, assumed, given, Facts(NODES), [pserver]))


def test_trainers_up_to_the_minimum_have_a_lane_of_their_own() -> None:
    job = told(make_job("a", trainers=1, min_trainers=3, on=(NODE,)))
    lanes = [write.lane for write in of(job, granted(job, 5)) if of_type(CreatePod, [write])]
    assert lanes == [Lane.MINIMUM, Lane.MINIMUM, Lane.SURPLUS, Lane.SURPLUS]


@pytest.mark.parametrize(
    ("reason", "lane"), [(Reason.SERVING_NEEDS_ROOM, Lane.EVICT), (Reason.INSUFFICIENT_CAPACITY, Lane.END)]
)
def test_deletions_for_serving_have_a_lane_of_their_own(reason: str, lane: Lane) -> None:
    job = told(make_job("a", trainers=4, on=(NODE,)))
    ends = [write for write in of(job, granted(job, 2, reason)) if of_type(DeletePod, [write])]
    assert [write.lane for write in ends] == [lane, lane]


def test_a_status_and_its_events_are_one_write_and_an_event_alone_is_none() -> None:
    job = told(make_job("a", trainers=2, on=(NODE,)))
    writes = of(job, granted(job, 4))
    status = next(write for write in writes if of_type(PatchStatus, [write]))
    assert of_type(EmitEvent, [status])
    assert not [write for write in writes if isinstance(write.actions[0], EmitEvent)]


def test_the_first_status_and_the_last_one_are_reports() -> None:
    new = make_job("a")
    assert [write.lane for write in of(new)] == [Lane.REPORT]
    ended = told(make_job("a", trainers=1, on=(NODE,)))
    done = replace(ended.pods[0], phase=PodPhase.SUCCEEDED, exit_code=0, ready=False)
    writes = of(replace(ended, pods=(done,)))
    assert [write.lane for write in writes if of_type(PatchStatus, [write])] == [Lane.REPORT]


def test_a_status_that_counts_a_failure_waits_for_its_mark() -> None:
    job = told(make_job("a", trainers=2, on=(NODE,)))
    failed = replace(job, pods=(replace(job.pods[0], phase=PodPhase.FAILED, exit_code=1, ready=False), job.pods[1]))
    writes = of(failed)
    assert of_type(MarkPod, writes)
    assert not of_type(PatchStatus, writes)


def test_requests_are_raised_only_while_no_serving_pod_waits_and_lowered_in_any_case() -> None:
    job = told(make_job("a", trainers=2, on=(NODE,)))
    pods = tuple(replace(pod, running_request=RunningRequest(1000, 500, 500)) for pod in job.pods)
    job = replace(job, pods=pods)
    raised, lowered = (
        ResizePod(A, job.uid, pod.name, pod.uid, milli, 1000) for pod, milli in zip(pods, (1000, 100), strict=True)
    )
    given = granted(job, 2, requests=(raised, lowered))
    assert of_type(ResizePod, of(job, given)) == [raised, lowered]
    assert of_type(ResizePod, of(job, given, Facts(NODES, serving_waits=True))) == [lowered]
    done = replace(job, pods=tuple(replace(p, running_request=RunningRequest(1000, 1000, 1000)) for p in pods))
    assert of_type(ResizePod, of(done, granted(done, 2, requests=(raised,)))) == []


def test_what_a_running_job_needs_is_made_again_from_time_to_time() -> None:
    stage = CoreStage()
    stage.add("a", 1, max_trainers=1)
    stage.settle({"a": 1})
    assert not of_type(Need, stage.send())
    stage.wait(REPAIR_S)
    assert of_type(Need, stage.send())
    stage.wait(REPAIR_S / 4)
    assert not of_type(Need, stage.send())


def test_only_pods_leave_a_job_open_for_further_writes() -> None:
    job = make_job("a")
    pod = CreatePod(job.key, job.uid, Role.TRAINER, 0)
    assert not is_exclusive(Write((pod,), Lane.SURPLUS))
    assert not is_exclusive(Write((DeletePod(job.key, job.uid, "p", "u", "x"),), Lane.END))
    for action in (MarkPod(job.key, job.uid, "p", "u", "x"), EnsureService(job.key, job.uid)):
        assert is_exclusive(Write((action,), Lane.BASE))
    assert is_exclusive(Write((ProbePod(job.key, job.uid, Role.TRAINER, 0),), Lane.BASE))


def test_a_job_that_breaks_the_code_is_reported_and_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(JobWrites, "_actions", broken)
    stage = CoreStage()
    job = stage.add("a")
    assert stage.writes.of(job, job, Usable(), Facts(NODES), ()) == []
    assert stage.recorder.failures == ["job default/a: broken"]


def test_each_request_pod_is_followed_by_its_event() -> None:
    group = NodeGroup("spot", make_resources(4, 32, pods=110), (("pool", "spot"),), limit=4)
    stage = CoreStage(limits=Limits(nodes=NodeLimits(expected=(group,))))
    job = stage.add("a", min_trainers=2)
    old = Pod("default", "a-node-0", "a-node-0", make_shape(3))
    facts = Facts(NODES, node_requests={job.key: [NodeRequest(job.key, "spot", old)]})
    given = granted(job, 0)
    assert given.decision is not None
    asks = NodeAsk("spot", kept=(), new=(make_resources(4, 4),))
    given = replace(given, decision=replace(given.decision, asks=asks), may_request_nodes=True)
    actions = of_type(RequestNode | WithdrawNodeRequest | EmitEvent, stage.writes.of(job, job, given, facts, ()))
    kinds = [type(action) for action in actions if not isinstance(action, PatchStatus)]
    assert kinds[:4] == [WithdrawNodeRequest, EmitEvent, RequestNode, EmitEvent]
    assert [actions[0].event, actions[2].event] == [actions[1], actions[3]]
    assert not of_type(RequestNode, stage.writes.of(job, job, replace(given, may_request_nodes=False), facts, ()))
