"""After a 401: one reload for all calls, within a time limit, and no write without the lease."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from kubernetes.aio.client import Configuration

from edl.errors import TemporaryError
from edl.kube.client import reloading as reloading_module
from edl.kube.client import session as session_module
from edl.kube.client.api_errors import RefusedError, UntrustedError
from edl.kube.client.calls import FencedError
from edl.kube.client.session import ApiSession
from tests.worlds.fake_api import FakeApi, eventually, refusal

PODS = "/api/v1/namespaces/a/pods"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    monkeypatch.setattr(reloading_module, "RELOAD_PAUSE_S", 0.0)
    return FakeApi()


@asynccontextmanager
async def reloading(
    api: FakeApi, reload: Callable[[], Awaitable[None]], timeout_s: float = 5.0
) -> AsyncIterator[ApiSession]:
    async def load() -> Configuration:
        await reload()
        return Configuration(host=api.url)

    async with api.serve(), ApiSession(Configuration(host=api.url), reload=load, timeout_s=timeout_s) as session:
        yield session


async def test_a_write_is_not_sent_again_if_the_lease_was_lost_while_credentials_were_reloaded(api: FakeApi) -> None:
    held = True

    async def reload() -> None:
        nonlocal held
        held = False

    async with reloading(api, reload) as session:
        session.fence(lambda: held, exempt="/apis/coordination")
        api.faults.append(refusal(401, "Unauthorized"))
        with pytest.raises(FencedError, match="does not hold the lease"):
            await session.post(PODS, {"metadata": {"name": "p"}})
    assert sum(method == "POST" for method, *_ in api.requests) == 1


async def test_a_reload_that_hangs_does_not_hang_the_call(api: FakeApi) -> None:
    async def reload() -> None:
        await asyncio.Event().wait()

    async with reloading(api, reload, timeout_s=1.0) as session:
        api.faults.append(refusal(401, "Unauthorized"))
        async with asyncio.timeout(60):
            with pytest.raises(RefusedError, match="401"):
                await session.get(PODS)


async def test_a_reload_ends_at_its_own_limit_and_the_next_one_is_tried(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading_module, "RELOAD_LIMIT_S", 0.02)
    hangs = [True]

    async def reload() -> None:
        if hangs:
            hangs.clear()
            await asyncio.Event().wait()

    async with reloading(api, reload) as session:
        api.faults += [refusal(401, "Unauthorized"), refusal(401, "Unauthorized")]
        with pytest.raises(RefusedError, match="401"):
            await session.get(PODS)
        await session.get(PODS)


async def test_a_caller_that_gives_up_does_not_end_the_reload_of_the_others(api: FakeApi) -> None:
    go_on, reloads = asyncio.Event(), 0

    async def reload() -> None:
        nonlocal reloads
        reloads += 1
        await go_on.wait()

    async with reloading(api, reload) as session:
        api.faults += [refusal(401, "Unauthorized"), refusal(401, "Unauthorized")]
        first, second = (asyncio.ensure_future(session.get(PODS)) for _ in range(2))
        await eventually(lambda: reloads and len(api.requests) == 2)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        go_on.set()
        assert b"items" in await second
    assert reloads == 1


async def test_a_hundred_and_fifty_watches_leave_connections_for_writes_and_the_lease(api: FakeApi) -> None:
    async def never() -> None:
        raise AssertionError

    async def watch(number: int) -> None:
        path = f"/api/v1/namespaces/n{number}/pods"
        async with session.watch(path, params={}, timeout_s=60, read_timeout_s=60) as lines:
            async for _ in lines:
                pass

    async with reloading(api, never, timeout_s=30.0) as session:
        session.fence(lambda: True, exempt="/apis/coordination.k8s.io")
        watches = [asyncio.ensure_future(watch(i)) for i in range(150)]
        await eventually(lambda: len(api.requests) == 150, timeout_s=30)
        await session.get(PODS)
        await session.get("/apis/coordination.k8s.io/v1/namespaces/p/leases")
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def test_slow_requests_do_not_take_the_connection_of_the_lease(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "CONNECTIONS", 1)
    stuck = asyncio.Event()

    async def hang(_: object) -> None:
        stuck.set()
        await asyncio.Event().wait()

    async def never() -> None:
        raise AssertionError

    async with reloading(api, never, timeout_s=1.0) as session:
        session.fence(lambda: True, exempt="/apis/coordination.k8s.io")
        api.faults.append(hang)
        slow = asyncio.ensure_future(session.get(PODS))
        await stuck.wait()
        await session.get("/apis/coordination.k8s.io/v1/namespaces/p/leases")
        assert not slow.done()
        with pytest.raises(TemporaryError):
            await slow


async def test_a_replaced_certificate_authority_is_read_again(tmp_path: Path, api: FakeApi) -> None:
    """Followers write nothing and see no 401: the certificate is all that tells them."""
    old, new = trustme.CA(), trustme.CA()
    for name, authority in (("old", old), ("new", new)):
        authority.cert_pem.write_to_path(str(tmp_path / name))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    new.issue_cert("127.0.0.1").configure_cert(context)

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"items": []})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"

    def trusting(name: str) -> Configuration:
        made = Configuration(host=url)
        made.ssl_ca_cert, made.disable_strict_ssl_verification = str(tmp_path / name), True
        return made

    async def load() -> Configuration:
        return trusting("new")

    try:
        async with ApiSession(trusting("old"), reload=load) as session:
            assert b"items" in await session.get(PODS)
        async with ApiSession(trusting("old")) as session:
            with pytest.raises(UntrustedError, match="is not trusted"):
                await session.get(PODS)
    finally:
        await runner.cleanup()
    assert not api.requests
