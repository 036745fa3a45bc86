"""What the API server refused, and how long we leave it alone: one job's refusals never slow another's down.

A refusal (forbidden, quota, admission) would come again at once, so asking every half second would only burn the
server; but it may be lifted at any time (a quota raised, a webhook mended), so it is asked again, ever more rarely.
"""

from __future__ import annotations

from dataclasses import dataclass

from edl.model.actions import Action, CreatePod, Need, Outcome, Result


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last refusal of one kind of action for one job; times are monotonic seconds.

    Attributes:
        permanent: the server would refuse the same again; it is not merely busy.
    """

    reason: str
    message: str
    until_s: float
    pause_s: float
    permanent: bool


class Backoff:
    """Refusals by job and kind of action, whatever a pod needs before it being of one kind with the pod."""

    def __init__(self, first_s: float = 5.0, longest_s: float = 300.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._refusals: dict[tuple[str, type[Action]], Refusal] = {}

    def allows(self, job_uid: str, kind: type[Action], now_s: float) -> bool:
        """True where that kind of action may be tried for the job."""
        refusal = self._refusals.get((job_uid, _family(kind)))
        return refusal is None or now_s >= refusal.until_s

    def refusal(self, job_uid: str) -> tuple[str, str] | None:
        """(reason, message) of what the API server refuses the job, growth first."""
        mine = sorted(
            (kind is not CreatePod, kind.__name__, r)
            for (uid, kind), r in self._refusals.items()
            if uid == job_uid and r.permanent
        )
        return (mine[0][2].reason, mine[0][2].message) if mine else None

    def note(self, outcome: Outcome, now_s: float) -> None:
        """Learn from an outcome: a refusal doubles the pause, a success ends it."""
        key = (outcome.action.job_uid, _family(type(outcome.action)))
        if outcome.result is Result.DONE and type(outcome.action) is key[1]:
            self._refusals.pop(key, None)
        elif outcome.result is Result.REFUSED or outcome.retry_after_s is not None:
            self._refuse(key, outcome, now_s)

    def forget(self, job_uid: str, kind: type[Action]) -> None:
        """Nothing of that kind is wanted any more."""
        self._refusals.pop((job_uid, _family(kind)), None)

    def keep(self, job_uids: set[str]) -> None:
        """Forget all other jobs."""
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


def _family(kind: type[Action]) -> type[Action]:
    return CreatePod if issubclass(kind, Need) else kind
