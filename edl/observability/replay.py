"""Replays a recorded decision: makes it again and names, job by job, what is different now.

A record holds everything that a decision was made from, so the edl that wrote it decides the same again, down to the
last pod. Another version may decide differently, and a replay shows how. A sentence may change although the decision
is the same, so changed sentences are only counted. A fallback plan depends on the plan before it, which its record
does not hold; such a record is named and not compared.
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
from edl.explain.early_evictions import early_decisions
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.times import text_of
from edl.model.units import count
from edl.observability.decision_records import RECORDS, DecisionRecord, decode_record, plan_of_early_evictions
from edl.planner.policies.registry import policy_named
from edl.printable import one_line

SAME, DIFFERENT, UNREADABLE = 0, 1, 2
TOLERANCE = 1e-6
"""Relative, for the certificate: solvers differ between machines in the last digits."""

_FIELDS = (
    "admitted",
    "target",
    "current",
    "reason",
    "victims",
    "nodes",
    "fixed_nodes",
    "moves",
    "shrink_reason",
    "lent_cpu_milli",
    "slowed",
)


class Verdict(StrEnum):
    """The result of a replay."""

    SAME = "same"
    DIFFERENT = "different"
    FALLBACK = "fallback"  # the record holds a fallback plan: there is no decision to make again
    CUT = "cut"  # the deadline cut the decision short: it depends on how fast the machine was
    FAILED = "failed"  # a plan was recorded, and none can be made now
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Difference:
    """A field whose value differs from the record; `job` is empty for a field of the whole plan."""

    job: str
    field: str
    recorded: object
    now: object


@dataclass(frozen=True, slots=True)
class Replay:
    """The replay of one record.

    Attributes:
        differences: by job, then those of the whole plan.
        reworded: how many decisions are the same with another sentence.
        problem: why the record cannot be read or no plan can be made; for a fallback plan, how the decision failed.
    """

    file: str
    verdict: Verdict
    record: DecisionRecord | None = None
    differences: tuple[Difference, ...] = ()
    reworded: int = 0
    problem: str = ""


def recompute(record: DecisionRecord) -> ScalePlan:
    """Make the decision again from the contents of the record alone.

    Raises:
        ConfigError: this edl does not know the policy.
        PlanError: no plan can be made now.
    """
    policy = policy_named(record.policy or record.plan.policy)
    if record.ahead_of_plan:
        return plan_of_early_evictions(early_decisions(record.snapshot, policy, record.limits))
    return decide(record.snapshot, policy, record.limits, record.plan.given)


def replay(path: Path) -> Replay:
    """Replay one record; an unreadable record is a verdict too."""
    try:
        record = decode_record(_read(path))
        if record.plan.cut:
            return Replay(str(path), Verdict.CUT, record, problem=", ".join(record.plan.cut))
        if record.plan.fallback is not None:
            return Replay(str(path), Verdict.FALLBACK, record, problem=record.plan.fallback.value)
        plan = recompute(record)
    except ConfigError as error:
        return Replay(str(path), Verdict.UNREADABLE, problem=str(error))
    except PlanError as error:
        return Replay(str(path), Verdict.FAILED, record, problem=str(error))
    except Exception as error:  # an unexpected error of the planner is the result of this replay
        return Replay(str(path), Verdict.FAILED, record, problem=f"{type(error).__name__}: {error}")
    found = tuple(differences(record.plan, plan))
    verdict = Verdict.DIFFERENT if found else Verdict.SAME
    pairs = zip(record.plan.decisions, plan.decisions, strict=False)
    reworded = sum(old.message != new.message and _compared(old) == _compared(new) for old, new in pairs)
    return Replay(str(path), verdict, record, found, reworded)


def replay_all(path: Path) -> tuple[Replay, ...]:
    """Replay a record, or every record of a folder, oldest first.

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
    """The exit code: 2 if a record cannot be read, 1 if a decision differs or cannot be made, else 0."""
    verdicts = {one.verdict for one in replays}
    if Verdict.UNREADABLE in verdicts:
        return UNREADABLE
    return DIFFERENT if verdicts & {Verdict.DIFFERENT, Verdict.FAILED} else SAME


def differences(old: ScalePlan, new: ScalePlan) -> Iterator[Difference]:
    """The fields in which two plans for one snapshot differ, without sentences and durations."""
    before, after = ({d.job: d for d in plan.decisions} for plan in (old, new))
    for key in sorted({*before, *after}):
        first, second = before.get(key), after.get(key)
        if first is None or second is None:
            yield Difference(str(key), "decision", _shown(first is not None), _shown(second is not None))
            continue
        for field, recorded, now in zip(_FIELDS, _compared(first), _compared(second), strict=True):
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
    """The replays as JSON."""
    verdicts = [one.verdict for one in replays]
    body = {
        "records": [_replay_dict(one) for one in replays],
        "summary": {verdict.value: verdicts.count(verdict) for verdict in Verdict},
    }
    return json.dumps(body, indent=2, allow_nan=False)


def print_replays(replays: tuple[Replay, ...], console: Console) -> None:
    """Print a line and a table of differences for each record, and a summary if there are several."""
    for one in replays:
        console.print(Text(one_line(f"{one.file}: {_sentence(one)}")), soft_wrap=True)
        if one.differences:
            console.print(_table(one.differences))
    if len(replays) > 1:
        counts = ((verdict, sum(one.verdict is verdict for one in replays)) for verdict in Verdict)
        summary = ", ".join(f"{number} {verdict.value}" for verdict, number in counts if number)
        console.print(Text(f"{count(len(replays), 'record')}: {summary}"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"cannot be read: {reason}; give a record, or a folder of records") from error


def _compared(decision: ScaleDecision) -> tuple[object, ...]:
    return tuple(getattr(decision, field) for field in _FIELDS)


def _when(record: DecisionRecord) -> str:
    seconds = record.snapshot.observed_at_s
    try:
        return text_of(seconds)
    except (ValueError, OverflowError, OSError):  # a time outside the range of the calendar
        return f"{seconds:g} s"


def _sentence(one: Replay) -> str:
    if one.record is None:
        return one.problem
    jobs = count(len(one.record.plan.decisions), "job")
    ahead = ", ahead of a plan" if one.record.ahead_of_plan else ""
    when = f"{_when(one.record)}, {jobs}, policy {one.record.policy}{ahead}"
    reworded = f" ({count(one.reworded, 'sentence')} changed)" if one.reworded else ""
    results = {
        Verdict.SAME: f"the same decision{reworded}",
        Verdict.DIFFERENT: f"a different decision{reworded}",
        Verdict.FAILED: f"no plan can be made now: {one.problem}",
        Verdict.CUT: f"not compared: the deadline cut the decision short ({one.problem})",
        Verdict.FALLBACK: f"not compared: the record holds a fallback plan, because the decision failed"
        f" ({one.problem})",
    }
    return f"{results[one.verdict]} ({when})"


def _table(found: tuple[Difference, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("JOB", "FIELD", "RECORDED", "NOW"):
        table.add_column(name, overflow="fold")
    for one in found:
        cells = (one.job or "(plan)", one.field, _shown(one.recorded), _shown(one.now))
        table.add_row(*(Text(one_line(cell)) for cell in cells))
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
        "aheadOfPlan": record.ahead_of_plan if record else None,
        "problem": one.problem,
        "reworded": one.reworded,
        "differences": [
            {"job": d.job, "field": d.field, "recorded": d.recorded, "now": d.now} for d in one.differences
        ],
    }
