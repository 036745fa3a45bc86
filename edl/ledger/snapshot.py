"""Snapshots: the durable state of a ledger as plain JSON values, so that a restart replays few records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from edl.ledger.entries import Checkpoint, ClosedEpoch, Lease, TrainerSession
from edl.ledger.events import DatasetSet, Elected, Replied, RosterSet, WorldFormed, understood
from edl.ledger.intervals import IntervalSet
from edl.ledger.state import LedgerState

_FORMAT = 1
_T = TypeVar("_T")
_Object = dict[str, Any]


def state_to_json(state: LedgerState) -> _Object:
    """Convert everything durable of a ledger's state to JSON values; equal states give equal values."""
    return {
        "format": _FORMAT,
        "serial": state.serial,
        "dataset": state.dataset and list(state.dataset),
        "epoch": state.epoch,
        "todo": _ranges(state.todo),
        "reported": _ranges(state.reported),
        "committed": _ranges(state.committed),
        "quarantined": _ranges(state.quarantined),
        "suspects": _suspects(state.suspects),
        "leases": [[x.fence, x.session, x.start, x.end, x.errors, x.truncate_at] for x in state.leases.values()],
        "sessions": [_session(session) for session in state.sessions.values()],
        "checkpoints": [_checkpoint(checkpoint) for checkpoint in state.checkpoints.values()],
        "closed": [[c.epoch, c.total, c.redispatched, [list(r) for r in c.quarantined]] for c in state.closed],
        "redispatched": state.redispatched,
        "election": state.election and list(state.election),
        "roster": state.roster and list(state.roster),
        "world": state.world and list(state.world),
        "stopped": [state.is_stopped, state.stop_error],
    }


def state_from_json(value: _Object) -> LedgerState:
    """The inverse of `state_to_json`.

    Raises:
        JournalError: the value is not such a state.
    """
    with understood("the snapshot"):
        if value["format"] != _FORMAT:
            raise ValueError(f"its format is {value['format']!r}, not {_FORMAT}")
        return _state(value)


def _state(value: _Object) -> LedgerState:
    state = LedgerState()
    state.serial, state.epoch, state.redispatched = value["serial"], value["epoch"], value["redispatched"]
    state.dataset = _optional(DatasetSet, value["dataset"])
    state.todo, state.reported = IntervalSet(value["todo"]), IntervalSet(value["reported"])
    state.committed, state.quarantined = IntervalSet(value["committed"]), IntervalSet(value["quarantined"])
    state.suspects = _suspects_from(value["suspects"])
    for entry in value["sessions"]:
        _add_session(state, entry)
    for fence, session, start, end, errors, truncate_at in value["leases"]:
        lease = Lease(fence, session, start, end, errors, truncate_at, cursor=start)
        state.leases[fence] = state.sessions[session].leases[fence] = lease
    for entry in value["checkpoints"]:
        number, session, step, epoch, done, quarantined, suspects, committed = entry
        state.checkpoints[number] = Checkpoint(
            number,
            session,
            step,
            epoch,
            IntervalSet(done),
            IntervalSet(quarantined),
            _suspects_from(suspects),
            committed,
        )
    state.closed = [ClosedEpoch(e, total, again, [(a, b) for a, b in q]) for e, total, again, q in value["closed"]]
    state.election = _optional(Elected, value["election"])
    state.roster = _optional(RosterSet, value["roster"])
    state.roster_uids = frozenset(state.roster.pod_uids if state.roster else ())
    state.world = _optional(WorldFormed, value.get("world"))  # snapshots of older versions have none
    state.is_stopped, state.stop_error = value.get("stopped", [False, ""])
    return state


def _session(session: TrainerSession) -> list[Any]:
    journaled_reply = session.journaled_reply and list(session.journaled_reply)
    recent_reports = [list(entry) for entry in session.recent_reports]
    named = [session.number, session.pod_uid, session.incarnation, session.name]
    return [*named, journaled_reply, session.done, session.is_replaced, recent_reports]


def _add_session(state: LedgerState, entry: list[Any]) -> None:
    number, pod_uid, incarnation, name, journaled_reply, done, is_replaced, recent_reports = entry
    reply = _optional(Replied, journaled_reply)
    session = TrainerSession(number, pod_uid, incarnation, name, reply, done, is_replaced)
    session.recent_reports = deque(map(tuple, recent_reports), maxlen=session.recent_reports.maxlen)
    state.sessions[number] = state.session_by_process[pod_uid, incarnation] = session
    if not is_replaced:
        state.session_by_pod[pod_uid] = session


def _checkpoint(checkpoint: Checkpoint) -> list[Any]:
    named = [checkpoint.number, checkpoint.session, checkpoint.step, checkpoint.epoch]
    sets = [_ranges(checkpoint.done), _ranges(checkpoint.quarantined), _suspects(checkpoint.suspects)]
    return [*named, *sets, checkpoint.committed]


def _ranges(numbers: IntervalSet) -> list[list[int]]:
    return [list(pair) for pair in numbers]


def _suspects(suspects: dict[int, tuple[int, int]]) -> list[list[int]]:
    return [[start, end, errors] for start, (end, errors) in sorted(suspects.items())]


def _suspects_from(entries: list[list[int]]) -> dict[int, tuple[int, int]]:
    return {start: (end, errors) for start, end, errors in entries}


def _optional(make: Callable[..., _T], fields: list[Any] | None) -> _T | None:
    return None if fields is None else make(*fields)
