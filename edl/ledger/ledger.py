"""The state machine of the master: it leases positions to trainers, and counts each position once.

Pure: each method takes the time, changes the state through events only, and keeps these events for the journal. The
caller must journal what `take_events` returns before anybody sees an answer. Applying the same events to an empty
`LedgerState` rebuilds the state.

Times are seconds of one monotonic clock. Deadlines are not journaled: after a restart `resume` gives every session a
full TTL.
"""

from __future__ import annotations

from collections.abc import Sequence

from edl.errors import ConflictError
from edl.ledger import dispatch
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.entries import Lease, TrainerSession
from edl.ledger.errors import dataset_conflict
from edl.ledger.events import (
    DatasetSet,
    Done,
    Failed,
    Granted,
    Replied,
    Returned,
    SessionForgotten,
    TruncateAccepted,
    TruncateOffered,
)
from edl.ledger.request import (
    ACCEPTED,
    DUPLICATE,
    EPOCH_END,
    JOB_END,
    RUN,
    STALE,
    WAIT,
    FailedItem,
    Item,
    ProgressItem,
    SessionKey,
    SyncRequest,
)
from edl.ledger.state import LedgerState
from edl.ledger.steps import StepLedger

_MAX_ERROR_LENGTH = 200  # characters of a trainer's error that the journal keeps


class Ledger(StepLedger):
    """Leases ranges of an epoch's order to trainers.

    Args:
        state: rebuilt from a journal; by default an empty state.
        settings: the time limits.
    """

    def __init__(self, state: LedgerState | None = None, settings: LedgerSettings | None = None) -> None:
        super().__init__(state, settings)
        self._truncating: set[int] = set()  # fences of leases whose holder was asked to stop earlier

    def resume(self, now_s: float) -> None:
        """Start to serve a rebuilt state: every session counts as live for one TTL."""
        state = self.state
        for session in state.sessions.values():
            session.seen_epoch, session.measured_since_s, session.renewed_s = state.epoch, now_s, now_s
            if session.journaled_reply is not None:
                session.last_reply, session.seq = session.journaled_reply, session.journaled_reply.seq
            if not session.is_replaced:
                self._renew(session, now_s)
        for lease in state.leases.values():
            lease.last_progress_s = now_s
        self._resume_election(now_s)

    def set_dataset(self, dataset: DatasetSet) -> bool:
        """Set the data set of the job.

        Returns:
            False if the ledger already has the same data set; nothing changes then.

        Raises:
            ConflictError: the ledger already has another data set.
        """
        known = self.state.dataset
        if known is None:
            self._emit(dataset)
            return True
        if known._replace(first_epoch=0) != dataset._replace(first_epoch=0):
            raise dataset_conflict(known, dataset)
        return False

    def sync(self, key: SessionKey, request: SyncRequest, now_s: float) -> Replied:
        """Handle one sync call: heartbeat, renewal, report and lease.

        Returns:
            The reply. A repeated `seq` gets the reply to the first request with that number.

        Raises:
            ConflictError: a newer process has replaced the session, or the `seq` is an old one; nothing has changed.
        """
        self.expire(now_s)
        session = self._session(key)
        if request.want and self.state.world is not None:
            raise ConflictError(
                f"session {key.name}: the trainers of this job train in step, so it has no leases; use the same loop"
                " in every trainer"
            )
        if request.seq <= session.seq:
            if request.seq == session.seq and session.last_reply is not None:
                return session.last_reply
            raise ConflictError(
                f"session {key.name}: seq {request.seq} is older than {session.seq}, which the master has answered;"
                " send a greater seq with each request"
            )
        self._renew(session, now_s)
        revoked, session.revoked = session.revoked, []
        revoked += self._record_progress(session, request.progress, now_s)
        self._apply_truncates(session, request)
        results = [self._report_done(session, item, now_s) for item in request.done]
        results += [self._report_failed(session, item) for item in request.failed]
        self._close_epoch()
        return self._reply(session, request.seq, request.want, now_s, results=results, revoked=revoked)

    def is_repeat(self, key: SessionKey, seq: int) -> bool:
        """True if `sync` would return a reply that it has returned before."""
        session = self.state.session_by_process.get((key.pod_uid, key.incarnation))
        return session is not None and session.seq == seq and session.last_reply is not None

    def poll(self, key: SessionKey, seq: int, want: int, now_s: float) -> Replied:
        """Try again to find work for a request that the master holds back.

        Raises:
            ConflictError: a newer process has replaced the session, or the session has sent another request.
        """
        session = self._session(key)
        if session.last_reply is None or session.seq != seq:
            raise ConflictError(
                f"session {key.name}: seq {seq} is no longer answered, because the session has sent seq"
                f" {session.seq}; send one request at a time"
            )
        if session.last_reply.status != WAIT:
            return session.last_reply
        self._renew(session, now_s)
        revoked, session.revoked = [*session.last_reply.revoked, *session.revoked], []
        return self._reply(session, seq, want, now_s, results=[], revoked=revoked)

    def tick(self, now_s: float) -> None:
        """Apply every time limit; call it about once a second."""
        self.expire(now_s)
        self._return_stalled(now_s)
        for session in list(self.state.sessions.values()):
            is_silent = now_s - session.renewed_s > self.settings.forget_s
            if is_silent and not session.leases and session.number not in self._live:
                self._emit(SessionForgotten(session.number))
        self._close_epoch()

    def _lease(self, session: TrainerSession, item: Item) -> Lease | None:
        """The current lease of the session that matches the item in every field."""
        lease = session.leases.get(item.fence)
        if lease is None or item.epoch != self.state.epoch or item.start != lease.start:
            return None
        if item.end == lease.end or (lease.truncate_at is not None and lease.truncate_at <= item.end < lease.end):
            return lease
        return None

    def _record_progress(self, session: TrainerSession, items: Sequence[ProgressItem], now_s: float) -> list[int]:
        """Move cursors; returns the fences of leases that the session reports and does not hold."""
        revoked = []
        for item in items:
            lease = self._lease(session, item)
            if lease is None:
                if item.fence not in session.leases and item.fence not in session.revoked:
                    revoked.append(item.fence)
            elif lease.cursor < item.cursor <= item.end:
                dispatch.update_rate(session, item.cursor - lease.cursor, now_s)
                lease.cursor, lease.last_progress_s = item.cursor, now_s
        return revoked

    def _apply_truncates(self, session: TrainerSession, request: SyncRequest) -> None:
        """Shorten the leases of a session that was asked to stop earlier: this is its first request since.

        A lease ends where the request says that its holder stops.
        """
        truncated = [lease for lease in session.leases.values() if lease.truncate_at is not None]
        if not truncated:
            return
        ends = {item.fence: item.end for item in (*request.done, *request.failed) if self._lease(session, item)}
        for item in request.progress:
            lease = self._lease(session, item)
            # A heartbeat with the old end accepts the new end, unless the holder already has its last record in hand.
            if lease is not None and (item.end < lease.end or max(item.cursor + 1, item.hand) >= lease.end):
                ends[item.fence] = item.end
        for lease in truncated:
            self._truncating.discard(lease.fence)
            end = ends.get(lease.fence, lease.truncate_at or 0)
            self._emit(TruncateAccepted(lease.fence, max(lease.cursor, end)))

    def _report_done(self, session: TrainerSession, item: Item, now_s: float) -> str:
        lease = self._lease(session, item)
        if lease is None:
            return self._duplicate_or_stale(session, item)
        dispatch.update_rate(session, lease.end - lease.cursor, now_s)
        self._emit(Done(lease.fence))
        return ACCEPTED

    def _report_failed(self, session: TrainerSession, item: FailedItem) -> str:
        lease = self._lease(session, item)
        if lease is None:
            return self._duplicate_or_stale(session, item)
        if item.error:
            self._emit(Failed(lease.fence, lease.cursor, item.error[:_MAX_ERROR_LENGTH]))
        else:
            self._emit(Returned(lease.fence, lease.cursor, "given back"))
        return ACCEPTED

    @staticmethod
    def _duplicate_or_stale(session: TrainerSession, item: Item) -> str:
        return DUPLICATE if (item.fence, item.epoch, item.start, item.end) in session.recent_reports else STALE

    def _reply(
        self, session: TrainerSession, seq: int, want: int, now_s: float, *, results: list[str], revoked: list[int]
    ) -> Replied:
        state = self.state
        leases: list[list[int]] = []
        truncate: list[list[int]] = []
        epoch, status = state.epoch, RUN
        if state.is_finished or state.is_failed:
            status = JOB_END
        elif state.dataset is None or not self._is_on_roster(session):
            status = WAIT
        elif session.seen_epoch < state.epoch:
            session.seen_epoch, epoch, status = state.epoch, state.epoch - 1, EPOCH_END
        else:
            leases = self._grant(session, want, now_s)
            truncate = self._offer_truncates(session, now_s)
            status = WAIT if want and not leases else RUN
        reply = Replied(session.number, seq, leases, results, truncate, revoked, epoch, status)
        # A late copy of an answered request must count as a repeat after a restart too. Otherwise the master would
        # grant leases to a sender that never reads the reply.
        if want or truncate or ACCEPTED in results:
            self._emit(reply)
        session.seq, session.last_reply = seq, reply
        return reply

    def _grant(self, session: TrainerSession, want: int, now_s: float) -> list[list[int]]:
        """Grant leases. A suspect range is granted alone, so that no batch mixes it with other records."""
        state, granted = self.state, list[list[int]]()
        if want and not session.leases:
            session.measured_since_s, session.measured_positions = now_s, 0
        while len(granted) < want and len(session.leases) < self.settings.max_leases and not session.holds_suspect:
            wanted = self._next_range(session)
            if wanted is None:
                break
            self._emit(Granted(session.number, *wanted))
            state.leases[state.serial].last_progress_s = now_s
            granted.append([state.epoch, *wanted, state.serial])
        if granted or not want:
            self._idle.pop(session.number, None)
        else:
            self._idle[session.number] = now_s
        return granted

    def _next_range(self, session: TrainerSession) -> tuple[int, int] | None:
        """The range of the next lease of a session; None if there is none for it."""
        state = self.state
        if state.todo:
            start, end = state.todo.first()
            shard_size = state.dataset.shard_size if state.dataset else None
            trainers = max(1, len(self._live))
            size = dispatch.lease_size(state.todo.size, trainers, session.rate, shard_size, self.settings.target_s)
            return start, min(end, start + size)
        if state.suspects and not session.leases:
            start, (end, _) = min(state.suspects.items())
            return start, end
        return None

    def _offer_truncates(self, session: TrainerSession, now_s: float) -> list[list[int]]:
        """Ask a slow session to stop earlier if other sessions have no work."""
        state = self.state
        if not session.leases or state.todo or state.suspects:
            return []
        idle = len(self._idle) - (session.number in self._idle)
        self._truncating &= state.leases.keys()
        if idle <= len(self._truncating):
            return []
        offers = dispatch.truncations(session, self.settings.split_s, now_s)
        for lease, end in offers:
            self._emit(TruncateOffered(lease.fence, end))
            self._truncating.add(lease.fence)
        return [[lease.fence, end] for lease, end in offers]

    def _return_stalled(self, now_s: float) -> None:
        """Take back the leases that make no progress if another session has no work."""
        self._idle = {number: at_s for number, at_s in self._idle.items() if now_s - at_s <= self.settings.ttl_s}
        if not self._idle or self.state.available:
            return
        limit_s = self.settings.stall_s * 2**self._stall_rounds
        stalled = [lease for lease in self.state.leases.values() if now_s - lease.last_progress_s > limit_s]
        for lease in stalled:
            self.state.sessions[lease.session].revoked.append(lease.fence)
            self._emit(Returned(lease.fence, lease.cursor, "stalled"))
        self._stall_rounds += bool(stalled)
