"""Who takes part in a training, and what happens to the leases of those who do not any more.

A session is one process of one trainer. It lives while it is heard; a newer process of the same pod ends it, and so
does a roster without its pod.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from edl.errors import ConflictError
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.errors import replaced
from edl.ledger.events import EpochClosed, Event, Returned, RosterSet, SessionOpened
from edl.ledger.request import SessionKey
from edl.ledger.state import LedgerState, TrainerSession


class Membership:
    """The part of a ledger that knows its sessions.

    Args:
        state: rebuilt from a journal; a new one by default.
        settings: the times to keep to.
    """

    def __init__(self, state: LedgerState | None = None, settings: LedgerSettings | None = None) -> None:
        self.state = state or LedgerState()
        self.settings = settings or LedgerSettings()
        self._events: list[Event] = []
        self._alive: OrderedDict[int, TrainerSession] = OrderedDict()  # by when they were last heard
        self._hungry: dict[int, float] = {}  # session -> when it asked in vain
        self._stalls = 0  # in this epoch

    def take_events(self) -> list[Event]:
        """What has happened since the last call, to be journaled as one record."""
        events, self._events = self._events, []
        return events

    @property
    def alive(self) -> Iterable[TrainerSession]:
        """The sessions that were heard within the last TTL."""
        return self._alive.values()

    def grace(self, now_s: float) -> None:
        """Nobody could be heard for a while, which was not their fault: everybody gets a whole TTL."""
        for session in list(self._alive.values()):
            self._renew(session, now_s)

    def expire(self, now_s: float) -> None:
        """Take back what silent sessions hold."""
        while self._alive:
            session = next(iter(self._alive.values()))
            if session.renewed_s + self.settings.ttl_s > now_s:
                return
            del self._alive[session.number]
            self._hungry.pop(session.number, None)
            self._take_back(session, "expired")
            self._close_epoch()

    def set_roster(self, generation: int, pod_uids: Iterable[str]) -> None:
        """Say who may hold leases; the others lose theirs at once.

        Raises:
            ConflictError: a newer roster is known.
        """
        state, uids = self.state, sorted(set(pod_uids))
        if state.roster is not None and generation < state.roster.generation:
            raise ConflictError(
                f"roster: generation {generation} is older than {state.roster.generation}; publish the present one"
            )
        roster = RosterSet(generation, uids)
        if roster == state.roster:
            return
        self._emit(roster)
        for session in {lease.session for lease in state.leases.values()}:
            if not self._is_listed(state.sessions[session]):
                self._take_back(state.sessions[session], "not on the roster")
        self._close_epoch()

    def _emit(self, event: Event) -> None:
        self.state.apply(event)
        self._events.append(event)

    def _session(self, who: SessionKey) -> TrainerSession:
        state = self.state
        session = state.session_of.get((who.pod_uid, who.incarnation))
        if session is not None:
            if session.ended:
                raise replaced(who)
            return session
        older = state.current.get(who.pod_uid)
        if older is not None:
            mine, its = who.incarnation, older.incarnation
            if isinstance(mine, int) and isinstance(its, int) and mine < its:
                raise replaced(who)
            self._take_back(older, "replaced")
            self._alive.pop(older.number, None)
            self._hungry.pop(older.number, None)
        self._emit(SessionOpened(*who))
        return state.sessions[state.serial]

    def _is_listed(self, session: TrainerSession) -> bool:
        return self.state.roster is None or session.pod_uid in self.state.roster_uids

    def _renew(self, session: TrainerSession, now_s: float) -> None:
        session.renewed_s = now_s
        self._alive[session.number] = session
        self._alive.move_to_end(session.number)

    def _take_back(self, session: TrainerSession, why: str) -> None:
        for lease in list(session.leases.values()):
            session.lost.append(lease.fence)
            self._emit(Returned(lease.fence, lease.cursor, why))

    def _close_epoch(self) -> None:
        state = self.state
        if state.is_open and not state.leases and not state.todo and not state.suspects:
            self._stalls = 0
            self._emit(EpochClosed(state.epoch, [list(r) for r in state.quarantined]))
