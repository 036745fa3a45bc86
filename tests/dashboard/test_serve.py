"""The page of a controller: on its own server, fed by its recorder, behind the Kubernetes token of the caller."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import aiohttp
import pytest

from edl.clock import SystemClock
from edl.dashboard.serve import PageParts, PageSettings, page_of_controller
from edl.dashboard.web import PREFIX
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import Certificate, ScalePlan
from edl.observability.bounded_connections import MAX_OF_ADDRESS
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder
from edl.observability.status_server import StatusServer
from tests.dashboard.test_access import ReviewServer
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.fake_api import eventually

CLUSTER = ClusterSnapshot(1000.0, nodes=make_nodes(2), jobs=(make_job("ctr", trainers=2, on=("n000",)),))
MANY = 2 * MAX_OF_ADDRESS
PLAN = ScalePlan((), Certificate("fulfilment", 1.25, 1.5))


async def metrics() -> bytes:
    return b"x 1\n"


@asynccontextmanager
async def controller_page(reviews: ReviewServer | None = None) -> AsyncIterator[tuple[str, PageParts]]:
    """The address of a controller's server, and its page."""
    async with (reviews or ReviewServer()).session() as session:
        page = page_of_controller(session, SystemClock(), PageSettings())
        server = StatusServer(
            "127.0.0.1:0",
            is_alive=lambda: True,
            is_ready=lambda: True,
            metrics=metrics,
            more={PREFIX: page.application},
        )
        _, port = await server.start()
        try:
            yield f"http://127.0.0.1:{port}", page
        finally:
            page.close()
            await server.stop()


async def test_the_page_of_a_controller_needs_a_token_and_its_probes_and_metrics_do_not() -> None:
    async with controller_page() as (url, page), aiohttp.ClientSession() as http:
        recorder = ControllerRecorder(Metrics(), policy="maxmin", onlooker=page.live)
        await recorder.observed(CLUSTER, leader=True)
        for path in ("/metrics", "/healthz", "/page/", "/page/login"):
            async with http.get(url + path) as response:
                assert response.status == 200, path
        statuses = {"full": 200, "part": 403, "made-up": 401}
        for token, status in statuses.items():
            headers = {"Authorization": f"Bearer {token}"}
            async with http.get(f"{url}/page/node?name=n000", headers=headers) as response:
                assert response.status == status
                assert ("ctr-trainer-0" in await response.text()) == (status == 200)


async def test_the_plans_that_the_leader_carries_out_are_shown() -> None:
    async with controller_page() as (url, page), aiohttp.ClientSession() as http:
        recorder = ControllerRecorder(Metrics(), policy="maxmin", onlooker=page.live)
        await recorder.observed(CLUSTER, leader=True)
        await recorder.planned(CLUSTER, Limits(), PLAN)
        async with http.get(f"{url}/page/events", headers={"Authorization": "Bearer full"}) as response:
            await response.content.readline()
            state = await response.content.readline()
        assert b'"achieved":1.25,"bound":1.5' in state


async def test_an_open_stream_ends_once_its_token_is_not_accepted_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.dashboard.web.HEARTBEAT_S", 0.01)
    monkeypatch.setattr("edl.dashboard.web.CHECK_AGAIN_S", 0.0)
    monkeypatch.setattr("edl.dashboard.access.ANSWER_KEPT_S", 0.0)
    reviews = ReviewServer()
    async with controller_page(reviews) as (url, page), aiohttp.ClientSession() as http:
        page.live.observed(CLUSTER, leader=True)
        async with http.get(f"{url}/page/events", headers={"Authorization": "Bearer full"}) as response:
            assert await response.content.readline() == b"event: state\n"
            reviews.rights = {}
            async with asyncio.timeout(60):
                await response.content.read(-1)
            assert response.content.at_eof()


async def test_strangers_of_the_same_address_end_no_open_page() -> None:
    """Everybody on this machine has the address of a page that comes by `kubectl port-forward`."""
    async with controller_page() as (url, page), aiohttp.ClientSession() as http:
        page.live.observed(CLUSTER, leader=True)
        with ExitStack() as stack:
            response = await http.get(f"{url}/page/events", headers={"Authorization": "Bearer full"})
            assert await response.content.readline() == b"event: state\n"
            port = int(url.rpartition(":")[2])
            strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(MANY)]
            await eventually(lambda: sum(map(is_open, strangers)) <= MAX_OF_ADDRESS)
            page.live.note_problem("a later message")
            async with asyncio.timeout(60):
                while b"a later message" not in await response.content.readline():
                    assert not response.content.at_eof()


def is_open(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def test_why_the_controller_makes_no_decision_is_shown() -> None:
    async with controller_page() as (_, page):
        recorder = ControllerRecorder(Metrics(), policy="maxmin", onlooker=page.live)
        recorder.skipped("edl is still listing pods")
        assert page.live.state()["problem"] == "edl is still listing pods"
        await recorder.observed(CLUSTER, leader=True)
        recorder.not_planned(CLUSTER, TimeoutError("too late"))
        assert page.live.state()["problem"] == "no plan was made: too late"
