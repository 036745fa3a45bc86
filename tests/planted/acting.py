"""Bugs in what the controller sends next, and in how it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edl.controller.pending_writes import Write
from edl.kube.leader_election import AlwaysHeld
from edl.model.actions import Action, CreatePod, EmitEvent, Outcome, Result
from tests.planted import Right, bug, targets

ALLOTMENTS = "controller/core/test_core_allotments.py"
EVICTIONS = "controller/core/test_core_evictions.py"
HOLDING = "controller/core/test_core_holding.py"
WRITES = "controller/core/test_core_writes.py"
BACKOFF = "controller/core/test_core_backoff.py"
EARLY = "controller/early_evictions/test_early_evictions.py"
UNTRIED = "controller/early_evictions/test_early_evictions_untried.py"
GROWTH = "controller/loop/test_loop_growth.py"
CHANGED = "controller/loop/test_loop_changed_plans.py"
WHILE_PLANNING = "controller/loop/test_loop_while_planning.py"
ROOM_AHEAD = "planner/admission/test_early_evictions.py"
FINDS = f"{CHANGED}::test_the_rules_find_each_planted_bug_and_nothing_without_it"


@bug(
    "a slot of a plan is used for two pods",
    at=targets.NOTE_SENT,
    caught_by=f"{ALLOTMENTS}::test_what_a_plan_grants_is_created_once",
)
def slots_used_twice(right: Right) -> Right:
    def wrong(self: Any, write: Write) -> None:
        right(self, write)
        self.allotments.used.clear()
        if self.allotments.planning is not None:
            self.allotments.planning.sent.clear()

    return wrong


@bug(
    "a pod that was created beside a plan uses no slot of that plan",
    at=targets.WITHOUT_TAKEN,
    caught_by=f"{ALLOTMENTS}::test_a_pod_that_is_created_while_a_plan_is_made_uses_a_slot_of_that_plan",
)
def taken_slots_granted(_: Right) -> Right:
    return lambda starts, _sent, _jobs: starts


@bug(
    "what was evicted ahead of a plan is lost once that is published",
    at=targets.PUBLISHED,
    caught_by=f"{EVICTIONS}::test_what_was_evicted_and_not_sent_is_sent_after_the_plan_was_published",
)
def amendment_lost(right: Right) -> Right:
    def wrong(self: Any, *rest: Any, **more: Any) -> None:
        if self.allotments.planning is not None:
            self.allotments.planning.amended.clear()
        right(self, *rest, **more)

    return wrong


@bug(
    "a job that has changed uses what it was granted before",
    at=targets.IS_FOR,
    caught_by=f"{ALLOTMENTS}::test_a_job_that_has_changed_gets_nothing_of_the_plan",
)
def stale_grants_used(_: Right) -> Right:
    return lambda _self, _job: True


@bug(
    "trainers end for a job that has changed since",
    at=targets.SPARE,
    caught_by=f"{ALLOTMENTS}::test_no_trainer_ends_for_a_job_that_has_changed_since",
)
def nobody_spared(_: Right) -> Right:
    return lambda _self: []


@bug(
    "a job with a status under way is locked for ever",
    at=targets.CORE_ENDED,
    caught_by=f"{WRITES}::test_no_job_is_locked_for_ever_by_a_write_that_ended_somehow",
)
def locked_for_ever(right: Right) -> Right:
    def wrong(self: Any, write: Write, outcomes: Sequence[Outcome]) -> None:
        right(self, write, outcomes)
        if any(outcome.result is Result.CONFLICT for outcome in outcomes):
            self.under_way.writes.append(write)

    return wrong


@bug(
    "what is being deleted is not known, and deleted again",
    at=targets.PODS_UNDER_WAY,
    caught_by=f"{FINDS}[a pod is deleted twice]",
)
def deletions_under_way_unknown(right: Right) -> Right:
    return lambda self, uid: [action for action in right(self, uid) if isinstance(action, CreatePod)]


@bug(
    "a creation whose answer was lost is forgotten",
    at=targets.UNANSWERED,
    caught_by=f"{ALLOTMENTS}::test_a_creation_without_an_answer_is_asked_again_before_anything_else_and_makes_no_second_pod",
)
def lost_answers_forgotten(_: Right) -> Right:
    return lambda _self, _job, _under_way: []


@bug(
    "writes go on after the lease is lost",
    at=targets.TRY_ACTION,
    caught_by=f"{GROWTH}::test_an_action_whose_turn_comes_after_the_lease_was_lost_is_not_sent",
)
def writes_without_the_lease(right: Right) -> Right:
    async def wrong(self: Any, action: Action) -> Outcome:
        self._lease = AlwaysHeld()
        outcome: Outcome = await right(self, action)
        return outcome

    return wrong


@bug(
    "what was granted before the lease was lost is sent once it is regained",
    at=targets.STAND_DOWN,
    caught_by=f"{GROWTH}::"
    "test_a_lost_lease_stops_every_write_and_nothing_of_the_old_allotment_is_sent_after_it_is_regained",
)
def allotments_outlive_the_lease(_: Right) -> Right:
    return lambda _self: None


@bug(
    "changes without end hold surplus growth for ever",
    at=targets.IS_HELD,
    caught_by=f"{HOLDING}::test_changes_without_end_hold_surplus_for_two_thirds_of_the_time_at_most",
)
def held_for_ever(_: Right) -> Right:
    return lambda self, waits, _now_s: bool(self.unknown or self.obsolete or waits - self.known)


@bug(
    "surplus takes what somebody waits for that no plan knows",
    at=targets.IS_HELD,
    caught_by=f"{HOLDING}::test_surplus_waits_for_a_serving_pod_until_a_plan_takes_it_into_account",
)
def never_held(_: Right) -> Right:
    return lambda _self, _waits, _now_s: False


@bug(
    "each failure of one moment doubles the rest of a job",
    at=targets.BACK_OFF,
    caught_by=f"{BACKOFF}::test_failures_of_one_moment_let_a_job_rest_once",
)
def rests_for_each_failure(right: Right) -> Right:
    def wrong(self: Any, uid: str, failed: Any, now_s: float) -> None:
        failures, _ = self._backoffs.get(uid, (0, 0.0))
        if failed and failures:
            self._backoffs[uid] = (failures, 0.0)
        right(self, uid, failed, now_s)

    return wrong


@bug(
    "the same jobs are served first again and again",
    at=targets.TAKE_WRITE,
    caught_by=f"{GROWTH}::test_jobs_grow_side_by_side_although_plans_follow_each_other",
)
def same_jobs_first(_: Right) -> Right:
    def wrong(self: Any, lanes: Any) -> Write | None:
        for lane in lanes:
            for jobs in self._ready[lane].values():
                for writes in jobs.values():
                    if writes:
                        write: Write = writes.popleft()
                        return write
        return None

    return wrong


@bug(
    "an event is dropped after its status was written",
    at=targets.JOB_STATUS,
    caught_by=f"{GROWTH}::test_an_event_whose_status_was_written_is_sent_whatever_is_planned_meanwhile",
)
def event_dropped(right: Right) -> Right:
    def wrong(self: Any, *rest: Any, **more: Any) -> tuple[Action, ...]:
        return tuple(a for a in right(self, *rest, **more) if not isinstance(a, EmitEvent))

    return wrong


@bug(
    "a server that is too busy gets as many requests as before",
    at=targets.LEARN_LOAD,
    caught_by="controller/requests_at_once/test_concurrency.py::test_places_that_must_wait_rest_and_come_back",
)
def busy_server_ignored(_: Right) -> Right:
    return lambda *_, **__: None


@bug(
    "surplus growth takes more places for good on a busy server",
    at=targets.BACKGROUND_JUDGE,
    caught_by="controller/requests_at_once/test_background_writes.py",
)
def steps_are_never_taken_back(right: Right) -> Right:
    def wrong(self: Any, now_s: float) -> None:
        self._before = None
        right(self, now_s)

    return wrong


@bug(
    "the answer about a new job is followed by no plan",
    at=targets.NOTE_ANSWERS,
    caught_by=f"{WHILE_PLANNING}"
    "::test_a_job_that_comes_just_when_a_plan_begins_is_planned_as_soon_as_the_api_server_was_asked",
)
def left_out_for_an_interval(_: Right) -> Right:
    return lambda _self: None


@bug(
    "a new job waits until all writes are done",
    at=targets.IS_URGENT,
    caught_by="kube/mirror/test_urgency.py",
)
def nothing_is_urgent(_: Right) -> Right:
    return lambda _before, _after: False


@bug(
    "room ahead of a plan takes trainers of the minimums",
    at=targets.EARLY_ALLOWANCE,
    caught_by=f"{ROOM_AHEAD}::test_the_minimum_stays",
)
def early_evictions_take_minimums(_: Right) -> Right:
    return lambda packing: dict(packing.count)


@bug(
    "trainers are found for the same serving pod again and again",
    at=targets.EVICTIONS_LOOK,
    caught_by=f"{EARLY}::test_a_pod_that_nobody_can_help_is_looked_at_once",
)
def found_again_and_again(right: Right) -> Right:
    def wrong(self: Any, limits: object) -> None:
        if self._clock.monotonic_s() >= getattr(self, "_again_s", 0.0):
            self._again_s, self._known = self._clock.monotonic_s() + 1.0, frozenset()
        right(self, limits)

    return wrong


@bug(
    "trainers go for a serving pod that kube-scheduler has not tried",
    at=targets.EVICTIONS_REFUSED,
    caught_by=f"{UNTRIED}::test_no_trainer_goes_for_a_pod_that_kube_scheduler_has_room_for",
)
def evicted_before_the_verdict(_: Right) -> Right:
    return lambda snapshot: frozenset(pod.uid for pod in snapshot.waiting_serving)
