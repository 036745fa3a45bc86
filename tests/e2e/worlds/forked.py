"""Processes that a fork server starts; see `fork_server`. They are used like those of `subprocess.Popen`."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

from tests.e2e.worlds.fork_server import REQUEST_BYTES, Order

_ROOT = Path(__file__).resolve().parents[3]
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # a process with threads must not fork


class Forked:
    """A process of the fork server.

    Args:
        program: one of `fork_server.PROGRAMS`.
        arguments: of the program.
        environment: all of its variables.
        folder: its working directory.
        files: standard input, output and errors; they stay open here.

    Attributes:
        pid: the process id.
        returncode: the exit code, or minus the signal that ended it; None while nobody has asked since it ended.
    """

    def __init__(
        self,
        program: str,
        *arguments: str,
        environment: Mapping[str, str],
        files: tuple[int, int, int],
        folder: Path | None = None,
    ) -> None:
        self._report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = Order(program, arguments, dict(environment), str(folder or Path.cwd()))
        with theirs:
            _server().send(json.dumps(asdict(order)).encode(), theirs, files)
        self.pid = int(json.loads(self._report.recv(100)))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            with self._report:
                code = self._report.recv(100)
            self.returncode = int(json.loads(code)) if code else -signal.SIGKILL
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not within so many seconds.
        """
        if self.returncode is None:
            select.select([self._report], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The fork server of this process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * REQUEST_BYTES)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.worlds.fork_server", str(theirs.fileno())],
                cwd=_ROOT,
                env={**os.environ, **_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def send(self, request: bytes, report: socket.socket, files: tuple[int, int, int]) -> None:
        """Send a request; the answers come on `report`."""
        assert len(request) < REQUEST_BYTES, "the environment is too long for the fork server"
        with self._lock:
            socket.send_fds(self._socket, [request], [report.fileno(), *files])

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()
