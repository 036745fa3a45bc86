"""Request pods come and go as the plan asks; trainers of the surplus may be evicted if edl empties nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.lifecycle.node_requests import NodeEvent, allow_eviction, node_request_actions
from edl.model.actions import CreatePod, EmitEvent, EventKind, RequestNode, WithdrawNodeRequest
from edl.model.cluster import NodeRequest
from edl.model.jobs import Job
from edl.model.limits import Limits, NodeLimits
from edl.model.names import Role
from edl.model.node_groups import NodeAsk, NodeGroup
from edl.model.plan import ScaleDecision
from edl.model.pods import Pod
from edl.model.status import Reason
from tests.worlds.builders import make_job, make_resources, make_shape

SPOT = NodeGroup("spot", make_resources(4, 32, pods=110), (("pool", "spot"),), limit=4)
JOB = make_job("a", min_trainers=2)
NOW_S = 30.0
JOINED = "node n1 of group spot has joined the cluster"
BIG, SMALL = make_resources(4, 4), make_resources(2, 2)


def said_of(reason: NodeEvent, message: str) -> EmitEvent:
    return EmitEvent(JOB.key, JOB.uid, EventKind.NORMAL, reason, message)


def decision(asks: NodeAsk | None, *, admitted: bool = False) -> ScaleDecision:
    reason = Reason.AT_MAX if admitted else Reason.UNSCHEDULABLE
    return ScaleDecision(JOB.key, 1, 0, 0, 2, 10, admitted=admitted, reason=reason, message="", asks=asks)


def request(number: int, *, terminating: bool = False, node: str = "") -> NodeRequest:
    name = f"a-node-{number}"
    return NodeRequest(JOB.key, "spot", Pod("default", name, name, make_shape(3), terminating=terminating, node=node))


def named(job: Job, requests: list[NodeRequest], given: ScaleDecision | None) -> list[str]:
    actions = node_request_actions(job, requests, given, (SPOT,), NOW_S)
    return [f"+{a.pod_name}" if isinstance(a, RequestNode) else f"-{a.pod}" for a in actions]


def test_new_requests_take_the_lowest_free_numbers() -> None:
    asks = NodeAsk("spot", kept=("a-node-1",), new=(BIG, SMALL))
    actions = node_request_actions(JOB, [request(1)], decision(asks), (SPOT,), NOW_S)
    said = said_of(NodeEvent.REQUESTED, "edl asks for a node of group spot at 0 an hour")
    assert actions == (
        RequestNode(JOB.key, JOB.uid, 0, SPOT, BIG, said),
        RequestNode(JOB.key, JOB.uid, 2, SPOT, SMALL, said),
    )


def test_a_request_that_no_plan_asks_for_is_withdrawn_once() -> None:
    assert named(JOB, [request(0), request(1, terminating=True)], decision(None)) == ["-a-node-0"]
    actions = node_request_actions(JOB, [request(0)], decision(None), (SPOT,), NOW_S)
    said = said_of(
        NodeEvent.WITHDRAWN, "edl withdraws the request for a node of group spot: the job no longer asks for it"
    )
    assert actions == (WithdrawNodeRequest(JOB.key, JOB.uid, "a-node-0", "a-node-0", said),)


@pytest.mark.parametrize(
    ("node", "admitted", "now_s", "reason", "words"),
    [
        ("n1", True, 10.0, NodeEvent.CAME, JOINED),
        ("n1", False, 10.0, NodeEvent.WITHDRAWN, f"{JOINED}, and the job does not use it now"),
        ("", True, 10.0, NodeEvent.WITHDRAWN, "the job found capacity elsewhere"),
        ("", False, SPOT.give_up_s - 1, NodeEvent.WITHDRAWN, "the job no longer asks for it"),
        ("", False, SPOT.give_up_s, NodeEvent.DID_NOT_COME, "group spot brought no node in 300 s"),
    ],
)
def test_the_user_hears_why_a_request_goes(
    node: str, *, admitted: bool, now_s: float, reason: NodeEvent, words: str
) -> None:
    actions = node_request_actions(JOB, [request(0, node=node)], decision(None, admitted=admitted), (SPOT,), now_s)
    (event,) = [action.event for action in actions]
    assert event is not None
    assert (event.reason, event.kind is EventKind.WARNING) == (reason, reason is NodeEvent.DID_NOT_COME)
    assert words in event.message


def test_without_a_decision_requests_stay_unless_the_job_needs_nothing_more() -> None:
    assert named(JOB, [request(0)], None) == []
    for over in (replace(JOB, finished=True), replace(JOB, suspended=True)):
        assert named(over, [request(0)], None) == ["-a-node-0"]


def test_an_unknown_group_is_not_asked() -> None:
    assert named(JOB, [], decision(NodeAsk("other", new=(BIG,)))) == []


def test_only_new_trainers_above_the_minimum_may_be_evicted() -> None:
    pods = [CreatePod(JOB.key, JOB.uid, role, index) for role in (Role.MASTER, Role.TRAINER) for index in (0, 1, 2)]
    allowed = allow_eviction(pods, JOB, Limits(nodes=NodeLimits(drain_idle_s=60.0)))
    assert [(a.role, a.index) for a in allowed if isinstance(a, CreatePod) and a.may_evict] == [(Role.TRAINER, 2)]
    assert allow_eviction(pods, JOB, Limits()) == tuple(pods)
