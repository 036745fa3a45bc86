"""The sessions of a ledger: who may hold leases, and what happens to the leases of a session that ends.

A session is one process of one trainer. It is live while it makes requests. A newer process of the same pod ends it,
and so does a roster without its pod.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from edl.errors import ConflictError
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.entries import TrainerSession
from edl.ledger.errors import session_replaced
from edl.ledger.events import EpochClosed, Event, Returned, RosterSet, SessionOpened
from edl.ledger.request import SessionKey
from edl.ledger.state import LedgerState


class Membership:
    """The part of a ledger that tracks its sessions.

    Args:
        state: rebuilt from a journal; by default an empty state.
        settings: the time limits.
    """

    def __init__(self, state: LedgerState | None = None, settings: LedgerSettings | None = None) -> None:
        self.state = state or LedgerState()
        self.settings = settings or LedgerSettings()
        self._events: list[Event] = []
        self._live: OrderedDict[int, TrainerSession] = OrderedDict()  # number -> session, oldest request first
        self._idle: dict[int, float] = {}  # number -> when the session last asked for work and got none
        self._stall_rounds = 0  # how often stalled leases were taken back in this epoch

    def take_events(self) -> list[Event]:
        """Return the events since the last call; the caller writes them to the journal as one record."""
        events, self._events = self._events, []
        return events

    @property
    def live_sessions(self) -> Iterable[TrainerSession]:
        """The sessions that made a request within the last TTL."""
        return self._live.values()

    def renew_all(self, now_s: float) -> None:
        """Give every live session a full TTL, because the master could not serve requests for a while."""
        for session in list(self._live.values()):
            self._renew(session, now_s)

    def expire(self, now_s: float) -> None:
        """Take back the leases of sessions that made no request for one TTL."""
        while self._live:
            session = next(iter(self._live.values()))
            if session.renewed_s + self.settings.ttl_s > now_s:
                return
            del self._live[session.number]
            self._idle.pop(session.number, None)
            self._return_leases(session, "expired")
            self._close_epoch()

    def set_roster(self, generation: int, pod_uids: Iterable[str]) -> None:
        """Set the pods that may hold leases; all other pods lose their leases at once.

        Args:
            generation: grows with each roster.
            pod_uids: the pods that may hold leases.

        Raises:
            ConflictError: a roster with a greater generation is known.
        """
        state, uids = self.state, sorted(set(pod_uids))
        if state.roster is not None and generation < state.roster.generation:
            raise ConflictError(
                f"roster: generation {generation} is older than {state.roster.generation}, which the master already"
                " has; publish the current roster with a greater generation"
            )
        roster = RosterSet(generation, uids)
        if roster == state.roster:
            return
        self._emit(roster)
        for session in {lease.session for lease in state.leases.values()}:
            if not self._is_on_roster(state.sessions[session]):
                self._return_leases(state.sessions[session], "not on the roster")
        self._close_epoch()

    def _emit(self, event: Event) -> None:
        self.state.apply(event)
        self._events.append(event)

    def _session(self, key: SessionKey) -> TrainerSession:
        """The session of a process; it is opened at the first request, and replaces an older process of its pod."""
        state = self.state
        session = state.session_by_process.get((key.pod_uid, key.incarnation))
        if session is not None:
            if session.is_replaced:
                raise session_replaced(key)
            return session
        older = state.session_by_pod.get(key.pod_uid)
        if older is not None:
            mine, its = key.incarnation, older.incarnation
            if isinstance(mine, int) and isinstance(its, int) and mine < its:
                raise session_replaced(key)
            self._return_leases(older, "replaced")
            self._live.pop(older.number, None)
            self._idle.pop(older.number, None)
        self._emit(SessionOpened(*key))
        return state.sessions[state.serial]

    def _is_on_roster(self, session: TrainerSession) -> bool:
        return self.state.roster is None or session.pod_uid in self.state.roster_uids

    def _renew(self, session: TrainerSession, now_s: float) -> None:
        session.renewed_s = now_s
        self._live[session.number] = session
        self._live.move_to_end(session.number)

    def _return_leases(self, session: TrainerSession, why: str) -> None:
        for lease in list(session.leases.values()):
            session.revoked.append(lease.fence)
            self._emit(Returned(lease.fence, lease.cursor, why))

    def _close_epoch(self) -> None:
        """Close the epoch if no position of it is to do or leased."""
        state = self.state
        if state.is_open and not state.leases and not state.todo and not state.suspects:
            self._stall_rounds = 0
            self._emit(EpochClosed(state.epoch, [list(r) for r in state.quarantined]))
