"""The rendezvous of trainers that train in step: who is in the next world, and when it begins.

A trainer calls `enter` when it wants a world: it is new, its world has to change at the end of a step, or a
collective of its world has failed. The next world forms once every trainer of the last one has called `enter`, has
left, or is lost. New trainers enter at that moment. Until then the others train, and `must_change` tells them that
somebody waits.

Which state of the model survives follows from positions. A trainer of the last world that calls `enter` says how far
its model is. The farthest one is the source from which the others copy. A step counts as done once every trainer of
the world has applied it, so no trainer that survives lacks a step that was counted.

Only the members of the last world and the counted steps are durable. Everything else is volatile: trainers repeat it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from edl.errors import ConflictError
from edl.ledger.entries import TrainerSession
from edl.ledger.events import WorldFormed
from edl.ledger.group_values import EnterRequest, FormedWorld, Goodput, GroupSettings, Loss, WorldMember
from edl.ledger.hung import HungTrainers
from edl.ledger.ledger import Ledger
from edl.ledger.request import SessionKey

LEFT, DROPPED, SILENT, STUCK, REMOVED = "left", "connection lost", "silent", "stuck", "not on the roster"
"""Why a trainer is no longer waited for."""
_LOSSES_KEPT, _NAMES_SHOWN = 50, 1000


@dataclass(slots=True)
class _Member:
    """The volatile state of one trainer; the journal holds none of it.

    Attributes:
        session: its number.
        waits_since_s: since when it waits for a world; None while it does not.
        unwatched_since_s: since when it has no `watch` under way; None while it has one.
        was_dropped: the connection of its last `watch` broke, during the call or after it.
        alive_s: when its process was last seen alive, although it may be too busy to watch.
    """

    session: int
    name: str
    endpoint: str = ""
    settings: str = ""
    position: int | None = None
    min_size: int = 1
    waits_since_s: float | None = None
    unwatched_since_s: float | None = None
    was_dropped: bool = False
    alive_s: float = 0.0


class Group:
    """The rendezvous of one job's trainers that train in step: it forms their worlds and notices whom they lost.

    Args:
        ledger: keeps what is durable.
        settings: the time limits.
        now_s: monotonic seconds; after a restart the trainers of the last world get their time limits from now.

    Attributes:
        losses: the last trainers that left or were lost, the oldest first.
        goodput: what the trainers have reported last; None if they have not since the master began.
    """

    def __init__(self, ledger: Ledger, settings: GroupSettings, now_s: float) -> None:
        self._ledger, self._settings = ledger, settings
        self._members: dict[int, _Member] = {}  # session -> member, in the order of arrival
        self._gone: set[int] = set()  # sessions of the last world that are not waited for
        self._hung = HungTrainers(ledger.may_train)
        self.losses: deque[Loss] = deque(maxlen=_LOSSES_KEPT)
        self.goodput: Goodput | None = None
        world = ledger.state.world
        for session, position in zip(world.sessions, world.positions, strict=True) if world else ():
            known = ledger.state.sessions.get(session)
            name = known.name if known is not None else str(session)
            self._members[session] = _Member(session, name, position=position, unwatched_since_s=now_s)

    @property
    def world(self) -> WorldFormed | None:
        """The world that formed last, even if it cannot train any more; None before the first."""
        return self._ledger.state.world

    def enter(self, key: SessionKey, request: EnterRequest, now_s: float) -> FormedWorld | None:
        """Handle the request of a trainer to be in the next world.

        Returns:
            The world; None if it has to wait: call `formed` later.

        Raises:
            ConflictError: see `Ledger.step_session`; or the other trainers have other settings.
        """
        session, world = self._ledger.step_session(key, now_s), self.world
        member = self._member(session, now_s)
        self._check_settings(member, request.settings)
        self._hung.discard(session.pod_uid)
        self._take_back(member, request)
        was_in = self._is_present(session.number)
        if was_in and world is not None and request.generation < world.generation:
            if (formed := self.formed(key)) is not None:
                return formed  # the answer was lost
        elif was_in:
            self._advance(member, request.position)
        else:
            member.position = None  # its state, if it has one, does not belong to the last world
        member.endpoint, member.min_size, member.settings = request.endpoint, request.min_size, request.settings
        if member.waits_since_s is None:
            member.waits_since_s = now_s
        self._commit()
        for missed in [other.session for other in self._members.values() if self._is_missed(other)]:
            self._lose(missed, DROPPED, now_s)
        self.form(now_s)
        return self.formed(key)

    def formed(self, key: SessionKey) -> FormedWorld | None:
        """Return the world that a trainer is in; None if it is in none, or if that world cannot train any more."""
        session = self._ledger.state.session_by_process.get((key.pod_uid, key.incarnation))
        world = self.world
        if session is None or world is None or self._gone or session.number not in world.sessions:
            return None
        known = [self._members[number] for number in world.sessions]
        if self._members[session.number].waits_since_s is not None or not all(member.endpoint for member in known):
            return None  # after a restart of the master the endpoints are not known
        members = (WorldMember(m.name, m.endpoint, p) for m, p in zip(known, world.positions, strict=True))
        rank = world.sessions.index(session.number)
        return FormedWorld(world.generation, rank, world.position, world.checkpoint, tuple(members))

    def watch(
        self, key: SessionKey, generation: int, position: int | None, now_s: float, goodput: Goodput | None = None
    ) -> None:
        """Note that a trainer watches its world: it is alive, its model is at `position`, and it may report goodput.

        Raises:
            ConflictError: see `Ledger.step_session`.
        """
        session, world = self._ledger.step_session(key, now_s), self.world
        member = self._member(session, now_s)
        member.unwatched_since_s, member.was_dropped = None, False
        if world is not None and generation == world.generation and self._is_present(session.number):
            self._advance(member, position)
            self._commit()
            self.goodput = goodput or self.goodput

    def keep_alive(self, key: SessionKey, now_s: float) -> None:
        """Note that the process of a trainer lives, although its training loop may be too busy to watch."""
        session = self._ledger.state.session_by_process.get((key.pod_uid, key.incarnation))
        member = self._members.get(session.number) if session is not None else None
        if member is not None:
            member.alive_s = now_s

    def stop(self, key: SessionKey, generation: int, position: int, error: str, now_s: float) -> None:
        """End the training of a world with the step that ends at a position; with an error the job has failed.

        Raises:
            ConflictError: see `Ledger.step_session`.
        """
        session, world = self._ledger.step_session(key, now_s), self.world
        if world is not None and generation == world.generation and self._is_present(session.number):
            self._ledger.stop_training(position, error)

    def unwatch(self, key: SessionKey, now_s: float, *, dropped: bool) -> None:
        """Note that a call of `watch` has ended; `dropped` if it ended because the connection broke."""
        session = self._ledger.state.session_by_process.get((key.pod_uid, key.incarnation))
        member = self._members.get(session.number) if session is not None else None
        if member is not None:
            member.unwatched_since_s, member.was_dropped = now_s, dropped

    def disconnect(self, key: SessionKey) -> bool:
        """Note that a trainer's connection is closed; nothing changes if the trainer watches on another connection.

        Returns:
            True if the trainer is not lost yet: call `tick` later.
        """
        session = self._ledger.state.session_by_process.get((key.pod_uid, key.incarnation))
        member = self._members.get(session.number) if session is not None else None
        if member is not None and member.unwatched_since_s is not None:
            member.was_dropped = True
        return member is not None

    def must_change(self, key: SessionKey, generation: int) -> bool:
        """True if the world of a trainer should end with its next step."""
        world = self.world
        if world is None or generation != world.generation:
            return True
        session = self._ledger.state.session_by_process.get((key.pod_uid, key.incarnation))
        if session is None or session.number not in world.sessions:
            return True
        return bool(self._gone) or any(self._joiners())

    def is_broken(self, generation: int) -> bool:
        """Return True if that world has lost a trainer, so that its collectives fail."""
        return self.world is None or generation != self.world.generation or bool(self._gone)

    def leave(self, key: SessionKey, generation: int, position: int | None, now_s: float) -> bool:
        """Remove a trainer that leaves at the end of a step.

        Returns:
            True if nobody needs it any more: no trainer of its world is still in a step.
        """
        session, world = self._ledger.step_session(key, now_s), self.world
        member = self._members.get(session.number)
        if member is not None:
            if world is not None and generation == world.generation and self._is_present(session.number):
                self._advance(member, position)
                self._commit()
            self._lose(session.number, LEFT, now_s)
        return self.is_free(generation)

    def is_free(self, generation: int) -> bool:
        """Return True if no trainer of a world is still in a step."""
        return self.world is None or generation != self.world.generation or not any(self._training())

    def tick(self, now_s: float) -> bool:
        """Apply the time limits while the job trains; returns True if a trainer was lost."""
        if not self._ledger.state.is_open:
            return False  # trainers end with the job, and nobody waits for them
        lost = [(session, why) for session in list(self._members) if (why := self._loss(session, now_s))]
        for session, why in lost:
            self._lose(session, why, now_s)
        self.form(now_s)
        return bool(lost)

    def form(self, now_s: float) -> None:
        """Form the next world, if everybody who is in the last one has called `enter`."""
        state = self._ledger.state
        if not state.is_open or any(self._training()):
            return
        present = [self._members[session] for session in self._present()]
        entering = [*present, *self._joiners()]
        if not entering or (not present and not self._is_complete(entering, now_s)):
            return
        sessions, done = [member.session for member in entering], self._ledger.position
        # A trainer that missed a committed step was considered lost, and the others went on; its state is of no use.
        known = [p if p is not None and p >= done else None for p in (member.position for member in entering)]
        world = self._ledger.form_world(sessions, known)
        for member, position in zip(entering, world.positions, strict=True):
            member.waits_since_s, member.position = None, position
        self._gone.clear()

    def phase(self) -> tuple[object, ...]:
        """The state on which the answers to waiting calls depend; a change wakes them."""
        world, state = self.world, self._ledger.state
        joiners = tuple(member.session for member in self._joiners())
        generation = world.generation if world is not None else 0
        return generation, frozenset(self._gone), joiners, sum(1 for _ in self._training()), state.is_open

    def status(self, now_s: float) -> dict[str, object] | None:
        """The world, who works, waits or hangs, and the last losses; None if nobody trains in step."""
        world = self.world
        if world is None:
            return None
        present, known = [self._members[session] for session in self._present()], self._ledger.state.sessions
        at_work = [m.session for m in present if not self._gone and (m.position or 0) > world.position]
        return {
            "generation": world.generation,
            "position": self._ledger.position,
            "members": [member.name for member in present[:_NAMES_SHOWN]],
            "working": [known[session].pod_uid for session in at_work if session in known],
            "waiting": [member.name for member in islice(self._joiners(), _NAMES_SHOWN)],
            "hung": [
                {"pod_uid": one.pod_uid, "name": one.name, "reason": one.reason, "seconds": now_s - one.since_s}
                for one in self._hung
            ],
            "losses": [loss._asdict() for loss in self.losses],
            "goodput": self.goodput.shown if self.goodput is not None else None,
        }

    def _member(self, session: TrainerSession, now_s: float) -> _Member:
        member = self._members.get(session.number)
        if member is None:
            member = self._members[session.number] = _Member(session.number, session.name, unwatched_since_s=now_s)
        return member

    def _check_settings(self, member: _Member, settings: str) -> None:
        for session in self._present():
            other = self._members[session]
            if other is not member and other.settings and other.settings != settings:
                raise ConflictError(
                    f"trainer {member.name}: it divides epochs into steps by {settings!r}, but {other.name} by"
                    f" {other.settings!r}; give all trainers of a job the same settings, and start the job again to"
                    " change them"
                )

    def _take_back(self, member: _Member, request: EnterRequest) -> None:
        """Readmit a trainer that was considered lost: into the last world if it has missed no committed step."""
        world = self.world
        if world is None or member.session not in self._gone:
            return
        # A trainer that never got the answer with the last world has not trained in it.
        is_current = request.generation == world.generation
        position = request.position if is_current else world.positions[world.sessions.index(member.session)]
        if position is not None and position >= self._ledger.position:
            self._gone.discard(member.session)
            member.position = position

    def _is_present(self, session: int) -> bool:
        world = self.world
        return world is not None and session in world.sessions and session not in self._gone

    def _present(self) -> Iterator[int]:
        """The sessions of the last world that have neither left nor been lost, by rank."""
        world = self.world
        return (s for s in (world.sessions if world is not None else ()) if s not in self._gone)

    def _training(self) -> Iterator[int]:
        """The sessions of the last world that have not called `enter`."""
        return (s for s in self._present() if self._members[s].waits_since_s is None)

    def _joiners(self) -> Iterator[_Member]:
        """Return the trainers that wait to join and are not in the last world."""
        sessions = self._ledger.state.sessions
        for member in self._members.values():
            if member.waits_since_s is not None and not self._is_present(member.session):
                session = sessions.get(member.session)
                if session is not None and self._ledger.may_train(session):
                    yield member

    def _is_complete(self, entering: list[_Member], now_s: float) -> bool:
        """Return True if enough trainers have entered, or have waited long enough, to form the first world."""
        waited_s = now_s - min(member.waits_since_s or now_s for member in entering)
        return len(entering) >= max(m.min_size for m in entering) or waited_s >= self._settings.first_s

    @staticmethod
    def _advance(member: _Member, position: int | None) -> None:
        """Note the position that a trainer reports, unless a newer one is known already."""
        if position is not None and (member.position is None or position > member.position):
            member.position = position

    def _commit(self) -> None:
        """Count the steps that every trainer of the world has applied."""
        positions = [self._members[session].position for session in self._present()]
        known = [position for position in positions if position is not None]
        if known and len(known) == len(positions):
            self._ledger.commit_steps(min(known))

    def _loss(self, number: int, now_s: float) -> str:
        """Why the others should not wait for a trainer (removed, dropped, silent or stuck); empty if they should."""
        member, session = self._members[number], self._ledger.state.sessions.get(number)
        if session is None or (self._is_present(number) and not self._ledger.may_train(session)):
            return REMOVED
        if member.unwatched_since_s is not None:
            limit_s = self._settings.reconnect_s if member.was_dropped else self._settings.unwatched_s
            since_s = (
                member.unwatched_since_s if member.was_dropped else max(member.unwatched_since_s, member.alive_s)
            )
            if now_s - since_s >= limit_s or self._is_missed(member):
                return DROPPED if member.was_dropped else SILENT
        if member.waits_since_s is None and self._is_present(number):
            waiting = (self._members[session].waits_since_s for session in self._present())
            if any(since_s is not None and now_s - since_s >= self._settings.regroup_s for since_s in waiting):
                return STUCK
        return ""

    def _is_missed(self, member: _Member) -> bool:
        """Return True if the master and the other trainers lost the connection to a trainer: it will not come back.

        Peers that lost theirs want the next world although this one need not end.
        """
        if not member.was_dropped or member.waits_since_s is not None or not self._is_present(member.session):
            return False
        if self._gone or any(self._joiners()):
            return False  # the others may only have been asked to end their world
        return any(self._members[session].waits_since_s is not None for session in self._present())

    def _lose(self, number: int, reason: str, now_s: float) -> None:
        world, member = self.world, self._members[number]
        self.losses.append(Loss(member.name, world.generation if world is not None else 0, reason))
        if reason in {SILENT, STUCK} and (session := self._ledger.state.sessions.get(number)) is not None:
            self._hung.add(session, reason, now_s)
        if self._is_present(number):
            self._gone.add(number)
        del self._members[number]
        self._commit()
        self.form(now_s)
