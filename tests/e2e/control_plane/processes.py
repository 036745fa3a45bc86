"""Identifies a process by more than its number, so that no other process is ended by mistake.

A process id is reused; with the time the process started and the boot it belongs to, it is not.
Signals go through a pidfd opened before the check, which closes the last gap. Nothing here looks
for processes by name.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot: `start_ticks` is field 22 of `/proc/<pid>/stat`."""

    pid: int
    start_ticks: int
    boot_id: str


def identify(pid: int) -> Identity | None:
    """The process that has this number now; None if there is none, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in brackets may hold spaces and brackets; the fields begin after the last one.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] in ("Z", "X"):
        return None
    return Identity(pid, int(fields[19]), _boot_id())


def is_alive(who: Identity) -> bool:
    """Whether that very process runs still."""
    return identify(who.pid) == who


def send(who: Identity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; return False if it no longer exists."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(who):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def wait_gone(who: Identity, timeout_s: float | None) -> bool:
    """Wait until the process has ended, without limit if the time is None; return False if it has not."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(who):
            return True
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        return bool(poller.poll(None if timeout_s is None else timeout_s * 1000))
    finally:
        os.close(handle)


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when the thread that started it ends.

    Given the parent's number, a process whose parent was gone before it could ask ends at once.

    For use between fork and exec, by a process with one thread only: the kernel watches the
    thread, and a worker thread that ends would take the child with it.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def heed_interrupts() -> None:
    """Let Ctrl-C end this process, even if the process that started the tests ignores it.

    For use between fork and exec. A shell starts background jobs with SIGINT ignored, and children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def write_pid_file(path: Path, who: Identity) -> None:
    """Record a process; readers see the whole record or none."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(who)))
    part.replace(path)


def read_pid_file(path: Path) -> Identity | None:
    """The recorded process; None if there is no record or it cannot be read."""
    try:
        document = json.loads(path.read_text())
        return Identity(int(document["pid"]), int(document["start_ticks"]), str(document["boot_id"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def end_recorded(folder: Path, timeout_s: float = 10.0) -> list[str]:
    """Kill every process that the pid files of a folder name, and remove the files.

    Returns:
        The names of those that were still running.
    """
    ended = []
    for path in sorted(folder.glob("*.pid")):
        who = read_pid_file(path)
        if who is not None and send(who, signal.SIGKILL):
            ended.append(path.stem)
            wait_gone(who, timeout_s)
        path.unlink(missing_ok=True)
    return ended


@contextmanager
def locked(folder: Path, waiting: str) -> Iterator[None]:
    """Hold a folder for one process at a time; the kernel lets go when that process ends.

    Args:
        folder: created if it does not exist.
        waiting: what to say on stderr when somebody else holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
