"""Writes the status of Queue objects: what the last plan gives their jobs, and what they may have.

Only what has changed is written, a few objects at a time and so many in one report that the next one need not wait.
The status is for people: nothing is read back from it, and a write that fails is repeated with the next report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from edl.api.queues import QUEUE_PLURAL
from edl.api.v1 import GROUP, VERSION
from edl.clock import Clock
from edl.errors import EdlError
from edl.explain.queue_status import kueue_statuses, queue_statuses
from edl.kube.client.api_errors import NotFoundError
from edl.kube.client.session import JSON_PATCH, ApiSession
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import ScalePlan
from edl.model.quantity import format_quantity
from edl.model.queues import Amounts, Queue, QueueStatus
from edl.model.units import amount, rank_of
from edl.observability.logs import log_event

WRITES_AT_ONCE = 8
WRITES_A_REPORT = 200
LONGEST_S = 2.0
"""The longest duration of a report, so that slow answers delay nothing else; the next report continues it."""
REPEATED_S = 600.0
"""A status that has not changed is written again after this time, in case somebody else changed it."""

_QUEUES = f"/apis/{GROUP}/{VERSION}/{QUEUE_PLURAL}"
_log = logging.getLogger(__name__)

Written = tuple[QueueStatus, int]
"""A status and the generation of the spec that it describes."""
Seen = Callable[[Sequence[Queue], Mapping[str, QueueStatus]], None]
"""Gets the queues, and the status of each by name."""


class ApiQueueReporter:
    """Implements `ports.QueueReporter`.

    Args:
        session: the API server.
        clock: for how long ago a status was written.
        seen: gets what each report shows.
    """

    def __init__(self, session: ApiSession, clock: Clock, seen: Seen = lambda _queues, _statuses: None) -> None:
        self._session, self._clock, self._seen = session, clock, seen
        self._written: dict[str, tuple[Written, float]] = {}
        self._failed = ""

    async def report(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        """Write the status of each Queue object that has changed; those of Kueue are only shown."""
        statuses = await asyncio.to_thread(queue_statuses, view, plan) if view.queues else {}
        of_kueue = await asyncio.to_thread(kueue_statuses, view, plan) if view.kueue.queues else {}
        named = {queue.name: status for queue, status in of_kueue.items()}
        self._seen((*view.queues, *of_kueue), statuses | named)
        uids = {queue.uid for queue in view.queues}
        self._written = {uid: one for uid, one in self._written.items() if uid in uids}
        due = [queue for queue in view.queues if self._is_due(queue, statuses[queue.name])][:WRITES_A_REPORT]
        turns = asyncio.Semaphore(WRITES_AT_ONCE)
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_S):
                await asyncio.gather(*(self._write(queue, statuses[queue.name], turns) for queue in due))

    def _is_due(self, queue: Queue, status: QueueStatus) -> bool:
        known = self._written.get(queue.uid)
        if known is None or known[0] != (status, queue.generation):
            return True
        return self._clock.monotonic_s() - known[1] >= REPEATED_S

    async def _write(self, queue: Queue, status: QueueStatus, turns: asyncio.Semaphore) -> None:
        patch = [{"op": "add", "path": "/status", "value": queue_status_body(status, queue.generation)}]
        path = f"{_QUEUES}/{queue.name}/status"
        try:
            async with turns:
                await self._session.patch(path, patch, content_type=JSON_PATCH, timeout_s=LONGEST_S)
        except NotFoundError:
            return
        except EdlError as error:
            if str(error) != self._failed:
                log_event(_log, logging.WARNING, "status of queue not written", queue=queue.name, err=str(error))
            self._failed = str(error)
            return
        self._written[queue.uid] = (status, queue.generation), self._clock.monotonic_s()


def queue_status_body(status: QueueStatus, generation: int) -> dict[str, Any]:
    """The status as the API server stores it."""
    return {
        "observedGeneration": generation,
        "used": _quantities(status.used),
        "borrowed": _quantities(status.borrowed),
        "share": _quantities(status.share),
        "running": status.running,
        "pending": status.pending,
        "message": status.message,
        "summary": {
            "used": _line(status.used),
            "borrowed": _line(status.borrowed) or "-",
            "share": _line(status.share),
        },
    }


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {name: format_quantity(number, name) for name, number in amounts}


def _line(amounts: Amounts) -> str:
    """Format amounts on one line: `12 cores, 48 GiB of memory`."""
    return ", ".join(amount(name, number) for name, number in sorted(amounts, key=lambda one: rank_of(one[0])))
