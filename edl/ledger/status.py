"""What a master holds, as people and the controller read it."""

from __future__ import annotations

from typing import Any

from edl.ledger.events import DatasetSet
from edl.ledger.ledger import Ledger
from edl.ledger.permutation import EpochOrder
from edl.ledger.state import LedgerState, TrainerSession

_LISTED, _NAMED = 1000, 100
_Object = dict[str, Any]


def ledger_status(ledger: Ledger) -> _Object:
    """Counts are positions of the open epoch, or of the last one where the job is finished.

    `consumed` is `done` and what trainers say that they have behind them of leases in work.
    """
    state = ledger.state
    latest = state.latest_checkpoint
    holders = [session for session in state.sessions.values() if session.leases]
    return {
        "state": _phase(state),
        "dataset": _dataset(state.dataset) if state.dataset else None,
        **_counts(state),
        "sessions": {"live": sum(1 for _ in ledger.alive), "holding": len(holders)},
        "holders": [_holder(session) for session in holders[:_LISTED]],
        "checkpoint": {"id": latest.number, "step": latest.step, "epoch": latest.epoch} if latest else None,
        "roster": {"generation": state.roster.generation, "pods": len(state.roster_uids)} if state.roster else None,
        "closed": [
            {"epoch": c.epoch, "total": c.total, "redispatched": c.redispatched, "quarantined": c.quarantined}
            for c in state.closed[-_LISTED:]
        ],
    }


def _phase(state: LedgerState) -> str:
    if state.dataset is None:
        return "empty"
    return "finished" if state.is_finished else "failed" if state.is_failed else "running"


def _counts(state: LedgerState) -> _Object:
    if state.is_finished and state.closed:
        last = state.closed[-1]
        quarantined = sum(end - start for start, end in last.quarantined)
        idle = {"todo": 0, "leased": 0, "reported": last.total - quarantined, "committed": 0}
        return {
            "epoch": last.epoch,
            "total": last.total,
            **idle,
            "done": last.total - quarantined,
            "consumed": last.total - quarantined,
            "quarantined": quarantined,
            **_left_out(state.dataset, last.epoch, last.quarantined),
            "redispatched": last.redispatched,
        }
    done = state.reported.size + state.committed.size
    return {
        "epoch": state.epoch,
        "total": state.total,
        "todo": state.waiting,
        "leased": sum(lease.end - lease.start for lease in state.leases.values()),
        "reported": state.reported.size,
        "committed": state.committed.size,
        "done": done,
        "consumed": done + sum(lease.cursor - lease.start for lease in state.leases.values()),
        "quarantined": state.quarantined.size,
        **_left_out(state.dataset, state.epoch, list(state.quarantined)),
        "redispatched": state.redispatched,
    }


def _left_out(dataset: DatasetSet | None, epoch: int, ranges: list[tuple[int, int]]) -> _Object:
    """Where the positions are that were given up, and the first of the records that stand there."""
    records = []
    if dataset is not None and ranges:
        order = EpochOrder(dataset.total, dataset.seed, epoch, dataset.block)
        records = order.records_at(ranges, _NAMED)
    return {"quarantined_ranges": ranges[:_LISTED], "quarantined_records": records}


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
