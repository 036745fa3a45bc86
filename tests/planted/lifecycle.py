"""Bugs in the life of a job: its status, its events, its pods and what its master reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edl.lifecycle.action_order import status_updates
from edl.lifecycle.data_progress import MasterView
from edl.lifecycle.desired_state import JobContext
from edl.lifecycle.pod_actions import delete
from edl.lifecycle.pod_events import PodEvent, failure_number
from edl.lifecycle.status import is_over
from edl.lifecycle.step import Stage, Step
from edl.model.actions import Action, DeletePod, EmitEvent, Intent, MarkPod, PatchStatus
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScaleDecision
from edl.model.pods import Pod, PodPhase
from edl.model.status import JobStatus, Resize
from tests.planted import Right, bug, targets

LIFE = "lifecycle/test_desired_state.py"
EVENTS = "lifecycle/test_pod_events.py"
SPEC = "lifecycle/test_desired_state_by_spec.py"
POLICIES = "lifecycle/test_desired_state_by_policy.py"
CRASH = "controller/loop/test_loop_crashes.py::test_a_crash_at_any_write_does_not_change_the_final_state"
MASTERS = "controller/master_monitor/test_master_monitor.py"

Described = tuple[JobStatus, tuple[EmitEvent, ...]]

# --- the status


@bug(
    "a status is written without the observed generation",
    at=targets.DESCRIBE,
    caught_by=f"{SPEC}::test_every_written_status_says_which_spec_it_answers",
)
def observed_generation_missing(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> Described:
        status, events = right(job, *rest)
        old = job.status or JobStatus()
        return replace(status, observed_generation=old.observed_generation), events

    return wrong


@bug(
    "the status of a job whose pod cannot start says that the job is at its maximum",
    at=targets.SHOWN_REASON,
    caught_by=f"{EVENTS}::test_the_status_of_a_job_at_its_maximum_names_what_keeps_a_pod_from_starting",
)
def start_problem_not_shown(right: Right) -> Right:
    return lambda step: right(replace(step, degraded=None))


@bug(
    "a status is written although nothing has changed",
    at=targets.DESIRED_STATE,
    caught_by="controller/loop/test_loop_quiet.py::test_nothing_is_written_in_ten_quiet_minutes",
)
def unchanged_status_written(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> tuple[JobStatus, tuple[Action, ...]]:
        status, actions = right(job, *rest)
        if any(isinstance(action, PatchStatus) for action in actions):
            return status, actions
        return status, (*actions, PatchStatus(job.key, job.uid, status))

    return wrong


@bug(
    "a condition that has not changed gets a new transition time",
    at=targets.DESCRIBE,
    caught_by=f"{LIFE}::test_a_condition_keeps_its_time_until_it_flips",
)
def transition_time_renewed(right: Right) -> Right:
    def wrong(job: Job, step: Step, now_s: float, *rest: Any) -> Described:
        status, events = right(job, step, now_s, *rest)
        conditions = tuple(replace(c, since_s=float(int(now_s))) for c in status.conditions)
        return replace(status, conditions=conditions), events

    return wrong


@bug(
    "a final phase is believed without a condition or a completion time",
    at=targets.IS_OVER,
    caught_by=f"{SPEC}::test_what_a_user_wrote_into_the_status_is_recomputed",
)
def forged_phase_believed(right: Right) -> Right:
    def wrong(job: Job) -> bool:
        return right(job) or (job.status is not None and job.status.phase.is_final)

    return wrong


@bug(
    "the deadline counts the time in which a job is suspended",
    at=targets.DESCRIBE,
    caught_by=f"{SPEC}::test_a_pause_stops_the_clock_of_the_deadline",
)
def deadline_counts_suspension(right: Right) -> Right:
    def wrong(job: Job, step: Step, *rest: Any) -> Described:
        status, events = right(job, step, *rest)
        if step.stage is Stage.SUSPENDED and job.status is not None:
            status = replace(status, start_s=job.status.start_s)
        return status, events

    return wrong


@bug(
    "a growth that ends early counts as a shrink",
    at=targets.DESCRIBE,
    caught_by=f"{LIFE}::test_less_wanted_than_is_on_its_way_is_no_shrink_if_nothing_is_deleted",
)
def early_end_of_growth_is_a_shrink(right: Right) -> Right:
    def wrong(job: Job, step: Step, now_s: float, *rest: Any) -> Described:
        status, events = right(job, step, now_s, *rest)
        before = job.status.trainer.desired if job.status is not None else 0
        if step.stage is Stage.RUNNING and job.was_admitted and step.target < before and not step.shrink_reason:
            shrink = Resize(float(int(now_s)), before, step.target, step.reason)
            status = replace(status, last_resize=shrink)
        return status, events

    return wrong


@bug(
    "trainers that never had a node start a cooldown",
    at=targets.DESCRIBE,
    caught_by=f"{LIFE}::test_trainers_that_never_reached_a_node_start_no_cooldown",
)
def cooldown_without_a_node(right: Right) -> Right:
    def wrong(job: Job, step: Step, *rest: Any) -> Any:
        return right(job, replace(step, never_ran=False), *rest)

    return wrong


@bug(
    "a failure is stored although its pod could not be marked",
    at=targets.DEGRADED_UPDATE,
    caught_by="controller/loop/test_loop_with_planner.py"
    "::test_a_failure_whose_mark_is_refused_is_reported_and_counted_once_it_can_be_marked",
)
def failure_stored_without_mark(_: Right) -> Right:
    return lambda _, actions: status_updates(actions)


# --- failures and other events of pods


@bug(
    "an evicted pod counts as a failed one",
    at=targets.EVENT_OF,
    caught_by=f"{SPEC}::test_no_failure_is_counted_for_what_others_or_we_take_away",
)
def eviction_counted_as_failure(right: Right) -> Right:
    def wrong(pod: Pod, lost: frozenset[str]) -> Any:
        is_failed = pod.phase is PodPhase.FAILED
        return right(replace(pod, disruption="") if is_failed else pod, lost)

    return wrong


@bug(
    "a pod that fails because its job restarts counts as a failure",
    at=targets.COUNT_FAILURES,
    caught_by=f"{POLICIES}::test_pods_that_fail_because_their_job_restarts_are_not_counted",
)
def failures_of_a_restart_counted(right: Right) -> Right:
    def wrong(job: Job) -> Any:
        forgetful = replace(job.status, conditions=()) if job.status is not None else None
        return right(replace(job, status=forgetful))

    return wrong


@bug(
    "a failure of a gang counts once for each of its pods",
    at=targets.COUNT_FAILURES,
    caught_by=f"{POLICIES}::test_pods_of_a_gang_that_fail_together_are_one_failure_even_if_the_marks_came_apart",
)
def gang_failure_counted_per_pod(right: Right) -> Right:
    def wrong(job: Job) -> tuple[int, tuple[MarkPod, ...]]:
        _, marks = right(job)
        count = max([job.status.failures if job.status else 0, *map(failure_number, job.pods)])
        numbered = (replace(m, intent=f"{Intent.POD_FAILED.value}/{count + i}") for i, m in enumerate(marks, 1))
        return count + len(marks), tuple(numbered)

    return wrong


@bug(
    "a failed pod is deleted before its failure is stored",
    at=targets.IS_REPLACEABLE,
    caught_by=f"{EVENTS}::test_a_failure_is_counted_once_even_if_the_status_is_lost_after_the_mark",
)
def failed_pod_deleted_too_soon(right: Right) -> Right:
    def wrong(job: Job, pod: Pod) -> bool:
        status = replace(job.status, failures=10**6) if job.status is not None else None
        return bool(right(replace(job, status=status), pod))

    return wrong


@bug(
    "a deletion by edl counts as an eviction",
    at=targets.EVENT_OF,
    caught_by=f"{POLICIES}::test_our_own_deletions_are_no_events",
)
def own_deletion_is_an_eviction(right: Right) -> Right:
    def wrong(pod: Pod, lost: frozenset[str]) -> JobEvent | None:
        is_leaving = pod.disruption or pod.terminating or pod.uid in lost
        return right(pod, lost) or (JobEvent.POD_EVICTED if is_leaving else None)

    return wrong


@bug(
    "a pserver that a new spec adds counts as one that vanished",
    at=targets.POD_EVENTS,
    caught_by=f"{POLICIES}::test_a_pserver_that_a_new_spec_asks_for_has_not_vanished",
)
def added_pserver_has_vanished(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> Any:
        seen = job.status.observed_generation if job.status is not None else job.generation
        return right(replace(job, generation=seen), *rest)

    return wrong


@bug(
    "a job ends before its master has reported",
    at=targets.POD_EVENTS,
    caught_by=f"{MASTERS}::test_the_last_report_reaches_the_status_even_if_the_trainers_end_right_after_it",
)
def end_before_the_last_report(right: Right) -> Right:
    def wrong(job: Job, lost: frozenset[str], view: MasterView | None = None) -> Any:
        return right(job, lost, replace(view, is_current=True) if view else None)

    return wrong


@bug(
    "the message of a failure is the launcher's, not the program's",
    at=targets.DESCRIBE_FAILURE,
    caught_by=f"{EVENTS}::test_a_failure_is_reported_with_the_words_that_say_most",
)
def message_of_the_launcher(right: Right) -> Right:
    def wrong(pod: Pod) -> str:
        return str(right(replace(pod, container_message=pod.container_message.strip().rpartition("\n")[2])))

    return wrong


# --- restarts and the end


@bug(
    "pods are deleted before the end of their job is stored",
    at=targets.DESIRED_STATE,
    caught_by=f"{SPEC}::test_the_end_is_stored_before_any_pod_goes",
)
def deletion_before_the_end_is_stored(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> tuple[JobStatus, tuple[Action, ...]]:
        status, actions = right(job, *rest)
        if not status.phase.is_final or is_over(job):
            return status, actions
        context = rest[3] if len(rest) > 3 and rest[3] is not None else JobContext()
        return status, (*delete(job.pods, job, status.reason, context.unreachable), *actions)

    return wrong


@bug(
    "a restart is forgotten once the pod that caused it is gone",
    at=targets.CAUSE_OF_RESTART,
    caught_by=f"{CRASH}[restart by policy]",
)
def restart_forgotten(right: Right) -> Right:
    def wrong(case: Any, events: Sequence[PodEvent]) -> str:
        is_asked_for = any(event.action is JobAction.RESTART_JOB for event in events)
        return str(right(case, events)) if is_asked_for or not case.job.fault_tolerant else ""

    return wrong


@bug(
    "a job starts again before its status shows that the old pods are gone",
    at=targets.CAUSE_OF_RESTART,
    caught_by=f"{CRASH}[restart a gang]",
)
def restart_ends_too_soon(right: Right) -> Right:
    def wrong(case: Any, events: Sequence[PodEvent]) -> str:
        return str(right(case, events)) if case.job.pods else ""

    return wrong


@bug(
    "a gang ignores that its trainers are victims",
    at=targets.CAUSE_OF_RESTART,
    caught_by=f"{SPEC}::test_a_gang_whose_trainers_must_make_way_starts_anew_whole",
)
def gang_ignores_victims(right: Right) -> Right:
    def wrong(case: Any, events: Sequence[PodEvent]) -> str:
        decision: ScaleDecision | None = case.decision
        spared = replace(decision, victims=()) if decision is not None else None
        return str(right(replace(case, decision=spared), events))

    return wrong


@bug(
    "a role that runs again is forgotten halfway",
    at=targets.ROLE_TO_RERUN,
    caught_by=f"{CRASH}[run again by policy]",
)
def running_again_forgotten(_: Right) -> Right:
    def wrong(_: Job, events: Sequence[PodEvent]) -> Role | None:
        decisive = (JobEvent.TASK_COMPLETED, JobAction.RESTART_POD)
        return next((event.role for event in events if (event.event, event.action) == decisive), None)

    return wrong


@bug(
    "half a gang is started",
    at=targets.CREATE,
    caught_by=f"{SPEC}::test_a_gang_starts_whole_or_not_at_all",
)
def half_a_gang(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> Any:
        return right(replace(job, fault_tolerant=True, gang=False), *rest)

    return wrong


@bug(
    "a deletion that was stated on the pod is never carried out",
    at=targets.COMPLETE_DELETIONS,
    caught_by=f"{SPEC}::test_a_deletion_that_was_stated_but_not_carried_out_is_carried_out",
)
def stated_deletion_not_carried_out(right: Right) -> Right:
    def wrong(case: Any) -> list[DeletePod]:
        return [action for action in right(case) if action.pod_uid in case.context.unreachable]

    return wrong


@bug(
    "a new pod gets the name that a terminating one still has",
    at=targets.CREATE,
    caught_by="lifecycle/test_desired_state.py::test_a_new_trainer_takes_the_lowest_index_that_no_pod_has",
)
def name_in_use(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> Any:
        shown = tuple(p for p in job.pods if p.role is not Role.TRAINER or p.is_live)
        return right(replace(job, pods=shown), *rest)

    return wrong
