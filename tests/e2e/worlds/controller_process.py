"""The controller as a process that talks to a real API server.

It is stopped by process id. The kernel also stops it if the tests are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from tests.e2e.control_plane.processes import die_with_parent
from tests.e2e.worlds.forked import Forked

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0


class ControllerError(Exception):
    """The controller did not start or stop correctly; the message contains the end of its log."""


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class ControllerProcess:
    """`edl controller` against one cluster.

    Args:
        kubeconfig: its credentials.
        workdir: each start writes a log `controller-<n>.log` there.
        flags: more flags.

    Attributes:
        environment: variables besides those of this process, from the next start on.
        is_preloaded: a fork server starts it, whose modules are loaded; otherwise it is a program of its own, whose
            memory is all its own and whose code may be that of another version.
    """

    def __init__(self, kubeconfig: Path, workdir: Path, *flags: str) -> None:
        self.kubeconfig = kubeconfig
        self.workdir = workdir
        self.flags = flags
        self.environment: dict[str, str] = {}
        self.is_preloaded = True
        self.port = 0
        self.log = workdir / "controller.log"
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def start(self, *, until: str = "/readyz") -> ControllerProcess:
        """Start it and wait until it responds: /readyz once its caches are filled, /healthz once it runs."""
        self.port = free_port()
        self.log = self.workdir / f"controller-{len(list(self.workdir.glob('controller-*.log')))}.log"
        with self.log.open("wb") as log:
            self._process = self._launched(log.fileno())
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers(until):
            if self._process.poll() is not None:
                raise ControllerError(f"it ended with {self._process.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ControllerError(f"not ready after {START_TIMEOUT_S:g} s\n{self.tail()}")
            time.sleep(0.05)
        return self

    def _launched(self, log: int) -> subprocess.Popen[bytes] | Forked:
        command = (
            "controller",
            *("--kubeconfig", str(self.kubeconfig)),
            *("--listen", f"127.0.0.1:{self.port}", "--log-level", "debug"),
            *("--key-file", str(self.workdir / "key")),
            *self.flags,
        )
        environment = {**os.environ, **self.environment}
        with Path(os.devnull).open("rb") as nothing:
            if self.is_preloaded:
                return Forked("edl", *command, environment=environment, files=(nothing.fileno(), log, log))
            return subprocess.Popen(
                [str(Path(sys.executable).with_name("edl")), *command],
                stdin=nothing,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=die_with_parent,
            )

    def answers(self, path: str) -> bool:
        """True if the path responds with 200."""
        with contextlib.suppress(urllib.error.URLError, OSError):
            return self.fetch(path)[0] == 200
        return False

    def fetch(self, path: str) -> tuple[int, str]:
        """HTTP status and text of one of its pages."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()

    def stop(self) -> None:
        """Send SIGTERM, as Kubernetes does, and check that it exits with 0."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ControllerError(f"still there {STOP_TIMEOUT_S:g} s after SIGTERM\n{self.tail()}") from None
        if code != 0:
            raise ControllerError(f"SIGTERM ended it with {code}\n{self.tail()}")

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """The process; it must have been started."""
        assert self._process is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def is_alive(self) -> bool:
        """True while the process exists, running or stopped."""
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout_s: float) -> int:
        """Wait until it exits by itself; return its exit code.

        Raises:
            ControllerError: it does not exit.
        """
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ControllerError(f"still there after {timeout_s:g} s\n{self.tail()}") from None

    def tail(self, lines: int = 40) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"--- {self.log.name}\n" + "\n".join(line[:600] for line in text.splitlines()[-lines:])

    def __enter__(self) -> ControllerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()
            if not isinstance(error, KeyboardInterrupt):
                print(self.tail())
