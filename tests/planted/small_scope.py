"""Bugs of order, staleness and crashes that the search through every history of a very small cluster finds.

`python -m tests.worlds.small_scope bugs` prints the shortest trace to each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from edl.controller.allotment import Allotment, Start, Usable
from edl.controller.pending_writes import Write
from edl.controller.plan_maker import StartablePod
from edl.lifecycle.action_order import status_updates
from edl.lifecycle.desired_state import JobContext
from edl.lifecycle.pod_events import event_of
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, MarkPod, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.job_policies import JobEvent
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.model.status import JobStatus
from edl.planner import starts
from tests.planted import Right, bug, targets

SEARCH = "controller/loop/test_loop_small_scope.py::test_every_history_of_a_scene_keeps_the_rules_and_comes_to_rest"
PodWrites = Collection[CreatePod | DeletePod]


def found_in(scene: str) -> str:
    """The test that searches a scene."""
    return f"{SEARCH}[{scene}]"


# --- Order


@bug("growth is sent beside the deletions of its job", at=targets.WRITES_OF_JOB, caught_by=found_in("failure"))
def growth_beside_deletions(right: Right) -> Right:
    def wrong(self: Any, shown: Job, assumed: Job, granted: Usable, *around: Any) -> Iterator[Write]:
        yield from right(self, shown, assumed, granted, *around)
        facts, under_way = around
        context, time_s = JobContext(facts.unreachable), self._clock.now_s()
        actions = self._actions(assumed, granted, granted.slots, context, time_s)
        if any(isinstance(action, MarkPod | DeletePod) for action in actions):
            yield from self._creations(assumed, actions, facts, under_way)

    return wrong


@bug("an event is sent before its status is stored", at=targets.STATUS_UPDATES, caught_by=found_in("growth"))
def event_before_status(right: Right) -> Right:
    def wrong(actions: Iterable[Action]) -> tuple[Action, ...]:
        return tuple(sorted(right(actions), key=lambda action: not isinstance(action, EmitEvent)))

    return wrong


@bug("a status is sent beside the marks that it counts", at=targets.STATUS_WRITE, caught_by=found_in("failure"))
def status_beside_marks(right: Right) -> Right:
    def wrong(self: Any, job: Job, actions: Iterable[Action], **_: object) -> tuple[Action, ...]:
        updates: tuple[Action, ...] = right(self, job, actions, has_marks=False)
        return updates

    return wrong


@bug("trainers are created beside their pservers", at=targets.CREATION_WRITES, caught_by=found_in("pserver"))
def trainers_beside_pservers(right: Right) -> Right:
    def wrong(self: Any, job: Job, *rest: Any) -> Iterator[Write]:
        writes = list(right(self, replace(job, fixed=()), *rest))
        yield from {write.actions: write for write in writes}.values()

    return wrong


@bug(
    "a trainer does not wait for the answer about its pserver",
    at=targets.CREATION_WRITES,
    caught_by=found_in("pserver"),
)
def trainer_before_an_answer(right: Right) -> Right:
    def wrong(self: Any, job: Job, actions: Sequence[Action], facts: object, _: PodWrites) -> Iterator[Write]:
        yield from right(self, job, actions, facts, ())

    return wrong


@bug(
    "a job of whose pods the API server was not asked is taken down",
    at=targets.CORE_PLAN_BEGINS,
    caught_by=found_in("pserver"),
)
def unasked_taken_down(right: Right) -> Right:
    return lambda self, _unasked: right(self)


@bug("a deletion says that its intent is on the pod, and it is not", at=targets.DELETE, caught_by=found_in("edit"))
def deletion_without_intent(right: Right) -> Right:
    def wrong(*given: Any) -> list[DeletePod]:
        return [replace(action, marked=True) for action in right(*given)]

    return wrong


@bug("the grace period of a deletion does not say why", at=targets.DELETE, caught_by=found_in("serving"))
def silent_grace_period(right: Right) -> Right:
    def wrong(*given: Any) -> list[DeletePod]:
        deletions: list[DeletePod] = right(*given)
        return [a if a.grace_s is None else replace(a, grace_s=a.grace_s + 1) for a in deletions]

    return wrong


@bug(
    "a failed pod is deleted before the status has its failure",
    at=targets.IS_REPLACEABLE,
    caught_by=found_in("failure"),
)
def deleted_before_stored(_: Right) -> Right:
    def wrong(_job: Job, pod: Pod) -> bool:
        return pod.phase is PodPhase.FAILED and not pod.terminating and bool(pod.intent)

    return wrong


@bug(
    "a failed pod of a job that is taken down is deleted before the status has its failure",
    at=targets.IS_UNCOUNTED,
    caught_by=found_in("gang"),
)
def uncounted_failure_deleted(_: Right) -> Right:
    return lambda _job, _pod: False


@bug("a forced deletion is sent twice", at=targets.WRITES_OF_JOB, caught_by=found_in("node-lost"))
def forced_twice(right: Right) -> Right:
    def wrong(self: Any, shown: Job, assumed: Job, granted: Usable, *around: Any) -> Iterator[Write]:
        facts, under_way = around
        known = [a for a in under_way if not (isinstance(a, DeletePod) and a.force)]
        yield from right(self, shown, assumed, granted, facts, known)

    return wrong


# --- Capacity


@bug("pods get the room of pods that are still ending", at=targets.STARTABLE, caught_by=found_in("arrival"))
def room_of_ending_pods(right: Right) -> Right:
    def wrong(snapshot: ClusterSnapshot, plan: ScalePlan) -> Sequence[StartablePod]:
        jobs = tuple(
            replace(job, pods=tuple(pod for pod in job.pods if not pod.terminating)) for job in snapshot.jobs
        )
        starts: Sequence[StartablePod] = right(replace(snapshot, jobs=jobs), plan)
        return starts

    return wrong


@bug("the whole plan is carried out before its room is free", at=targets.STARTABLE, caught_by=found_in("arrival"))
def plan_before_its_room(_: Right) -> Right:
    def wrong(_snapshot: ClusterSnapshot, plan: ScalePlan) -> Sequence[StartablePod]:
        return [
            starts.Start(decision.job, Role.TRAINER, node)
            for decision in plan.decisions
            for node, count in decision.nodes
            for _ in range(count)
        ]

    return wrong


@bug(
    "a slot is used that a pod got while the plan was made",
    at=targets.WITHOUT_TAKEN,
    caught_by=found_in("growth-of-three"),
)
def taken_slot_granted(_: Right) -> Right:
    def wrong(starts: Sequence[Start], _sent: object, _jobs: object) -> tuple[Start, ...]:
        return tuple(starts)

    return wrong


@bug("a slot is used twice", at=targets.NOTE_SENT, caught_by=found_in("growth-of-three"))
def slot_used_twice(right: Right) -> Right:
    def wrong(self: Any, write: Write) -> None:
        right(self, write)
        self.allotments.used.clear()

    return wrong


@bug(
    "a plan does not see the pods that are being created",
    at=targets.CORE_ASSUMED,
    caught_by=found_in("growth-of-three"),
)
def creations_not_assumed(_: Right) -> Right:
    return lambda self: self.snapshot


@bug(
    "growth that was not sent stays granted by the next plan",
    at=targets.REPLACE_ALLOTMENTS,
    caught_by=found_in("arrival-in-growth"),
)
def stale_grant(right: Right) -> Right:
    def wrong(self: Any, granted: Mapping[JobKey, Allotment], *rest: Any) -> Any:
        old, used = self.by_job, self.used
        kept = {key: a for key, a in old.items() if len(a.slots) > used.get(key, Counter()).total()}
        return right(self, {key: kept.get(key, new) for key, new in granted.items()}, *rest)

    return wrong


# --- Staleness


@bug("an edited job gets what an old plan granted", at=targets.ALLOTMENT_IS_FOR, caught_by=found_in("change-of-mind"))
def grant_of_an_old_spec(_: Right) -> Right:
    return lambda self, job: self.uid == job.uid


@bug("an eviction ahead of the plan is lost", at=targets.PUBLISHED, caught_by=found_in("serving-early"))
def amendment_lost(right: Right) -> Right:
    def wrong(self: Any, *rest: Any, **more: Any) -> None:
        if self.allotments.planning is not None:
            self.allotments.planning.amended, self.allotments.planning.evicted_for = {}, frozenset()
        right(self, *rest, **more)

    return wrong


@bug(
    "trainers end for serving pods that do not wait any more",
    at=targets.ALLOTMENT_OF,
    caught_by=found_in("serving-goes"),
)
def vain_eviction(right: Right) -> Right:
    def wrong(*given: Any) -> Allotment:
        allotment: Allotment = right(*given)
        return replace(allotment, awaited=frozenset())

    return wrong


@bug(
    "a controller without the lease keeps its plan",
    at=targets.STAND_DOWN,
    caught_by=found_in("growth-without-lease"),
)
def plan_kept_without_the_lease(_: Right) -> Right:
    return lambda _self: None


@bug(
    "a job that rests after a failure rests for ever",
    at=targets.BACK_OFF,
    caught_by=found_in("growth-without-answers"),
)
def rests_for_ever(right: Right) -> Right:
    def wrong(self: Any, uid: str, failed: Sequence[Outcome], now_s: float) -> None:
        right(self, uid, failed, now_s)
        if uid in self._backoffs:
            self._backoffs[uid] = (1, inf)

    return wrong


@bug("a job is not looked at after a status", at=targets.CORE_ENDED, caught_by=found_in("growth"))
def locked_after_a_status(right: Right) -> Right:
    def wrong(self: Any, write: Write, outcomes: Sequence[Outcome]) -> None:
        right(self, write, outcomes)
        if not isinstance(write.actions[0], CreatePod | DeletePod):
            self._due._now.pop(write.job_uid, None)

    return wrong


@bug(
    "a job is looked at while its status is under way",
    at=targets.CORE_MAY_BE_LOOKED_AT,
    caught_by=found_in("growth"),
)
def looked_at_too_early(right: Right) -> Right:
    return lambda self, rank, _closed, now_s, number, uid: right(self, rank, (), now_s, number, uid)


@bug(
    "a creation without an answer counts as one that failed",
    at=targets.CORE_NOTE_CREATION,
    caught_by=found_in("eviction-without-answers"),
)
def unanswered_creation_forgotten(right: Right) -> Right:
    def wrong(self: Any, action: CreatePod, outcome: Outcome) -> None:
        right(self, action, replace(outcome, result=Result.CONFLICT) if outcome.result is Result.FAILED else outcome)

    return wrong


@bug(
    "a creation without an answer is sent again beyond a new maximum",
    at=targets.UNANSWERED,
    caught_by=found_in("edit-without-answers"),
)
def unanswered_beyond_the_maximum(right: Right) -> Right:
    def wrong(self: Any, job: Job, under_way: PodWrites) -> list[CreatePod]:
        unanswered: list[CreatePod] = right(self, replace(job, max_trainers=99), under_way)
        return unanswered

    return wrong


@bug("the name of a pod that still ends is used again", at=targets.FREE_INDEXES, caught_by=found_in("eviction"))
def name_of_an_ending_pod(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> list[int]:
        live = tuple(pod for pod in job.pods if not pod.terminating)
        indexes: list[int] = right(replace(job, pods=live), *rest)
        return indexes

    return wrong


@bug("trainers that have not started are not counted", at=targets.LIVE_TRAINERS, caught_by=found_in("growth"))
def pending_trainers_not_counted(right: Any) -> Any:
    return property(lambda job: tuple(pod for pod in right.fget(job) if pod.phase is PodPhase.RUNNING))


@bug("the status claims an older spec than it answers", at=targets.DESCRIBE, caught_by=found_in("edit"))
def status_of_an_older_spec(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> tuple[JobStatus, tuple[EmitEvent, ...]]:
        status, events = right(job, *rest)
        before = job.status.observed_generation if job.status is not None else job.generation
        return replace(status, observed_generation=before), events

    return wrong


@bug("a deletion is added that the plan does not want", at=targets.DESIRED_STATE, caught_by=found_in("growth"))
def deletion_nobody_wants(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> tuple[JobStatus, tuple[Action, ...]]:
        status, actions = right(job, *rest)
        if len(job.live_trainers) == 2 and not job.suspended:
            pod = job.live_trainers[-1]
            actions = (DeletePod(job.key, job.uid, pod.name, pod.uid, "InsufficientCapacity"), *actions)
        return status, actions

    return wrong


# --- A standby takes over


@bug(
    "a standby decides on what its watches have shown",
    at=targets.FRESH_LISTS_REQUIRE,
    caught_by=found_in("takeover-failure"),
)
def no_fresh_lists(_: Right) -> Right:
    return lambda _self, _collections: None


@bug(
    "a list that began under the predecessor counts",
    at=targets.FRESH_LISTS_MISSING,
    caught_by=found_in("takeover-eviction"),
)
def list_of_the_past(_: Right) -> Right:
    return lambda self: tuple(one for one, begun in self._begun if one.lists_done < begun)


@bug("a standby lists the jobs alone", at=targets.FRESH_LISTS_REQUIRE, caught_by=found_in("takeover-eviction"))
def fresh_jobs_alone(right: Right) -> Right:
    return lambda self, collections: right(self, tuple(collections)[:1])


# --- Crashes


@bug("a failure is counted again after a crash", at=targets.COUNT_FAILURES, caught_by=found_in("failure"))
def failure_counted_twice(_: Right) -> Right:
    def wrong(job: Job) -> tuple[int, tuple[MarkPod, ...]]:
        stored = job.status.failures if job.status is not None else 0
        failed = [pod for pod in job.pods if event_of(pod, frozenset()) is JobEvent.POD_FAILED and not pod.intent]
        marks = [MarkPod(job.key, job.uid, p.name, p.uid, f"PodFailed/{stored + 1}") for p in failed]
        return stored + len(failed), tuple(marks)

    return wrong


@bug(
    "the status counts a failure whose mark was not written",
    at=targets.DEGRADED_UPDATE,
    caught_by=found_in("failure-refused"),
)
def counted_without_a_mark(_: Right) -> Right:
    return lambda _job, actions: status_updates(actions)


@bug("a job that had a failed pod gets no more decisions", at=targets.GRANTED, caught_by=found_in("failure"))
def no_decision_after_a_failure(right: Right) -> Right:
    def wrong(self: Any, job: Job, waits: frozenset[str], now: ClusterSnapshot) -> Usable:
        granted: Usable = right(self, job, waits, now)
        return Usable() if job.status is not None and job.status.failures else granted

    return wrong


@bug("a refused request is never tried again", at=targets.BACKOFF_RECORD, caught_by=found_in("failure-refused"))
def refused_for_ever(right: Right) -> Right:
    def wrong(self: Any, outcome: Outcome, now_s: float) -> None:
        right(self, outcome, inf if outcome.result is Result.REFUSED else now_s)

    return wrong


@bug("a restart ends before the last old pod is gone", at=targets.CAUSE_OF_RESTART, caught_by=found_in("gang"))
def restart_forgotten(right: Right) -> Right:
    def wrong(given: Any, events: Sequence[Any]) -> str:
        cause: str = right(given, events)
        return cause if any(pod.is_live for pod in given.job.pods) else ""

    return wrong
