"""A trainer's leases: a thread that speaks to the master, and the loop that consumes what they hold.

Both share one lock. The thread sends one request at a time and repeats it unchanged until it is answered, so that
every report acts once. The loop never works on a lease after its deadline: it waits until the master has renewed it
or said that it is gone.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

from edl.errors import EdlError, TemporaryError
from edl.worker.lease import Fault, Handed, Lease
from edl.worker.wire import Wire

_AHEAD, _MOST_AHEAD = 2, 48  # leases prefetched; more where they are so short that the loop runs dry
_LONG_POLL_S = 10.0
_CALL_TIMEOUT_S = 10.0
_FIRST_BEAT_S = 1.0
_BEATS_PER_TTL = 4
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 5.0
_GOODBYE_S = 5.0


class StoppedError(EdlError):
    """The session was closed."""


class MasterSession:
    """One process of a trainer, as its master knows it.

    Args:
        wire: to the master.
        who: `pod_uid`, `incarnation` and `name`.
    """

    def __init__(self, wire: Wire, who: dict[str, Any]) -> None:
        self.who = who
        self._wire, self._calls = wire, wire.fork()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._call_lock = threading.Lock()
        self._held: dict[int, Lease] = {}
        self._done: list[Lease] = []
        self._failed: list[tuple[Lease, str]] = []
        self._seq, self._syncs = 0, 0
        self._ahead = _AHEAD
        self._ttl_s = 0.0
        self._status = "run"
        self._wants_sync = self._is_closing = self._is_polling = False
        self._error: EdlError | None = None
        self._thread = threading.Thread(target=self._run, name="edl-worker", daemon=True)

    def start(self) -> None:
        """Begin to heartbeat and to fetch work."""
        self._thread.start()

    def close(self, error: str = "") -> None:
        """Report what was consumed, give back the rest and stop.

        Args:
            error: what went wrong with the record in hand.
        """
        with self._lock:
            for lease in list(self._held.values()):
                blamed = error if lease.shown > lease.cursor else ""
                self._put_failed(lease, blamed)
            self._is_closing = True
            if self._is_polling:
                self._wire.abort()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_GOODBYE_S + 1.0)
        self._calls.close()

    def leases(self) -> Iterator[Lease]:
        """Each lease in turn, until the job has ended.

        Raises:
            PermanentError: the master refuses this trainer.
        """
        while True:
            with self._lock:
                lease = next(iter(self._held.values()), None)
                while lease is None:
                    if self._error is not None:
                        raise self._error
                    if self._status == "job_end":
                        return
                    if self._is_closing:
                        raise StoppedError("records: the job was closed; call connect() again")
                    self._changed.wait(1.0)
                    lease = next(iter(self._held.values()), None)
            yield lease

    def hand_out(self, lease: Lease) -> int | None:
        """The next position of a lease; the one before it is consumed. None at its end.

        Waits while the lease is past its deadline and the master has not said what became of it.
        """
        with self._lock:
            lease.cursor = lease.handed
            while not lease.is_gone and lease.cursor < lease.end:
                if self._error is not None:
                    raise self._error
                if self._is_closing:
                    return None
                if time.monotonic() < lease.deadline_s:
                    lease.handed = lease.shown = lease.cursor + 1
                    return lease.cursor
                self._changed.wait(1.0)
            if not lease.is_gone:
                self._put_done(lease)
            return None

    def give_up(self, lease: Lease, error: str) -> None:
        """Something in a lease cannot be trained on; what was consumed of it counts."""
        with self._lock:
            if not lease.is_gone:
                self._put_failed(lease, error)
                self._changed.notify_all()

    def rewind(self) -> None:
        """What was handed out and not consumed is to be handed out again."""
        with self._lock:
            for lease in self._held.values():
                lease.handed = lease.shown = lease.cursor

    def take(self, most: int, *, waits: bool) -> Handed | None:
        """The next positions, of as many leases as are at hand; nothing is consumed by that.

        Args:
            most: positions; fewer where no more are at hand, because those who wait for more keep what they have.
            waits: until there are some; None then means that the job has ended.

        Raises:
            EdlError: the master refuses this trainer, or the session was closed.
        """
        with self._lock:
            while True:
                if self._error is not None:
                    raise self._error
                if self._is_closing:
                    raise StoppedError("batches: the job was closed; call connect() again")
                handed = self._gather(most)
                if handed.parts or not waits:
                    return handed if handed.parts else None
                if not self._held and self._status == "job_end":
                    return None
                self._changed.wait(1.0)

    def _gather(self, most: int) -> Handed:
        parts: list[tuple[Lease, int, int]] = []
        for lease in list(self._held.values()):
            if lease.cursor >= lease.end:  # it was shortened to what is consumed
                self._put_done(lease)
            if lease.handed >= lease.end:
                continue
            if not most or time.monotonic() >= lease.deadline_s or (parts and lease.epoch != parts[0][0].epoch):
                break
            end = min(lease.end, lease.handed + most)
            parts.append((lease, lease.handed, end))
            most -= end - lease.handed
            lease.handed = end
        return Handed(parts[0][0].epoch if parts else 0, tuple(parts))

    def show(self, handed: Handed) -> bool:
        """Whether the loop may train on what was handed out; what is left of it goes back otherwise.

        Waits while a lease is past its deadline and the master has not said what became of it.
        """
        with self._lock:
            while handed.is_ours and not self._is_closing:
                if self._error is not None:
                    raise self._error
                now_s = time.monotonic()
                if all(now_s < lease.deadline_s for lease, _, _ in handed.parts):
                    for lease, _, end in handed.parts:
                        lease.shown = end
                    return True
                self._changed.wait(1.0)
            self._return_parts(handed)
            return False

    def consumed(self, handed: Handed) -> None:
        """The loop has trained on all of it."""
        with self._lock:
            for lease, _, end in handed.parts:
                if not lease.is_gone:
                    lease.cursor = end
                    if end >= lease.end:
                        self._put_done(lease)

    def fail(self, handed: Handed, fault: Fault) -> None:
        """One record of what was handed out cannot be trained on; nothing of it is consumed."""
        blamed, left = None, fault.index
        for lease, start, end in handed.parts:
            if 0 <= left < end - start:
                blamed = lease
            left -= end - start
        with self._lock:
            if blamed is not None and not blamed.is_gone:
                self._put_failed(blamed, fault.text)
            self._return_parts(handed)

    def _return_parts(self, handed: Handed) -> None:
        for lease, _, _ in handed.parts:
            if not lease.is_gone:
                self._put_failed(lease, "")
        self._changed.notify_all()

    def flush(self) -> None:
        """Return when the master knows what was consumed up to now, the record in hand excepted."""
        with self._lock:
            target = self._syncs + (2 if self._thread.is_alive() else 0)  # one may be under way without it
            while self._syncs < target and self._thread.is_alive():
                self._wants_sync = True
                self._changed.notify_all()
                self._changed.wait(1.0)
            if self._error is not None:
                raise self._error

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, patience_s: float | None = None
    ) -> dict[str, Any]:
        """Another route of the master; a lost master is waited for, at most so long where that is given.

        Raises:
            PermanentError: the master refuses.
            TemporaryError: patience is at its end.
        """
        data = None if body is None else json.dumps(body).encode()
        with self._call_lock:
            return self._persist(self._calls, method, path, data, timeout_s=_CALL_TIMEOUT_S, patience_s=patience_s)

    def _put_done(self, lease: Lease) -> None:
        lease.is_gone = True
        self._held.pop(lease.fence, None)
        self._done.append(lease)
        if not self._held and self._status == "run":
            self._ahead = min(self._ahead * 2, _MOST_AHEAD)
        self._changed.notify_all()

    def _put_failed(self, lease: Lease, error: str) -> None:
        lease.is_gone = True
        self._held.pop(lease.fence, None)
        self._failed.append((lease, error))

    def _run(self) -> None:
        """The thread."""
        try:
            while self._turn():
                pass
        except EdlError as error:
            with self._lock:
                self._error = error
                self._changed.notify_all()
        finally:
            self._wire.close()

    def _turn(self) -> bool:
        """One request; False when nothing more is to be said."""
        with self._lock:
            self._await_reason()
            is_last = self._is_closing
            body, done, failed = self._compose()
        sent_s = time.monotonic()
        data = json.dumps(body).encode()
        patience_s = _GOODBYE_S if is_last else None
        try:
            timeout_s = body["wait_s"] + _CALL_TIMEOUT_S
            reply = self._persist(self._wire, "POST", "/v1/sync", data, timeout_s=timeout_s, patience_s=patience_s)
        except TemporaryError:
            return False
        with self._lock:
            self._hear(reply, done, failed, sent_s)
            is_said = is_last and not (self._done or self._failed)
        return not is_said and self._status != "job_end"

    def _await_reason(self) -> None:
        """Wait until there is something to report or to fetch, or it is time for a heartbeat."""
        beat_s = self._ttl_s / _BEATS_PER_TTL if self._ttl_s else _FIRST_BEAT_S
        until_s = time.monotonic() + beat_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._is_closing or self._wants_sync or self._done or self._failed or not self._held:
                return
            if len(self._held) <= self._ahead and self._status != "wait":
                return
            self._changed.wait(left_s)

    def _compose(self) -> tuple[dict[str, Any], list[Lease], list[tuple[Lease, str]]]:
        self._seq += 1
        self._wants_sync = False
        for lease in list(self._held.values()) if self._is_closing else ():
            self._put_failed(lease, "")  # it came with the answer to what was under way when the session was closed
        done, failed = self._done[:200], self._failed[:100]
        want = 0 if self._is_closing else max(0, min(64, self._ahead + 1 - len(self._held)))
        says_much = bool(done or failed or self._held or self._is_closing)
        self._is_polling = not says_much
        given_up = [lease for lease, _ in failed]
        body = {
            "session": self.who,
            "seq": self._seq,
            "done": [lease.item for lease in done],
            "failed": [{**lease.item, "error": error} for lease, error in failed],
            "progress": [x.progress for x in (*self._held.values(), *given_up)],
            "want": want,
            "wait_s": 0.0 if says_much else _LONG_POLL_S,
        }
        return body, done, failed

    def _hear(self, reply: dict[str, Any], done: list[Lease], failed: list[tuple[Lease, str]], sent_s: float) -> None:
        del self._done[: len(done)], self._failed[: len(failed)]
        took_s = time.monotonic() - sent_s
        for fence in reply["revoked"]:
            lease = self._held.pop(fence, None)
            if lease is not None:
                lease.is_gone = True
        for lease in self._held.values():
            lease.deadline_s = max(lease.deadline_s, sent_s + self._ttl_s)
        for given in reply["leases"]:
            ttl_s = float(given["ttl_s"])
            self._ttl_s = max(self._ttl_s, ttl_s - took_s)  # a held request's leases last as much longer
            place = (given["epoch"], given["start"], given["end"], given["fence"])
            self._held[given["fence"]] = Lease(self, *place, sent_s + ttl_s)
        for cut in reply["truncate"]:
            self._shorten(cut["fence"], cut["end"])
        self._status = reply["status"]
        if self._status == "job_end":
            self._drop_all()
        self._syncs += 1
        self._changed.notify_all()

    def _drop_all(self) -> None:
        """The job has ended: what is left counts for nothing."""
        for lease in self._held.values():
            lease.is_gone = True
        self._held.clear()
        self._done.clear()
        self._failed.clear()

    def _shorten(self, fence: int, end: int) -> None:
        """Stop earlier, but not before what is in the loop's hands; what is only read ahead goes to others."""
        lease = self._held.get(fence)
        if lease is None:
            return
        lease.end = min(lease.end, max(end, lease.shown))
        lease.handed = min(lease.handed, lease.end)
        if lease.end == lease.start:
            lease.is_gone = True
            del self._held[fence]

    def _persist(
        self, wire: Wire, method: str, path: str, data: bytes | None, *, timeout_s: float, patience_s: float | None
    ) -> dict[str, Any]:
        """The same request until it is answered, or patience is at its end."""
        retry_s, begun_s = _FIRST_RETRY_S, time.monotonic()
        while True:
            try:
                return wire.call(method, path, data, timeout_s)
            except TemporaryError as error:
                if patience_s is not None and time.monotonic() - begun_s > patience_s:
                    raise
                pause_s = (error.retry_after_s or retry_s) * random.uniform(0.5, 1.5)  # noqa: S311 jitter
                retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
            with self._lock:
                if self._is_closing and patience_s is None:
                    patience_s, begun_s = _GOODBYE_S, time.monotonic()
                elif not self._is_closing:
                    self._changed.wait_for(lambda: self._is_closing, pause_s)
                    continue
            time.sleep(min(pause_s, _FIRST_RETRY_S))
