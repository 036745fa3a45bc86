"""The leases of a trainer and the reports that it still has to send. It does no locking and no waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from edl.worker.lease import BadRecord, HeldLease, LeaseHolder, PositionBatch

_PREFETCHED, _MAX_PREFETCHED = 2, 48  # leases; the number grows if they are so short that the loop runs out of them
_MAX_DONE, _MAX_FAILED, _MAX_WANT = 200, 100, 64  # leases in one request

Reports = tuple[list[HeldLease], list[tuple[HeldLease, str]]]
"""Leases to report as done, and leases to report as failed with their errors."""


class LeaseQueue:
    """The leases that a session holds, in the order in which it got them.

    Args:
        on_report: called when a lease is consumed and has to be reported.

    Attributes:
        held: fence -> lease.
        status: the status of the last reply: run, wait, epoch_end or job_end.
        ttl_s: how long a renewal lasts, in seconds; 0 before the first lease.
    """

    def __init__(self, on_report: Callable[[], None]) -> None:
        self.held: dict[int, HeldLease] = {}
        self.status = "run"
        self.ttl_s = 0.0
        self._on_report = on_report
        self._done: list[HeldLease] = []
        self._failed: list[tuple[HeldLease, str]] = []
        self._prefetched = _PREFETCHED

    @property
    def has_reports(self) -> bool:
        """True if there is something to report."""
        return bool(self._done or self._failed)

    @property
    def needs_leases(self) -> bool:
        """True if the session should ask for leases now."""
        return not self.held or (len(self.held) <= self._prefetched and self.status != "wait")

    def first(self) -> HeldLease | None:
        """The oldest lease; None if there is none."""
        return next(iter(self.held.values()), None)

    def rewind(self) -> None:
        """Offer the positions again that the loop got and has not consumed."""
        for lease in self.held.values():
            lease.handed_out = lease.delivered = lease.cursor

    def gather(self, limit: int) -> PositionBatch:
        """Give the loop at most `limit` positions of one epoch as a batch; the batch is empty if there are none."""
        parts: list[tuple[HeldLease, int, int]] = []
        for lease in list(self.held.values()):
            if lease.cursor >= lease.end:  # it was truncated to what is consumed
                self.end_done(lease)
            if lease.handed_out >= lease.end:
                continue
            if not limit or time.monotonic() >= lease.deadline_s or (parts and lease.epoch != parts[0][0].epoch):
                break
            end = min(lease.end, lease.handed_out + limit)
            parts.append((lease, lease.handed_out, end))
            limit -= end - lease.handed_out
            lease.handed_out = end
        return PositionBatch(parts[0][0].epoch if parts else 0, tuple(parts))

    def consume(self, batch: PositionBatch) -> None:
        """Mark a batch as consumed, and report the leases that are consumed completely."""
        for lease, _, end in batch.parts:
            if not lease.is_ended:
                lease.cursor = end
                if end >= lease.end:
                    self.end_done(lease)

    def fail(self, batch: PositionBatch, bad: BadRecord) -> None:
        """Report the lease with a bad record as failed, and return the other leases of the batch to the master."""
        blamed, offset = None, bad.index
        for lease, start, end in batch.parts:
            if 0 <= offset < end - start:
                blamed = lease
            offset -= end - start
        if blamed is not None and not blamed.is_ended:
            self.end_failed(blamed, bad.error)
        self.give_back(batch)

    def give_back(self, batch: PositionBatch) -> None:
        """Return the leases of a batch to the master."""
        for lease, _, _ in batch.parts:
            if not lease.is_ended:
                self.end_failed(lease, "")

    def give_back_all(self, error: str = "") -> None:
        """Return every lease to the master; an error counts against the leases of which the loop has positions."""
        for lease in list(self.held.values()):
            self.end_failed(lease, error if lease.delivered > lease.cursor else "")

    def end_done(self, lease: HeldLease) -> None:
        """Report a lease as consumed."""
        lease.is_ended = True
        self.held.pop(lease.fence, None)
        self._done.append(lease)
        if not self.held and self.status == "run":
            self._prefetched = min(self._prefetched * 2, _MAX_PREFETCHED)
        self._on_report()

    def end_failed(self, lease: HeldLease, error: str) -> None:
        """Report a lease as failed; with an empty error it is only returned to the master."""
        lease.is_ended = True
        self.held.pop(lease.fence, None)
        self._failed.append((lease, error))

    def next_reports(self) -> Reports:
        """The reports of the next request; `apply` removes them."""
        return self._done[:_MAX_DONE], self._failed[:_MAX_FAILED]

    def fields(self, reports: Reports, *, is_closing: bool) -> dict[str, Any]:
        """The fields of a sync request that concern leases."""
        done, failed = reports
        given_up = [lease for lease, _ in failed]
        want = 0 if is_closing else max(0, min(_MAX_WANT, self._prefetched + 1 - len(self.held)))
        return {
            "done": [lease.item for lease in done],
            "failed": [{**lease.item, "error": error} for lease, error in failed],
            "progress": [lease.progress for lease in (*self.held.values(), *given_up)],
            "want": want,
        }

    def apply(
        self, reply: dict[str, Any], reports: Reports, sent_s: float, took_s: float, holder: LeaseHolder
    ) -> None:
        """Update the leases by the master's reply to a sync request.

        Args:
            reply: the reply of the master.
            reports: the reports that the request contained.
            sent_s: when the request was first sent, in monotonic seconds.
            took_s: how long the attempt took that was answered; the ones before may have taken longer than a TTL.
            holder: the holder of the granted leases.
        """
        del self._done[: len(reports[0])], self._failed[: len(reports[1])]
        for fence in reply["revoked"]:
            lease = self.held.pop(fence, None)
            if lease is not None:
                lease.is_ended = True
        for lease in self.held.values():
            lease.deadline_s = max(lease.deadline_s, sent_s + self.ttl_s)
        for granted in reply["leases"]:
            ttl_s = float(granted["ttl_s"])
            self.ttl_s = max(self.ttl_s, ttl_s - took_s)  # `ttl_s` includes the time for which the request was held
            place = (granted["epoch"], granted["start"], granted["end"], granted["fence"])
            self.held[granted["fence"]] = HeldLease(holder, *place, sent_s + ttl_s)
        for truncate in reply["truncate"]:
            self._truncate(truncate["fence"], truncate["end"])
        self.status = reply["status"]
        if self.status == "job_end":
            self._end_all()

    def _truncate(self, fence: int, end: int) -> None:
        """Stop a lease earlier, but not before the positions that the loop already has."""
        lease = self.held.get(fence)
        if lease is None:
            return
        lease.end = min(lease.end, max(end, lease.delivered))
        lease.handed_out = min(lease.handed_out, lease.end)
        if lease.end == lease.start:
            lease.is_ended = True
            del self.held[fence]

    def _end_all(self) -> None:
        """Drop all leases, because the job has ended and nothing that is left counts."""
        for lease in self.held.values():
            lease.is_ended = True
        self.held.clear()
        self._done.clear()
        self._failed.clear()
