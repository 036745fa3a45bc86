"""The writes of the controller, as the API server received them: its audit log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.worlds.waiting import PATIENCE

ACCOUNT = "system:serviceaccount:paddlecloud:training-job-controller"
WRITES = {"create", "update", "patch", "delete"}
POLL_S = 0.01
MOST_LATE_S = 70.0
"""The log is in the order of answers; no request is answered later than this."""


class NoWriteError(AssertionError):
    """The controller did not write what a scene waits for."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One write.

    Attributes:
        at_s: when the API server received it, in seconds since the epoch.
        what: verb and resource, such as `create pods` or `patch trainingjobs/status`.
        name: of the object.
        code: the HTTP status of the answer.
    """

    at_s: float
    what: str
    name: str
    code: int

    def is_of(self, job: str) -> bool:
        """True if the object is the job, or is named after it."""
        return self.name == job or self.name.startswith(f"{job}-")

    @property
    def is_end(self) -> bool:
        """True for the deletion of a pod, and for the mark before it."""
        return self.what in {"patch pods", "delete pods"}


class AuditLog:
    """Reads the audit log while it grows.

    Args:
        path: of the log.

    Attributes:
        sent: every write so far, in the order of the log.
    """

    def __init__(self, path: Path) -> None:
        self.sent: list[Sent] = []
        self._path, self._offset = path, 0

    def read(self) -> list[Sent]:
        """Read what is new; returns everything so far."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self.sent += _writes(line)
        return self.sent

    def since(self, at_s: float) -> list[Sent]:
        """What was received from that time on, in the order of receipt."""
        self.read()
        return sorted(self._since(at_s, 0), key=lambda one: one.at_s)

    def _since(self, at_s: float, first: int) -> list[Sent]:
        """What was received from that time on, in any order; what was read before the number `first` is left out."""
        found: list[Sent] = []
        for one in reversed(self.sent[first:]):
            if one.at_s >= at_s:
                found.append(one)
            elif one.at_s < at_s - MOST_LATE_S:
                break
        return found

    def wait(self, at_s: float, is_wanted: Callable[[Sent], bool], count: int = 1, timeout_s: float = 60.0) -> Sent:
        """Wait until so many wanted writes came after a time; returns the last one of them.

        Raises:
            NoWriteError: they did not come.
        """
        deadline_s = time.monotonic() + timeout_s * PATIENCE
        found: list[Sent] = []
        looked_at = 0
        while True:  # each write is looked at once: the machine has other things to do
            self.read()
            found += filter(is_wanted, self._since(at_s, looked_at))
            looked_at = len(self.sent)
            if len(found) >= count:
                return sorted(found, key=lambda one: one.at_s)[count - 1]
            if time.monotonic() > deadline_s:
                raise NoWriteError(f"{len(found)} of {count} writes in {timeout_s:g} s; last {self.sent[-3:]}")
            time.sleep(POLL_S)

    def wait_for_silence(self, quiet_s: float, timeout_s: float = 600.0) -> None:
        """Wait until nothing was written for so long."""
        deadline_s = time.monotonic() + timeout_s * PATIENCE
        began_s = time.time()
        while (left_s := max([began_s, *(one.at_s for one in self.read()[-50:])]) + quiet_s - time.time()) > 0:
            if time.monotonic() > deadline_s:
                raise NoWriteError(f"the controller writes on after {timeout_s:g} s: {self.sent[-3:]}")
            time.sleep(min(left_s, 1.0))


def _writes(line: bytes) -> Iterator[Sent]:
    """The write of a line of the log; nothing for a read, for the lease, and for other users."""
    if ACCOUNT.encode() not in line:
        return
    event: dict[str, Any] = json.loads(line)
    about = event.get("objectRef") or {}
    is_dry = "dryRun=" in event["requestURI"]
    if (
        event["verb"] not in WRITES
        or event["stage"] != "ResponseComplete"
        or is_dry
        or about.get("resource") == "leases"
    ):
        return
    what = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
    at_s = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
    yield Sent(at_s, f"{event['verb']} {what}", about.get("name", ""), event.get("responseStatus", {}).get("code", 0))
