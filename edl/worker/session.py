"""The session of a trainer with its master: a thread talks to the master, and the training loop consumes leases.

Both share one lock. The thread sends one request at a time, and repeats it unchanged until the master answers, so
each report takes effect once. The loop never gets a position of a lease after its deadline: it waits until the master
has renewed or revoked the lease.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from edl.errors import EdlError, TemporaryError
from edl.waiting import PauseLengths
from edl.worker.connection import MasterConnection
from edl.worker.forks import check_is_no_import
from edl.worker.heartbeat import Heartbeat
from edl.worker.lease import BadRecord, HeldLease, PositionBatch
from edl.worker.lease_queue import LeaseQueue, Reports

_LONG_POLL_S = 10.0
_CALL_TIMEOUT_S = 10.0
_FIRST_HEARTBEAT_S = 1.0
_HEARTBEATS_PER_TTL = 4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _JITTER = 0.1, 5.0, 0.5
_CLOSE_TIMEOUT_S = 5.0
_CHECK_EVERY_S = 1.0


class StoppedError(EdlError):
    """A call waits for leases of a session that is closed."""


class MasterSession:
    """The connection of one trainer process to its master: it keeps leases alive, fetches new ones and reports.

    Args:
        connection: to the master.
        identity: `pod_uid`, `incarnation` and `name` of this process.

    Raises:
        ConfigError: multiprocessing has begun this process, and imports the script.
    """

    def __init__(self, connection: MasterConnection, identity: dict[str, Any]) -> None:
        check_is_no_import()
        self.identity = identity
        self._sync_connection, self._call_connection = connection, connection.duplicate()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._call_lock = threading.Lock()
        self._leases = LeaseQueue(self._changed.notify_all)
        self._seq = 0
        self._answered, self._flush_until = 0, 0  # sync requests: answered so far, and the count that `flush` needs
        self._is_closing = self._is_polling = self._is_cancelled = False
        self._error: EdlError | None = None
        self._thread = threading.Thread(target=self._run, name="edl-worker", daemon=True)

    def start(self) -> None:
        """Start to send heartbeats and to fetch leases; a second call changes nothing."""
        with self._lock:
            if self._thread.ident is None:
                self._thread.start()

    def beside(self) -> MasterSession:
        """Another session object of the same trainer, for calls that would block this one; it never holds leases."""
        return MasterSession(self._call_connection.duplicate(), self.identity)

    def heartbeat(self) -> Heartbeat:
        """Start a process that sends heartbeats to the master, however busy this one is."""
        return Heartbeat({**self._call_connection.place, "session": self.identity})

    def secret(self, purpose: str) -> str:
        """A secret that only the trainers of this job can compute, see `MasterConnection.secret`."""
        return self._call_connection.secret(purpose)

    def cancel_calls(self) -> None:
        """Let the call that another thread waits for fail soon, and each later one."""
        with self._lock:
            self._is_cancelled = True
            self._changed.notify_all()
        self._call_connection.abort()

    def close(self, error: str = "") -> None:
        """Report what is consumed, give back the rest, and stop.

        Args:
            error: why the loop failed; it blames the positions that the loop has.
        """
        with self._lock:
            self._leases.give_back_all(error)
            self._is_closing = True
            if self._is_polling:
                self._sync_connection.abort()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT_S + 1.0)
        with self._call_lock:  # another thread may have a call under way
            self._call_connection.close()

    def leases(self) -> Iterator[HeldLease]:
        """Yield one lease after the other, until the job has ended.

        Raises:
            PermanentError: the master rejects this trainer.
            StoppedError: the session is closed.
        """
        while True:
            with self._lock:
                if not self._wait_until(lambda: bool(self._leases.held) or self._leases.status == "job_end"):
                    raise StoppedError("records: this connection to the job is closed; call connect() for a new one")
                lease = self._leases.first()
            if lease is None:
                return
            yield lease

    def next_position(self, lease: HeldLease) -> int | None:
        """The next position of a lease; the one before it is consumed. None at the end of the lease.

        Waits while the lease is past its deadline and the master has neither renewed nor revoked it.
        """
        with self._lock:
            lease.cursor = lease.handed_out
            self._wait_until(
                lambda: lease.is_ended or lease.cursor >= lease.end or time.monotonic() < lease.deadline_s
            )
            if lease.is_ended or self._is_closing:
                return None
            if lease.cursor >= lease.end:
                self._leases.end_done(lease)
                return None
            lease.handed_out = lease.delivered = lease.cursor + 1
            return lease.cursor

    def end_lease(self, lease: HeldLease, error: str) -> None:
        """Return a lease; its consumed positions count.

        An error counts against the position that the loop has now.
        """
        with self._lock:
            if not lease.is_ended:
                self._leases.end_failed(lease, error)
                self._changed.notify_all()

    def rewind(self) -> None:
        """Offer the positions again that the loop got and has not consumed."""
        with self._lock:
            self._leases.rewind()

    def take(self, limit: int, *, waits: bool) -> PositionBatch | None:
        """Take the next positions for a batch; they are not consumed yet.

        Args:
            limit: the most positions. The batch is smaller if fewer are available: a trainer that waited for more
                would keep those that it has from the others.
            waits: wait until there are some; None then means that the job has ended.

        Raises:
            EdlError: the master rejects this trainer, or the session is closed.
        """
        taken: list[PositionBatch] = []

        def is_ready() -> bool:
            if self._is_closing:
                return False
            batch = self._leases.gather(limit)
            taken.extend([batch] if batch.parts else [])
            has_ended = not self._leases.held and self._leases.status == "job_end"
            return bool(taken) or not waits or has_ended

        with self._lock:
            if not self._wait_until(is_ready):
                raise StoppedError("batches: this connection to the job is closed; call connect() for a new one")
        return taken[0] if taken else None

    def deliver(self, batch: PositionBatch) -> bool:
        """Mark a batch as delivered to the loop.

        Waits while a lease is past its deadline and the master has neither renewed nor revoked it.

        Returns:
            True if the loop may train on it. False if it lost a lease; its other leases are given back then.
        """
        with self._lock:
            self._wait_until(
                lambda: not batch.is_valid or all(time.monotonic() < lease.deadline_s for lease, _, _ in batch.parts)
            )
            if batch.is_valid and not self._is_closing:
                for lease, _, end in batch.parts:
                    lease.delivered = end
                return True
            self._leases.give_back(batch)
            self._changed.notify_all()
            return False

    def consumed(self, batch: PositionBatch) -> None:
        """Report that the loop has trained on the whole batch."""
        with self._lock:
            self._leases.consume(batch)

    def fail(self, batch: PositionBatch, bad: BadRecord) -> None:
        """Report that one record of a batch cannot be trained on; no position of the batch is consumed then."""
        with self._lock:
            self._leases.fail(batch, bad)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until the master knows everything that is consumed now, except the positions that the loop has."""
        with self._lock:
            # Two requests: one that is under way may lack the last report.
            target = self._answered + (2 if self._thread.is_alive() else 0)
            self._flush_until = max(self._flush_until, target)
            self._changed.notify_all()
            self._wait_until(lambda: self._answered >= target or not self._thread.is_alive())

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, limit_s: float | None = None
    ) -> dict[str, Any]:
        """Call another route of the master, and wait while the master does not answer.

        Args:
            method: the HTTP method.
            path: the path of the route, with its query.
            body: a JSON object, or None.
            limit_s: the longest time to wait for an answer, in seconds; None waits without limit.

        Raises:
            PermanentError: the master refused the call.
            TemporaryError: the master did not answer in time, or the calls of this session are cancelled.
        """
        data = None if body is None else json.dumps(body).encode()
        with self._call_lock:
            reply, _ = self._call_with_retries(
                self._call_connection, method, path, data, timeout_s=_CALL_TIMEOUT_S, limit_s=limit_s
            )
        return reply

    def _wait_until(self, is_ready: Callable[[], bool]) -> bool:
        """Wait until a condition holds or the session is closed; the caller holds the lock.

        Returns:
            True if the condition holds, False if the session is closed.

        Raises:
            EdlError: the master rejects this trainer.
        """
        while True:
            if self._error is not None:
                raise self._error
            if is_ready():
                return True
            if self._is_closing:
                return False
            self._changed.wait(_CHECK_EVERY_S)

    def _run(self) -> None:
        """Send sync requests until the session is closed. The body of the thread."""
        try:
            while self._sync_once():
                pass
        except EdlError as error:
            with self._lock:
                self._error = error
                self._changed.notify_all()
        finally:
            self._sync_connection.close()

    def _sync_once(self) -> bool:
        """Send one request; returns False if it was the last one."""
        with self._lock:
            self._wait_for_next_sync()
            is_last = self._is_closing
            body, reports = self._build_request()
        sent_s = time.monotonic()
        data = json.dumps(body).encode()
        timeout_s = body["wait_s"] + _CALL_TIMEOUT_S
        limit_s = _CLOSE_TIMEOUT_S if is_last else None
        try:
            reply, took_s = self._call_with_retries(
                self._sync_connection, "POST", "/v1/sync", data, timeout_s=timeout_s, limit_s=limit_s
            )
        except TemporaryError:
            return False
        with self._lock:
            self._apply_reply(reply, reports, sent_s, took_s)
            is_complete = is_last and not self._leases.has_reports
        return not is_complete and self._leases.status != "job_end"

    def _wait_for_next_sync(self) -> None:
        """Wait until there is something to report or to fetch, or until the next heartbeat is due."""
        ttl_s = self._leases.ttl_s
        until_s = time.monotonic() + (ttl_s / _HEARTBEATS_PER_TTL if ttl_s else _FIRST_HEARTBEAT_S)
        while (left_s := until_s - time.monotonic()) > 0:
            if self._is_closing or self._answered < self._flush_until:
                return
            if self._leases.has_reports or self._leases.needs_leases:
                return
            self._changed.wait(left_s)

    def _build_request(self) -> tuple[dict[str, Any], Reports]:
        """The next request, and the reports that it contains."""
        self._seq += 1
        if self._is_closing:
            self._leases.give_back_all()  # the master may have granted leases while the session was being closed
        reports = self._leases.next_reports()
        has_content = bool(any(reports) or self._leases.held or self._is_closing)
        self._is_polling = not has_content
        body = {
            "session": self.identity,
            "seq": self._seq,
            **self._leases.fields(reports, is_closing=self._is_closing),
            "wait_s": 0.0 if has_content else _LONG_POLL_S,
        }
        return body, reports

    def _apply_reply(self, reply: dict[str, Any], reports: Reports, sent_s: float, took_s: float) -> None:
        """Update the leases by a reply to the request that was first sent at `sent_s`; see `LeaseQueue.apply`."""
        self._leases.apply(reply, reports, sent_s, took_s, self)
        self._answered += 1
        self._changed.notify_all()

    def _call_with_retries(
        self,
        connection: MasterConnection,
        method: str,
        path: str,
        data: bytes | None,
        *,
        timeout_s: float,
        limit_s: float | None,
    ) -> tuple[dict[str, Any], float]:
        """Send the same request until it is answered, or until its time limit; closing the session sets a limit.

        Returns:
            The reply, and how long the attempt took that was answered, in seconds.
        """
        pauses, start_s = PauseLengths(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _JITTER), time.monotonic()
        while True:
            attempt_s = time.monotonic()
            try:
                reply = connection.call(method, path, data, timeout_s)
                return reply, time.monotonic() - attempt_s
            except TemporaryError as error:
                if self._is_cancelled or (limit_s is not None and time.monotonic() - start_s > limit_s):
                    raise
                pause_s = pauses.next_s(error.retry_after_s)
            with self._lock:
                if self._is_closing and limit_s is None:
                    limit_s, start_s = _CLOSE_TIMEOUT_S, time.monotonic()
                elif not self._is_closing:
                    self._changed.wait_for(lambda: self._is_closing or self._is_cancelled, pause_s)
                    continue
            time.sleep(min(pause_s, _FIRST_PAUSE_S))
