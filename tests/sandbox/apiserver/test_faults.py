"""Faults on purpose: each effect on real connections, and the rules that choose the requests."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from edl.sandbox.apiserver.faults import Cut, Delay, Duplicate, Effect, Fail, Faults, Lose, Loss, Moment, Rule, Stale
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.server import ApiServer

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def http(server: ApiServer) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {server.token}"}
    async with aiohttp.ClientSession(server.url, headers=headers) as session:
        yield session


async def send(http: aiohttp.ClientSession, method: str, path: str, body: object = None) -> tuple[int, Any]:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    data = None if body is None else json.dumps(body)
    async with http.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
        return answer.status, await answer.json()


async def make(http: aiohttp.ClientSession, name: str) -> tuple[int, Any]:
    return await send(http, "POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})


async def exists(http: aiohttp.ClientSession, name: str) -> bool:
    return (await send(http, "GET", f"{MAPS}/{name}"))[0] == 200


@pytest.mark.parametrize("code", [404, 409, 410, 422, 429, 500, 503, 504])
@pytest.mark.parametrize("moment", list(Moment))
async def test_a_request_fails_before_or_after_it_changed_something(
    server: ApiServer, http: aiohttp.ClientSession, code: int, moment: Moment
) -> None:
    server.faults.add(Rule("create", "configmaps"), Fail(code, "on purpose", moment=moment))
    status, body = await make(http, "a")
    assert (status, body["message"], body["code"]) == (code, "on purpose", code)
    assert await exists(http, "a") is (moment is Moment.AFTER)
    assert (await make(http, "b"))[0] == 201


async def test_a_throttled_request_says_when_to_come_back(server: ApiServer, http: aiohttp.ClientSession) -> None:
    server.faults.add(Rule("list"), Fail(429, retry_after_s=7))
    async with http.get(MAPS) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")


@pytest.mark.parametrize("moment", list(Moment))
async def test_a_reply_is_lost_by_a_reset(server: ApiServer, http: aiohttp.ClientSession, moment: Moment) -> None:
    server.faults.add(Rule("create"), Lose(Loss.RESET, moment))
    with pytest.raises(aiohttp.ClientError):
        await make(http, "a")
    assert await exists(http, "a") is (moment is Moment.AFTER)


@pytest.mark.parametrize("moment", list(Moment))
async def test_a_reply_never_comes(server: ApiServer, http: aiohttp.ClientSession, moment: Moment) -> None:
    server.faults.add(Rule("create"), Lose(Loss.SILENCE, moment))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await make(http, "a")
    assert await exists(http, "a") is (moment is Moment.AFTER)


async def test_a_request_is_slow(server: ApiServer, http: aiohttp.ClientSession) -> None:
    server.faults.add(Rule("get"), Delay(0.2))
    begun = time.monotonic()
    assert not await exists(http, "a")
    assert time.monotonic() - begun >= 0.2


async def test_a_request_arrives_twice(server: ApiServer, http: aiohttp.ClientSession) -> None:
    server.faults.add(Rule("create"), Duplicate())
    status, body = await make(http, "a")
    assert (status, body["reason"]) == (409, "AlreadyExists")
    assert await exists(http, "a")


async def test_a_read_is_answered_with_the_past(server: ApiServer, http: aiohttp.ClientSession) -> None:
    await make(http, "a")
    await send(http, "PATCH", f"{MAPS}/a", {"data": {"k": "new"}})
    server.faults.add(Rule("get", times=None), Stale(1))
    server.faults.add(Rule("list", times=None), Stale(2))
    assert "data" not in (await send(http, "GET", f"{MAPS}/a"))[1]
    listed = (await send(http, "GET", MAPS))[1]
    assert [one["metadata"]["name"] for one in listed["items"]] == ["kube-root-ca.crt"]
    server.faults.clear()
    assert (await send(http, "GET", f"{MAPS}/a"))[1]["data"] == {"k": "new"}


async def test_a_watch_is_cut_after_some_events(server: ApiServer, http: aiohttp.ClientSession) -> None:
    server.faults.add(Rule("watch"), Cut(1))
    async with http.get(MAPS, params={"watch": "1", "labelSelector": "!x"}) as answer:
        assert json.loads(await answer.content.readline())["type"] == "ADDED"
        await make(http, "a")
        with pytest.raises(aiohttp.ClientError):
            await answer.content.readline()


def request(verb: str = "PATCH", path: str = f"{MAPS}/a/status", user: str = "me") -> Request:
    return Request(verb, path, user=user)


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (Rule(), True),
        (Rule("patch", "configmaps", "status", "default", "a", "me"), True),
        (Rule("update"), False),
        (Rule(resource="pods"), False),
        (Rule(subresource="-"), False),
        (Rule(namespace="other"), False),
        (Rule(name="b"), False),
        (Rule(user="you"), False),
        (Rule(where=lambda one: one.method == "PUT"), False),
    ],
)
def test_a_rule_names_the_requests_that_it_meets(rule: Rule, *, holds: bool) -> None:
    assert rule.holds(request()) is holds


def test_the_nth_request_is_met_so_many_times() -> None:
    faults = Faults()
    fault = faults.add(Rule("patch", first=2, times=2), Fail(500))
    met = [faults.next(request()) is not None for _ in range(5)]
    assert met == [False, True, True, False, False]
    assert (fault.matched, fault.used) == (5, 2)
    assert [one.verb for one in faults.happened] == ["patch", "patch"]


def test_the_same_seed_gives_the_same_faults() -> None:
    def happened(seed: int) -> list[Effect | None]:
        faults = Faults(chance=random.Random(seed))  # noqa: S311 - reproducible on purpose
        faults.add(Rule(times=None, probability=0.3), Fail(500))
        return [faults.next(request()) for _ in range(50)]

    assert happened(1) == happened(1)
    assert happened(1) != happened(2)
    assert 5 < sum(effect is not None for effect in happened(1)) < 25
