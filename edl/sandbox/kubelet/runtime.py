"""The container runtime: the kubelet's side of the connection to `supervisor.py`."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from edl.errors import PermanentError, TemporaryError
from edl.sandbox.kubelet import supervisor

_SUBREAPER = 36  # prctl(2)
_STOP_S = 10.0


class StartError(PermanentError):
    """A process could not be started; the message is that of the operating system."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """The process of a container.

    Attributes:
        name: the name of the container, unique in this runtime.
        argv: the program and its arguments.
        env: the whole environment.
        folder: where it starts.
        log: gets its output.
        nice: added to its niceness.
        memory: bytes that its processes may use together; 0 for no limit.
    """

    name: str
    argv: list[str]
    env: dict[str, str]
    folder: Path
    log: Path
    nice: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended: exit code as a shell gives it, signal (0 for none), whether for lack of memory."""

    code: int
    signal: int = 0
    is_oom: bool = False


@dataclass(slots=True)
class Process:
    """The process of a container that runs, or has run."""

    name: str
    pid: int
    ended: asyncio.Future[Exit] = field(repr=False)


class Runtime:
    """Starts and ends containers; use `open`, and `close` at the end."""

    def __init__(self, helper: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._helper, self._control = helper, control
        self._running: dict[str, Process] = {}
        self._starting: dict[str, asyncio.Future[int]] = {}
        self._reading: asyncio.Task[None] | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, *owned: Path) -> Self:
        """Start the supervisor.

        Args:
            owned: folders that the supervisor removes when it ends.
        """
        # If the supervisor is killed, what it leaves comes to this process, which then ends it.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        ours, theirs = socket.socketpair()
        with theirs:
            helper = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.setblocking(False)
        made = cls(helper, ours)
        made._reading = asyncio.create_task(made._read())
        for folder in owned:
            await made._send({"own": str(folder)})
        return made

    @property
    def supervisor_pid(self) -> int:
        """The process id of the supervisor, the process that starts all containers."""
        return self._helper.pid

    async def start(self, spec: ProcessSpec) -> Process:
        """Start a container.

        Raises:
            StartError: the program does not exist or cannot be started.
            TemporaryError: the supervisor has ended.
        """
        answer = self._starting[spec.name] = asyncio.get_running_loop().create_future()
        process = Process(spec.name, 0, asyncio.get_running_loop().create_future())
        self._running[spec.name] = process
        try:
            await self._send(
                {
                    "start": spec.name,
                    "argv": spec.argv,
                    "env": spec.env,
                    "cwd": str(spec.folder),
                    "log": str(spec.log),
                    "nice": spec.nice,
                    "memory": spec.memory,
                }
            )
            process.pid = await answer
        except (StartError, TemporaryError):
            self._running.pop(spec.name, None)
            raise
        except asyncio.CancelledError:  # such as a pod that is deleted while its container starts
            with suppress(TemporaryError):
                await self.kill(process)
            raise
        finally:
            self._starting.pop(spec.name, None)
        return process

    async def signal(self, process: Process, number: int) -> None:
        """Send a signal to the first process of a container."""
        await self._send({"signal": process.name, "number": int(number)})

    async def kill(self, process: Process) -> None:
        """Kill every process of a container."""
        await self._send({"kill": process.name})

    async def run(self, spec: ProcessSpec, timeout_s: float) -> Exit:
        """Run a container to its end, or kill it after the timeout.

        Raises:
            TimeoutError: it did not end in time.
            StartError: see `start`.
        """
        process = await self.start(spec)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(process.ended)
        finally:
            if not process.ended.done():
                await self.kill(process)

    async def close(self) -> None:
        """Kill every container, and return once the supervisor has ended."""
        self._control.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._fail("the kubelet is stopping")
        try:
            async with asyncio.timeout(_STOP_S):
                await self._helper.wait()
        except TimeoutError:
            self._helper.kill()
            await self._helper.wait()
        sweep_orphans()

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._control, json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise TemporaryError(f"the supervisor of the containers has ended: {error}") from error

    async def _read(self) -> None:
        loop, buffer = asyncio.get_running_loop(), b""
        with suppress(OSError):
            while data := await loop.sock_recv(self._control, 1 << 16):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        self._fail("the supervisor of the containers has ended")
        await self._helper.wait()  # only then do its orphans belong to this process
        sweep_orphans()
        if not self.lost.done():
            self.lost.set_result(None)

    def _take(self, message: dict[str, Any]) -> None:
        if name := message.get("started"):
            if answer := self._awaited(name):
                answer.set_result(message["pid"])
        elif name := message.get("failed"):
            self._running.pop(name, None)
            if answer := self._awaited(name):
                answer.set_exception(StartError(message["why"]))
        elif (name := message.get("ended")) and (process := self._running.pop(name, None)):
            number = message["signal"]
            code = 128 + number if number else message["code"]
            if not process.ended.done():
                process.ended.set_result(Exit(code, number, message["oom"]))

    def _awaited(self, name: str) -> asyncio.Future[int] | None:
        """The future of the caller of `start` that waits for an answer; None if the caller has gone."""
        found = self._starting.get(name)
        return None if found is None or found.done() else found

    def _fail(self, why: str) -> None:
        for answer in self._starting.values():
            if not answer.done():
                answer.set_exception(TemporaryError(why))
        for process in self._running.values():
            if not process.ended.done():
                process.ended.set_result(Exit(137, signal.SIGKILL))
        self._running.clear()


def sweep_orphans() -> None:
    """Kill every container process that a killed supervisor has left to this process."""
    children = supervisor.children_of_all()
    stack = [pid for pid in children.get(os.getpid(), ()) if supervisor.mark_of(pid)]
    while stack:
        pid = stack.pop()
        stack += children.get(pid, ())
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
