"""The master's state machine: which trainer may work on what, what is done, and what a lost trainer leaves to do.

Pure: every method takes the time, changes the state by events alone and keeps them for the journal. A caller journals
what `take_events` returns before it lets anybody see an answer; applying the same events to an empty `LedgerState`
gives this state again.

Times are seconds of one monotonic clock. Deadlines are never journaled: `resume` gives everybody a whole TTL.
"""

from __future__ import annotations

from collections.abc import Sequence

from edl.errors import ConflictError
from edl.ledger import dispatch
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.errors import UnknownCheckpointError, differs
from edl.ledger.events import (
    CheckpointBegun,
    CheckpointCommitted,
    CutOffered,
    CutTaken,
    DatasetSet,
    Done,
    Elected,
    Failed,
    Granted,
    Replied,
    Restored,
    Returned,
    SessionForgotten,
)
from edl.ledger.members import Membership
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
from edl.ledger.state import Checkpoint, Lease, LedgerState, TrainerSession

_ERROR_KEPT = 200  # characters of a trainer's error that go into the journal


class Ledger(Membership):
    """Leases ranges of an epoch's order to trainers.

    Args:
        state: rebuilt from a journal; a new one by default.
        settings: the times to keep to.
    """

    def __init__(self, state: LedgerState | None = None, settings: LedgerSettings | None = None) -> None:
        super().__init__(state, settings)
        self._cutting: set[int] = set()
        self._election_until_s = 0.0

    def resume(self, now_s: float) -> None:
        """Begin to serve a state that was rebuilt: everybody is taken for alive for one TTL."""
        state = self.state
        for session in state.sessions.values():
            session.seen_epoch, session.mark_s, session.renewed_s = state.epoch, now_s, now_s
            if session.replied is not None:
                session.reply, session.seq = session.replied, session.replied.seq
            if not session.ended:
                self._renew(session, now_s)
        for lease in state.leases.values():
            lease.moved_s = now_s
        if state.election is not None:
            self._election_until_s = now_s + state.election.ttl_s

    def set_dataset(self, dataset: DatasetSet) -> bool:
        """Say what is sharded; the same again changes nothing and answers False.

        Raises:
            ConflictError: it is another data set.
        """
        known = self.state.dataset
        if known is None:
            self._emit(dataset)
            return True
        if known._replace(first_epoch=0) != dataset._replace(first_epoch=0):
            raise differs(known, dataset)
        return False

    def sync(self, who: SessionKey, request: SyncRequest, now_s: float) -> Replied:
        """Heartbeat, renewal, report and lease in one.

        Returns:
            The answer; the first one again where the `seq` is repeated.

        Raises:
            ConflictError: the session was replaced, or the `seq` is an old one; nothing has changed.
        """
        self.expire(now_s)
        session = self._session(who)
        if request.seq <= session.seq:
            if request.seq == session.seq and session.reply is not None:
                return session.reply
            raise ConflictError(f"session {who.name}: seq {request.seq} is older than {session.seq}; count up")
        self._renew(session, now_s)
        revoked, session.lost = session.lost, []
        revoked += self._note_progress(session, request.progress, now_s)
        self._take_cuts(session, request)
        results = [self._report_done(session, item, now_s) for item in request.done]
        results += [self._report_failed(session, item) for item in request.failed]
        self._close_epoch()
        return self._answer(session, request.seq, request.want, now_s, results=results, revoked=revoked)

    def is_repeat(self, who: SessionKey, seq: int) -> bool:
        """True where `sync` would answer with the reply that it gave before."""
        session = self.state.session_of.get((who.pod_uid, who.incarnation))
        return session is not None and session.seq == seq and session.reply is not None

    def poll(self, who: SessionKey, seq: int, want: int, now_s: float) -> Replied:
        """Try again for a session whose request is held because there was nothing for it.

        Raises:
            ConflictError: the session was replaced or has gone on meanwhile.
        """
        session = self._session(who)
        if session.reply is None or session.seq != seq:
            raise ConflictError(f"session {who.name}: seq {seq} was overtaken by {session.seq}")
        if session.reply.status != WAIT:
            return session.reply
        self._renew(session, now_s)
        revoked, session.lost = [*session.reply.revoked, *session.lost], []
        return self._answer(session, seq, want, now_s, results=[], revoked=revoked)

    def tick(self, now_s: float) -> None:
        """What time alone brings about; to be called each second or so."""
        self.expire(now_s)
        self._take_stalled(now_s)
        for session in list(self.state.sessions.values()):
            silent = now_s - session.renewed_s > self.settings.forget_s
            if silent and not session.leases and session.number not in self._alive:
                self._emit(SessionForgotten(session.number))
        self._close_epoch()

    def begin_checkpoint(self, who: SessionKey, step: int) -> int:
        """A session starts to save the model; what is reported now will be committed with it.

        Returns:
            The checkpoint's number; the same again for the same session and step.

        Raises:
            ConflictError: there is no data set, or the session was replaced or is not on the roster.
        """
        if self.state.dataset is None:
            raise ConflictError("checkpoint: no data set is given yet; POST /v1/dataset first")
        session = self._session(who)
        if not self._is_listed(session):
            raise ConflictError(
                f"session {who.name}: pod {who.pod_uid} is not on the roster; only live trainers save"
            )
        for checkpoint in self.state.checkpoints.values():
            if (checkpoint.session, checkpoint.step, checkpoint.committed) == (session.number, step, False):
                return checkpoint.number
        leases = self.state.leases.values()
        self._emit(CheckpointBegun(session.number, step, [[x.fence, x.cursor] for x in leases if x.cursor > x.start]))
        return self.state.serial

    def commit_checkpoint(self, number: int) -> None:
        """The model is saved; repeating it changes nothing.

        Raises:
            UnknownCheckpointError: it is none of this training's.
        """
        if not self._checkpoint(number).committed:
            self._emit(CheckpointCommitted(number))

    def restore(self, number: int | None) -> int:
        """Training goes on from a committed checkpoint, and every lease ends.

        Args:
            number: None takes the last one; where there is none, the epoch begins again.

        Returns:
            The checkpoint's number; 0 for the start of the epoch.

        Raises:
            UnknownCheckpointError: there is none of that number, or it was never committed.
        """
        if number is None:
            latest = self.state.latest_checkpoint
            number = latest.number if latest is not None else 0
        elif not self._checkpoint(number).committed:
            raise UnknownCheckpointError(f"checkpoint {number} was begun and never committed; restore another")
        for lease in self.state.leases.values():
            self.state.sessions[lease.session].lost.append(lease.fence)
        self._emit(Restored(number))
        for session in self.state.sessions.values():
            session.seen_epoch = self.state.epoch
        return number

    def elect(self, who: SessionKey, step: int, ttl_s: float, now_s: float) -> bool:
        """Whether that session, and no other, saves the model of that step.

        Raises:
            ConflictError: the session was replaced.
        """
        session, held = self._session(who), self.state.election
        self._renew(session, now_s)
        latest = self.state.latest_checkpoint
        if not self._is_listed(session) or (latest is not None and step <= latest.step):
            return False
        if held is not None:
            if held.session == session.number and held.step == step:
                return True
            if step < held.step:
                return False
            if now_s < self._election_until_s and held.session in self._alive and held.session != session.number:
                return False
        self._emit(Elected(session.number, step, ttl_s))
        self._election_until_s = now_s + ttl_s
        return True

    def _lease(self, session: TrainerSession, item: Item) -> Lease | None:
        """The present lease that an item names in every part."""
        lease = session.leases.get(item.fence)
        if lease is None or item.epoch != self.state.epoch or item.start != lease.start:
            return None
        if item.end == lease.end or (lease.cut is not None and lease.cut <= item.end < lease.end):
            return lease
        return None

    def _note_progress(self, session: TrainerSession, items: Sequence[ProgressItem], now_s: float) -> list[int]:
        """Move cursors; returns the fences of leases that the session thinks it has and has not."""
        revoked = []
        for item in items:
            lease = self._lease(session, item)
            if lease is None:
                if item.fence not in session.leases and item.fence not in session.lost:
                    revoked.append(item.fence)
            elif lease.cursor < item.cursor <= item.end:
                dispatch.measure(session, item.cursor - lease.cursor, now_s)
                lease.cursor, lease.moved_s = item.cursor, now_s
        return revoked

    def _take_cuts(self, session: TrainerSession, request: SyncRequest) -> None:
        """This is the first request since the cuts were told: the leases now end where their holder says."""
        cut = [lease for lease in session.leases.values() if lease.cut is not None]
        if not cut:
            return
        said = {item.fence: item.end for item in (*request.done, *request.failed) if self._lease(session, item)}
        for item in request.progress:
            lease = self._lease(session, item)
            # The old end in a heartbeat says that the cut holds, unless the holder has its last record in hand.
            if lease is not None and (item.end < lease.end or max(item.cursor + 1, item.hand) >= lease.end):
                said[item.fence] = item.end
        for lease in cut:
            self._cutting.discard(lease.fence)
            self._emit(CutTaken(lease.fence, max(lease.cursor, said.get(lease.fence, lease.cut or 0))))

    def _report_done(self, session: TrainerSession, item: Item, now_s: float) -> str:
        lease = self._lease(session, item)
        if lease is None:
            return self._not_present(session, item)
        dispatch.measure(session, lease.end - lease.cursor, now_s)
        self._emit(Done(lease.fence))
        return ACCEPTED

    def _report_failed(self, session: TrainerSession, item: FailedItem) -> str:
        lease = self._lease(session, item)
        if lease is None:
            return self._not_present(session, item)
        if item.error:
            self._emit(Failed(lease.fence, lease.cursor, item.error[:_ERROR_KEPT]))
        else:
            self._emit(Returned(lease.fence, lease.cursor, "given back"))
        return ACCEPTED

    @staticmethod
    def _not_present(session: TrainerSession, item: Item) -> str:
        return DUPLICATE if (item.fence, item.epoch, item.start, item.end) in session.finished else STALE

    def _answer(
        self, session: TrainerSession, seq: int, want: int, now_s: float, *, results: list[str], revoked: list[int]
    ) -> Replied:
        state = self.state
        leases: list[list[int]] = []
        truncate: list[list[int]] = []
        epoch, status = state.epoch, RUN
        if state.is_finished or state.is_failed:
            status = JOB_END
        elif state.dataset is None or not self._is_listed(session):
            status = WAIT
        elif session.seen_epoch < state.epoch:
            session.seen_epoch, epoch, status = state.epoch, state.epoch - 1, EPOCH_END
        else:
            leases = self._grant(session, want, now_s)
            truncate = self._offer_cuts(session, now_s)
            status = WAIT if want and not leases else RUN
        reply = Replied(session.number, seq, leases, results, truncate, revoked, epoch, status)
        # A late copy of a request for work that was answered must stay a repeat after a restart, too: leases that
        # its sender never hears of would be held for it for ever.
        if want or truncate or ACCEPTED in results:
            self._emit(reply)
        session.seq, session.reply = seq, reply
        return reply

    def _grant(self, session: TrainerSession, want: int, now_s: float) -> list[list[int]]:
        """New leases; what failed before is given out alone, so that no batch has it together with anything else."""
        state, granted = self.state, list[list[int]]()
        if want and not session.leases:
            session.mark_s, session.counted = now_s, 0
        shard_size = state.dataset.shard_size if state.dataset else None
        while len(granted) < want and len(session.leases) < self.settings.held and not session.holds_suspect:
            if state.todo:
                start, end = state.todo.first()
                trainers = max(1, len(self._alive))
                size = dispatch.lease_size(
                    state.todo.size, trainers, session.rate, shard_size, self.settings.target_s
                )
                end = min(end, start + size)
            elif state.suspects and not session.leases:
                start, (end, _) = min(state.suspects.items())
            else:
                break
            self._emit(Granted(session.number, start, end))
            state.leases[state.serial].moved_s = now_s
            granted.append([state.epoch, start, end, state.serial])
        if granted or not want:
            self._hungry.pop(session.number, None)
        else:
            self._hungry[session.number] = now_s
        return granted

    def _offer_cuts(self, session: TrainerSession, now_s: float) -> list[list[int]]:
        state = self.state
        if not session.leases or state.todo or state.suspects:
            return []
        hungry = len(self._hungry) - (session.number in self._hungry)
        self._cutting &= state.leases.keys()
        if hungry <= len(self._cutting):
            return []
        found = dispatch.cuts(session, self.settings.split_s, now_s)
        for lease, end in found:
            self._emit(CutOffered(lease.fence, end))
            self._cutting.add(lease.fence)
        return [[lease.fence, end] for lease, end in found]

    def _take_stalled(self, now_s: float) -> None:
        """Where somebody has nothing to do, take back leases that make no progress at all."""
        self._hungry = {n: asked for n, asked in self._hungry.items() if now_s - asked <= self.settings.ttl_s}
        if not self._hungry or self.state.waiting:
            return
        patience_s = self.settings.stall_s * 2**self._stalls
        stalled = [lease for lease in self.state.leases.values() if now_s - lease.moved_s > patience_s]
        for lease in stalled:
            self.state.sessions[lease.session].lost.append(lease.fence)
            self._emit(Returned(lease.fence, lease.cursor, "stalled"))
        self._stalls += bool(stalled)

    def _checkpoint(self, number: int) -> Checkpoint:
        found = self.state.checkpoints.get(number)
        if found is None:
            raise UnknownCheckpointError(
                f"checkpoint {number} is not known: it was never begun, or is too old, or a restore undid it;"
                " restore another"
            )
        return found
