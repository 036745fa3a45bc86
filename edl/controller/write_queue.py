"""The order of a round's writes: by worth, and among equals each job in turn.

A job's writes stand in lanes. A lane is a sequence of stages: the writes of one stage may be under way together, and
the next stage opens once all of them succeeded. So pods never start before what they need, trainers never before
their pservers, and an event is never sent before the status that it explains is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set
from dataclasses import dataclass
from enum import IntEnum

from edl.lifecycle.action_order import creations
from edl.model.actions import (
    Action,
    CreatePod,
    DeletePod,
    MarkPod,
    PatchStatus,
    RequestNode,
    ResizePod,
    ResizeWorkload,
    WithdrawNodeRequest,
)
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.status import Reason

TURN_OF_WORDS = 8
"""Every eighth write is one of words, so that growth without end never holds up the statuses."""


class Worth(IntEnum):
    """What a write is worth; the lowest number first."""

    SERVING = 0  # deletions that make room for serving pods
    NEWS = 1  # the first status of a job, and its last one
    SHRINK = 2  # other deletions, and the marks of pods that failed
    BASE = 3  # what pods need, masters and pservers
    MINIMUM = 4  # trainers up to the minimum
    SURPLUS = 5  # the other trainers
    WORDS = 6  # other statuses, with their events


@dataclass(frozen=True, slots=True)
class Write:
    """Actions that are carried out one after the other, and once begun to their end; the first failure ends them."""

    actions: tuple[Action, ...]
    worth: Worth

    @property
    def job_uid(self) -> str:
        """The job whose write it is."""
        return self.actions[0].job_uid


Lane = tuple[tuple[Write, ...], ...]
"""Stages of writes of one job."""


def deletion_lane(actions: Iterable[Action]) -> Lane:
    """The marks and deletions of a job's pods, which do not wait for each other."""
    ends = MarkPod | DeletePod | WithdrawNodeRequest
    return (tuple(Write(_with_event(a), _worth_of_end(a)) for a in actions if isinstance(a, ends)),)


def creation_lane(job: Job, actions: Iterable[Action]) -> Lane:
    """What new pods need, one after the other; masters and pservers together; then the trainers together."""
    wanted = creations(actions)
    pods = [a for a in wanted if isinstance(a, CreatePod)]
    needs = tuple((Write((a,), Worth.BASE),) for a in wanted if not isinstance(a, CreatePod))
    base = tuple(Write((pod,), Worth.BASE) for pod in pods if pod.role is not Role.TRAINER)
    lacking = job.min_trainers - len(job.live_trainers)
    trainers = tuple(
        Write((pod,), Worth.MINIMUM if number < lacking else Worth.SURPLUS)
        for number, pod in enumerate(pod for pod in pods if pod.role is Role.TRAINER)
    )
    return tuple(stage for stage in (*needs, base, trainers) if stage)


def resize_lane(job: Job, actions: tuple[Action, ...]) -> Lane:
    """The resize of a workload with its event, which is sent only if the resize succeeded; or an event alone."""
    resize = next((a for a in actions if isinstance(a, ResizeWorkload)), None)
    if resize is None:
        return ((Write(actions, Worth.WORDS),),) if actions else ()
    if resize.count < resize.before:
        worth = Worth.SERVING if resize.resize.reason == Reason.SERVING_NEEDS_ROOM else Worth.SHRINK
    else:
        worth = Worth.MINIMUM if resize.before < job.min_trainers else Worth.SURPLUS
    return ((Write(actions, worth),),)


def request_lane(actions: Iterable[Action]) -> Lane:
    """The changed CPU requests of running trainers, which do not wait for each other."""
    return (tuple(Write((a,), Worth.SURPLUS) for a in actions if isinstance(a, ResizePod)),)


def node_lane(actions: Iterable[Action]) -> Lane:
    """The new request pods of a job, which do not wait for each other."""
    return (tuple(Write(_with_event(a), Worth.SURPLUS) for a in actions if isinstance(a, RequestNode)),)


def is_shrink(actions: Iterable[Action]) -> bool:
    """True if a workload loses pods."""
    return any(isinstance(a, ResizeWorkload) and a.count < a.before for a in actions)


def status_lane(job: Job, updates: tuple[Action, ...]) -> Lane:
    """The status with its events; they are one write, because an event that is left out is never sent again."""
    patch = next((a for a in updates if isinstance(a, PatchStatus)), None)
    is_news = patch is not None and (
        job.status is None or (patch.status.phase.is_final and not job.status.phase.is_final)
    )
    return ((Write(updates, Worth.NEWS if is_news else Worth.WORDS),),) if updates else ()


def _with_event(action: Action) -> tuple[Action, ...]:
    """The action, and its event, which is sent only if the action succeeded: it is never sent again."""
    event = action.event if isinstance(action, RequestNode | WithdrawNodeRequest) else None
    return (action,) if event is None else (action, event)


def _worth_of_end(action: MarkPod | DeletePod | WithdrawNodeRequest) -> Worth:
    is_for_serving = isinstance(action, DeletePod) and action.intent == Reason.SERVING_NEEDS_ROOM
    return Worth.SERVING if is_for_serving else Worth.SHRINK


class Turns:
    """Which job was served when, over many rounds: a round that is cut short must not favour the first jobs again."""

    def __init__(self) -> None:
        self.taken = 0
        self._served: dict[str, int] = {}

    def serve(self, job_uid: str) -> None:
        """Note that a write of the job was taken."""
        self.taken += 1
        self._served[job_uid] = self.taken

    def since(self, job_uid: str) -> int:
        """The number of the last write of the job; 0 if there was none."""
        return self._served.get(job_uid, 0)

    def keep_only(self, job_uids: set[str]) -> None:
        """Forget all other jobs."""
        self._served = {uid: number for uid, number in self._served.items() if uid in job_uids}


@dataclass(slots=True)
class _OpenLane:
    """A lane under way: the stages to come, and how many writes of the open stage have not ended."""

    later: deque[tuple[Write, ...]]
    unended: int = 0
    is_ok: bool = True


@dataclass(frozen=True, slots=True)
class Taken:
    """A write that was taken; `WriteQueue.end` must hear of its end."""

    write: Write
    lane: _OpenLane


class WriteQueue:
    """The writes of a round that have not been sent.

    Args:
        lanes: of all jobs.
        turns: shared by all rounds.

    Attributes:
        left: how many writes are neither taken nor given up.
    """

    def __init__(self, lanes: Iterable[Lane], turns: Turns) -> None:
        self._turns = turns
        self._ready: dict[Worth, dict[str, deque[Taken]]] = {worth: {} for worth in Worth}
        full = [lane for lane in lanes if any(lane)]
        self.left = sum(len(stage) for lane in full for stage in lane)
        for lane in sorted(full, key=lambda lane: turns.since(lane[0][0].job_uid)):
            self._open_next(_OpenLane(deque(lane)))

    def take(self) -> Taken | None:
        """Take the write whose turn it is; None if none may be sent before another one ends."""
        is_turn_of_words = (self._turns.taken + 1) % TURN_OF_WORDS == 0 and self._ready[Worth.WORDS]
        worth = Worth.WORDS if is_turn_of_words else next((w for w in Worth if self._ready[w]), None)
        if worth is None:
            return None
        jobs = self._ready[worth]
        uid = next(iter(jobs))
        writes = jobs.pop(uid)
        taken = writes.popleft()
        if writes:
            jobs[uid] = writes  # behind the other jobs
        self._turns.serve(uid)
        self.left -= 1
        return taken

    @property
    def is_patient(self) -> bool:
        """True if only surplus growth and words are ready: nobody waits for those."""
        return not any(self._ready[worth] for worth in Worth if worth < Worth.SURPLUS)

    def end(self, taken: Taken, *, is_ok: bool) -> None:
        """Note that a write has ended; the next stage of its lane opens once all of this one succeeded."""
        lane = taken.lane
        lane.unended -= 1
        lane.is_ok &= is_ok
        if lane.unended == 0:
            if lane.is_ok:
                self._open_next(lane)
            else:
                self.left -= sum(map(len, lane.later))

    def drop(self, job_uids: Set[str]) -> None:
        """Give up what was not taken of some jobs; none of their writes may be under way."""
        for jobs in self._ready.values():
            for uid in job_uids & jobs.keys():
                lanes = {id(taken.lane): taken.lane for taken in jobs[uid]}
                self.left -= len(jobs.pop(uid))
                for lane in lanes.values():
                    self.left -= sum(map(len, lane.later))
                    lane.later.clear()

    def _open_next(self, lane: _OpenLane) -> None:
        if not lane.later:
            return
        stage = lane.later.popleft()
        lane.unended = len(stage)
        for write in stage:
            self._ready[write.worth].setdefault(write.job_uid, deque()).append(Taken(write, lane))
