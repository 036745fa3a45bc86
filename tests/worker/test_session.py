"""Calls of a session that another thread ends; the master is real."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edl.errors import TemporaryError
from edl.worker.connection import MasterConnection
from edl.worker.group import StepGroup, World
from edl.worker.session import MasterSession
from tests.worker.test_worker import in_thread
from tests.worlds.master_server import TOKEN, Served, serving

_MOMENT_S = 0.2


class Interruption:
    """Runs an action in another thread after a request was sent and before its answer is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
        self.action: Callable[[], None] = lambda: None
        self.has_run = threading.Event()
        send = http.client.HTTPConnection.request

        def request(connection: http.client.HTTPConnection, method: str, url: str, *rest: Any) -> None:
            send(connection, method, url, *rest)
            if url == path and not self.has_run.is_set():
                self.has_run.set()
                other = threading.Thread(target=self.action)
                other.start()
                other.join(_MOMENT_S)  # an action that waits for this call goes on after it

        monkeypatch.setattr(http.client.HTTPConnection, "request", request)


def session_at(served: Served) -> MasterSession:
    identity = {"pod_uid": "uid-a", "incarnation": "1", "name": "a"}
    return MasterSession(MasterConnection(served.url, TOKEN), identity)


async def test_closing_a_session_lets_the_call_of_another_thread_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption = Interruption(monkeypatch, "/v1/status")
    async with serving(tmp_path / "j", "index:100") as served:
        session = session_at(served)
        interruption.action = session.close
        assert (await in_thread(lambda: session.call("GET", "/v1/status")))["state"] == "running"
    assert interruption.has_run.is_set()


async def test_a_group_may_stop_watching_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interruption = Interruption(monkeypatch, "/v1/group/watch")

    def enter() -> None:
        session = session_at(served)
        group = StepGroup(session, "here", settings="16")
        interruption.action = group.close
        assert group.enter(None) is not None
        assert interruption.has_run.wait(10)
        group.close()
        assert not group._thread.is_alive()
        session.close()

    async with serving(tmp_path / "j", "index:100") as served:
        await in_thread(enter)


async def test_a_world_has_a_key_that_only_who_has_the_token_can_compute(tmp_path: Path) -> None:
    def enter() -> World | None:
        session = session_at(served)
        group = StepGroup(session, "here", settings="16")
        world = group.enter(None)
        group.close()
        session.close()
        return world

    async with serving(tmp_path / "j", "index:100") as served:
        world = await in_thread(enter)
    assert world is not None
    name, url = f"world {world.generation}", "http://127.0.0.1:1"
    assert world.key == MasterConnection(url, TOKEN).secret(name)
    others = {MasterConnection(url, "of-another-job").secret(name), MasterConnection(url, TOKEN).secret("world 99")}
    assert len(others | {world.key}) == 3
    assert len(world.key) == 64


async def test_a_cancelled_call_ends_although_the_master_does_not_answer() -> None:
    silent = MasterSession(MasterConnection("http://127.0.0.1:1", TOKEN), {})
    timer = threading.Timer(_MOMENT_S, silent.cancel_calls)
    timer.start()
    with pytest.raises(TemporaryError, match="does not answer"):
        await in_thread(lambda: silent.call("GET", "/v1/status"), seconds=10)
