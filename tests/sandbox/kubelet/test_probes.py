from __future__ import annotations

import asyncio
import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from edl.sandbox.kubelet.probes import check, port_of, watch_probe

CONTAINER: dict[str, Any] = {"ports": [{"name": "web", "containerPort": 8080}]}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ok" else 500)
        self.end_headers()

    def log_request(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


async def run_nothing(_: list[str], __: float) -> tuple[int, str]:
    raise AssertionError


async def test_http_succeeds_below_400_only(port: int) -> None:
    def probe(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "web"}}

    def target(_: int) -> tuple[str, int]:
        return "127.0.0.1", port

    assert await check(probe("/ok"), CONTAINER, target, run_nothing) == ""
    assert await check(probe("/bad"), CONTAINER, target, run_nothing) == "HTTP probe failed with statuscode: 500"


async def test_tcp_needs_a_listener(port: int) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        free = closed.getsockname()[1]
        probe = {"tcpSocket": {"port": 1}}
        assert await check(probe, CONTAINER, lambda _: ("127.0.0.1", port), run_nothing) == ""
        assert "refused" in await check(probe, CONTAINER, lambda _: ("127.0.0.1", free), run_nothing)


async def test_a_command_must_exit_with_0() -> None:
    async def run(argv: list[str], _: float) -> tuple[int, str]:
        return int(argv[0]), "said"

    async def late(_: list[str], __: float) -> tuple[int, str]:
        raise TimeoutError

    assert await check({"exec": {"command": ["0"]}}, CONTAINER, lambda port: ("", port), run) == ""
    assert await check({"exec": {"command": ["3"]}}, CONTAINER, lambda port: ("", port), run) == "said"
    assert "timed out" in await check({"exec": {"command": ["0"]}}, CONTAINER, lambda port: ("", port), late)


def test_a_port_has_a_number_or_a_name() -> None:
    assert (port_of(80, CONTAINER), port_of("81", CONTAINER), port_of("web", CONTAINER)) == (80, 81, 8080)
    with pytest.raises(LookupError, match="db"):
        port_of("db", CONTAINER)


async def test_thresholds_count_results_in_a_row() -> None:
    results = iter(["", "no", "no", "", "no", "no", "no", "", ""])
    reports: list[tuple[bool, str]] = []
    done = asyncio.Event()

    async def once() -> str:
        try:
            return next(results)
        except StopIteration:
            done.set()
            await asyncio.Event().wait()
            raise

    probe = {"periodSeconds": 0.001, "failureThreshold": 3, "successThreshold": 2}
    task = asyncio.create_task(watch_probe(probe, once, lambda ok, why: reports.append((ok, why))))
    await done.wait()
    task.cancel()
    assert reports == [(False, "no"), (True, "")]
