"""A recorded decision made again: the same, or job by job what is different now.

A record holds all that a decision was made from, so the edl that wrote it answers the same to the last pod. Another
may decide otherwise; that is what a replay is for. Sentences may be worded anew without a decision being different,
so they are counted apart. A record of a round without a plan holds what stood of the plan before, which this record
alone cannot tell; such a record is named and not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edl.errors import ConfigError, PlanError
from edl.explain.decision import decide
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.times import text_of
from edl.model.units import count
from edl.observability.decision_records import RECORDS, DecisionRecord, decode_record
from edl.planner.policies.registry import policy_named

SAME, DIFFERENT, UNREADABLE = 0, 1, 2
TOLERANCE = 1e-6
"""Of the certificate: solvers differ between machines in the last digits."""

_FIELDS = ("admitted", "target", "current", "reason", "victims", "nodes", "fixed_nodes", "moves", "shrink_reason")


class Verdict(StrEnum):
    """What came of a replay."""

    SAME = "same"
    DIFFERENT = "different"
    FALLBACK = "fallback"  # no plan had been made: there is nothing to make again
    FAILED = "failed"  # no plan can be made now, though one was recorded
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that a replay answers otherwise; an empty job stands for the plan as a whole."""

    job: str
    field: str
    recorded: object
    now: object


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of one record.

    Attributes:
        differences: in the order of the jobs, then the plan as a whole.
        reworded: decisions whose sentence alone is different.
        problem: why it could not be read, or no plan be made; of a fallback, how the decision had failed.
    """

    file: str
    verdict: Verdict
    record: DecisionRecord | None = None
    differences: tuple[Difference, ...] = ()
    reworded: int = 0
    problem: str = ""


def recompute(record: DecisionRecord) -> ScalePlan:
    """Decide again from what the record holds, and from nothing else.

    Raises:
        ConfigError: this edl does not know the policy.
        PlanError: no plan can be made now.
    """
    return decide(record.snapshot, policy_named(record.policy), record.limits)


def replay(path: Path) -> Replay:
    """Make the decision of one record again; what cannot be read is a verdict too."""
    try:
        record = decode_record(_read(path))
        if record.plan.fallback is not None:
            return Replay(str(path), Verdict.FALLBACK, record, problem=record.plan.fallback.value)
        plan = recompute(record)
    except ConfigError as error:
        return Replay(str(path), Verdict.UNREADABLE, problem=str(error))
    except PlanError as error:
        return Replay(str(path), Verdict.FAILED, record, problem=str(error))
    except Exception as error:  # whatever the planner throws on somebody's record is a finding, not our end
        return Replay(str(path), Verdict.FAILED, record, problem=f"{type(error).__name__}: {error}")
    found = tuple(differences(record.plan, plan))
    verdict = Verdict.DIFFERENT if found else Verdict.SAME
    pairs = zip(record.plan.decisions, plan.decisions, strict=False)
    reworded = sum(old.message != new.message and _essence(old) == _essence(new) for old, new in pairs)
    return Replay(str(path), verdict, record, found, reworded)


def replay_all(path: Path) -> tuple[Replay, ...]:
    """Replay a record, or each record of a folder in the order of time.

    Raises:
        ConfigError: the folder cannot be read or holds no record.
    """
    if not path.is_dir():
        return (replay(path),)
    try:
        files = sorted(path.glob(RECORDS))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}; give a folder of records") from error
    if not files:
        raise ConfigError(f"{path} holds no {RECORDS}; give a record, or a folder that --record wrote to")
    return tuple(replay(file) for file in files)


def exit_code(replays: tuple[Replay, ...]) -> int:
    """2 where a record cannot be read, else 1 where one comes out different, else 0."""
    verdicts = {one.verdict for one in replays}
    if Verdict.UNREADABLE in verdicts:
        return UNREADABLE
    return DIFFERENT if verdicts & {Verdict.DIFFERENT, Verdict.FAILED} else SAME


def differences(old: ScalePlan, new: ScalePlan) -> Iterator[Difference]:
    """What two plans of one snapshot say differently, sentences and durations apart."""
    before, after = ({d.job: d for d in plan.decisions} for plan in (old, new))
    for key in sorted({*before, *after}):
        first, second = before.get(key), after.get(key)
        if first is None or second is None:
            yield Difference(str(key), "decision", _shown(first is not None), _shown(second is not None))
            continue
        for field, recorded, now in zip(_FIELDS, _essence(first), _essence(second), strict=True):
            if recorded != now:
                yield Difference(str(key), field, recorded, now)
    for field in ("waiting", "placed", "short"):
        recorded, now = getattr(old.serving, field), getattr(new.serving, field)
        if recorded != now:
            yield Difference("", f"serving {field}", recorded, now)
    for field in ("achieved", "bound"):
        recorded, now = getattr(old.certificate, field), getattr(new.certificate, field)
        if not abs(recorded - now) <= TOLERANCE * max(1.0, abs(recorded)):
            yield Difference("", field, recorded, now)


def replays_json(replays: tuple[Replay, ...]) -> str:
    """The answer for scripts."""
    verdicts = [one.verdict for one in replays]
    body = {
        "records": [_replay_dict(one) for one in replays],
        "summary": {verdict.value: verdicts.count(verdict) for verdict in Verdict},
    }
    return json.dumps(body, indent=2, allow_nan=False)


def print_replays(replays: tuple[Replay, ...], console: Console) -> None:
    """The answer for people: a line for each record, what is different, and for a folder a summary."""
    for one in replays:
        console.print(Text(f"{one.file}: {_sentence(one)}"), soft_wrap=True)
        if one.differences:
            console.print(_table(one.differences))
    if len(replays) > 1:
        counts = ((verdict, sum(one.verdict is verdict for one in replays)) for verdict in Verdict)
        told = ", ".join(f"{number} {verdict.value}" for verdict, number in counts if number)
        console.print(Text(f"{count(len(replays), 'record')}: {told}"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"cannot be read: {reason}; give a record, or a folder of records") from error


def _essence(decision: ScaleDecision) -> tuple[object, ...]:
    return tuple(getattr(decision, field) for field in _FIELDS)


def _when(record: DecisionRecord) -> str:
    seconds = record.snapshot.observed_at_s
    try:
        return text_of(seconds)
    except (ValueError, OverflowError, OSError):  # a moment that no calendar has
        return f"{seconds:g} s"


def _sentence(one: Replay) -> str:
    if one.record is None:
        return one.problem
    jobs = count(len(one.record.plan.decisions), "job")
    when = f"{_when(one.record)}, {jobs}, policy {one.record.policy}"
    reworded = f" ({count(one.reworded, 'sentence')} worded anew)" if one.reworded else ""
    told = {
        Verdict.SAME: f"the same decision{reworded}",
        Verdict.DIFFERENT: f"a different decision{reworded}",
        Verdict.FAILED: f"no decision any more: {one.problem}",
        Verdict.FALLBACK: f"no plan had been made ({one.problem}): what stood of the last one is recorded, and not"
        " compared",
    }
    return f"{told[one.verdict]} ({when})"


def _table(found: tuple[Difference, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("JOB", "FIELD", "RECORDED", "NOW"):
        table.add_column(name, overflow="fold")
    for one in found:
        table.add_row(Text(one.job or "(plan)"), one.field, Text(_shown(one.recorded)), Text(_shown(one.now)))
    return table


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, tuple):
        return ", ".join(v if isinstance(v, str) else f"{v[0]} {v[1]}" for v in value) or "-"
    return str(value) or "-"


def _replay_dict(one: Replay) -> dict[str, Any]:
    record = one.record
    return {
        "file": one.file,
        "result": one.verdict.value,
        "policy": record.policy if record else None,
        "observedAt": _when(record) if record else None,
        "problem": one.problem,
        "reworded": one.reworded,
        "differences": [
            {"job": d.job, "field": d.field, "recorded": d.recorded, "now": d.now} for d in one.differences
        ],
    }
