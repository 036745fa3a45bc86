"""A creation without an answer: no decision is made before it is known whether the pod exists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from edl.errors import NotSyncedError
from edl.kube.writer import WRITE_TIMEOUT_S
from edl.model.actions import Result
from tests.kube.writer_on_fake_api import PODS, Bench, bench, create, pod
from tests.worlds.fake_api import refusal, reset

NAME = "ctr-trainer-0"


def lost_answer(here: Bench) -> Callable[[web.Request], Any]:
    """A fault: the request takes effect, and its answer is lost."""

    async def fault(request: web.Request) -> web.Response:
        here.api._create(request.path, "ads", json.loads(await request.read()))
        return reset(request)

    return fault


def shown(here: Bench) -> list[str]:
    """The pods that the cache was told of."""
    return [body["metadata"]["name"] for _, _, body in here.seen.told]


async def test_no_snapshot_is_taken_before_a_pod_without_an_answer_was_read(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(lost_answer(here))
        assert (await here.apply(create())).result is Result.FAILED
        assert shown(here) == []
        here.api.faults.append(refusal(503, "ServiceUnavailable", "no etcd"))
        with pytest.raises(NotSyncedError, match=f"has not answered whether it created pod ads/{NAME}"):
            await here.writer.settle()
        await here.clock.sleep(1.0)
        await here.writer.settle()
        assert shown(here) == [NAME]
        requests = len(here.api.requests)
        await here.writer.settle()
        assert len(here.api.requests) == requests


async def test_a_request_without_an_answer_may_take_effect_until_its_time_is_over(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(reset)
        await here.apply(create())
        with pytest.raises(NotSyncedError):
            await here.writer.settle()
        here.api.put(PODS, pod())  # it was still under way
        await here.clock.sleep(1.0)
        await here.writer.settle()
        assert shown(here) == [NAME]


async def test_the_api_server_ends_a_creation_before_edl_takes_the_pod_for_absent(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(reset)
        await here.apply(create())
        timeout = here.api.requests[-1][2]["timeout"]
        assert 1.0 <= float(timeout.removesuffix("s")) < WRITE_TIMEOUT_S
        await here.clock.sleep(WRITE_TIMEOUT_S - 0.1)
        with pytest.raises(NotSyncedError):
            await here.writer.settle()
        await here.clock.sleep(0.1)
        await here.writer.settle()
        assert shown(here) == []


async def test_a_pod_in_doubt_is_read_a_few_times_a_second(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(reset)
        await here.apply(create())
        before = len(here.api.requests)
        for _ in range(100):
            with pytest.raises(NotSyncedError):
                await here.writer.settle()
            await here.clock.sleep(0.01)
        assert 3 <= len(here.api.requests) - before <= 5


async def test_a_terminating_pod_of_that_name_may_be_the_one_before(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(reset)
        await here.apply(create())
        here.api.put(PODS, pod(uid="old", deletionTimestamp="2026-01-05T10:00:00Z"))
        with pytest.raises(NotSyncedError):
            await here.writer.settle()
        await here.clock.sleep(WRITE_TIMEOUT_S)
        await here.writer.settle()


@pytest.mark.parametrize(
    ("code", "is_in_doubt", "is_known_at_once"),
    [(429, False, True), (403, False, True), (500, True, True), (503, True, True), (504, True, False)],
)
async def test_an_error_of_the_server_says_whether_the_request_has_ended(
    tmp_path: Path, code: int, *, is_in_doubt: bool, is_known_at_once: bool
) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(refusal(code, "Error", "no"))
        await here.apply(create())
        before = len(here.api.requests)
        if is_known_at_once:
            await here.writer.settle()
        else:
            with pytest.raises(NotSyncedError):
                await here.writer.settle()
        assert (len(here.api.requests) > before) is is_in_doubt


async def test_a_creation_that_is_cancelled_leaves_the_pod_in_doubt(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        arrived = asyncio.Event()

        async def hangs(_: web.Request) -> web.Response:
            arrived.set()
            await asyncio.sleep(3600)
            return web.Response()

        here.api.faults.append(hangs)
        writing = asyncio.ensure_future(here.apply(create()))
        await arrived.wait()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        with pytest.raises(NotSyncedError):
            await here.writer.settle()
