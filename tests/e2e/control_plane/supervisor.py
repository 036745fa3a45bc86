"""Runs the processes of one control plane and ends them all together.

It stands between the one who starts a cluster and the cluster. When that owner ends, however it
ends, the supervisor sees it by pidfd and stops everything; when the supervisor itself is killed,
the kernel kills its children (they were started by its only thread). For a cluster that is to
outlive its owner, the owner sends SIGUSR1 once all is well; the supervisor answers by the file
`run/kept` and no longer minds. State is disposable: children are killed, not asked. A child that
ends takes all others with it, unless the file `run/<name>.down` says that it is meant to be down;
it is started again once that file is gone.

Run as `python -m tests.e2e.control_plane.supervisor PLAN`.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.e2e.control_plane.plan import Command, Plan, is_meant_to_be_down, read_plan
from tests.e2e.control_plane.processes import die_with_parent, identify, is_alive, write_pid_file

_GATE_TIMEOUT_S = 300.0
_OWNER = "owner"


class _StopError(Exception):
    """Time to end; the message says why."""


class _Supervisor:
    def __init__(self, workdir: Path, plan: Plan) -> None:
        self.workdir = workdir
        self.plan = plan
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.down: set[str] = set()
        self.watched: dict[int, str] = {}
        self.poller = select.poll()
        self.kept = False

    def run(self) -> str:
        """Start everything, then wait for a reason to stop; return the reason."""
        try:
            signal.signal(signal.SIGUSR1, self._keep)
            self._watch(self.plan.owner.pid, _OWNER)
            if not is_alive(self.plan.owner):
                raise _StopError("the owner ended")
            for command in self.plan.commands:
                self._gate(command)
                self._spawn(command)
            while True:
                self._check(0.05 if self.down else None)
                self._bring_back()
        except _StopError as reason:
            return str(reason)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            self._end_children()

    def _watch(self, pid: int, name: str) -> None:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            raise _StopError(f"{name} ended") from None
        self.watched[handle] = name
        self.poller.register(handle, select.POLLIN)

    def _check(self, timeout_s: float | None) -> None:
        for handle, _ in self.poller.poll(None if timeout_s is None else timeout_s * 1000):
            name = self.watched[handle]
            if name in self.children:
                code = self.children[name].wait()
                if not is_meant_to_be_down(self.workdir, name):
                    raise _StopError(f"{name} ended with {code}")
                self.down.add(name)
                self._forget(handle)
                (self.workdir / "run" / f"{name}.pid").unlink(missing_ok=True)
                continue
            if not self.kept:
                raise _StopError("the owner ended")
            self.poller.unregister(handle)

    def _forget(self, handle: int) -> None:
        self.poller.unregister(handle)
        del self.watched[handle]
        os.close(handle)

    def _bring_back(self) -> None:
        """Start again what may be up again, by the plan as it is now."""
        for command in read_plan(self.workdir / "plan.json").commands:
            if command.name in self.down and not is_meant_to_be_down(self.workdir, command.name):
                self.down.remove(command.name)
                self._spawn(command)

    def _keep(self, _number: int, _frame: object) -> None:
        self.kept = True
        (self.workdir / "run" / "kept").touch()

    def _gate(self, command: Command) -> None:
        deadline = time.monotonic() + _GATE_TIMEOUT_S
        while command.after_url and not answers(command.after_url):
            self._check(0.05)
            if time.monotonic() > deadline:
                raise _StopError(f"{command.name} waited {_GATE_TIMEOUT_S:.0f} s for its turn")

    def _spawn(self, command: Command) -> None:
        with (self.workdir / "logs" / f"{command.name}.log").open("ab") as log:
            child = subprocess.Popen(
                command.argv,
                cwd=self.workdir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        self.children[command.name] = child
        self._watch(child.pid, command.name)
        who = identify(child.pid)
        if who is not None:
            write_pid_file(self.workdir / "run" / f"{command.name}.pid", who)

    def _end_children(self) -> None:
        for child in reversed(self.children.values()):
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        for name, child in self.children.items():
            child.wait()
            (self.workdir / "run" / f"{name}.pid").unlink(missing_ok=True)
        shutil.rmtree(self.workdir / "etcd", ignore_errors=True)


def answers(url: str) -> bool:
    # The certificate is made by the very server that is asked here, on loopback.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _stop_on_signal(number: int, _frame: object) -> None:
    raise _StopError(f"asked to by {signal.Signals(number).name}")


def main(arguments: Sequence[str]) -> int:
    """Supervise the plan at `arguments[0]`; the reason for ending goes to `run/ended`."""
    plan_path = Path(arguments[0]).resolve()
    workdir = plan_path.parent
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _stop_on_signal)
        if me := identify(os.getpid()):
            write_pid_file(workdir / "run" / "supervisor.pid", me)
        reason = _Supervisor(workdir, read_plan(plan_path)).run()
    except _StopError as early:
        reason = str(early)
    (workdir / "run" / "ended").write_text(reason)
    (workdir / "run" / "supervisor.pid").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
