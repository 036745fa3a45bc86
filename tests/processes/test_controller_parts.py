"""The controller as a process: which of its parts end it, and what its probes say."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from edl.clock import SystemClock
from edl.controller.loop import Controller
from edl.errors import PermanentError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.cache import ClusterCache
from edl.observability.metrics import Metrics
from edl.processes.controller import OPEN_FILES, _elector, serve
from edl.settings.controller import ControllerSettings
from tests.kube.client.test_session import write_kubeconfig
from tests.worlds.fake_api import FakeApi, eventually
from tests.worlds.waiting import PATIENCE

ENDS_WITHIN_S = 15 * PATIENCE


def settings(api: FakeApi, folder: Path, queues: Path | None = None) -> ControllerSettings:
    return ControllerSettings(
        kubeconfig=write_kubeconfig(folder / "config", api.url),
        key_file=folder / "key",
        listen="127.0.0.1:0",
        interval_s=0.1,
        no_leader_election=True,
        queues=queues,
    )


@asynccontextmanager
async def serving(folder: Path, caplog: pytest.LogCaptureFixture, queues: Path | None = None) -> AsyncIterator[str]:
    """A controller that runs against an empty cluster; yields the address of its pages."""
    api = FakeApi()
    with caplog.at_level(logging.INFO, "edl.processes.controller"):
        async with api.serve():
            task = asyncio.create_task(serve(settings(api, folder, queues)))
            await eventually(lambda: task.done() or _address(caplog))
            url = f"http://{_address(caplog)}"
            await _becomes(f"{url}/healthz", 200)
            try:
                yield url
            finally:
                await _stopped(task)


async def _stopped(task: asyncio.Task[int]) -> None:
    """Stop a controller as Kubernetes does."""
    if not task.done():
        signal.raise_signal(signal.SIGTERM)
    assert await task == 0


def _address(caplog: pytest.LogCaptureFixture) -> str:
    for record in caplog.records:
        if record.getMessage() == "controller started":
            return str(vars(record)["fields"]["listen"])
    return ""


async def _status(url: str) -> int:
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        return response.status


def _logged(caplog: pytest.LogCaptureFixture, message: str) -> Callable[[], bool]:
    return lambda: message in caplog.messages


async def _page(url: str) -> str:
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        return await response.text()


async def _becomes(url: str, status: int) -> None:
    async with asyncio.timeout(ENDS_WITHIN_S):
        while await _status(url) != status:  # noqa: ASYNC110 - a page has no event to wait for
            await asyncio.sleep(0.01)


async def test_a_controller_has_open_files_left_whatever_strangers_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Many containers start with 1024, and some with fewer."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        async with serving(tmp_path, caplog):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (OPEN_FILES, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


async def test_an_inquiry_that_fails_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: ClusterCache) -> list[str]:
        raise PermanentError("the inquiry is broken")

    monkeypatch.setattr(ClusterCache, "left_out", failing)
    api = FakeApi()
    with caplog.at_level(logging.ERROR, "edl.processes.controller"):
        async with api.serve():
            task = asyncio.create_task(serve(settings(api, tmp_path)))
            await asyncio.wait({task}, timeout=ENDS_WITHIN_S)
            if not task.done():
                await _stopped(task)
    assert task.result() == 1
    assert "stopping after an error" in caplog.messages


async def test_a_replica_that_hears_nothing_of_the_api_server_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    silence_s = [0.0]
    monkeypatch.setattr(ClusterCache, "silence_s", lambda _: silence_s[0])
    async with serving(tmp_path, caplog) as url:
        await _becomes(f"{url}/readyz", 200)
        silence_s[0] = 179.0
        assert await _status(f"{url}/readyz") == 200
        silence_s[0] = 181.0
        assert await _status(f"{url}/readyz") == 503
        assert await _status(f"{url}/healthz") == 200, "restarting it does not help"


async def test_a_changed_file_is_in_force_without_a_restart_and_a_broken_one_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queues = tmp_path / "queues.yaml"
    queues.write_text("blue: {cpu: 1}")
    caplog.set_level(logging.INFO, "edl.processes.limit_files")
    async with serving(tmp_path, caplog, queues=queues) as url:
        for text, message, rejected in (
            ("blue: {cpu: many}", "changed files refused", 1),
            ("blue: {cpu: 20}", "changed files are in force", 0),
        ):
            queues.write_text(text)
            await eventually(_logged(caplog, message))
            async with asyncio.timeout(10):  # the page of a moment ago may be served once more
                while f"edl_rejected_files {rejected}.0" not in await _page(f"{url}/metrics"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


async def test_a_controller_without_a_sign_of_life_is_not_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, caplog) as url:
        sign_s = asyncio.get_running_loop().time()  # a monotonic clock, the same as the controller's
        monkeypatch.setattr(Controller, "last_sign_of_life_s", property(lambda _: sign_s - 1000.0))
        assert await _status(f"{url}/healthz") == 503
        monkeypatch.setattr(Controller, "last_sign_of_life_s", property(lambda _: sign_s))
        assert await _status(f"{url}/healthz") == 200


async def test_a_process_that_begins_to_lead_lists_anew_before_it_writes(tmp_path: Path) -> None:
    api = FakeApi()
    async with api.serve(), await ApiSession.open(str(write_kubeconfig(tmp_path / "config", api.url))) as session:
        taken_over: list[bool] = []
        options = settings(api, tmp_path)
        elector = _elector(options, session, SystemClock(), Metrics(), lambda: taken_over.append(True))
        elector._report(leads=False, holder="another")
        assert not taken_over
        elector._report(leads=True, holder="this one")
        assert taken_over == [True]
