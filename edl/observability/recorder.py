"""What the controller reports, written to the log, the metrics and the decision records.

The log has one line for each decision that changed, and one for each write. Reasoning is logged at debug level. The
decisions that changed in one plan have a trace id, and so has each write to a job until its next decision.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from edl.controller.ports import RoundResult
from edl.errors import PlanFailure
from edl.model.actions import DeletePod, EmitEvent, Outcome, PatchStatus, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.observability.decision_records import DecisionRecord, RecordFolder, plan_of_early_evictions
from edl.observability.logs import log_event
from edl.observability.metrics import Metrics
from edl.planner.fallback import failure_of
from edl.planner.guard import RefusedPlanError

_log = logging.getLogger(__name__)

LINES_AT_ONCE = 100
"""The number of decisions logged in a row before other tasks may run."""


def new_trace_id() -> str:
    """A random id of 32 hexadecimal digits, as W3C Trace Context wants it."""
    return uuid.uuid4().hex


class Onlooker(Protocol):
    """An observer of the snapshots and the plans of a controller."""

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Called after a snapshot was taken."""

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Called after a plan was made for a snapshot."""

    def not_planned(self, error: Exception) -> None:
        """Called if no plan was made."""

    def note_problem(self, problem: str) -> None:
        """Called if the cluster could not be observed, with the reason."""


class ControllerRecorder:
    """Records what one controller does: changes at info level, everything else at debug level.

    Args:
        metrics: the metrics of this controller.
        policy: name of the policy, for the decision records.
        folder: where decision records are written; None writes none.
        onlooker: sees each snapshot and each plan too; None if nobody looks.
        new_trace: makes the trace id of a plan that changes a decision.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        policy: str,
        folder: RecordFolder | None = None,
        onlooker: Onlooker | None = None,
        new_trace: Callable[[], str] = new_trace_id,
    ) -> None:
        self._metrics, self._policy, self._folder, self._onlooker = metrics, policy, folder, onlooker
        self._new_trace = new_trace
        self._last: dict[JobKey, ScaleDecision] = {}
        self._traces: dict[JobKey, str] = {}
        self._skip_reason = ""
        self._fallback: PlanFailure | None = None
        self._observing = asyncio.Lock()

    async def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Record that a snapshot was taken."""
        self._skip_reason = ""
        async with self._observing:  # two at once would count the same end of a wait twice
            for _ in self._metrics.observing(snapshot, leader=leader):
                await asyncio.sleep(0)
        if self._onlooker is not None:
            self._onlooker.observed(snapshot, leader=leader)

    def skipped(self, reason: str) -> None:
        """Record why the cluster could not be observed, at info level once until the reason changes."""
        level = logging.DEBUG if reason == self._skip_reason else logging.INFO
        self._skip_reason = reason
        if self._onlooker is not None:
            self._onlooker.note_problem(reason)
        log_event(_log, level, "round skipped", reason=reason)

    async def planned(self, snapshot: ClusterSnapshot, limits: Limits, plan: ScalePlan) -> None:
        """Record a plan that has passed its checks: log each changed decision, and write a record if there is any."""
        changed = self._note_changed(plan)
        if plan.fallback is not None:
            victims = sum(len(d.victims) for d in plan.decisions)
            log_event(
                _log,
                logging.WARNING,
                "using the last plan without its growth",
                failure=plan.fallback,
                victims=victims,
            )
        self._metrics.limited(limits)
        for _ in self._metrics.planning(snapshot, plan):
            await asyncio.sleep(0)
        if self._onlooker is not None:
            self._onlooker.planned(snapshot, plan)
            await asyncio.sleep(0)
        for number, (decision, trace) in enumerate(changed):
            if number % LINES_AT_ONCE == LINES_AT_ONCE - 1:
                await asyncio.sleep(0)
            self._metrics.decided(decision)
            log_event(_log, logging.INFO, "decision", **_fields(decision), trace=trace)
        gap, serving = plan.certificate.gap, plan.serving
        log_event(
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
            cut=" ".join(plan.cut),
        )
        is_new = bool(changed) or plan.fallback not in {None, self._fallback}
        self._fallback = plan.fallback
        if is_new:
            self._write_record(DecisionRecord(self._policy, limits, snapshot, plan))

    def _note_changed(self, plan: ScalePlan) -> list[tuple[ScaleDecision, str]]:
        """Select the decisions that differ from the last ones, and give each a trace id, as their writes get it."""
        changed = [d for d in plan.decisions if _is_new(d, self._last.get(d.job))]
        traces = dict.fromkeys((d.job for d in changed), self._new_trace()) if changed else {}
        known = {**self._traces, **traces}
        self._traces = {d.job: known[d.job] for d in plan.decisions if d.job in known}
        self._last = {d.job: d for d in plan.decisions}
        return [(d, traces[d.job]) for d in changed]

    def evicted_early(self, snapshot: ClusterSnapshot, limits: Limits, decisions: Sequence[ScaleDecision]) -> None:
        """Record evictions for waiting serving pods ahead of a plan: log each decision, and write a record."""
        self._metrics.evicted_early(snapshot)
        for decision in decisions:
            self._metrics.decided(decision)
            self._traces[decision.job] = self._new_trace()
            trace = self._traces[decision.job]
            log_event(_log, logging.INFO, "decision", **_fields(decision), ahead_of_plan=True, trace=trace)
        self._write_record(
            DecisionRecord(self._policy, limits, snapshot, plan_of_early_evictions(decisions), ahead_of_plan=True)
        )

    def not_planned(self, snapshot: ClusterSnapshot, error: Exception) -> None:
        """Record that no plan could be made or that it broke a rule, with the stack if it is a bug."""
        failure = failure_of(error)
        self._metrics.not_planned(failure)
        if self._onlooker is not None:
            self._onlooker.not_planned(error)
        if isinstance(error, RefusedPlanError):
            for problem in error.problems:
                jobs, policy = len(snapshot.jobs), error.plan.policy
                log_event(_log, logging.ERROR, "plan refused", problem=problem, jobs=jobs, policy=policy)
        if failure is PlanFailure.BUG:
            self.failed("plan", error)
        log_event(_log, logging.ERROR, "no plan", failure=failure, jobs=len(snapshot.jobs), err=error)

    def failed(self, what: str, error: BaseException) -> None:
        """Log a bug in edl with its stack."""
        fields = {"fields": {"what": what}}
        _log.error("unexpected error", exc_info=(type(error), error, error.__traceback__), extra=fields)

    def postponed(self, what: str) -> None:
        """Record that a planned action is left out of this plan."""
        log_event(_log, logging.INFO, "postponed", what=what)

    def acted(self, outcome: Outcome) -> None:
        """Record that an action was carried out, or that the API server rejected it."""
        self._metrics.acted(outcome)
        action = outcome.action
        pod = getattr(action, "pod", None) or getattr(action, "pod_name", None)
        log_event(
            _log,
            _level(outcome),
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
            trace=self._traces.get(action.job),
        )

    def ended(self, result: RoundResult, seconds: float) -> None:
        """Record that a plan has ended, or that there was none to make."""
        self._metrics.ended(result, seconds)
        log_event(_log, logging.DEBUG, "round done", result=result, seconds=seconds)

    def _write_record(self, record: DecisionRecord) -> None:
        if self._folder is None:
            return
        try:
            path = self._folder.write(record)
        except OSError as error:
            log_event(_log, logging.ERROR, "decision not recorded", err=error)
        else:
            log_event(_log, logging.DEBUG, "decision recorded", file=path)


def _level(outcome: Outcome) -> int:
    """The log level of an outcome: refusals and failures are warnings, conflicts and routine writes are debug."""
    if outcome.is_ok:
        is_routine = outcome.result is Result.UNCHANGED or isinstance(outcome.action, PatchStatus | EmitEvent)
        return logging.DEBUG if is_routine else logging.INFO
    return logging.DEBUG if outcome.result is Result.CONFLICT else logging.WARNING


def _is_new(decision: ScaleDecision, before: ScaleDecision | None) -> bool:
    """True if the decision differs from the last one, or deletes or moves pods."""
    now = (decision.target, decision.admitted, decision.victims, decision.moves, decision.reason)
    return before is None or now != (before.target, before.admitted, (), (), before.reason)


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
