"""Runs the entrypoint of a container as its first process: unbuffered output, forwarded signals, reaped orphans.

The entrypoint gets its own process group, so that a signal reaches the program and not only the shell that started
it. The exit code is kept; a process that signal n killed counts as 128 + n, as in shells. The meaning of a signal
goes into the termination log, where the kubelet finds it. For any other code the program's last words in its log say
more, and the kubelet takes them only while the termination log is empty.
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
from edl.termination_log import LAST_WORDS, MEANINGS, SIGNALLED, write_termination_log

_FORWARDED = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
_ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}
_AWAITED = {*_FORWARDED, signal.SIGCHLD}
_GRACE_S = 5.0
"""The time between SIGTERM and SIGKILL for processes that the entrypoint left running."""
_POLL_S = 0.05
_POLL_ENTRYPOINT_S = 1.0
"""The launcher also polls, because another thread of it may have taken the signal that the entrypoint has ended."""
_SET_CHILD_SUBREAPER = 36  # prctl(2)


def run_entrypoint(entry: str, environment: Mapping[str, str]) -> int:
    """Run a shell command until it ends; if a signal ended it, write what that means into the termination log.

    Args:
        entry: as `sh -c` takes it.
        environment: the complete environment of the command.

    Returns:
        Its exit code; 128 + n if signal n killed it.

    Raises:
        ConfigError: the image has no shell.
    """
    code = _run(entry, {**environment, "PYTHONUNBUFFERED": "1"})
    meaning = MEANINGS.get(code, "")
    print_line(f"{LAST_WORDS}{code}{': ' + meaning if meaning else ''}")
    if meaning and code > SIGNALLED:
        write_termination_log(meaning, environment)
    return code


def print_line(line: str) -> None:
    """Print a line on stdout at once: the next step may take long, or may be another program."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(entry: str, environment: Mapping[str, str]) -> int:
    _become_subreaper()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        child = _start(entry, environment, before)
        code = _supervise(child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code


def _start(entry: str, environment: Mapping[str, str], mask: set[signal.Signals] | set[int]) -> int:
    """Start the command in a process group of its own; returns its process id."""
    command = ["sh", "-c", entry]
    search = environment.get("PATH")
    if shutil.which("stdbuf", path=search):
        command = ["stdbuf", "-oL", *command]
    program = shutil.which(command[0], path=search)
    if program is None:
        raise ConfigError(
            f"entrypoint {entry!r}: this image has no shell sh on PATH {search!r}; use an image that has one"
        )
    defaults = [*_FORWARDED, signal.SIGPIPE]
    return os.posix_spawn(program, command, environment, setpgroup=0, setsigmask=mask, setsigdef=defaults)


def _supervise(child: int) -> int:
    """Forward signals and reap processes until the child has ended, and what it left running has ended too.

    Returns:
        The exit code of the child.
    """
    code, is_ending = None, False
    while code is None:
        number = _forward_signal(child, _POLL_ENTRYPOINT_S)
        is_ending = is_ending or number in _ENDING
        code = _reap(child)
    if is_ending:  # a program may outlive its shell and finish; the pod's grace period limits it
        _await_group(child, None)
    elif _has_children():
        print_line(
            "the entrypoint left processes running in the background, which end now; to keep them, let the entrypoint"
            " wait for them"
        )
        _end_remaining(child)
    return code


def _end_remaining(group: int) -> None:
    """Send SIGTERM, and SIGKILL after the grace, to the group and to processes that have left it, such as daemons."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(group, number)
        for pid in _adopted():
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if _await(lambda: not _has_children(), group, _GRACE_S):
            return


def _reap(child: int) -> int | None:
    """Reap every process that has ended; returns the exit code of the child if it is one of them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    return code if code is None or code >= 0 else SIGNALLED - code


def _has_children() -> bool:
    """True if this process has a child, running or not reaped yet."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _adopted() -> list[int]:
    """The ids of this process's children; empty if the kernel does not list them."""
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return []


def _await_group(group: int, timeout_s: float | None) -> bool:
    """Wait until the process group is empty; returns False after the timeout."""
    return _await(lambda: not _signal_group(group, 0), group, timeout_s)


def _await(is_over: Callable[[], bool], group: int, timeout_s: float | None) -> bool:
    """Forward signals to a group and reap processes until a condition holds; returns False after the timeout."""
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    while not is_over():
        if until_s is not None and time.monotonic() > until_s:
            return False
        _forward_signal(group, _POLL_S)
        _reap(group)
    return True


def _forward_signal(group: int, timeout_s: float) -> int | None:
    """Wait for a signal and forward it to a group; returns its number, or None after the timeout and for SIGCHLD."""
    received = signal.sigtimedwait(_AWAITED, timeout_s)
    if received is None or received.si_signo == signal.SIGCHLD:
        return None
    _signal_group(group, received.si_signo)
    return received.si_signo


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; returns False if the group is empty."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _become_subreaper() -> None:
    """Adopt the orphans of the entrypoint, even if this is not the first process of the container."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
