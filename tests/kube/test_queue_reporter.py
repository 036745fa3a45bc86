"""The status of queues: only changes are written, and slow answers hold nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from edl.errors import PermanentError
from edl.kube import queue_reporter
from edl.kube.client.api_errors import NotFoundError
from edl.kube.client.session import ApiSession
from edl.kube.queue_reporter import ApiQueueReporter
from edl.model.cluster import ClusterSnapshot
from edl.model.queues import Queue, QueueStatus
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.fake_api import FakeClock
from tests.worlds.small_clusters import plan_for

QUEUES = tuple(Queue(name, (("cpu", 4000),), uid=f"u-{name}") for name in ("blue", "default"))


class FakeSession(ApiSession):
    """Writes that are kept, slow or refused."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.error: Exception | None = None
        self.hangs = False

    async def patch(self, path: str, *_: object, **__: object) -> dict[str, object]:
        self.paths.append(path.rsplit("/", 2)[1])
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return {}


def cluster(queues: tuple[Queue, ...] = QUEUES, trainers: int = 2) -> ClusterSnapshot:
    job = make_job("a", min_trainers=1, max_trainers=4, trainers=trainers, on=("n000",))
    return replace(make_snapshot(make_nodes(1), (job,)), queues=queues)


class Reporting:
    """A reporter with its clock, and what it showed last."""

    def __init__(self) -> None:
        self.session, self.clock = FakeSession(), FakeClock()
        self.shown: dict[str, QueueStatus] = {}
        self.reporter = ApiQueueReporter(self.session, self.clock, self._show)

    def _show(self, queues: Sequence[Queue], statuses: Mapping[str, QueueStatus]) -> None:
        assert {queue.name for queue in queues} == statuses.keys()
        self.shown = dict(statuses)

    async def report(self, snapshot: ClusterSnapshot) -> list[str]:
        """Report, and return the names of the queues that were written."""
        self.session.paths.clear()
        await self.reporter.report(snapshot, plan_for(snapshot))
        return sorted(self.session.paths)


async def test_only_what_has_changed_is_written_until_it_is_old() -> None:
    here = Reporting()
    assert await here.report(cluster()) == ["blue", "default"]
    assert here.shown["default"].running == 1
    assert await here.report(cluster()) == []
    larger = (QUEUES[0], Queue("default", (("cpu", 5000),), uid="u-default", generation=2))
    assert await here.report(cluster(larger)) == ["default"]
    here.clock.time_s += queue_reporter.REPEATED_S
    assert await here.report(cluster(larger)) == ["blue", "default"]


async def test_a_write_that_failed_is_repeated_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    here = Reporting()
    here.session.error = PermanentError("no right to patch queues/status")
    assert await here.report(cluster()) == await here.report(cluster()) == ["blue", "default"]
    assert caplog.text.count("status of queue not written") == 1
    here.session.error = NotFoundError("the queue is gone", code=404, reason="NotFound")
    await here.report(cluster())
    assert caplog.text.count("status of queue not written") == 1


async def test_answers_that_do_not_come_delay_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_reporter, "LONGEST_S", 0.05)
    here = Reporting()
    here.session.hangs = True
    assert await here.report(cluster()) == ["blue", "default"]
    here.session.hangs = False
    assert await here.report(cluster()) == ["blue", "default"]


async def test_without_queues_nothing_is_written_and_none_is_shown() -> None:
    here = Reporting()
    await here.report(cluster())
    assert await here.report(cluster(())) == []
    assert here.shown == {}
