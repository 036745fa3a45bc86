"""A small process that sends a trainer's heartbeats to the master, while its loop may be busy for long.

A thread of the trainer could not do it: while the loop is in a long call of another library, such as one that reads a
large file, Python runs no other thread. The process says nothing while the trainer is stopped, and ends with it. It
needs the standard library alone, and runs as a script, so that it starts in a moment and is small.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_EVERY_S, _TIMEOUT_S = 1.0, 5.0
_NOT_RUNNING = "TtZX"
"""The states of a process, as /proc names them, in which it does nothing: stopped, traced, ended."""


class Heartbeat:
    """The process that sends heartbeats for one trainer.

    Args:
        place: `url`, `token`, `ca_file` and `session`, as JSON has them.
    """

    def __init__(self, place: dict[str, Any]) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [sys.executable, "-I", "-S", str(Path(__file__).resolve())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
        stdin = self._process.stdin
        if stdin is not None:
            stdin.write(json.dumps({**place, "parent": os.getpid()}).encode() + b"\n")
            stdin.flush()

    def stop(self) -> None:
        """End the process; it also ends if the trainer does."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Beat until the trainer has gone, which closes the standard input."""
    place = json.loads(sys.stdin.readline() or "null")
    parts = urlsplit(place["url"]) if place else None
    while parts is not None and not select.select([sys.stdin], [], [], _EVERY_S)[0]:
        if _is_running(place["parent"]):
            with contextlib.suppress(OSError, http.client.HTTPException):
                _beat(place, parts.hostname or "", parts.port, is_tls=parts.scheme == "https")


def _beat(place: dict[str, Any], host: str, port: int | None, *, is_tls: bool) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    if is_tls:
        context = ssl.create_default_context(cafile=place["ca_file"])
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
    headers = {"Authorization": f"Bearer {place['token']}", "Content-Type": "application/json"}
    with contextlib.closing(connection):
        connection.request("POST", "/v1/group/alive", json.dumps({"session": place["session"]}).encode(), headers)
        connection.getresponse().read()


def _is_running(process: int) -> bool:
    """True if a process is not stopped; unknown, where there is no /proc, counts as running."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return not Path("/proc/self").exists()
    return text.rpartition(")")[2].split()[0] not in _NOT_RUNNING


if __name__ == "__main__":
    main()
