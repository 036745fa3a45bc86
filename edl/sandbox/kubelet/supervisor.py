"""A process that starts and ends the processes of containers, and ends them too if the kubelet is killed.

A process of its own, in a session of its own, with the standard library only. It is the reaper of all processes below
it, so a daemon that leaves its parent stays in reach. The kubelet talks to it over a socket, one JSON object a line;
the end of that connection means that the kubelet is gone, however that came about: then every process is killed, the
folder of the kubelet is removed, and this process ends.

    {"start": ID, "argv", "env", "cwd", "log", "nice", "memory"}  ->  {"started": ID, "pid"} or {"failed": ID, "why"}
    {"signal": ID, "number"}                                          to the first process of a container
    {"kill": ID}                                                      every process of a container
    {"own": FOLDER}                                                   remove it at the end
                                              ->  {"ended": ID, "code", "signal", "oom"}

A container has ended when none of its processes is left, as in a container whose first process has exited.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "EDL_SANDBOX_CONTAINER"
"""The variable that says to which container a process belongs, even after its parents have ended."""

_PDEATHSIG, _SUBREAPER = 1, 36  # prctl(2)
_SAMPLE_S = 0.5
_SWEEP_S = 0.02
_LIBC = ctypes.CDLL(None, use_errno=True)


class Container:
    """The processes of one container.

    Attributes:
        pid: the process ID of the first process.
        memory: bytes that all of them may use; 0 for no limit.
        status: the wait status of the first process once it has ended.
        is_oom: they used more memory than allowed.
    """

    def __init__(self, process: subprocess.Popen[bytes], memory: int) -> None:
        self.process, self.pid, self.memory = process, process.pid, memory
        self.status: int | None = None
        self.is_oom = False


class Supervisor:
    """Serves one kubelet until its connection ends.

    Args:
        control: the connection.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._containers: dict[str, Container] = {}
        self._folders: list[str] = []
        self._buffer = b""
        self._sampled_s = 0.0

    def run(self) -> None:
        """Serve the kubelet until its connection ends, then end all containers."""
        _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        wake = _child_signals()
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select(self._pause_s())}
                if wake in ready:
                    with suppress(BlockingIOError):
                        wake.recv(4096)
                if self._control in ready and not self._receive():
                    break
                self._reap()
                self._sweep()
                self._sample()
        self._end_all()

    def _pause_s(self) -> float:
        return _SWEEP_S if any(one.status is not None for one in self._containers.values()) else _SAMPLE_S

    def _receive(self) -> bool:
        """Handle a message of the kubelet; False at the end of the connection."""
        try:
            data = self._control.recv(1 << 20)
        except OSError:
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._handle(json.loads(line))
        return bool(data)

    def _handle(self, order: dict[str, Any]) -> None:
        if "start" in order:
            self._start(order)
        elif "signal" in order and (one := self._containers.get(order["signal"])) and one.status is None:
            with suppress(ProcessLookupError):
                os.kill(one.pid, order["number"])
        elif "kill" in order and order["kill"] in self._containers:
            self._kill(order["kill"])
        elif "own" in order:
            self._folders.append(order["own"])

    def _start(self, order: dict[str, Any]) -> None:
        name = order["start"]

        def prepare() -> None:
            _LIBC.prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            with suppress(OSError):
                os.nice(order["nice"])

        try:
            with Path(order["log"]).open("ab") as log:
                process = subprocess.Popen(
                    order["argv"],
                    env={**order["env"], MARK: name},
                    cwd=order["cwd"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                    preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
                )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._send({"failed": name, "why": str(error)})
            return
        self._containers[name] = Container(process, order["memory"])
        self._send({"started": name, "pid": process.pid})

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                for one in self._containers.values():
                    if one.pid == pid and one.status is None:
                        one.status = one.process.returncode = status

    def _sweep(self) -> None:
        """End processes that outlive the first process of their container, and report containers without any left."""
        ended = [name for name, one in self._containers.items() if one.status is not None]
        if not ended:
            return
        members = self._members()
        for name in ended:
            if members.get(name):
                _kill_all(members[name])
                continue
            one = self._containers.pop(name)
            code = os.waitstatus_to_exitcode(one.status or 0)
            self._send({"ended": name, "code": max(code, 0), "signal": max(-code, 0), "oom": one.is_oom})

    def _sample(self) -> None:
        """Kill each container that uses more memory than its limit."""
        now_s = time.monotonic()
        limited = [name for name, one in self._containers.items() if one.memory and one.status is None]
        if not limited or now_s - self._sampled_s < _SAMPLE_S:
            return
        self._sampled_s, members = now_s, self._members()
        for name in limited:
            if sum(map(memory_of, members.get(name, ()))) > self._containers[name].memory:
                self._containers[name].is_oom = True
                _kill_all(members[name])

    def _kill(self, name: str) -> None:
        _kill_all(self._members().get(name, ()))

    def _members(self) -> dict[str, list[int]]:
        """List the processes of each container; processes of no container have the empty name."""
        children = children_of_all()
        first = {one.pid: name for name, one in self._containers.items()}
        found: dict[str, list[int]] = {}
        for child in children.get(os.getpid(), ()):
            name = first.get(child) or mark_of(child)
            stack = [child]
            while stack:
                pid = stack.pop()
                found.setdefault(name, []).append(pid)
                stack += children.get(pid, ())
        return found

    def _end_all(self) -> None:
        while members := [pid for pids in self._members().values() for pid in pids]:
            _kill_all(members)
            time.sleep(_SWEEP_S / 4)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):
            self._control.sendall(json.dumps(message).encode() + b"\n")


def children_of_all() -> dict[int, list[int]]:
    """Find the children of each process, without ended ones that wait to be reaped."""
    found: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            stat = Path(entry.path, "stat").read_text(errors="replace")
            state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
            if state not in {"Z", "X"}:
                found.setdefault(int(parent), []).append(int(entry.name))
    return found


def mark_of(pid: int) -> str:
    """Read from the environment of a process which container it belongs to; empty if it belongs to none."""
    with suppress(OSError):
        for pair in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = pair.partition(b"=")
            if name == MARK.encode():
                return value.decode(errors="replace")
    return ""


def memory_of(pid: int) -> int:
    """The memory of a process in bytes, without the files that it shares with others; 0 if it has ended."""
    total = 0
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


def _kill_all(pids: list[int] | tuple[int, ...]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _child_signals() -> socket.socket:
    """Make a socket that becomes readable when a child process has ended."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    return reader


if __name__ == "__main__":
    Supervisor(socket.socket(fileno=int(sys.argv[1]))).run()
