"""Programs that answer in the place of masters and say what they like.

kwok only pretends to run pods, so nothing answers at their addresses. A test gives the pod of a master the loopback
address of one of these programs. All of them answer at the port of masters; each lie has an address of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self

from edl.kube.master_client import ANSWER_BYTES
from tests.e2e.control_plane.kube import Kube

PORT = 8080
MOST_BYTES = 4 * 2**20 - 1
PIECE_BYTES, PIECE_PAUSE_S = 64, 0.0002
SILENT_S = 10.0
EAGER_CALLS = 6
"""So many times a master that changes its mind changes all that it says; then only why it is blocked."""

_TRUTH = {
    "state": "running",
    "epoch": 0,
    "total": 60,
    "todo": 60,
    "done": 0,
    "consumed": 0,
    "quarantined": 0,
    "holders": [],
}
_HOLDER = {"pod_uid": "invented-0000000", "done": 1, "rate": 1.0}


def says(**fields: object) -> bytes:
    """The status of a master, with some fields of its own."""
    return json.dumps({**_TRUTH, **fields}).encode()


def of_length(size: int) -> bytes:
    """A status of almost so many bytes, about pods that do not exist."""
    count = (size - len(says())) // (len(json.dumps(_HOLDER)) + 2)
    return says(holders=[{**_HOLDER, "pod_uid": f"invented-{number:07d}"} for number in range(count)])


_HUGE, _LONG = of_length(MOST_BYTES), of_length(ANSWER_BYTES)
Lie = Callable[[int], Iterator[bytes]]
"""The number of the call by this job -> what is sent, piece by piece."""


def _whole(body: bytes) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _in_pieces(_: int) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    for at in range(0, len(_LONG), PIECE_BYTES):
        time.sleep(PIECE_PAUSE_S)  # otherwise the kernel makes long pieces of them
        yield _LONG[at : at + PIECE_BYTES]


def _changing(call: int) -> Iterator[bytes]:
    blocked = "the disk is full" if call % 2 else None
    yield from _whole(says(blocked=blocked, epoch=min(call, EAGER_CALLS)))


def _silent(_: int) -> Iterator[bytes]:
    time.sleep(SILENT_S)
    yield b""


LIES: dict[str, Lie] = {
    "honest": lambda _: _whole(says()),
    "huge": lambda _: _whole(_HUGE),
    "long": lambda _: _whole(_LONG),
    "pieces": _in_pieces,
    "changing": _changing,
    "silent": _silent,
}


class LyingMasters:
    """Answers for masters; use it as a context manager.

    Attributes:
        calls: how often each job was answered about its status, by kind of lie and token.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._servers = {kind: self._server(number, kind) for number, kind in enumerate(LIES)}

    def _server(self, number: int, kind: str) -> _Server:
        pid = os.getpid()  # tests of several processes do not meet
        return _Server((f"127.{100 + pid // 250 % 100}.{pid % 250}.{number + 1}", PORT), partial(_Answer, self, kind))

    def speak_for(self, kube: Kube, job: str, kind: str, namespace: str = "default") -> None:
        """Answer from now on in the place of the master of a job, whose pod must run."""
        ip = self._servers[kind].server_address[0]
        address = {"podIP": ip, "podIPs": [{"ip": ip}]}
        kube.patch("pods", f"{job}-master-0", {"status": address}, namespace, subresource="status")

    def calls_of(self, kind: str) -> list[int]:
        """How often each job was answered with this lie."""
        with self._lock:
            return [count for (lie, _), count in self.calls.items() if lie == kind]

    def by_lie(self) -> dict[str, int]:
        """How often each lie was told."""
        return {kind: sum(self.calls_of(kind)) for kind in LIES if self.calls_of(kind)}

    def count(self, kind: str, token: str) -> int:
        """Count a call; returns how many there were before."""
        with self._lock:
            self.calls[kind, token] += 1
            return self.calls[kind, token] - 1

    def __enter__(self) -> Self:
        for kind, server in self._servers.items():
            threading.Thread(target=server.serve_forever, name=f"{kind} masters", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


class _Answer(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def __init__(self, masters: LyingMasters, kind: str, *rest: Any) -> None:
        self._masters, self._kind = masters, kind
        super().__init__(*rest)

    def handle(self) -> None:
        """Read one request and answer it with a lie, or that a roster was published."""
        line, token, length = self.rfile.readline(), "", 0
        while header := self.rfile.readline().strip().decode():
            name, _, value = header.partition(":")
            token = value if name.lower() == "authorization" else token
            length = int(value) if name.lower() == "content-length" else length
        self.rfile.read(length)
        is_status = line.startswith(b"GET /v1/status")
        answer = LIES[self._kind](self._masters.count(self._kind, token)) if is_status else _whole(b"{}")
        with contextlib.suppress(OSError):  # who listens may have heard enough
            for piece in answer:
                self.wfile.write(piece)
