"""Who passes the gates: the printed token, and owners of the rights of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from edl.dashboard.access import (
    ANSWER_KEPT_S,
    MAX_ANSWERS,
    NEEDED,
    REFUSAL_KEPT_S,
    DeniedError,
    ReviewGate,
    TokenGate,
)
from edl.errors import TemporaryError
from edl.kube.client.session import ApiSession
from edl.observability.status_server import listen_on
from tests.worlds.fake_api import FakeClock

ALL = {right.resource for right in NEEDED}


class ReviewServer:
    """An API server that answers SelfSubjectAccessReviews.

    Attributes:
        rights: token -> the resources that its owner may list.
        seen: the Authorization of each request.
    """

    def __init__(self) -> None:
        self.rights: dict[str, set[str]] = {"full": ALL, "part": {"pods"}}
        self.seen: list[str] = []
        self.fault: Callable[[], web.Response] | None = None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[ApiSession]:
        """A session that has credentials of its own."""
        app = web.Application()
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        runner, (_, port) = await listen_on("127.0.0.1:0", app)
        own = Configuration(host=f"http://127.0.0.1:{port}", api_key={"authorization": "Bearer of-the-controller"})
        try:
            async with ApiSession(own) as session:
                yield session
        finally:
            await runner.cleanup()

    async def _review(self, request: web.Request) -> web.Response:
        self.seen.append(request.headers.get("Authorization", ""))
        if self.fault is not None:
            return self.fault()
        rights = self.rights.get(self.seen[-1].removeprefix("Bearer "))
        if rights is None:
            return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)
        attributes = (await request.json())["spec"]["resourceAttributes"]
        assert attributes["verb"] == "list"
        assert "namespace" not in attributes
        return web.json_response({"status": {"allowed": attributes["resource"] in rights}}, status=201)


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_only_the_printed_token_passes() -> None:
    gate = TokenGate("right")
    await gate.check(bearing("right"))
    for headers in ({}, bearing("wrong"), bearing(""), {"Authorization": "Basic right"}, bearing("rechts\u00fc")):
        with pytest.raises(DeniedError) as refused:
            await gate.check(headers)
        assert refused.value.status == 401


async def test_the_owner_of_all_rights_passes_and_one_of_some_reads_which_are_missing() -> None:
    server = ReviewServer()
    async with server.session() as session:
        gate = ReviewGate(session, FakeClock())
        await gate.check(bearing("full"))
        with pytest.raises(DeniedError, match=r"list trainingjobs\.paddlepaddle\.org, list nodes") as refused:
            await gate.check(bearing("part"))
        assert refused.value.status == 403
        with pytest.raises(DeniedError, match="does not accept this token") as unknown:
            await gate.check(bearing("made-up"))
        assert unknown.value.status == 401


async def test_the_review_carries_the_token_of_the_caller_and_never_that_of_the_controller() -> None:
    server = ReviewServer()
    async with server.session() as session:
        await ReviewGate(session, FakeClock()).check(bearing("full"))
    assert set(server.seen) == {"Bearer full"}


async def test_without_a_token_nothing_is_asked_at_all() -> None:
    server = ReviewServer()
    async with server.session() as session:
        for headers in ({}, bearing(" "), bearing("two words"), bearing("x" * 20_000)):
            with pytest.raises(DeniedError):
                await ReviewGate(session, FakeClock()).check(headers)
    assert server.seen == []


async def test_an_answer_holds_for_a_minute_and_a_refusal_for_seconds() -> None:
    server, clock = ReviewServer(), FakeClock()
    async with server.session() as session:
        gate = ReviewGate(session, clock)
        await gate.check(bearing("full"))
        server.rights = {"late": ALL}
        clock.time_s += ANSWER_KEPT_S - 1
        await gate.check(bearing("full"))
        clock.time_s += 2
        with pytest.raises(DeniedError):
            await gate.check(bearing("full"))
        server.rights = {"full": ALL}
        with pytest.raises(DeniedError):
            await gate.check(bearing("full"))
        clock.time_s += REFUSAL_KEPT_S + 1
        await gate.check(bearing("full"))


async def test_an_api_server_that_does_not_answer_lets_nobody_pass_and_is_asked_again() -> None:
    server = ReviewServer()
    async with server.session() as session:
        gate = ReviewGate(session, FakeClock())
        server.fault = lambda: web.json_response({"message": "busy"}, status=503)
        with pytest.raises(TemporaryError, match="cannot check the token now"):
            await gate.check(bearing("full"))
        server.fault = lambda: web.json_response({"kind": "Other"}, status=201)
        with pytest.raises(DeniedError, match="without a status"):
            await gate.check(bearing("full"))


async def test_tokens_that_were_tried_hold_a_bounded_memory() -> None:
    server = ReviewServer()
    async with server.session() as session:
        gate = ReviewGate(session, FakeClock())
        gate._answers.update({b"%d" % i: gate._refused("no", 401) for i in range(MAX_ANSWERS)})
        await gate.check(bearing("full"))
        assert len(gate._answers) == MAX_ANSWERS
