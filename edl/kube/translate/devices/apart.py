"""Evaluates expressions that call the functions of Kubernetes, in a process of its own.

The library keeps the arguments and the result of each call of a Python function for ever: a kilobyte for each
comparison of two quantities. So a tenant whose claims compare quantities again and again would fill the memory of the
controller. This process is replaced once it has grown; what it writes is believed only as far as it is JSON.

Source: cel-expr-python 0.1.3, func PyCelFunctionAdapter::Invoke, which releases neither.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import resource
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edl.kube.expressions import CelError, Evaluator

MOST_OBJECTS = 1_000_000
"""The objects that the library has kept at which the process is replaced: some 70 MB. It begins with 28 MB."""

MOST_MORE_BYTES = 512 * 1024**2
"""The most address space that one expression may use in addition; the process ends if it needs more."""

WAIT_S = 5.0
"""How long the caller waits for an answer, which usually takes a tenth of a millisecond."""

START_S = 60.0
"""How long the process may take to start: usually a third of a second, but longer on an overloaded machine."""

_PIECE = 64 * 1024
MAX_ANSWER = 16 * 1024
"""Bytes."""


class Apart:
    """A child process that evaluates expressions; it starts with the first one.

    Attributes:
        spent_s: CPU seconds that expressions have taken so far.
    """

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0
        atexit.register(self.end)

    @property
    def pid(self) -> int:
        """The process id; 0 if there is none."""
        return self._child.pid if self._child is not None else 0

    def evaluate(self, expression: str, variables: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any value, as in CEL
        """Evaluate an expression in the child process; a value that is no truth value comes back as a text.

        Raises:
            CelError: the expression cannot be read, has no value, or ended the process.
        """
        with self._lock:
            found = self._ask(json.dumps([expression, variables]).encode() + b"\n")
        match found:
            case {"value": bool(value)}:
                return value
            case {"text": str(text)}:
                return text
            case {"error": str(message)}:
                raise CelError(message)
        self.end()
        raise CelError("it ended the process that evaluates it, or took too long")

    def end(self) -> None:
        """End the process; the next expression starts another one."""
        child, self._child = self._child, None
        if child is not None and self._owner == os.getpid():
            child.kill()
            with suppress(OSError):
                child.communicate()

    def _ask(self, line: bytes) -> Any:  # noqa: ANN401 - JSON
        """Send a request to the child process; returns its answer as JSON, None if it gives none."""
        if self._child is None or self._owner != os.getpid() or self._child.poll() is not None:
            self.end()
            self._start()
        assert self._child is not None  # noqa: S101 - for the type checker
        answer = b""
        with suppress(OSError):
            answer = _exchanged(self._child, line, WAIT_S)
        with suppress(ValueError, RecursionError, TypeError, KeyError):
            found = json.loads(answer)
            self.spent_s += float(found["cpu_s"])
            if int(found["kept"]) > MOST_OBJECTS:
                self.end()
            return found
        return None

    def _start(self) -> None:
        command = [sys.executable, "-P", "-m", "edl.kube.translate.devices.apart"]
        pipe = subprocess.PIPE
        self._child, self._owner = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0), os.getpid()
        with suppress(OSError):
            _exchanged(self._child, b"", START_S)


def _exchanged(child: subprocess.Popen[bytes], line: bytes, within_s: float) -> bytes:
    """Write a line to the child and read a line of answer; it is incomplete if it takes too long or is too large."""
    assert child.stdin is not None  # noqa: S101 - for the type checker
    assert child.stdout is not None  # noqa: S101 - for the type checker
    ends_s, answer, rest = time.monotonic() + within_s, b"", memoryview(line)
    with selectors.DefaultSelector() as pipes:  # `select` takes no descriptor above 1,023
        pipes.register(child.stdout, selectors.EVENT_READ)
        if rest:
            pipes.register(child.stdin, selectors.EVENT_WRITE)
        while not answer.endswith(b"\n") and len(answer) <= MAX_ANSWER:
            ready = {key.fileobj for key, _ in pipes.select(max(0.0, ends_s - time.monotonic()))}
            if not ready:
                break
            if child.stdin in ready:  # a pipe takes at least a piece of this size
                rest = rest[os.write(child.stdin.fileno(), rest[: select.PIPE_BUF]) :]
                if not rest:
                    pipes.unregister(child.stdin)
            if child.stdout in ready:
                piece = os.read(child.stdout.fileno(), _PIECE)
                if not piece:
                    break
                answer += piece
    return answer


def main() -> None:
    """Run the child process: print an empty line, then read an expression with its variables and print its value."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever reads the answers ends this process
    _limit()
    gc.disable()  # it would search what the library keeps again and again
    evaluator, before = Evaluator(("device",)), sys.getallocatedblocks()
    sys.stdout.write("\n")
    sys.stdout.flush()
    for line in sys.stdin.buffer:
        began_s = time.process_time()
        found = _answer(evaluator, *json.loads(line))
        found["cpu_s"] = time.process_time() - began_s
        found["kept"] = sys.getallocatedblocks() - before
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def _answer(evaluator: Evaluator, expression: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    try:
        value = evaluator.evaluate(expression, evaluator.given(variables))
    except CelError as error:
        return {"error": str(error)}
    return {"value": value} if isinstance(value, bool) else {"text": str(value)[: MAX_ANSWER // 16]}


def _limit() -> None:
    """Limit the memory of this process, and make it the first to be killed if the machine runs out of memory."""
    with suppress(OSError, ValueError):  # macOS has neither
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + MOST_MORE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


if __name__ == "__main__":
    main()
