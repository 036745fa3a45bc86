"""The status of a ledger, which people and the controller read."""

from __future__ import annotations

from typing import Any

from edl.ledger.entries import ClosedEpoch, TrainerSession
from edl.ledger.events import DatasetSet
from edl.ledger.ledger import Ledger
from edl.ledger.permutation import EpochOrder
from edl.ledger.state import LedgerState

_MAX_ENTRIES, _MAX_RECORDS, _MAX_EPOCHS = 1000, 100, 100
_Object = dict[str, Any]


def ledger_status(ledger: Ledger) -> _Object:
    """The body of `GET /v1/status`.

    All counts are positions of the open epoch; of the last epoch if the job is finished. `consumed` is `done` plus
    the positions of open leases that heartbeats have reported as consumed. `unsaved` is what training would repeat if
    the model were lost now: what is done since the last checkpoint or, without one, since the start of the epoch (in
    step, of the first one). `left_out` counts the quarantined positions of all epochs that are over. Which ones they
    are, `edl audit` says.
    """
    state = ledger.state
    latest = state.latest_checkpoint
    holders = [session for session in state.sessions.values() if session.leases]
    return {
        "state": _phase(state),
        "dataset": _dataset(state.dataset) if state.dataset else None,
        **_counts(state),
        "sessions": {"live": sum(1 for _ in ledger.live_sessions), "holding": len(holders)},
        "holders": [_holder(session) for session in holders[:_MAX_ENTRIES]],
        "checkpoint": {"id": latest.number, "step": latest.step, "epoch": latest.epoch} if latest else None,
        "unsaved": state.unsaved,
        "roster": {"generation": state.roster.generation, "pods": len(state.roster_uids)} if state.roster else None,
        "left_out": sum(closed.left_out for closed in state.closed),
        "closed": [
            {"epoch": c.epoch, "total": c.total, "redispatched": c.redispatched, "quarantined": c.left_out}
            for c in state.closed[-_MAX_EPOCHS:]
        ],
    }


def _phase(state: LedgerState) -> str:
    if state.dataset is None:
        return "empty"
    return "finished" if state.is_finished else "failed" if state.is_failed else "running"


def _counts(state: LedgerState) -> _Object:
    if state.is_finished and state.closed and not state.is_stopped:
        last = state.closed[-1]
        quarantined = sum(end - start for start, end in last.quarantined)
        done = last.total - quarantined
        committed = _committed_of(last, state, done)
        return {
            "epoch": last.epoch,
            "total": last.total,
            "todo": 0,  # an epoch closes only once nothing is to do or leased
            "leased": 0,
            "reported": done - committed,
            "committed": committed,
            "done": done,
            "consumed": done,
            "quarantined": quarantined,
            **_quarantine(state.dataset, last.epoch, last.quarantined),
            "redispatched": last.redispatched,
        }
    done = state.reported.size + state.committed.size
    return {
        "epoch": state.epoch,
        "total": state.total,
        "todo": state.available,
        "leased": sum(lease.end - lease.start for lease in state.leases.values()),
        "reported": state.reported.size,
        "committed": state.committed.size,
        "done": done,
        "consumed": done + sum(lease.cursor - lease.start for lease in state.leases.values()),
        "quarantined": state.quarantined.size,
        **_quarantine(state.dataset, state.epoch, list(state.quarantined)),
        "redispatched": state.redispatched,
    }


def _committed_of(closed: ClosedEpoch, state: LedgerState, done: int) -> int:
    """How many of the positions that are done in a closed epoch a saved model covers."""
    latest = state.latest_checkpoint
    if latest is None or latest.epoch < closed.epoch:
        return 0
    return done if latest.epoch > closed.epoch else min(done, latest.done.size)


def _quarantine(dataset: DatasetSet | None, epoch: int, ranges: list[tuple[int, int]]) -> _Object:
    """The quarantined ranges of positions, and the first records at these positions."""
    records = []
    if dataset is not None and ranges:
        order = EpochOrder(dataset.total, dataset.seed, epoch, dataset.block)
        records = order.records_at(ranges, _MAX_RECORDS)
    return {"quarantined_ranges": ranges[:_MAX_ENTRIES], "quarantined_records": records}


def _dataset(dataset: DatasetSet) -> _Object:
    return {
        "source": dataset.source,
        "version": dataset.version,
        "total": dataset.total,
        "block": dataset.block,
        "epochs": dataset.epochs,
        "seed": dataset.seed,
        "shardSize": dataset.shard_size,
        "maxQuarantinedFraction": dataset.max_quarantined_fraction,
    }


def _holder(session: TrainerSession) -> _Object:
    return {
        "name": session.name,
        "pod_uid": session.pod_uid,
        "incarnation": session.incarnation,
        "leases": len(session.leases),
        "positions": sum(lease.end - lease.cursor for lease in session.leases.values()),
        "done": session.done,
        "rate": session.rate,
    }
