"""Bugs in how a round sends its writes, and in how it is cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

from edl.controller.write_queue import Lane, creation_lane, status_lane

from edl.kube.leader_election import AlwaysHeld
from edl.lifecycle.action_order import status_updates
from edl.model.actions import Action, Outcome
from edl.model.jobs import Job
from tests.planted import Right, bug, targets

PAUSES = "controller/test_pauses.py"
HAND_BACK = "controller/test_hand_back.py"
RELIEF, ROOM_AHEAD = "controller/test_relief.py", "planner/admission/test_relief.py"


@bug(
    "serving pods that keep coming put every plan off",
    at=targets.RELIEF_OVERDUE,
    caught_by=f"{RELIEF}::test_pods_that_keep_coming_put_a_plan_off_for_a_bounded_time",
)
def no_plan_beside_reliefs(_: Right) -> Right:
    return lambda _self: False


@bug(
    "a plan is carried out for jobs that have changed since",
    at=targets.CHANGED_SINCE,
    caught_by="controller/test_early_answers.py",
)
def changed_jobs_by_the_old_plan(_: Right) -> Right:
    return lambda _self, _snapshot: {}


@bug(
    "surplus growth takes more places for good on a busy server",
    at=targets.PATIENCE_JUDGE,
    caught_by="controller/test_patience.py",
)
def steps_are_never_taken_back(right: Right) -> Right:
    def wrong(self: Any, now_s: float) -> None:
        self._before = None
        right(self, now_s)

    return wrong


@bug(
    "a deletion is sent although a newer plan is due",
    at=targets.IS_DUE,
    caught_by=f"{HAND_BACK}::test_a_deletion_that_the_newer_plan_does_not_want_is_never_sent",
)
def dropped_deletion_sent(_: Right) -> Right:
    return lambda _self: False


@bug(
    "growth begins while deletions are under way",
    at=targets.WRITE_ALL,
    caught_by=f"{HAND_BACK}::test_growth_never_begins_before_the_last_deletion_has_ended",
)
def growth_before_its_room(_: Right) -> Right:
    async def wrong(self: Any, begun: Any, others: Any, *_: object) -> list[Outcome]:
        wanted = (*begun.wanted, *others.wanted)
        lanes = [*others.ends(), *(creation_lane(job, actions) for job, actions in wanted)]
        lanes += [status_lane(job, status_updates(actions)) for job, actions in wanted]
        outcomes: list[Outcome]
        outcomes, self.left = await self._pool.run(lanes, self._is_due)
        return outcomes

    return wrong


@bug(
    "a round ends while its writes are still under way",
    at=targets.RUN_LANES,
    caught_by=f"{HAND_BACK}::test_no_two_rounds_and_no_two_steps_of_a_job_are_under_way_together",
)
def two_workers_on_a_job(right: Right) -> Right:
    async def wrong(
        self: Any, lanes: Iterable[Lane], is_due: Callable[[], bool], *pauses: Any
    ) -> tuple[list[Outcome], int]:
        pool = copy(self)
        pool._under_way = {}
        sending = asyncio.ensure_future(right(pool, lanes, is_due, *pauses))
        while not sending.done():
            if is_due():
                return [], 1
            await asyncio.sleep(0.01)
        result: tuple[list[Outcome], int] = sending.result()
        return result

    return wrong


@bug(
    "a job that was answered in a pause is written by the older plan all the same",
    at=targets.DROP_ANSWERED,
    caught_by=f"{PAUSES}::test_a_job_that_was_answered_in_a_pause_is_left_alone_until_the_next_plan",
)
def answered_job_written(_: Right) -> Right:
    return lambda _self, _uids: None


@bug(
    "a round that has yet to write answers nothing",
    at=targets.PAUSE_IS_DUE,
    caught_by=f"{PAUSES}::test_a_new_job_gets_its_status_while_a_round_writes_and_the_round_goes_on",
)
def never_paused(_: Right) -> Right:
    return lambda _self: False


@bug(
    "a pause counts as writing",
    at=targets.NOT_WRITING,
    caught_by="controller/test_hand_back_times.py::test_a_pause_does_not_count_as_writing",
)
def pause_counts(_: Right) -> Right:
    return lambda _self, _seconds: None


@bug(
    "a job that lacked nothing once is never looked at again",
    at=targets.LACKS_NOTHING_STILL,
    caught_by="controller/test_job_needs_at_rest.py",
)
def at_rest_for_ever(_: Right) -> Right:
    return lambda self, job, *_: job.uid in self._idle


@bug(
    "writes go on after the lease is lost",
    at=targets.SEND_ACTION,
    caught_by=f"{HAND_BACK}::test_a_lost_lease_stops_everything_that_was_not_sent",
)
def writes_without_the_lease(right: Right) -> Right:
    async def wrong(self: Any, action: Action) -> Outcome:
        self._lease = AlwaysHeld()
        outcome: Outcome = await right(self, action)
        return outcome

    return wrong


@bug(
    "a server that is too busy gets as many requests as before",
    at=targets.LEARN_LOAD,
    caught_by="controller/test_concurrency.py::test_places_that_must_wait_rest_and_come_back",
)
def busy_server_ignored(_: Right) -> Right:
    return lambda *_, **__: None


@bug(
    "each round begins with the same jobs",
    at=targets.SERVED_SINCE,
    caught_by=f"{HAND_BACK}::test_jobs_grow_side_by_side_over_many_short_rounds",
)
def same_jobs_first(_: Right) -> Right:
    return lambda *_: 0


@bug(
    "an event is dropped after its status was written",
    at=targets.STATUS_LANE,
    caught_by=f"{HAND_BACK}::test_an_event_whose_status_was_written_is_sent_even_if_the_round_is_cut_short",
)
def event_dropped(right: Right) -> Right:
    def wrong(job: Job, updates: tuple[Action, ...]) -> Lane:
        return tuple(stage for action in updates for stage in right(job, (action,)))

    return wrong


@bug(
    "a new job waits until all writes are done",
    at=targets.IS_URGENT,
    caught_by="kube/mirror/test_urgency.py",
)
def nothing_is_urgent(_: Right) -> Right:
    return lambda _before, _after: False


@bug(
    "room ahead of a plan takes trainers of the minimums",
    at=targets.RELIEF_ALLOWANCE,
    caught_by=f"{ROOM_AHEAD}::test_the_minimum_stays",
)
def relief_takes_minimums(_: Right) -> Right:
    return lambda packing: dict(packing.count)


@bug(
    "every plan is given up for a serving pod",
    at=targets.RELIEF_INTERRUPTS,
    caught_by=f"{RELIEF}::test_two_plans_in_a_row_are_never_given_up",
)
def plans_never_made(right: Right) -> Right:
    def wrong(self: Any, now: object) -> bool:
        self._has_abandoned = False
        given_up: bool = right(self, now)
        return given_up

    return wrong


@bug(
    "a serving pod makes room ahead of the plan in every round",
    at=targets.RELIEF_GIFTS,
    caught_by=f"{RELIEF}::test_a_pod_that_nobody_can_help_is_looked_at_once",
)
def relief_again_and_again(right: Right) -> Right:
    async def wrong(self: Any, view: object, grace_left_s: object) -> object:
        self._known = frozenset()
        return await right(self, view, grace_left_s)

    return wrong


@bug(
    "trainers go for a serving pod that kube-scheduler has not tried",
    at=targets.FIND_NO_ROOM,
    caught_by=f"{RELIEF}::test_no_trainer_goes_for_a_pod_that_kube_scheduler_has_room_for",
)
def relief_before_the_verdict(_: Right) -> Right:
    async def wrong(_self: object, _pods: object) -> bool:
        return True

    return wrong
