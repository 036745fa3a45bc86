from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edl.kube.client.api_errors import NotFoundError
from edl.kube.client.session import ApiSession
from edl.sandbox.apiserver.server import ApiServer
from edl.sandbox.stack import install

Object = dict[str, Any]
WAIT_S = 120.0


class Api:
    """A client for tests: paths in, dictionaries out."""

    def __init__(self, session: ApiSession) -> None:
        self.session = session

    async def create(self, collection: str, body: Object) -> Object:
        return await self.session.post(collection, body)

    async def find(self, path: str) -> Object | None:
        try:
            found: Object = msgspec.json.decode(await self.session.get(path))
        except NotFoundError:
            return None
        return found

    async def get(self, path: str) -> Object:
        found = await self.find(path)
        assert found is not None, path
        return found

    async def delete(self, path: str, propagation: str = "Background") -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        await self.session.request("DELETE", path, body=body)

    async def until(self, holds: Callable[[], Awaitable[object]]) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(WAIT_S):
            while not await holds():  # noqa: ASYNC110 - the server is asked, and has no event for it
                await asyncio.sleep(0.02)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A client of an embedded API server with edl's resource and nothing else."""
    async with ApiServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        async with await ApiSession.open(str(tmp_path / "kubeconfig")) as session:
            await install(session)
            yield Api(session)
