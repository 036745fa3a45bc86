"""Starts and ends the supervisor of a cluster, for the process that owns the cluster."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.e2e.control_plane.plan import Command, Plan, write_plan
from tests.e2e.control_plane.processes import (
    Identity,
    end_recorded,
    identify,
    is_alive,
    read_pid_file,
    send,
    wait_gone,
)
from tests.e2e.control_plane.versions import ControlPlaneError

_STOP_S = 10.0
_ROOT = Path(__file__).resolve().parents[3]


def supervise(workdir: Path, commands: tuple[Command, ...]) -> Identity:
    """Run commands under a supervisor that ends them with this process; returns the supervisor.

    Raises:
        ControlPlaneError: it ended at once.
    """
    owner = identify(os.getpid())
    assert owner is not None
    write_plan(workdir / "plan.json", Plan(commands, owner))
    who = identify(_spawn_supervisor(workdir))
    if who is None:
        raise ControlPlaneError(f"the supervisor ended at once; see {workdir}/logs/supervisor.log")
    return who


def supervisor_of(workdir: Path) -> Identity | None:
    """The supervisor that runs in a folder; None if there is none."""
    who = read_pid_file(workdir / "run" / "supervisor.pid")
    return who if who is not None and is_alive(who) else None


def end_supervisor(workdir: Path, supervisor: Identity) -> list[str]:
    """Ask a supervisor to end, make it end, and end what it may have left.

    Returns:
        The processes that had to be ended by their pid files.
    """
    if send(supervisor, signal.SIGTERM) and not wait_gone(supervisor, _STOP_S):
        send(supervisor, signal.SIGKILL)
        wait_gone(supervisor, _STOP_S)
    _reap(supervisor.pid)
    return end_recorded(workdir / "run")


def _reap(pid: int) -> None:
    """Collect the exit status of a child; somebody else's child is not ours to collect."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


def keep(workdir: Path, supervisor: Identity) -> None:
    """Let a cluster outlive this process; returns once its supervisor agrees."""
    send(supervisor, signal.SIGUSR1)
    deadline = time.monotonic() + _STOP_S
    while not (workdir / "run" / "kept").is_file():
        if time.monotonic() > deadline or not is_alive(supervisor):
            raise ControlPlaneError(f"the supervisor in {workdir} does not answer")
        time.sleep(0.01)


def _spawn_supervisor(work: Path) -> int:
    log = str(work / "logs" / "supervisor.log")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "tests.e2e.control_plane.supervisor", str(work / "plan.json")],
        environment(work),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def environment(work: Path) -> dict[str, str]:
    """As little as will do: neither proxies nor the user's own kwok or kubectl settings."""
    kept: Iterable[str] = ("PATH", "LANG", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return {**environment, "HOME": str(work), "PYTHONPATH": str(_ROOT)}
