"""Events on nodes that trainers avoid."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from edl.kube.node_reporter import ApiNodeReporter, event_of_node
from edl.model.cluster import AvoidedNode
from edl.model.names import JobKey
from tests.worlds.fake_api import FakeApi, FakeClock, connected, refusal

KEYS = tuple(JobKey("ads", name) for name in "abcde")
NODE = AvoidedNode("n1", 3600.0, KEYS[:2])


def test_the_event_is_on_the_node_and_names_the_jobs() -> None:
    body = event_of_node(NODE, 60.0)
    assert body["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (body["type"], body["reason"], body["firstTimestamp"]) == (
        "Warning", "AvoidedByTraining", "1970-01-01T00:01:00Z",
    )  # fmt: skip
    assert body["message"] == (
        "trainers of ads/a and ads/b failed or hung here and did well on other nodes; edl starts no trainers of"
        " namespace ads here until 1970-01-01T01:00:00Z, and then one. Serving pods are not affected."
    )
    agreed = replace(NODE, jobs=(*KEYS[:1], JobKey("news", "a")))
    assert "edl starts no trainers here until" in event_of_node(agreed, 60.0)["message"]
    many = event_of_node(replace(NODE, jobs=KEYS), 60.0)["message"]
    assert "ads/a, ads/b, ads/c and 2 other jobs" in many
    names = {event_of_node(replace(NODE, until_s=until_s), 60.0)["metadata"]["name"] for until_s in (1.0, 2.0)}
    assert len(names) == 2


async def test_each_time_is_reported_once_and_spared_nodes_are_not() -> None:
    api = FakeApi()
    async with connected(api) as session:
        reporter = ApiNodeReporter(session, FakeClock())
        for avoided in ((NODE, replace(NODE, name="n2", spared=True)), (NODE,), (), (replace(NODE, until_s=7200.0),)):
            await reporter.report(avoided)
    assert [(method, path) for method, path, _ in api.requests] == [("POST", "/api/v1/namespaces/default/events")] * 2
    assert all(json.loads(body)["involvedObject"]["name"] == "n1" for body in api.bodies)


@pytest.mark.parametrize(("code", "is_logged"), [(409, False), (403, True)])
async def test_a_refused_event_fails_nothing(code: int, is_logged: bool, caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.faults.append(refusal(code, "AlreadyExists" if code == 409 else "Forbidden"))
    async with connected(api) as session:
        await ApiNodeReporter(session, FakeClock()).report((NODE,))
    assert bool(caplog.records) is is_logged
