"""Asks the API server by dry runs whether it accepts a job's pods, before trainers are evicted for them.

A job is asked about once when it comes or its spec changes, and again from time to time while the API server rejects
its pods. Until the first answer a plan gives it nothing new:

1. `Core.unprobed` names the jobs that have to be asked about when a plan begins, and `Core.look_at` them.
2. `Core` offers the question as a write: `Probes.questions`, creations with `dryRun=All`.
3. The plan leaves those jobs as they are (`lifecycle.allowance.as_unasked`), and what it says of them is ignored.
4. `Core.ended` notes the answer here, and rejections in `Backoff`. Without an answer it is asked again after a pause.
5. `PlanCycle.note_probe_answers` makes the next plan due at once. A plan that is due
   for changes of a namespace waits `pace.PROBES_S` for the answers about the jobs of that namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edl.controller.backoff import Backoff
from edl.lifecycle.allowance import missing_roles, next_index, wants_pods
from edl.model.actions import Action, EnsurePodGroup, Need, Outcome, ProbePod, Result
from edl.model.jobs import Job
from edl.planner.quota import QuotaNow


class Probes:
    """Asks the API server by dry runs whether it accepts the pods of each job, once per generation of the job.

    Args:
        backoff: which pods the API server rejects.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._asked: dict[str, int] = {}
        self._unanswered: set[str] = set()

    def is_due(self, job: Job, quota: Callable[[], QuotaNow], now_s: float) -> bool:
        """True if the API server has to be asked about the pods of a job now.

        Args:
            job: as the cache shows it.
            quota: returns what ResourceQuotas have left; a full one would reject what a plan may free capacity for.
            now_s: monotonic seconds.
        """
        rejected = self._backoff.refused_creation(job.uid, now_s)
        if rejected is None:
            is_due = self._asked.get(job.uid) != job.generation or job.uid in self._unanswered
        else:
            is_due = rejected.accepted_s is None and now_s >= rejected.until_s
        if not is_due or job.owner_count is not None or not wants_pods(job):
            return False
        return all(quota().has(job, role) for role in missing_roles(job))

    def questions(self, job: Job) -> tuple[Action, ...]:
        """Return the dry runs that ask the API server about each kind of pod that the job lacks.

        First what it rejected last.

        Volcano's admission accepts only pods of a group that exists.
        """
        rejected = self._backoff.refused_creation(job.uid, 0.0)
        first = (rejected.action,) if rejected is not None and isinstance(rejected.action, Need) else ()
        group = (EnsurePodGroup(job.key, job.uid),) if job.gang else ()
        pods = (ProbePod(job.key, job.uid, role, next_index(job, role)) for role in missing_roles(job))
        return (*first, *group, *pods)

    def first_seen(self, job: Job) -> None:
        """Note that the API server has accepted the pods of a job, because some of its present spec run.

        Nothing is noted if these pods request something else than the plan assumes for new ones: then a dry run has
        to show what admission makes of a new pod.

        Args:
            job: a job that existed before this controller started.
        """
        is_same = job.status is not None and job.status.observed_generation == job.generation
        if is_same and any(pod.shape.request == job.trainer.request for pod in job.live_trainers):
            self._asked[job.uid] = job.generation

    def ended(self, job: Job, outcomes: Sequence[Outcome]) -> None:
        """Note the answers; a question that was not sent is asked again."""
        if not outcomes or outcomes[-1].result in {Result.CONFLICT, Result.NOT_LEADER}:
            return
        self._asked[job.uid] = job.generation
        if outcomes[-1].result is Result.FAILED:
            self._unanswered.add(job.uid)  # nobody gives anything for pods that it may be unable to create
        else:
            self._unanswered.discard(job.uid)

    def is_new(self, job: Job) -> bool:
        """Return True if the spec of the job has changed since its dry run: an old rejection no longer counts."""
        return self._asked.get(job.uid, job.generation) != job.generation

    def forget(self, job_uid: str) -> None:
        """Forget a job that no longer exists."""
        self._asked.pop(job_uid, None)
        self._unanswered.discard(job_uid)
