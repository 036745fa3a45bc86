"""Request pods come and go as the plan asks; trainers of the surplus may be evicted if edl empties nodes."""

from __future__ import annotations

from dataclasses import replace

from edl.lifecycle.node_requests import allow_eviction, node_request_actions
from edl.model.actions import CreatePod, RequestNode, WithdrawNodeRequest
from edl.model.cluster import NodeRequest
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.node_groups import NodeAsk, NodeGroup
from edl.model.plan import Limits, ScaleDecision
from edl.model.pods import Pod
from edl.model.status import Reason
from tests.worlds.builders import make_job, make_resources, make_shape

SPOT = NodeGroup("spot", make_resources(4, 32, pods=110), (("pool", "spot"),), limit=4)
JOB = make_job("a", min_trainers=2)
BIG, SMALL = make_resources(4, 4), make_resources(2, 2)


def decision(asks: NodeAsk | None) -> ScaleDecision:
    return ScaleDecision(JOB.key, 1, 0, 0, 2, 10, admitted=False, reason=Reason.UNSCHEDULABLE, message="", asks=asks)


def request(number: int, *, terminating: bool = False) -> NodeRequest:
    name = f"a-node-{number}"
    return NodeRequest(JOB.key, "spot", Pod("default", name, name, make_shape(3), terminating=terminating))


def named(job: Job, requests: list[NodeRequest], given: ScaleDecision | None) -> list[str]:
    actions = node_request_actions(job, requests, given, (SPOT,))
    return [f"+{a.pod_name}" if isinstance(a, RequestNode) else f"-{a.pod}" for a in actions]


def test_new_requests_take_the_lowest_free_numbers() -> None:
    asks = NodeAsk("spot", kept=("a-node-1",), new=(BIG, SMALL))
    actions = node_request_actions(JOB, [request(1)], decision(asks), (SPOT,))
    assert actions == (
        RequestNode(JOB.key, JOB.uid, 0, SPOT, BIG),
        RequestNode(JOB.key, JOB.uid, 2, SPOT, SMALL),
    )


def test_a_request_that_no_plan_asks_for_is_withdrawn_once() -> None:
    assert named(JOB, [request(0), request(1, terminating=True)], decision(None)) == ["-a-node-0"]
    actions = node_request_actions(JOB, [request(0)], decision(None), (SPOT,))
    assert actions == (WithdrawNodeRequest(JOB.key, JOB.uid, "a-node-0", "a-node-0"),)


def test_without_a_decision_requests_stay_unless_the_job_needs_nothing_more() -> None:
    assert named(JOB, [request(0)], None) == []
    for over in (replace(JOB, finished=True), replace(JOB, suspended=True)):
        assert named(over, [request(0)], None) == ["-a-node-0"]


def test_an_unknown_group_is_not_asked() -> None:
    assert named(JOB, [], decision(NodeAsk("other", new=(BIG,)))) == []


def test_only_new_trainers_above_the_minimum_may_be_evicted() -> None:
    pods = [CreatePod(JOB.key, JOB.uid, role, index) for role in (Role.MASTER, Role.TRAINER) for index in (0, 1, 2)]
    allowed = allow_eviction(pods, JOB, Limits(drain_idle_s=60.0))
    assert [(a.role, a.index) for a in allowed if isinstance(a, CreatePod) and a.may_evict] == [(Role.TRAINER, 2)]
    assert allow_eviction(pods, JOB, Limits()) == tuple(pods)
