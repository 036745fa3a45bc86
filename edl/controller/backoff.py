"""When to try again: requests that the API server refuses, and pauses after failures.

The server would refuse the same request again at once, so trying it twice a second only adds load. A refusal may end
at any time (an administrator raises a quota or repairs a webhook), so the controller tries again after pauses that
double. Each job has its own pauses: the refusals of one job never slow another job down.
"""

from __future__ import annotations

from dataclasses import dataclass

from edl.model.actions import Action, CreatePod, Need, Outcome, Result


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last refusal of one kind of action for one job; times are monotonic seconds.

    Attributes:
        until_s: the controller does not try again before this time.
        pause_s: the length of the present pause.
        permanent: the server would refuse the same request again; False if the server was only busy.
    """

    reason: str
    message: str
    until_s: float
    pause_s: float
    permanent: bool


class Backoff:
    """The refusals by job and kind of action; creating a pod and creating what it needs are one kind."""

    def __init__(self, first_s: float = 5.0, longest_s: float = 300.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._refusals: dict[tuple[str, type[Action]], Refusal] = {}

    def allows(self, job_uid: str, kind: type[Action], now_s: float) -> bool:
        """True if the controller may try that kind of action for the job now."""
        refusal = self._refusals.get((job_uid, _group(kind)))
        return refusal is None or now_s >= refusal.until_s

    def refusal(self, job_uid: str) -> tuple[str, str] | None:
        """(reason, message) of a permanent refusal for the job, creations first; None if there is none."""
        found = sorted(
            (kind is not CreatePod, kind.__name__, r)
            for (uid, kind), r in self._refusals.items()
            if uid == job_uid and r.permanent
        )
        return (found[0][2].reason, found[0][2].message) if found else None

    def record(self, outcome: Outcome, now_s: float) -> None:
        """Take an outcome into account: a refusal doubles the pause, a success ends it."""
        key = (outcome.action.job_uid, _group(type(outcome.action)))
        if outcome.result is Result.DONE and type(outcome.action) is key[1]:
            self._refusals.pop(key, None)
        elif outcome.result is Result.REFUSED or outcome.retry_after_s is not None:
            self._refuse(key, outcome, now_s)

    def forget(self, job_uid: str, kind: type[Action]) -> None:
        """Drop the refusal, because the job needs no such action any more."""
        self._refusals.pop((job_uid, _group(kind)), None)

    def keep_only(self, job_uids: set[str]) -> None:
        """Drop the refusals of all other jobs."""
        self._refusals = {key: refusal for key, refusal in self._refusals.items() if key[0] in job_uids}

    def _refuse(self, key: tuple[str, type[Action]], outcome: Outcome, now_s: float) -> None:
        before = self._refusals.get(key)
        if before is not None and now_s < before.until_s:
            return
        pause_s = min(self._longest_s, before.pause_s * 2 if before else self._first_s)
        if outcome.retry_after_s is not None:
            pause_s = max(outcome.retry_after_s, 0.0)
        self._refusals[key] = Refusal(
            outcome.reason, outcome.message, now_s + pause_s, pause_s, outcome.result is Result.REFUSED
        )


def _group(kind: type[Action]) -> type[Action]:
    return CreatePod if issubclass(kind, Need) else kind
