"""Loops in processes of their own that make their steps by turns.

Whatever else the machine does then slows all of them down alike. They have no process in common, since edl refuses
an optimizer beside its own in the thread of a loop: in a script that would be a second model, trained by each trainer
alone.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType


class Turning:
    """A process that makes steps when it has its turn, and waits in between.

    Args:
        command: of a process that calls `take_turns`.
        environment: of that process.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = shlex.join(command)
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Turning:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: in its order, or at once if the measurement has failed."""
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def begin(self, steps: int) -> None:
        """Let it make some steps."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{steps}\n")
            self._process.stdin.flush()

    def end(self) -> dict[str, float]:
        """What it has measured in its turn, once that is over.

        Raises:
            SystemExit: the process has failed.
        """
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise SystemExit(f"a process has failed: {self._command}")
        found: dict[str, float] = json.loads(line)
        return found


def take_turns(turn: Callable[[int], Mapping[str, float]]) -> None:
    """Be the process of a `Turning` until it ends.

    Args:
        turn: makes so many steps, and returns what it measured.
    """
    for line in sys.stdin:
        print(json.dumps(turn(int(line))), flush=True)
