"""A master in this process, with a real port and a real disk."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from edl.clock import SystemClock
from edl.errors import EdlError
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.group_values import GroupSettings
from edl.master.bodies import DatasetBody
from edl.master.datasets import Catalog
from edl.master.http_api import MasterApi, Tokens
from edl.master.journal import FileLedgerStore
from edl.master.master import ExpectedProgress, Master, recover
from edl.master.metrics import MasterMetrics

TOKEN, CONTROLLER = "trainer-token-0123456789", "controller-token-0123456789"


@dataclass
class Served:
    """A running master and an HTTP client."""

    master: Master
    api: MasterApi
    store: FileLedgerStore
    port: int
    client: aiohttp.ClientSession
    scheme: str = "http"
    token: str = TOKEN
    host: str = "localhost"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    async def ask(
        self, method: str, path: str, body: object = None, *, token: str | None = TOKEN, **options: Any
    ) -> tuple[int, Any]:
        """Send a request; returns (status, JSON body)."""
        headers = {"Content-Type": "application/json"} | options.pop("headers", {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            options["json" if not isinstance(body, bytes) else "data"] = body
        async with self.client.request(method, self.url + path, headers=headers, **options) as answer:
            return answer.status, await answer.json(content_type=None)

    async def sync(self, name: str, seq: int, **fields: object) -> tuple[int, Any]:
        """Send a sync request of the trainer with that name."""
        body = {"session": {"pod_uid": f"uid-{name}", "incarnation": 1, "name": name}, "seq": seq, **fields}
        return await self.ask("POST", "/v1/sync", body, token=self.token)


@asynccontextmanager
async def serving(
    folder: Path,
    source: str | None = "index:100",
    *,
    ttl_s: float = 30.0,
    token: str = TOKEN,
    controller: str | None = CONTROLLER,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    expected: ExpectedProgress | None = None,
    restarts_epoch: bool = False,
    group: GroupSettings | None = None,
    **dataset: Any,
) -> AsyncIterator[Served]:
    """A master that runs until the block ends."""
    clock, store, catalog = SystemClock(), FileLedgerStore(folder), Catalog(folder)
    settings = LedgerSettings(ttl_s=ttl_s)
    try:
        recovered = recover(store, settings, clock.monotonic_s(), expected=expected, restarts_epoch=restarts_epoch)
        state = recovered.ledger.state
        if state.dataset is not None and state.is_open:
            catalog.reopen(state.dataset)
    except EdlError:
        await store.close()
        raise
    store.start()
    master = Master(recovered, store, clock, group)
    if source is not None:
        await master.set_dataset(await catalog.describe(DatasetBody(source=source, **dataset)))
    tokens = Tokens(token.encode(), controller.encode() if controller else None)
    api = MasterApi(master, tokens, MasterMetrics(), catalog)
    _, taken = await api.start(host, port, tls)
    running = asyncio.create_task(master.run())
    async with aiohttp.ClientSession() as client:
        try:
            name = "localhost" if host == "127.0.0.1" else host
            yield Served(master, api, store, taken, client, "https" if tls else "http", token, name)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await master.drain()
            await api.stop()
            await store.close()
