"""Runs the entrypoint of a pod as its first process should: unbuffered, signals passed on, orphans reaped.

The entrypoint gets a process group of its own, so that a signal reaches the program and not just the shell that
started it. Its exit code is preserved; a process that a signal killed counts as 128 + the signal, as in shells. What
an end means is left in the termination log, where the kubelet finds it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from edl.errors import ConfigError
from edl.termination_log import write_termination_log

MEANINGS = {
    1: "General Error",
    126: "Entrypoint Not Executable",
    127: "Entrypoint Not Found",
    134: "Program Abort",
    136: "Error Arithmetic Operation(Floating Point Exception)",
    137: "Killed: out of memory, or still running at the end of the grace period",
    139: "Segmentation Fault",
}
_PASSED_ON = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
_ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}
_KILLED = 128
_LEFT_BEHIND_S = 5.0
_LOOK_EVERY_S = 0.05
_LOOK_ANYWAY_S = 1.0
"""Where another thread of this process has taken the signal that the entrypoint has ended."""
_SET_CHILD_SUBREAPER = 36  # prctl(2)


def run_entrypoint(entry: str, environment: Mapping[str, str]) -> int:
    """Run a shell command to its end, and say in the termination log what its end means.

    Args:
        entry: as `sh -c` takes it.
        environment: of the command, complete.

    Returns:
        Its exit code, 128 + n where signal n killed it.

    Raises:
        ConfigError: there is no shell here.
    """
    code = _run(entry, {**environment, "PYTHONUNBUFFERED": "1"})
    meaning = MEANINGS.get(code, "")
    say(f"job returned {code}{': ' + meaning if meaning else ''}")
    if meaning:
        write_termination_log(meaning, environment)
    return code


def say(line: str) -> None:
    """One line on stdout, at once: what follows may take long, or be another program."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(entry: str, environment: Mapping[str, str]) -> int:
    _adopt_orphans()
    waited_for = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        child = _start(entry, environment, before)
        code = _attend(child, waited_for)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code


def _start(entry: str, environment: Mapping[str, str], mask: set[signal.Signals] | set[int]) -> int:
    command = ["sh", "-c", entry]
    search = environment.get("PATH")
    if shutil.which("stdbuf", path=search):
        command = ["stdbuf", "-oL", *command]
    program = shutil.which(command[0], path=search)
    if program is None:
        raise ConfigError(f"entrypoint {entry!r}: this image has no sh on PATH {search!r}; use one that has")
    defaults = [*_PASSED_ON, signal.SIGPIPE]
    return os.posix_spawn(program, command, environment, setpgroup=0, setsigmask=mask, setsigdef=defaults)


def _attend(child: int, waited_for: set[signal.Signals]) -> int:
    """Pass signals on and reap until the child has ended, and what it left behind has too."""
    code, is_ending = None, False
    while code is None:
        master_view = signal.sigtimedwait(waited_for, _LOOK_ANYWAY_S)
        if master_view is not None and master_view.si_signo != signal.SIGCHLD:
            is_ending = is_ending or master_view.si_signo in _ENDING
            _signal_group(child, master_view.si_signo)
        code = _reap(child)
    if is_ending:  # a program behind a shell that died first may finish; the kubelet's grace bounds it
        _await_group(child, waited_for, None)
    elif _has_children():
        say("the entrypoint has left processes running, which are ended now; let it wait for what it starts")
        _end_what_is_left(child, waited_for)
    return code


def _end_what_is_left(group: int, waited_for: set[signal.Signals]) -> None:
    """SIGTERM for the group and for who has left it, as daemons do; SIGKILL where it does not help."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(group, number)
        for pid in _adopted():
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if _await(lambda: not _has_children(), group, waited_for, _LEFT_BEHIND_S):
            return


def _reap(child: int) -> int | None:
    """Take in everybody who has ended; the exit code of the child where it is among them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    return code if code is None or code >= 0 else _KILLED - code


def _has_children() -> bool:
    """True where anybody is left to wait for, dead or alive."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _adopted() -> list[int]:
    """The children of this process; none where the kernel does not list them."""
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return []


def _await_group(group: int, waited_for: set[signal.Signals], patience_s: float | None) -> bool:
    """True when nobody of the group is left, False when patience is at its end."""
    return _await(lambda: not _signal_group(group, 0), group, waited_for, patience_s)


def _await(
    is_over: Callable[[], bool], group: int, waited_for: set[signal.Signals], patience_s: float | None
) -> bool:
    """Reap and pass signals on to a group until it is over; False when patience is at its end."""
    until_s = None if patience_s is None else time.monotonic() + patience_s
    while not is_over():
        if until_s is not None and time.monotonic() > until_s:
            return False
        master_view = signal.sigtimedwait(waited_for, _LOOK_EVERY_S)
        if master_view is not None and master_view.si_signo != signal.SIGCHLD:
            _signal_group(group, master_view.si_signo)
        _reap(group)
    return True


def _signal_group(group: int, number: int) -> bool:
    """False where nobody is left in the group."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _adopt_orphans() -> None:
    """What the entrypoint leaves behind becomes ours to reap, also where we are not the first process of the pod."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
