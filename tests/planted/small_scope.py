"""Bugs of order, staleness and crashes that the search through every history of a very small cluster finds.

`python -m tests.worlds.small_scope bugs` prints the shortest trace to each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from edl.controller.write_queue import Lane, Write, creation_lane, deletion_lane, status_lane

from edl.controller.plan_maker import StartablePod
from edl.kube.leader_election import AlwaysHeld
from edl.lifecycle.action_order import status_updates
from edl.lifecycle.pod_events import event_of
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, MarkPod, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.job_policies import JobEvent
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.model.status import JobStatus
from edl.planner.packing import Start
from tests.planted import Right, bug, histories, targets
from tests.worlds.small_scope.automaton import FIRST_TURN

SEARCH = "controller/loop/test_loop_small_scope.py::test_every_history_of_a_scene_keeps_the_rules_and_comes_to_rest"
Wanted = Sequence[tuple[Job, tuple[Action, ...]]]


def found_in(scene: str) -> str:
    """The test that searches a scene."""
    return f"{SEARCH}[{scene}]"


# --- Order


@bug("growth is sent beside the deletions that make its room", at=targets.WRITE_ALL, caught_by=found_in("failure"))
def growth_beside_deletions(_: Right) -> Right:
    async def wrong(self: Any, begun: Any, others: Any, *_: object) -> list[Outcome]:
        wanted = (*begun.wanted, *others.wanted)
        lanes = [lane for job, actions in wanted for lane in (deletion_lane(actions), creation_lane(job, actions))]
        lanes += [status_lane(job, status_updates(actions)) for job, actions in wanted]
        outcomes: list[Outcome]
        outcomes, self.left = await self._pool.run(lanes, self._is_due)
        return outcomes

    return wrong


@bug("growth is sent before the deletions", at=targets.WRITE_ALL, caught_by=found_in("failure"))
def growth_before_deletions(right: Right) -> Right:
    async def wrong(self: Any, begun: Any, others: Any, *more: Any) -> list[Outcome]:
        await self._pool.run([creation_lane(job, actions) for job, actions in others.wanted], self._is_due)
        for number, (job, actions) in enumerate(others.wanted):
            others.wanted[number] = job, tuple(a for a in actions if not isinstance(a, CreatePod))
        outcomes: list[Outcome] = await right(self, begun, others, *more)
        return outcomes

    return wrong


@bug("a round ends while its writes are under way", at=targets.RUN_LANES, caught_by=found_in("growth"))
def two_rounds_under_way(right: Right) -> Right:
    async def wrong(self: Any, lanes: Iterable[Lane], is_due: Any, *pauses: Any) -> tuple[list[Outcome], int]:
        pool = copy(self)
        pool._under_way = {}
        sending = asyncio.ensure_future(right(pool, lanes, is_due, *pauses))
        await asyncio.sleep(0)
        return sending.result() if sending.done() else ([], 0)

    return wrong


@bug("an event is sent before its status is stored", at=targets.STATUS_LANE, caught_by=found_in("growth"))
def event_before_status(right: Right) -> Right:
    def wrong(job: Job, updates: tuple[Action, ...]) -> Lane:
        lane: Lane = right(job, tuple(sorted(updates, key=lambda action: not isinstance(action, EmitEvent))))
        return lane

    return wrong


@bug(
    "an event is sent although its status could not be stored",
    at=targets.CARRY_OUT,
    caught_by=found_in("growth-without-answers"),
)
def event_without_status(right: Right) -> Right:
    async def wrong(self: Any, write: Write) -> list[Outcome]:
        return [one for action in write.actions for one in await right(self, replace(write, actions=(action,)))]

    return wrong


@bug("trainers are created beside their pservers", at=targets.CREATION_LANE, caught_by=found_in("pserver"))
def trainers_beside_pservers(right: Right) -> Right:
    def wrong(job: Job, actions: Iterable[Action]) -> Lane:
        stages: Lane = right(job, actions)
        return (tuple(write for stage in stages for write in stage),) if stages else ()

    return wrong


@bug("the next stage opens although the last one failed", at=targets.END_WRITE, caught_by=found_in("pserver"))
def stage_after_a_failure(right: Right) -> Right:
    def wrong(self: Any, taken: Any, *, is_ok: bool) -> None:  # noqa: ARG001 - that is the bug
        right(self, taken, is_ok=True)

    return wrong


@bug("a deletion says that its intent is on the pod, and it is not", at=targets.DELETE, caught_by=found_in("arrival"))
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
            Start(decision.job, Role.TRAINER, node)
            for decision in plan.decisions
            for node, count in decision.nodes
            for _ in range(count)
        ]

    return wrong


# --- Staleness


@bug("what a newer plan dropped is sent all the same", at=targets.IS_DUE, caught_by=found_in("change-of-mind"))
def dropped_write_sent(_: Right) -> Right:
    return lambda _self: False


@bug(
    "whether a newer plan is due is asked only before the first write",
    at=targets.SEND_WRITES,
    caught_by=found_in("change-of-mind"),
)
def due_asked_once(right: Right) -> Right:
    def wrong(self: Any, queue: Any, is_due: Any) -> bool:
        has_begun = self._under_way or self.turns.taken > FIRST_TURN
        return bool(right(self, queue, (lambda: False) if has_begun else is_due))

    return wrong


@bug("changes while the planner thinks are overlooked", at=targets.IS_DUE, caught_by=found_in("change-of-mind"))
def changes_while_thinking_lost(right: Right) -> Right:
    def wrong(self: Any) -> bool:
        if self._phase.name == "THINK":
            self.observe()
        return bool(right(self))

    return wrong


@bug("writes go on without the lease", at=targets.SEND_ACTION, caught_by=found_in("growth-without-lease"))
def written_without_the_lease(right: Right) -> Right:
    async def wrong(self: Any, action: Action) -> Outcome:
        lease, self._lease = self._lease, AlwaysHeld()
        try:
            outcome: Outcome = await right(self, action)
        finally:
            self._lease = lease
        return outcome

    return wrong


@bug("the name of a pod that still ends is used again", at=targets.FREE_INDEXES, caught_by=found_in("eviction"))
def name_of_an_ending_pod(right: Right) -> Right:
    def wrong(job: Job, count: int) -> list[int]:
        live = tuple(pod for pod in job.pods if not pod.terminating)
        indexes: list[int] = right(replace(job, pods=live), count)
        return indexes

    return wrong


@bug("trainers that have not started are not counted", at=targets.LIVE_TRAINERS, caught_by=found_in("growth"))
def pending_trainers_not_counted(right: Any) -> Any:
    return property(lambda job: tuple(pod for pod in right.fget(job) if pod.phase is PodPhase.RUNNING))


@bug(
    "a creation without an answer is sent again under another name",
    at=targets.CARRY_OUT,
    caught_by=found_in("growth-without-answers"),
)
def created_again_elsewhere(right: Right) -> Right:
    async def wrong(self: Any, write: Write) -> list[Outcome]:
        outcomes: list[Outcome] = await right(self, write)
        lost = [one.action for one in outcomes if one.result is Result.FAILED and isinstance(one.action, CreatePod)]
        again = tuple(replace(action, index=action.index + 1) for action in lost)
        return [*outcomes, *(await right(self, replace(write, actions=again)) if again else [])]

    return wrong


@bug(
    "a write without an answer is sent again at once",
    at=targets.CARRY_OUT,
    caught_by=found_in("growth-without-answers"),
)
def sent_again_at_once(right: Right) -> Right:
    async def wrong(self: Any, write: Write) -> list[Outcome]:
        outcomes: list[Outcome] = await right(self, write)
        is_lost = any(outcome.result is Result.FAILED for outcome in outcomes)
        return [*outcomes, *(await right(self, write) if is_lost else [])]

    return wrong


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


@bug("a standby lists the jobs alone", at=targets.FRESH_LISTS_REQUIRE, caught_by=found_in("takeover-gang"))
def fresh_jobs_alone(right: Right) -> Right:
    return lambda self, collections: right(self, tuple(collections)[:1])


# --- Crashes


@bug(
    "a deletion that a crash cut in two is not completed",
    at=targets.COMPLETE_DELETIONS,
    caught_by=found_in("arrival-crash"),
)
def half_a_deletion(_: Right) -> Right:
    return lambda _given: []


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
    caught_by=found_in("failure"),
)
def counted_without_a_mark(_: Right) -> Right:
    return lambda _job, actions: status_updates(actions)


# Two bugs that random histories find as well.
no_decision_after_a_failure = replace(
    histories.job_lost_after_a_failure, name="small_scope:no_decision_after_a_failure", caught_by=found_in("failure")
)
refused_for_ever = replace(
    histories.refusal_kept_for_ever, name="small_scope:refused_for_ever", caught_by=found_in("growth-refused")
)


@bug("a restart ends before the last old pod is gone", at=targets.CAUSE_OF_RESTART, caught_by=found_in("gang"))
def restart_forgotten(right: Right) -> Right:
    def wrong(given: Any, events: Sequence[Any]) -> str:
        cause: str = right(given, events)
        return cause if any(pod.is_live for pod in given.job.pods) else ""

    return wrong
