"""`edl audit`: reads a journal, or a copy of one, and reports the result of each epoch."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from edl.errors import ConfigError
from edl.ledger.audit import Audit, EpochAudit
from edl.ledger.events import DatasetSet, JournalError, decode_events, understood
from edl.ledger.permutation import EpochOrder
from edl.ledger.snapshot import state_from_json, state_to_json
from edl.ledger.state import LedgerState
from edl.master.journal_files import JournalFolder, Tail

_MAX_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        epochs: the epochs of the journal.
        problems: one sentence for each broken rule.
        dataset: the data set of the job; None if the journal has none.
        leased: trainer -> positions of the open epoch that are leased to it.
    """

    epochs: tuple[EpochAudit, ...]
    problems: tuple[str, ...]
    dataset: DatasetSet | None = None
    leased: Counter[str] = field(default_factory=Counter)

    def quarantined_records(self, epoch: EpochAudit) -> list[int]:
        """The records at the quarantined positions of an epoch, at most 1000 of them."""
        if self.dataset is None or not epoch.quarantined:
            return []
        data = self.dataset
        order = EpochOrder(data.total, data.seed, epoch.epoch, data.block)
        return order.records_at(epoch.quarantined, _MAX_RECORDS)


def audit(path: Path) -> AuditReport:
    """Follow a journal from its beginning, or from the oldest snapshot if the beginning was deleted.

    Args:
        path: the folder of the journal.

    Raises:
        ConfigError: the folder holds no journal.
        JournalError: the journal is damaged.
    """
    with understood(f"the records in {path}"):
        return _audited(JournalFolder(path), path)


def _audited(folder: JournalFolder, path: Path) -> AuditReport:
    files, snapshots = folder.journals(), dict(folder.snapshots())
    if not files and not snapshots:
        raise ConfigError(f"{path}: this folder holds no journal; give the folder of `edl master --journal`")
    number = 0 if files and files[0][0] == 0 else min(snapshots, default=0)
    state = LedgerState()
    if number:
        state = state_from_json(json.loads(folder.read_snapshot(snapshots[number])))
    follower, problems = Audit(state), list[str]()
    for first, file in files:
        if first < number:
            continue
        if first != number:
            problems.append(f"{file.name}: the records from {number} to {first} are missing")
            break
        if first in snapshots and state_to_json(state) != _snapshot_values(folder, snapshots[first]):
            problems.append(f"{snapshots[first].name}: the snapshot contradicts the records before it")
        number = _follow(folder, file, number, follower, state)
    epochs = follower.finish(state)
    return AuditReport(tuple(epochs), (*problems, *follower.problems), state.dataset, _leased(state))


def audit_json(report: AuditReport) -> str:
    """The report as JSON, for scripts."""
    epochs = [
        {
            "epoch": e.epoch,
            "total": e.total,
            "done": e.done,
            "redispatched": e.redispatched,
            "quarantined": e.quarantined,
            "records": report.quarantined_records(e),
            "closed": e.is_closed,
            "by": dict(sorted(e.done_by.items())),
        }
        for e in report.epochs
    ]
    return json.dumps({"epochs": epochs, "ok": not report.problems, "problems": report.problems}, indent=2)


def audit_text(report: AuditReport) -> str:
    """The report as text, for people."""
    lines = []
    for e in report.epochs:
        quarantined = sum(end - start for start, end in e.quarantined)
        state = "closed" if e.is_closed else "open"
        lines.append(
            f"epoch {e.epoch} ({state}): {e.done} of {e.total} done, {quarantined} quarantined,"
            f" {e.redispatched} dispatched again"
        )
        lines += [f"  {name}: {count}" for name, count in sorted(e.done_by.items())]
        lines += [f"  quarantined: record {record}" for record in report.quarantined_records(e)]
    lines += [f"BROKEN: {problem}" for problem in report.problems]
    if report.problems:
        lines.append("NOT ok: positions may be lost or counted twice; see the lines above")
    else:
        lines.append("ok: no position is lost, none is counted twice")
    return "\n".join(lines)


def _leased(state: LedgerState) -> Counter[str]:
    positions = Counter[str]()
    for lease in state.leases.values():
        positions[state.sessions[lease.session].name] += lease.end - lease.start
    return positions


def _snapshot_values(folder: JournalFolder, path: Path) -> object:
    """Convert a snapshot to plain JSON values of the current format, so that it can be compared."""
    return state_to_json(state_from_json(json.loads(folder.read_snapshot(path))))


def _follow(folder: JournalFolder, file: Path, number: int, follower: Audit, state: LedgerState) -> int:
    """Apply the records of a file to the audit and to the ledger's state; returns the number of the next record."""
    tails: list[Tail] = []
    for record in folder.records(file, number, tails):
        for event in decode_events(record):
            follower.follow(event)
            try:
                state.apply(event)
            except JournalError as error:
                follower.problems.append(str(error))
    return tails[0].number
