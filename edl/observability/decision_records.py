"""Where decisions are told: the log, the metrics, and JSON records that can be replayed.

A record holds everything that `decide` was given and what it answered, so that a decision of last night can be made
again on a laptop. Records are written for changed decisions only, and the oldest go; a full disk costs records, never
the loop.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from edl.clock import Clock
from edl.controller.ports import RoundResult
from edl.errors import ConfigError, PlanFailure
from edl.model.actions import DeletePod, EmitEvent, Outcome, PatchStatus, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import Limits, ScaleDecision, ScalePlan
from edl.observability.logs import say
from edl.observability.metrics import Metrics
from edl.planner.fallback import failure_of
from edl.planner.guard import RefusedPlanError

RECORD_VERSION = 1
RECORDS_KEPT = 1000
RECORDS = "decision-*.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, complete.

    Attributes:
        policy: name of the policy, as `--policy` takes it; empty for the default.
        plan: what was decided, and in `given` the columns that it began with; `seconds` is the only part that differs
            when it is decided again from all of these.
    """

    policy: str
    limits: Limits
    snapshot: ClusterSnapshot
    plan: ScalePlan
    version: int = RECORD_VERSION


def encode_record(record: DecisionRecord) -> bytes:
    """The record as JSON."""
    return msgspec.json.encode(record)


def decode_record(raw: bytes) -> DecisionRecord:
    """The record that `encode_record` wrote.

    Raises:
        ConfigError: it is no record, or one of another version.
    """
    try:
        record = msgspec.json.decode(raw, type=DecisionRecord)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(f"this is not a decision record: {error}; give a file that --record wrote") from error
    if record.version != RECORD_VERSION:
        raise ConfigError(
            f"the record has version {record.version}, this edl reads {RECORD_VERSION}; use the edl of it"
        )
    return record


class RecordFolder:
    """Keeps the newest records in a folder, one file each, named by time."""

    def __init__(self, folder: Path, *, keep: int = RECORDS_KEPT) -> None:
        """Take the folder, and make it where it is missing.

        Raises:
            ConfigError: it cannot be written to.
        """
        self._folder, self._keep = folder, keep
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise ConfigError(
                f"--record {folder}: cannot write there: {error.strerror or error}; give a folder that is writable"
            ) from error

    def write(self, record: DecisionRecord) -> Path:
        """Add a record, whole or not at all, and drop the oldest beyond the limit.

        Raises:
            OSError: the disk does not take it.
        """
        at = datetime.fromtimestamp(record.snapshot.observed_at_s, UTC)
        path = self._folder / f"decision-{at:%Y%m%dT%H%M%S.%f}.json"
        part = path.with_suffix(".part")
        try:
            part.write_bytes(encode_record(record))
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        for old in sorted(self._folder.glob(RECORDS))[: -self._keep]:
            old.unlink(missing_ok=True)
        return path


class ControllerRecorder:
    """Tells log, metrics and records what the controller does: changes at info, reasoning at debug."""

    def __init__(self, metrics: Metrics, clock: Clock, *, policy: str, folder: RecordFolder | None = None) -> None:
        self._metrics, self._clock, self._policy, self._folder = metrics, clock, policy, folder
        self._last: dict[JobKey, ScaleDecision] = {}
        self._skipped = ""
        self._fallback: PlanFailure | None = None

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """A snapshot was taken."""
        self._skipped = ""
        self._metrics.observed(snapshot, leader=leader)

    def skipped(self, reason: str) -> None:
        """A round was skipped, and why; said once until it changes."""
        level = logging.DEBUG if reason == self._skipped else logging.INFO
        self._skipped = reason
        say(_log, level, "round skipped", reason=reason)

    def planned(self, snapshot: ClusterSnapshot, limits: Limits, plan: ScalePlan) -> None:
        """A plan has passed its checks: one line for each decision that is new."""
        if plan.fallback is not None:
            kept = sum(len(d.victims) for d in plan.decisions)
            say(_log, logging.WARNING, "last plan stands without its growth", failure=plan.fallback, victims=kept)
        self._metrics.planned(plan)
        self._metrics.passed_over(snapshot)
        changed = [d for d in plan.decisions if _is_news(d, self._last.get(d.job))]
        for decision in changed:
            if decision.target != decision.current:
                self._metrics.resized(decision)
            self._metrics.count_victims(decision)
            say(_log, logging.INFO, "decision", **_fields(decision))
        gap, serving = plan.certificate.gap, plan.serving
        say(
            _log,
            logging.DEBUG,
            "plan",
            jobs=len(plan.decisions),
            objective=plan.certificate.objective,
            gap=f"{gap:.6f}",
            waiting=serving.waiting,
            placed=serving.placed,
            short=serving.short,
            seconds=plan.seconds,
        )
        self._last = {d.job: d for d in plan.decisions}
        is_news = bool(changed) or plan.fallback not in {None, self._fallback}
        self._fallback = plan.fallback
        if is_news and self._folder is not None:
            self._keep(DecisionRecord(self._policy, limits, snapshot, plan))

    def not_planned(self, snapshot: ClusterSnapshot, error: Exception) -> None:
        """No plan could be made, or it broke a rule: one line that says how; the stack only where it is a bug."""
        failure = failure_of(error)
        self._metrics.undecided(failure)
        if isinstance(error, RefusedPlanError):
            self._metrics.refused()
            for problem in error.problems:
                jobs, policy = len(snapshot.jobs), error.plan.policy
                say(_log, logging.ERROR, "plan refused", problem=problem, jobs=jobs, policy=policy)
        if failure is PlanFailure.BUG:
            self.failed("plan", error)
        say(_log, logging.ERROR, "no plan", failure=failure, jobs=len(snapshot.jobs), err=error)

    def failed(self, what: str, error: BaseException) -> None:
        """Something could not be handled; with the stack, because it is a bug."""
        fields = {"fields": {"what": what}}
        _log.error("failed", exc_info=(type(error), error, error.__traceback__), extra=fields)

    def postponed(self, what: str) -> None:
        """Something that was planned is put off."""
        say(_log, logging.INFO, "postponed", what=what)

    def acted(self, outcome: Outcome) -> None:
        """An action was carried out, or was refused by the API server."""
        self._metrics.acted(outcome)
        level = logging.WARNING
        if outcome.is_ok:
            quiet = outcome.result is Result.UNCHANGED or isinstance(outcome.action, PatchStatus | EmitEvent)
            level = logging.DEBUG if quiet else logging.INFO
        elif outcome.result is Result.CONFLICT:
            level = logging.DEBUG
        action = outcome.action
        pod = getattr(action, "pod", None) or getattr(action, "pod_name", None)
        say(
            _log,
            level,
            "action",
            action=type(action).__name__,
            result=outcome.result,
            job=action.job,
            pod=pod,
            intent=action.intent if isinstance(action, DeletePod) else None,
            event=action.reason if isinstance(action, EmitEvent) else None,
            phase=action.status.phase if isinstance(action, PatchStatus) else None,
            reason=outcome.reason or None,
            message=outcome.message or None,
            seconds=outcome.seconds,
        )

    def ended(self, result: RoundResult, seconds: float) -> None:
        """A round is over."""
        self._metrics.ended(result, seconds)
        say(_log, logging.DEBUG, "round done", result=result, seconds=seconds)

    def _keep(self, record: DecisionRecord) -> None:
        if self._folder is None:
            return
        try:
            path = self._folder.write(record)
        except OSError as error:
            say(_log, logging.ERROR, "decision not recorded", err=error)
        else:
            say(_log, logging.DEBUG, "decision recorded", file=path)


def _is_news(decision: ScaleDecision, before: ScaleDecision | None) -> bool:
    said = (decision.target, decision.admitted, decision.victims, decision.moves, decision.reason)
    return before is None or said != (before.target, before.admitted, (), (), before.reason)


def _fields(decision: ScaleDecision) -> dict[str, object]:
    return {
        "job": decision.job,
        "current": decision.current,
        "target": decision.target,
        "min": decision.min_trainers,
        "max": decision.max_trainers,
        "admitted": decision.admitted,
        "reason": decision.reason,
        "victims": ",".join(decision.victims) or None,
        "message": decision.message,
    }
