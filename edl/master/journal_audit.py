"""`edl audit`: reads a journal, or a copy of a live one, and says what each epoch came to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from edl.errors import ConfigError
from edl.ledger.audit import Audit, EpochAudit
from edl.ledger.events import DatasetSet, JournalError, decode_events
from edl.ledger.permutation import EpochOrder
from edl.ledger.snapshot import state_from_json, state_to_json
from edl.ledger.state import LedgerState
from edl.master.journal_files import JournalFolder, Tail

_NAMED = 1000


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What was found.

    Attributes:
        problems: one sentence for each broken rule.
        dataset: what was sharded; None where nobody has said it.
    """

    epochs: tuple[EpochAudit, ...]
    problems: tuple[str, ...]
    dataset: DatasetSet | None = None

    def left_out(self, epoch: EpochAudit) -> list[int]:
        """Which records the quarantined positions of an epoch are, the first thousand of them."""
        if self.dataset is None or not epoch.quarantined:
            return []
        data = self.dataset
        order = EpochOrder(data.total, data.seed, epoch.epoch, data.block)
        return order.records_at(epoch.quarantined, _NAMED)


def audit(path: Path) -> AuditReport:
    """Follow a journal from its beginning, or from the oldest snapshot that is kept.

    Raises:
        ConfigError: there is no journal.
        JournalError: it is damaged.
    """
    folder = JournalFolder(path)
    files, snapshots = folder.journals(), dict(folder.snapshots())
    if not files and not snapshots:
        raise ConfigError(f"{path}: no journal is there; give the folder that `edl master --journal` was given")
    number = 0 if files and files[0][0] == 0 else min(snapshots, default=0)
    state = LedgerState()
    if number:
        state = state_from_json(json.loads(folder.read_snapshot(snapshots[number])))
    follower, problems = Audit(state), list[str]()
    for first, file in files:
        if first < number:
            continue
        if first != number:
            problems.append(f"{file.name}: the records from {number} on are missing")
            break
        if first in snapshots and state_to_json(state) != _saved(folder, snapshots[first]):
            problems.append(f"{snapshots[first].name}: the snapshot is not what the records before it lead to")
        number = _follow(folder, file, number, follower, state)
    epochs = follower.finish(state)
    return AuditReport(tuple(epochs), (*problems, *follower.problems), state.dataset)


def audit_json(report: AuditReport) -> str:
    """For scripts."""
    epochs = [
        {
            "epoch": e.epoch,
            "total": e.total,
            "done": e.done,
            "redispatched": e.redispatched,
            "quarantined": e.quarantined,
            "records": report.left_out(e),
            "closed": e.is_closed,
            "by": dict(sorted(e.by.items())),
        }
        for e in report.epochs
    ]
    return json.dumps({"epochs": epochs, "ok": not report.problems, "problems": report.problems}, indent=2)


def audit_text(report: AuditReport) -> str:
    """For people."""
    lines = []
    for e in report.epochs:
        lost = sum(end - start for start, end in e.quarantined)
        state = "closed" if e.is_closed else "open"
        lines.append(
            f"epoch {e.epoch} ({state}): {e.done} of {e.total} done, {lost} quarantined,"
            f" {e.redispatched} dispatched again"
        )
        lines += [f"  {name}: {count}" for name, count in sorted(e.by.items())]
        lines += [f"  quarantined: record {record}" for record in report.left_out(e)]
    lines += [f"BROKEN: {problem}" for problem in report.problems]
    lines.append("ok: nothing lost, nothing counted twice" if not report.problems else "NOT ok")
    return "\n".join(lines)


def _saved(folder: JournalFolder, path: Path) -> object:
    """A snapshot as plain JSON values, made again by us so that it compares."""
    return state_to_json(state_from_json(json.loads(folder.read_snapshot(path))))


def _follow(folder: JournalFolder, file: Path, number: int, follower: Audit, state: LedgerState) -> int:
    tails: list[Tail] = []
    for record in folder.records(file, number, tails):
        for event in decode_events(record):
            follower.take(event)
            try:
                state.apply(event)
            except JournalError as error:
                follower.problems.append(str(error))
    return tails[0].number
