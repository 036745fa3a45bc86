"""Starts Python programs whose modules are loaded already: a fork of this process runs them.

`edl controller` loads its modules for one to two seconds of CPU, and tests start it hundreds of times. This process
loads them once. A request names a program, its arguments, its environment and its folder; with it come the files for
input, output and errors, and a socket. The answer on the socket is the process id, and later the exit code.

It ends when its owner does, and what it has started is killed by the kernel then.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module

from tests.e2e.control_plane.processes import die_with_parent

REQUEST_BYTES = 1 << 17
FILES = 4
PROGRAMS = {"edl": "edl.cli.main", "sandbox": "tests.e2e.sandbox.process"}
"""The module of each program; its function `main` runs it."""
LOADED = ("edl.cli.app", "edl.cli.options", "edl.cli.controller", "edl.cli.master", *PROGRAMS.values())


@dataclass(frozen=True, slots=True)
class Order:
    """What is to run.

    Attributes:
        program: one of `PROGRAMS`.
        arguments: of the program.
        environment: all of its variables.
        folder: its working directory.
    """

    program: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str


class ForkServer:
    """Forks a process for each request, and reports when it has ended.

    Args:
        requests: where requests arrive; its end ends this process.
    """

    def __init__(self, requests: socket.socket) -> None:
        self._requests, self._selector = requests, selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ)
        self._reports: dict[int, tuple[int, socket.socket]] = {}  # by pidfd

    def serve(self) -> Callable[[], None] | None:
        """Serve requests until the owner ends; in a fork, return what it shall run."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._requests:
                    self._report(key.fd)
                    continue
                request, files, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES, FILES)
                if not request:
                    return None
                if program := self._start(Order(**json.loads(request)), files):
                    return program

    def _start(self, order: Order, files: list[int]) -> Callable[[], None] | None:
        """Start a program; returns it in the fork, and None here."""
        owner = os.getpid()
        pid = os.fork()
        if not pid:
            die_with_parent(owner)
            self._become(order, files)
            program: Callable[[], None] = import_module(PROGRAMS[order.program]).main
            return program
        report = socket.socket(fileno=files[0])
        for file in files[1:]:
            os.close(file)
        report.send(json.dumps(pid).encode())
        handle = os.pidfd_open(pid)
        self._reports[handle] = pid, report
        self._selector.register(handle, selectors.EVENT_READ)
        return None

    def _report(self, handle: int) -> None:
        pid, report = self._reports.pop(handle)
        self._selector.unregister(handle)
        os.close(handle)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with report:
            try:
                report.send(json.dumps(code).encode())
            except BrokenPipeError:
                return  # nobody waits for it any more

    def _become(self, order: Order, files: list[int]) -> None:
        """Give up what belongs to the server, and take over what the order says."""
        with ExitStack() as stack:
            for handle, (_, report) in self._reports.items():
                stack.callback(os.close, handle)
                stack.callback(report.close)
            stack.callback(self._selector.close)
            stack.callback(self._requests.close)
        for number, file in enumerate(files[1:]):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(order.environment)
        os.chdir(order.folder)
        sys.argv = [order.program, *order.arguments]


def main() -> None:
    """Load the modules and serve; in a fork, run its program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides what an interrupt ends
    for module in LOADED:
        import_module(module)
    gc.freeze()
    program = ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
    if program is not None:
        program()


if __name__ == "__main__":
    main()
