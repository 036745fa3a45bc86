"""Why the container of a pod ended: its exit code, and the last line of its termination log or of its log."""

from __future__ import annotations

import re
import signal

from edl.model.names import Role
from edl.model.pods import Pod
from edl.printable import shortened
from edl.termination_log import LAST_WORDS, MEANINGS, SIGNALLED

_MAX_CHARACTERS = 200
_GENERIC = MEANINGS[1]
"""The launcher's message for exit code 1; another line says more."""
_LAUNCHER = re.compile(
    rf"{LAST_WORDS}|the entrypoint left processes running|waiting for \d+ running pods? |not waiting: "
    r"|waiting until all containers |\d+ of \d+ pods are "
)
"""How the launcher's own lines in a log begin; they never say why a program failed."""
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM}
"""The signals that others send, so that the last line of a log does not explain them."""
DEFAULT_NAMESPACE = "default"
"""The namespace of commands without -n, unless a kubeconfig sets another one."""
_OF_KUBELET = ("OOMKilled: ", "ContainerStatusUnknown: ", "DeadlineExceeded: ", "Evicted: ")
"""The beginnings of lines in which the kubelet gives a cause of an end, which says more than an exit code."""


def cause_of_end(pod: Pod) -> str:
    """Say why a container ended, in one line of about 250 characters at most; empty if nothing is known."""
    line, code = _last_line(pod.container_message), pod.exit_code or 0
    if line.startswith(_OF_KUBELET) or (line in MEANINGS.values() and line != _GENERIC):
        return line
    if code > SIGNALLED:
        number = code - SIGNALLED
        if number == signal.SIGKILL:
            return MEANINGS[code]
        says_more = line and number not in _FROM_OUTSIDE
        last = f"; its last line: {shortened(line, _MAX_CHARACTERS)}" if says_more else ""
        return f"killed by signal {number}{last}"
    if line and line != _GENERIC:
        return shortened(line, _MAX_CHARACTERS)
    if not code:
        return line
    meaning = f"{MEANINGS[code]}; " if code in MEANINGS and not pod.ended_in else ""
    return f"{meaning}its termination log is empty; see `{logs_command(pod)}`"


def logs_command(pod: Pod) -> str:
    """The command that prints the log of the container whose end is known."""
    name = pod.ended_in.rpartition(" ")[2]
    container = f" -c {name}" if name else ""
    namespace = f" -n {pod.namespace}" if pod.namespace != DEFAULT_NAMESPACE else ""
    if pod.job is None:
        return f"kubectl logs {pod.name}{container}{namespace}"
    role = f" --role {pod.role.value}" if pod.role not in {Role.TRAINER, None} else ""
    return f"edl logs {pod.job.name}{role}{container}{namespace}"


def _last_line(message: str) -> str:
    """The last line that is not the launcher's; its message for any error only if there is no other."""
    lines = [line for line in map(str.strip, message.splitlines()) if line and not _LAUNCHER.match(line)]
    return next((line for line in reversed(lines) if line != _GENERIC), lines[-1] if lines else "")
