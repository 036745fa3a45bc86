"""The first process of a cluster's namespaces: prepares them, runs the plan and reaps those that have ended.

Everything of a cluster is its descendant in one PID namespace, so the kernel ends all of it with this process,
however this process ends. It obeys one line of JSON per connection on `run/control.sock`: `{"verb": "stop"|"start",
"name": ...}`; a process that ends unasked ends the cluster, for a test must not go on with half of one.

Run as `unshare --mount --net --pid --fork --kill-child --mount-proc python -m tests.real.cluster.init PLAN`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.control_plane.supervisor import answers
from tests.real.cluster import cgroups
from tests.real.cluster.plan import Plan, Process, read_plan

_LINK_TIMEOUT_S = 30.0
_POLL_MS = 50


class _EndError(Exception):
    """Time to end; the message says why."""


class _Init:
    def __init__(self, workdir: Path, plan: Plan) -> None:
        self.workdir = workdir
        self.plan = plan
        self.running: dict[int, str] = {}
        self.waiting = list(plan.processes)
        self.stopped: set[str] = set()
        self.by_name = {process.name: process for process in plan.processes}

    def run(self) -> None:
        """Prepare, then serve for ever; ends by `_EndError` only."""
        wakeup = self._heed_children()
        for argv in self.plan.prepare:
            self._prepare(argv)
        # Only now: the first preparation waits for the owner, who has started what removes these groups.
        for path in self.plan.cgroups:
            cgroups.make(path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.workdir / "run" / "control.sock"))
            listener.listen()
            poller = select.poll()
            poller.register(listener, select.POLLIN)
            poller.register(wakeup, select.POLLIN)
            while True:
                self._start_ready()
                for handle, _ in poller.poll(_POLL_MS if self.waiting else None):
                    if handle == wakeup:
                        os.read(wakeup, 4096)
                    else:
                        self._obey(listener)
                self._collect()

    def _heed_children(self) -> int:
        """A descriptor that becomes readable when a child ends."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return reader

    def _prepare(self, argv: Sequence[str]) -> None:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _EndError(f"{' '.join(argv)}: {done.stderr.strip()}")

    def _start_ready(self) -> None:
        for process in [process for process in self.waiting if _is_due(process.after)]:
            self.waiting.remove(process)
            self._spawn(process)

    def _spawn(self, process: Process) -> None:
        with (self.workdir / "logs" / f"{process.name}.log").open("ab") as log:
            child = subprocess.Popen(
                process.argv,
                cwd=self.workdir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running[child.pid] = process.name
        (self.workdir / "run" / f"{process.name}.inner").write_text(str(child.pid))
        # Its end is collected with everybody else's.
        child.returncode = 0

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self.running.pop(pid, None)
            if name is not None and name not in self.stopped:
                raise _EndError(f"{name} ended with {os.waitstatus_to_exitcode(status)}")

    def _obey(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            request = json.loads(connection.makefile().readline())
            answer = self._carry_out(request["verb"], request["name"])
            connection.sendall(json.dumps({"answer": answer}).encode() + b"\n")

    def _carry_out(self, verb: str, name: str) -> str:
        """Carry out a request; return what was wrong with it, or nothing."""
        pid = next((pid for pid, running in self.running.items() if running == name), None)
        if name not in self.by_name:
            return f"no process {name!r}; there are {', '.join(self.by_name)}"
        if verb == "stop" and pid is not None:
            self.stopped.add(name)
            os.kill(pid, signal.SIGKILL)
            while pid in self.running:
                self._collect()
                time.sleep(0.005)
        elif verb == "start" and pid is None:
            self.stopped.discard(name)
            self._spawn(self.by_name[name])
        return ""


def _is_due(after: str) -> bool:
    if after.startswith("/"):
        return Path(after).exists()
    return not after or answers(after)


def main(arguments: Sequence[str]) -> int:
    """Run the plan at `arguments[0]`; the reason for ending goes to `run/ended-inside`."""
    plan_path = Path(arguments[0]).resolve()
    workdir = plan_path.parent
    try:
        _Init(workdir, read_plan(plan_path)).run()
    except _EndError as reason:
        (workdir / "run" / "ended-inside").write_text(str(reason))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
