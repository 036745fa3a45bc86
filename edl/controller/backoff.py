"""Decides when a rejected request is tried again, and for how many trainers a job may try then.

The server would refuse the same request again at once, so trying it twice a second only adds load. A refusal may end
at any time (an administrator raises a quota or repairs a webhook), so the controller tries again after pauses that
double. Each job has its own pauses: the refusals of one job never slow another job down.

A creation that fails again counts as refused, if writes of other kinds or jobs do not fail: a policy or a webhook may
make the server fail at it, or answer that it is busy, for ever. So does a resize of a workload. If nothing else was
written, it may be an outage: then it is asked again after the next write that succeeds.

A refused creation is first asked again without effect (`ProbePod`). If the answer is yes, the job may try for one
trainer, then two, then four: no job is shrunk by much for pods that are refused after all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from edl.lifecycle.trials.retries import Retries
from edl.model.actions import (
    Action,
    CreatePod,
    EmitEvent,
    Need,
    Outcome,
    ProbePod,
    RequestNode,
    ResizeWorkload,
    Result,
    WithdrawNodeRequest,
)
from edl.model.names import Role

K = TypeVar("K")
V = TypeVar("V")

DOUBLED_EACH_S = 60.0
"""While the server accepts, the step also doubles each time that this much passes: a fair share may wait for more."""
AGAIN_S = 0.5
"""Creations that fail within this time of the first failure were sent together with it."""
BUSY_S = 10.0
"""A server that answers "retry later" counts as busy, unless only one job has got that for this time."""
DENIED_AT_MOST_S = 3600.0
"""The longest pause for resizes, and for pods that the server rejects although it accepted the dry run."""
TRUSTED_AFTER = 14
"""The number of doublings without a rejection after which one is forgotten: the step exceeds every maximum."""


@dataclass(frozen=True, slots=True)
class RefusedAction:
    """The last rejection of one kind of action for one job; times are monotonic seconds.

    Attributes:
        action: what was refused.
        until_s: the controller does not try again before this time.
        pause_s: the length of the present pause.
        permanent: the server would refuse the same request again; False if the server was only busy.
        accepted_s: since when the server accepts it again; None if it does not.
        step: for how many more trainers the job may try once it is accepted, >= 1.
    """

    action: Action
    reason: str
    message: str
    until_s: float
    pause_s: float
    permanent: bool
    accepted_s: float | None = None
    step: int = 1

    @property
    def believed_s(self) -> float:
        """When the refusal is over if no pod is created before; infinity while the server does not accept it."""
        return inf if self.accepted_s is None else self.accepted_s + DOUBLED_EACH_S

    def is_over(self, now_s: float) -> bool:
        """True if the API server accepts the action again: a pod was created since, or a minute has passed."""
        return self.accepted_s is not None and (self.step > 1 or now_s >= self.believed_s)


class Backoff:
    """Growing pauses after rejections, by job and kind of action; a pod and the objects it needs are one kind.

    Attributes:
        retries: the pauses of pods that failed or that a node rejected.
    """

    def __init__(self, first_s: float = 5.0, longest_s: float = 300.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self.retries = Retries()
        self._failed_s: dict[str, dict[str, float]] = {}  # by UID and `_part`: when creations began to fail
        self._succeeded_s = -inf  # when the last write of any job succeeded
        self._failures: dict[str, dict[type[Action], float]] = {}  # by UID: when the last write of a kind failed
        self._of_job: dict[str, dict[type[Action], RefusedAction]] = {}  # by UID: each look at a job asks for it
        self._in_doubt: set[str] = set()  # UIDs of jobs about which asking failed, and nothing was written since

    def knows(self, job_uid: str) -> bool:
        """Return True if the API server rejected some action of the job, and that is not forgotten yet."""
        return bool(self._of_job.get(job_uid))

    def allows(self, job_uid: str, kind: type[Action], now_s: float) -> bool:
        """True if the controller may try that kind of action for the job now."""
        refused = self._of_job.get(job_uid, {}).get(_group(kind))
        return refused is None or now_s >= refused.until_s

    def refused_jobs(self, kind: type[Action]) -> frozenset[str]:
        """The UIDs of the jobs of which that kind of action is refused."""
        return frozenset(uid for uid, refused in self._of_job.items() if _group(kind) in refused)

    def refusal(self, job_uid: str, now_s: float) -> tuple[str, str] | None:
        """(reason, message) of a permanent refusal for the job, creations first; None if there is none.

        A creation that a probe says is accepted counts until a pod was created, or for a minute: some servers accept
        the probe and refuse the pod.
        """
        refused = self._of_job.get(job_uid)
        if not refused:  # nearly every job of every cluster
            return None
        found = sorted(
            (kind is not CreatePod, kind.__name__, r)
            for kind, r in refused.items()
            if r.permanent and not r.is_over(now_s)
        )
        return (found[0][2].reason, found[0][2].message) if found else None

    def refused_creation(self, job_uid: str, now_s: float) -> RefusedAction | None:
        """The rejection of the job's pods or of the objects they need; None if the server accepts them."""
        refused = self._of_job.get(job_uid, {}).get(CreatePod)
        if refused is None or not refused.permanent or refused.accepted_s is None:
            return refused if refused is not None and refused.permanent else None
        doubled = int((now_s - refused.accepted_s) // DOUBLED_EACH_S)
        if doubled >= TRUSTED_AFTER:
            self._drop(job_uid, CreatePod)
            return None
        return replace(refused, step=refused.step << doubled)

    def refused_resize(self, job_uid: str) -> RefusedAction | None:
        """The rejection of the last resize of a workload; None if the server accepts resizes of it."""
        refused = self._of_job.get(job_uid, {}).get(ResizeWorkload)
        return refused if refused is not None and refused.permanent else None

    def resize_s(self, now_s: float) -> float:
        """When the next pause of a workload that may not be resized ends, in monotonic seconds.

        Infinity without any.
        """
        found = (refused.get(ResizeWorkload) for refused in self._of_job.values())
        return min((one.until_s for one in found if one is not None and one.until_s > now_s), default=inf)

    def record(self, outcome: Outcome, now_s: float) -> None:
        """Note an outcome: a rejection doubles the pause, a success ends it.

        A created pod ends no refusal of a creation, because it may have been under way when another one was refused.
        """
        uid, kind = outcome.action.job_uid, _group(type(outcome.action))
        is_refused = outcome.result is Result.REFUSED
        fails = self._fails_alone(outcome, kind, now_s)
        if is_refused or fails or outcome.retry_after_s is not None:
            self._refuse(uid, kind, outcome, now_s, permanent=is_refused or fails)
        elif (refused := self._of_job.get(uid, {}).get(kind)) is not None:
            if outcome.is_ok:
                self._accept(refused, kind, outcome, now_s)
            elif outcome.result is Result.FAILED:
                self._prolong(refused, kind, outcome, now_s)

    def _fails_alone(self, outcome: Outcome, kind: type[Action], now_s: float) -> bool:
        """True if creations of this job fail again and again while those of other jobs succeed."""
        uid = outcome.action.job_uid
        if outcome.is_ok:
            self._succeeded_s = now_s
            self._end_doubts(now_s)
            _remove(self._failed_s, uid, _part(outcome.action))
            _remove(self._failures, uid, kind)
        if outcome.result is not Result.FAILED:
            return False
        mine = self._failures.setdefault(uid, {})
        before_s, mine[kind] = mine.get(kind, now_s), now_s
        again_s = AGAIN_S if outcome.retry_after_s is None else BUSY_S
        if kind not in {CreatePod, ResizeWorkload}:
            return False
        first_s = self._failed_s.setdefault(uid, {}).setdefault(_part(outcome.action), now_s)
        if now_s - first_s < again_s:
            return False
        if self._succeeded_s > (before_s if kind is ResizeWorkload else first_s):
            return True
        if isinstance(outcome.action, ProbePod | ResizeWorkload):  # to try a pod anew costs others more
            self._in_doubt.add(uid)
        found = ((one, other, at_s) for one, failed in self._failures.items() for other, at_s in failed.items())
        others_s = (at_s for one, other, at_s in found if (one, other) != (uid, kind))
        return kind is CreatePod and max(others_s, default=-inf) < first_s

    def _end_doubts(self, now_s: float) -> None:
        """Let rejections be tried again that may only have been an outage, because the API server writes again."""
        for refused in (self._of_job.get(uid, {}) for uid in self._in_doubt):
            for kind in refused.keys() & {CreatePod, ResizeWorkload}:
                refused[kind] = replace(refused[kind], until_s=min(refused[kind].until_s, now_s))
        self._in_doubt.clear()

    def drop(self, job_uid: str, kind: type[Action]) -> None:
        """Forget a rejection, because the job no longer needs that action; a pause of a busy server stays."""
        refused = self._of_job.get(job_uid, {}).get(_group(kind))
        if refused is not None and refused.permanent:
            self._drop(job_uid, _group(kind))

    def forget(self, job_uid: str) -> None:
        """Drop every refusal and every pause of a job that no longer exists."""
        self._of_job.pop(job_uid, None)
        self._in_doubt.discard(job_uid)
        self._failed_s.pop(job_uid, None)
        self._failures.pop(job_uid, None)
        self.retries.forget(job_uid)

    def next_try_s(self, job_uid: str, now_s: float) -> float:
        """When a pause or a refusal of a job ends next, in monotonic seconds; infinity if none does."""
        found = self._of_job.get(job_uid, {}).values()
        ends_s = (end_s for refused in found for end_s in (refused.until_s, refused.believed_s))
        refused_s = min((end_s for end_s in ends_s if end_s > now_s), default=inf)
        return min(refused_s, self.retries.next_end_s(job_uid, now_s))

    def forget_unwanted(self, job_uid: str, wanted: Iterable[Action], now_s: float) -> None:
        """Forget the rejections of actions that the job no longer needs, but for creations and resizes.

        A workload is not resized while that is refused, and a success ends it. An event is wanted only when something
        changes, and a request pod is no action of the life cycle. Their refusals last for their pause.
        """
        kinds = {_group(type(action)) for action in wanted}
        for kind, refused in list(self._of_job.get(job_uid, {}).items()):
            is_over = kind not in {EmitEvent, RequestNode, WithdrawNodeRequest} or now_s >= refused.until_s
            if kind not in kinds and kind not in {CreatePod, ResizeWorkload} and is_over:
                self._drop(job_uid, kind)

    def _drop(self, job_uid: str, kind: type[Action]) -> None:
        _remove(self._of_job, job_uid, kind)

    def _refuse(self, job_uid: str, kind: type[Action], outcome: Outcome, now_s: float, *, permanent: bool) -> None:
        before = self._of_job.get(job_uid, {}).get(kind)
        if before is not None and now_s < before.until_s:
            return
        is_denied = before is not None and before.accepted_s is not None
        longest_s = DENIED_AT_MOST_S if is_denied or kind is ResizeWorkload else self._longest_s
        pause_s = min(longest_s, before.pause_s * 2 if before else self._first_s)
        if outcome.retry_after_s is not None:
            pause_s = max(outcome.retry_after_s, pause_s if permanent else 0.0)
        self._of_job.setdefault(job_uid, {})[kind] = RefusedAction(
            outcome.action,
            outcome.reason,
            outcome.message,
            now_s + pause_s,
            pause_s,
            permanent,
        )

    def _prolong(self, refused: RefusedAction, kind: type[Action], outcome: Outcome, now_s: float) -> None:
        """Double the pause of a rejected request if asking again fails for a while.

        The message of the rejection stays, because the failure may be an outage.
        """
        first_s = self._failed_s.get(outcome.action.job_uid, {}).get(_part(outcome.action), now_s)
        if (
            refused.permanent
            and refused.accepted_s is None
            and now_s >= refused.until_s
            and now_s - first_s >= AGAIN_S
        ):
            pause_s = min(self._longest_s, refused.pause_s * 2)
            self._of_job[outcome.action.job_uid][kind] = replace(refused, until_s=now_s + pause_s, pause_s=pause_s)

    def accept_questions(self, job_uid: str, now_s: float) -> None:
        """Note that a dry run has accepted every kind of pod that the job still needs."""
        refused = self._of_job.get(job_uid, {}).get(CreatePod)
        if refused is not None and refused.permanent and refused.accepted_s is None and now_s >= refused.until_s:
            self._of_job[job_uid][CreatePod] = replace(refused, accepted_s=now_s)

    def _accept(self, refused: RefusedAction, kind: type[Action], outcome: Outcome, now_s: float) -> None:
        uid, action = outcome.action.job_uid, outcome.action
        if kind is not CreatePod or not refused.permanent:
            if type(action) is kind:
                self._drop(uid, kind)
        elif refused.accepted_s is None:  # an answer about pods of another role is none about these
            if not isinstance(action, ProbePod) and _part(action) == _part(refused.action):
                self.accept_questions(uid, now_s)
        elif isinstance(action, CreatePod) and _part(action) in {Role.TRAINER.value, _part(refused.action)}:
            self._of_job[uid][kind] = replace(refused, step=refused.step + 1)


def _remove(by_uid: dict[str, dict[K, V]], uid: str, key: K) -> None:
    """Remove an entry of a job, and the job with its last one."""
    mine = by_uid.get(uid, {})
    mine.pop(key, None)
    if not mine:
        by_uid.pop(uid, None)


def _part(action: Action) -> str:
    """Return what a failure is about: pods of one role, or one kind of object that pods need."""
    return action.role.value if isinstance(action, CreatePod | ProbePod) else type(action).__name__


def _group(kind: type[Action]) -> type[Action]:
    return CreatePod if issubclass(kind, Need | ProbePod) else kind
