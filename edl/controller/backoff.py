"""When a refused request is tried again, and how many trainers a job may try for then.

The server would refuse the same request again at once, so trying it twice a second only adds load. A refusal may end
at any time (an administrator raises a quota or repairs a webhook), so the controller tries again after pauses that
double. Each job has its own pauses: the refusals of one job never slow another job down.

A creation that fails again counts as refused, if writes of other kinds or jobs do not fail: a policy or a webhook may
make the server fail at it, or answer that it is busy, for ever.

A refused creation is first asked again without effect (`ProbePod`). If the answer is yes, the job may try for one
trainer, then two, then four: no job is shrunk by much for pods that are refused after all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from edl.lifecycle.trials.retries import Retries
from edl.model.actions import Action, CreatePod, EmitEvent, Need, Outcome, ProbePod, RequestNode, Result

DOUBLED_EACH_S = 60.0
"""While the server accepts, the step also doubles each time that this much passes: a fair share may wait for more."""
AGAIN_S = 0.5
"""Creations that fail so soon after the first one were sent together with it."""
BUSY_S = 10.0
"""A server that asks to be asked later is busy, until it has done so for so long for one job alone."""
DENIED_AT_MOST_S = 3600.0
"""The longest pause if the server accepts the question, and then not the pod: each attempt may cost others pods."""
TRUSTED_AFTER = 14
"""After so many doublings without a refusal the step is beyond every maximum, and the refusal is forgotten."""


@dataclass(frozen=True, slots=True)
class RefusedAction:
    """The last refusal of one kind of action for one job; times are monotonic seconds.

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

    def is_over(self, now_s: float) -> bool:
        """True if the server has accepted it: a pod was created since, or a minute has passed."""
        return self.accepted_s is not None and (self.step > 1 or now_s - self.accepted_s >= DOUBLED_EACH_S)


class Backoff:
    """The refusals by job and kind of action; creating a pod and creating what it needs are one kind.

    Attributes:
        retries: the pauses of pods that failed or that a node rejected.
    """

    def __init__(self, first_s: float = 5.0, longest_s: float = 300.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self.retries = Retries()
        self._failed_s: dict[str, float] = {}  # by UID: when creations of the job began to fail
        self._succeeded_s = -inf  # when the last write of any job succeeded
        self._failures: dict[tuple[str, type[Action]], float] = {}  # when the last write of a job and kind failed
        self._of_job: dict[str, dict[type[Action], RefusedAction]] = {}  # by UID: each look at a job asks for it

    def knows(self, job_uid: str) -> bool:
        """True if some action of the job was refused, and that is not forgotten yet."""
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
        """The refusal of the job's pods, or of what they need; None if the server does not refuse them."""
        refused = self._of_job.get(job_uid, {}).get(CreatePod)
        if refused is None or not refused.permanent or refused.accepted_s is None:
            return refused if refused is not None and refused.permanent else None
        doubled = int((now_s - refused.accepted_s) // DOUBLED_EACH_S)
        if doubled >= TRUSTED_AFTER:
            self._drop(job_uid, CreatePod)
            return None
        return replace(refused, step=refused.step << doubled)

    def record(self, outcome: Outcome, now_s: float) -> None:
        """Take an outcome into account: a refusal doubles the pause, a success ends it.

        A created pod ends no refusal of a creation, because it may have been under way when another one was refused.
        """
        uid, kind = outcome.action.job_uid, _group(type(outcome.action))
        is_refused = outcome.result is Result.REFUSED
        fails = self._fails_alone(outcome, kind, now_s)
        if is_refused or fails or outcome.retry_after_s is not None:
            self._refuse(uid, kind, outcome, now_s, permanent=is_refused or fails)
        elif outcome.is_ok and (refused := self._of_job.get(uid, {}).get(kind)) is not None:
            self._accept(refused, kind, outcome, now_s)

    def _fails_alone(self, outcome: Outcome, kind: type[Action], now_s: float) -> bool:
        """True if creations of the job fail again and again, and nothing else does."""
        uid = outcome.action.job_uid
        if outcome.is_ok:
            self._succeeded_s = now_s
            if isinstance(outcome.action, CreatePod | ProbePod):
                self._failed_s.pop(uid, None)
        if outcome.result is not Result.FAILED:
            return False
        self._failures[uid, kind] = now_s
        again_s = AGAIN_S if outcome.retry_after_s is None else BUSY_S
        if kind is not CreatePod or now_s - (first_s := self._failed_s.setdefault(uid, now_s)) < again_s:
            return False
        others_s = (at_s for key, at_s in self._failures.items() if key != (uid, kind))
        return self._succeeded_s > first_s or max(others_s, default=-inf) < first_s

    def drop(self, job_uid: str, kind: type[Action]) -> None:
        """Drop the refusal, because the job needs no such action any more."""
        self._drop(job_uid, _group(kind))

    def forget(self, job_uid: str) -> None:
        """Drop every refusal and every pause of a job that no longer exists."""
        self._of_job.pop(job_uid, None)
        self._failed_s.pop(job_uid, None)
        self._failures = {key: at_s for key, at_s in self._failures.items() if key[0] != job_uid}
        self.retries.forget(job_uid)

    def next_try_s(self, job_uid: str, now_s: float) -> float:
        """When the first pause of a job ends, in monotonic seconds; infinity if none does."""
        ends_s = (refused.until_s for refused in self._of_job.get(job_uid, {}).values())
        refused_s = min((end_s for end_s in ends_s if end_s > now_s), default=inf)
        return min(refused_s, self.retries.next_end_s(job_uid, now_s))

    def forget_unwanted(self, job_uid: str, wanted: Iterable[Action], now_s: float) -> None:
        """Drop the refusals of actions other than creations that the job needs no more.

        An event is wanted only when something changes, and a request pod is no action of the life
        cycle. Their refusals last for their pause.
        """
        kinds = {_group(type(action)) for action in wanted}
        for kind, refused in list(self._of_job.get(job_uid, {}).items()):
            is_over = kind not in {EmitEvent, RequestNode} or now_s >= refused.until_s
            if kind not in kinds and kind is not CreatePod and is_over:
                self._drop(job_uid, kind)

    def _drop(self, job_uid: str, kind: type[Action]) -> None:
        refused = self._of_job.get(job_uid, {})
        refused.pop(kind, None)
        if not refused:
            self._of_job.pop(job_uid, None)

    def _refuse(self, job_uid: str, kind: type[Action], outcome: Outcome, now_s: float, *, permanent: bool) -> None:
        before = self._of_job.get(job_uid, {}).get(kind)
        if before is not None and now_s < before.until_s:
            return
        is_denied = before is not None and before.accepted_s is not None
        longest_s = DENIED_AT_MOST_S if is_denied else self._longest_s
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

    def _accept(self, refused: RefusedAction, kind: type[Action], outcome: Outcome, now_s: float) -> None:
        uid = outcome.action.job_uid
        if kind is not CreatePod or not refused.permanent:
            if type(outcome.action) is kind:
                self._drop(uid, kind)
        elif refused.accepted_s is None:
            if isinstance(outcome.action, (ProbePod, type(refused.action))) and now_s >= refused.until_s:
                self._of_job[uid][kind] = replace(refused, accepted_s=now_s)
        elif isinstance(outcome.action, CreatePod):
            self._of_job[uid][kind] = replace(refused, step=refused.step + 1)


def _group(kind: type[Action]) -> type[Action]:
    return CreatePod if issubclass(kind, Need | ProbePod) else kind
