"""The status of queues as the API server gets it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from edl.explain.decision import decide
from edl.kube.queue_reporter import ApiQueueReporter
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.queues import Queue
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.fake_api import FakeApi, FakeClock, connected

GIB = 1024**3
BLUE = Queue("blue", (("cpu", 4000), ("memory", 64 * GIB)), uid="u-blue", generation=3)
GREEN = Queue("green", (("cpu", 4000),), uid="u-green")


def cluster(*queues: Queue, max_trainers: int = 9) -> ClusterSnapshot:
    jobs = (make_job("a", max_trainers=max_trainers), make_job("b", min_trainers=30, max_trainers=30))
    return replace(make_snapshot(make_nodes(2), tuple(replace(job, queue="blue") for job in jobs)), queues=queues)


class Bench:
    """A reporter and the API server that it writes to."""

    def __init__(self, api: FakeApi, clock: FakeClock, reporter: ApiQueueReporter) -> None:
        self.api, self.clock, self.reporter = api, clock, reporter

    async def report(self, view: ClusterSnapshot) -> dict[str, Any]:
        """Report a view with its plan; the statuses that were written, by queue."""
        before = len(self.api.bodies)
        await self.reporter.report(view, decide(view, policy_named(""), Limits()))
        asked = zip(self.api.requests[before:], self.api.bodies[before:], strict=True)
        return {path.split("/")[-2]: json.loads(body)[0]["value"] for (_, path, _), body in asked}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    api, clock = FakeApi(), FakeClock()
    async with connected(api) as session:
        yield Bench(api, clock, ApiQueueReporter(session, clock))


async def test_a_status_says_what_is_used_borrowed_and_waited_for(bench: Bench) -> None:
    written = await bench.report(cluster(BLUE, GREEN))
    assert written["blue"] == {
        "observedGeneration": 3,
        "used": {"cpu": "8", "memory": "8Gi"},
        "borrowed": {"cpu": "4"},
        "share": {"cpu": "8", "memory": "39Gi"},
        "running": 1,
        "pending": 1,
        "message": "cpu: 4 cores of its own and 4 cores borrowed",
        "summary": {
            "used": "8 cores, 8 GiB of memory",
            "borrowed": "4 cores",
            "share": "8 cores, 39 GiB of memory",
        },
    }
    assert (written["green"]["used"], written["green"]["summary"]["borrowed"]) == ({"cpu": "0"}, "-")
    paths = {(method, path) for method, path, _ in bench.api.requests}
    base = "/apis/paddlepaddle.org/v1/queues"
    assert paths == {("PATCH", f"{base}/{name}/status") for name in ("blue", "green")}


async def test_an_invalid_queue_says_why_and_which_limits_count(bench: Bench) -> None:
    bad = replace(BLUE, problem="nominalQuota: the amount -3 of cpu is negative; write 0 or more")
    status = (await bench.report(cluster(bad, GREEN)))["blue"]
    assert status["message"] == f"invalid: {bad.problem}; its last valid limits count until then"
    assert status["share"] == {"cpu": "8", "memory": "39Gi"}
    unknown = replace(bad, nominal=())
    status = (await bench.report(cluster(unknown, GREEN)))["blue"]
    assert status["message"] == f"invalid: {bad.problem}; its jobs get no more than they have until then"
    assert (status["used"], status["share"], status["summary"]["used"]) == ({}, {}, "")
    long = (await bench.report(cluster(replace(unknown, problem="x" * 5000), GREEN)))["blue"]["message"]
    assert len(long) <= 1024
