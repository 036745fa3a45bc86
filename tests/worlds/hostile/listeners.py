"""Every port of edl, with requests that it serves, and a client of masters: changed bytes are refused, nothing else.

A listener does harm if it answers 500, logs an error with a traceback, or no longer serves an ordinary request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from aiohttp.http_exceptions import HttpProcessingError

from edl.controller.ports import MasterAddress
from edl.errors import EdlError
from edl.kube.client.session import ApiSession
from edl.sandbox.apiserver.server import ApiServer
from edl.sandbox.kubelet.callers import Callers
from edl.sandbox.kubelet.log_server import LogServer
from tests.dashboard.test_serve import CLUSTER, controller_page
from tests.worlds import raw_objects
from tests.worlds.controller_with_masters import sharded, wired
from tests.worlds.hostile.changed_bytes import changed
from tests.worlds.hostile.fuzz import HANGS_AFTER_S, MOST_MIB, FoundError, peak_mib
from tests.worlds.master_server import CONTROLLER, TOKEN, serving

SILENT_S = 0.2
"""A server that waits for the rest of a request says nothing; the connection is then closed."""

_MOST_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True)
class Listener:
    """A port that is open.

    Attributes:
        port: on 127.0.0.1.
        seeds: requests that it serves.
        probe: a request that must be served at any time, and the beginning of its answer.
        tls: speaks TLS.
    """

    port: int
    seeds: tuple[bytes, ...]
    probe: bytes
    served: bytes = b"HTTP/1.1 200 "
    tls: ssl.SSLContext | None = None


def request(method: str, path: str, body: object = None, token: str = "", **headers: str) -> bytes:
    """The bytes of a request."""
    data = b"" if body is None else json.dumps(body).encode()
    more = {"Host": "127.0.0.1", "Content-Type": "application/json", **headers}
    more |= {"Authorization": f"Bearer {token}"} if token else {}
    more |= {"Content-Length": str(len(data))} if data else {}
    lines = "".join(f"{name}: {value}\r\n" for name, value in more.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + data


_SESSION = {"pod_uid": "uid-a", "incarnation": 1, "name": "a"}


@asynccontextmanager
async def _master(folder: Path) -> AsyncIterator[Listener]:
    posts = {
        "/v1/sync": {"session": _SESSION, "seq": 1, "want": 1, "done": [{"fence": 3, "start": 0, "end": 4}]},
        "/v1/dataset": {"source": "index:100"},
        "/v1/checkpoints": {"session": _SESSION, "step": 1},
        "/v1/elect": {"session": _SESSION},
        "/v1/group/enter": {"session": _SESSION, "address": "127.0.0.1:1", "step": 0},
        "/v1/stop": {"session": _SESSION, "error": "x"},
    }
    async with serving(folder, shard_size=10) as served:
        seeds = [request("POST", path, body, TOKEN) for path, body in posts.items()]
        seeds += [request("GET", path, None, TOKEN) for path in ("/v1/status", "/v1/openapi.json", "/metrics")]
        seeds.append(request("PUT", "/v1/roster", {"generation": 3, "members": [{"pod_uid": "u"}]}, CONTROLLER))
        yield Listener(served.port, tuple(seeds), request("GET", "/healthz"))


@asynccontextmanager
async def _controller(_: Path) -> AsyncIterator[Listener]:
    async with controller_page() as (url, page):
        page.live.observed(CLUSTER, leader=True, problem="")
        seeds = [request("GET", path) for path in ("/healthz", "/readyz", "/metrics", "/page/", "/page/login")]
        data = ("/page/node?name=n000", "/page/explain?namespace=default&name=ctr")
        seeds += [request("GET", path, None, "full") for path in data]
        yield Listener(int(url.rpartition(":")[2]), tuple(seeds), request("GET", "/healthz"))


@asynccontextmanager
async def _api_server(_: Path) -> AsyncIterator[Listener]:
    async with ApiServer() as server:
        pod = {"apiVersion": "v1", **raw_objects.pod("p", namespace="default")}
        pods, jobs = "/api/v1/namespaces/default/pods", "/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs"
        merge = {"Content-Type": "application/merge-patch+json"}
        json_patch = {"Content-Type": "application/json-patch+json"}
        apply = {"Content-Type": "application/apply-patch+yaml"}
        added, chosen = [{"op": "add", "path": "/metadata/labels/a", "value": "b"}], "labelSelector=a%3Db&limit=3"
        seeds = (
            request("GET", f"{pods}?{chosen}&fieldSelector=spec.nodeName%3Dn1", None, server.token),
            request("POST", pods, pod, server.token),
            request("POST", jobs, raw_objects.job(), server.token),
            request("PATCH", f"{pods}/p", {"metadata": {"labels": {"a": "b"}}}, server.token, **merge),
            request("PATCH", f"{pods}/p", added, server.token, **json_patch),
            request("PATCH", f"{pods}/p?fieldManager=x&force=true", pod, server.token, **apply),
            request("DELETE", f"{pods}/p", {"gracePeriodSeconds": 3}, server.token),
            request("GET", "/openapi/v3", None, server.token),
        )
        yield Listener(int(server.url.rpartition(":")[2]), seeds, request("GET", "/healthz"))


@asynccontextmanager
async def _kubelet(folder: Path) -> AsyncIterator[Listener]:
    async with ApiServer() as api:
        api.write_kubeconfig(folder / "kubeconfig")
        async with await ApiSession.open(str(folder / "kubeconfig")) as session:
            server = LogServer(lambda *_: None, folder, Callers(session))
            port, tls = await server.start(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
            paths = (
                "/containerLogs/default/p/main?tailLines=3&follow=true",
                "/exec/default/p/main?command=id",
                "/run/default/p/main",
            )
            seeds = tuple(request("GET", path, None, api.token) for path in paths)
            probe = request("GET", "/containerLogs/default/p/main", None, api.token)
            try:
                yield Listener(port, seeds, probe, b"HTTP/1.1 404 ", tls)
            finally:
                await server.stop()


LISTENERS: Mapping[str, Callable[[Path], AbstractAsyncContextManager[Listener]]] = {
    "master": _master,
    "controller and page": _controller,
    "API server of the sandbox": _api_server,
    "kubelet of the sandbox": _kubelet,
}


class _Errors(logging.Handler):
    """Keeps log records that carry an exception, but those of aiohttp about what is no HTTP: it answers 400."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not isinstance(record.exc_info[1], HttpProcessingError):
            self.found.append(record)


async def serve_changed(name: str, random: Random, goes_on: Callable[[int], bool], folder: Path) -> int:
    """Send changed requests to a listener; returns how many it answered.

    Raises:
        FoundError: one of them did harm.
    """
    errors, tried, answered = _Errors(), 0, 0
    logging.getLogger().addHandler(errors)
    try:
        async with LISTENERS[name](folder) as listener:
            for seed in listener.seeds:
                await _exchange(listener, seed)
            before_mib = peak_mib()
            while goes_on(tried):
                data = _changed(random.choice(listener.seeds), random)
                answer = await _exchange(listener, data)
                answered += bool(answer)
                why = _harm(answer, errors) or await _no_probe(listener)
                why = why or ("more memory" if peak_mib() > before_mib + MOST_MIB else "")
                if why:
                    raise FoundError(f"{name}: {why}; request {data[:3000]!r}; answer {answer[:1000]!r}")
                tried += 1
    finally:
        logging.getLogger().removeHandler(errors)
    return answered


def _changed(seed: bytes, random: Random) -> bytes:
    """A request that is changed anywhere, or in its body alone and with the right length."""
    head, _, body = seed.partition(b"\r\n\r\n")
    if not body or random.random() < 0.4:
        return changed(seed, random)
    body = changed(body, random)
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


def _harm(answer: bytes, errors: _Errors) -> str:
    if errors.found:
        return f"logged {errors.found[0].getMessage()}: {errors.found[0].exc_info!r}"
    return "answered 500" if answer.startswith(b"HTTP/1.1 500") else ""


async def _no_probe(listener: Listener) -> str:
    answer = await _exchange(listener, listener.probe, silent_s=HANGS_AFTER_S)  # a busy machine serves it late
    return "" if answer.startswith(listener.served) else f"answers a probe by {answer[:200]!r}"


async def _exchange(listener: Listener, data: bytes, *, silent_s: float = SILENT_S) -> bytes:
    """Send bytes and read until the answer ends, is long, or nothing comes for that long."""
    answer = bytearray()
    async with asyncio.timeout(HANGS_AFTER_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=listener.tls)
        with suppress(ConnectionError, TimeoutError):
            writer.write(data)
            while len(answer) < _MOST_ANSWER and not _is_whole(answer):
                async with asyncio.timeout(silent_s if not answer else 5 * silent_s):
                    piece = await reader.read(1 << 16)
                if not piece:
                    break
                answer += piece
        writer.transport.abort()
    return bytes(answer)


def _is_whole(answer: bytearray) -> bool:
    """Whether as much has come as the answer says it has."""
    head, end, body = bytes(answer).partition(b"\r\n\r\n")
    lengths = [line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return bool(end) and bool(lengths) and len(body) >= int(lengths[0])


async def answer_changed(random: Random, goes_on: Callable[[int], bool], folder: Path) -> int:
    """Let the controller call a master that answers changed bytes; returns how many answers it refused.

    Raises:
        FoundError: the client raised what nobody expects.
    """
    good = {"state": "running", "epoch": 0, "total": 9, "todo": 1, "done": 2, "consumed": 3, "quarantined": 0}
    seed = json.dumps({**good, "holders": [{"name": "a", "pod_uid": "u", "done": 3, "rate": 1.5}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    answers, tried, refused, job = [b""], 0, 0, sharded()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answers[0])
            writer.write_eof()
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = MasterAddress(job.key, job.uid, "pod-1", "127.0.0.1")
    async with server, wired(folder, server.sockets[0].getsockname()[1]) as client:
        while goes_on(tried):
            answers[0] = _changed(head % len(seed) + seed, random)
            try:
                async with asyncio.timeout(HANGS_AFTER_S):
                    await client.report(address)
            except EdlError:
                refused += 1
            except Exception as error:
                raise FoundError(f"{type(error).__name__}: {error}; answer {answers[0][:3000]!r}") from error
            tried += 1
    return refused
