"""Computes what pasted jobs would change, in a process of its own with little time and memory.

The text comes from whoever may open the page. A text that makes a parser or a plan slow or large ends that process
and nothing else: not the controller, whose page this is. The process reads what it needs from its standard input
and writes one JSON object.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl.controller.planning import compare_snapshots, plan_snapshot
from edl.dashboard.pasted import with_pasted
from edl.dashboard.view import certificate_body, short
from edl.errors import ConfigError, EdlError, PlanError
from edl.explain.whatif import changes_dict
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits

MAX_SHOWN_CHANGES = 200
MAX_ANSWER = 4 * 1024**2
"""Bytes of an answer; more is not read."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one what-if calculation.

    Attributes:
        cpu_s: seconds of processor time, beyond those that the process needs to start.
        memory_bytes: the memory in bytes beyond what it has once it has read the cluster.
        wall_s: seconds until it is killed whatever it does.
    """

    cpu_s: int = 30
    memory_bytes: int = 1024**3
    wall_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Question:
    """The input of a what-if calculation: the cluster, the pasted text, and the settings of the planner."""

    snapshot: ClusterSnapshot
    text: str
    policy: str
    limits: Limits


def answer(asked: Question) -> dict[str, Any]:
    """Compute what applying the pasted jobs would change, with the reason for each changed trainer count.

    Raises:
        ConfigError: the text cannot be used.
        PlanError: there is no plan.
    """
    pasted = with_pasted(asked.snapshot, asked.text)
    plan = plan_snapshot(pasted.snapshot, asked.policy, asked.limits)
    changes = compare_snapshots(asked.snapshot, pasted.snapshot, plan, asked.limits, "the cluster")
    body = changes_dict(changes)
    messages = {str(c.job): short(c.after.account) for c in changes.jobs if c.after is not None}
    shown = [{**one, "message": messages.get(f"{one['namespace']}/{one['name']}", "")} for one in body["jobs"]]
    return {
        **body,
        "jobs": shown[:MAX_SHOWN_CHANGES],
        "hidden": max(0, len(shown) - MAX_SHOWN_CHANGES),
        "warnings": [short(warning) for warning in pasted.warnings],
        "certificates": {"before": certificate_body(changes.before), "after": certificate_body(changes.after)},
    }


class BoundedProcess:
    """One calculation in a process of its own; `end` may be called by another thread."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._child: subprocess.Popen[bytes] | None = None
        self._is_late = False

    def run(self, asked: Question) -> dict[str, Any]:
        """Answer a question.

        Raises:
            ConfigError: the text cannot be used, or it needs more than the bounds.
            PlanError: there is no plan.
        """
        command = [sys.executable, "-P", "-m", "edl.dashboard.what_if"]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # each thread of it reserves memory
        written, quiet = b"", subprocess.DEVNULL
        # A process that was killed reads no more.
        with (
            suppress(BrokenPipeError),
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, env=environment
            ) as self._child,
        ):
            timer = threading.Timer(self._bounds.wall_s, self._end_late)
            timer.start()
            try:
                written = self._ask(self._child, asked)
            finally:
                timer.cancel()
                self.end()
        return self._read(written, self._child.returncode)

    def end(self) -> None:
        """Kill the process, if it runs."""
        if self._child is not None:
            self._child.kill()

    def _end_late(self) -> None:
        self._is_late = True
        self.end()

    def _ask(self, child: subprocess.Popen[bytes], asked: Question) -> bytes:
        assert child.stdin is not None  # noqa: S101 - for the type checker
        assert child.stdout is not None  # noqa: S101 - for the type checker
        pickle.dump((self._bounds, asked), child.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        child.stdin.close()
        written = child.stdout.read(MAX_ANSWER + 1)
        if len(written) <= MAX_ANSWER:
            child.wait()
        return written

    def _read(self, written: bytes, code: int) -> dict[str, Any]:
        """Read the answer as JSON only: a text from a stranger may have broken the process."""
        body = None
        with suppress(ValueError, RecursionError):
            body = json.loads(written) if len(written) <= MAX_ANSWER else None
        match body:
            case {"answer": dict(found)} if code == 0:
                return found
            case {"config": str(message)}:
                raise ConfigError(message)
            case {"plan": str(message)}:
                raise PlanError(message)
            case _:
                raise ConfigError(f"the calculation was ended: {self._why(code)}; paste fewer or smaller jobs")

    def _why(self, code: int) -> str:
        if self._is_late:
            return f"it took longer than {self._bounds.wall_s:g} s"
        if code in {-signal.SIGXCPU, -signal.SIGKILL}:
            return f"it took more than {self._bounds.cpu_s} s of processor time, or the machine had no memory for it"
        return f"it needed more than {self._bounds.memory_bytes // 1024**2} MiB of memory, or failed"


def main() -> None:
    """Run the child process: read a question from stdin, and write the answer to stdout."""
    bounds, asked = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by `BoundedProcess._ask`
    _limit(bounds)
    try:
        body: dict[str, Any] = {"answer": answer(asked)}
    except PlanError as error:
        body = {"plan": str(error)}
    except EdlError as error:
        body = {"config": str(error)}
    sys.stdout.write(json.dumps(body))


def _limit(bounds: Bounds) -> None:
    """Let the kernel enforce the limits, and kill this process first if the machine runs out of memory."""
    ends_s = int(time.process_time()) + 1 + bounds.cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (ends_s, ends_s + 1))
    with suppress(OSError, ValueError):  # macOS has neither
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + bounds.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


if __name__ == "__main__":
    main()
