"""Quotas of queues and namespaces: what their jobs may request together, and how much of it they use at given counts.

A quota limits requests, resource by resource: those of the trainers, masters and pservers of all jobs of the queue
that run. Terminating pods do not count. A queue, or a resource of it, that is not named has no limit.

A ResourceQuota of a namespace limits pods of others too, so what is left for jobs is computed from the snapshot. The
API server rejects pods beyond it and deletes none, so it never costs a job the trainers that it has. A terminating
pod counts until it is gone, or long overdue: such a pod delays the creation of others (`QuotaNow`), and not the plan.
The same holds for `POD_OBJECTS` of the finished pods that ended jobs keep: they are deleted
(`edl.planner.queues.kept_pods`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from edl.model.cluster import ClusterSnapshot, ResourceQuota
from edl.model.jobs import Job, Refusal
from edl.model.limits import Quota
from edl.model.names import JobKey, Role, is_among
from edl.model.pods import Pod
from edl.model.resources import POD_OBJECTS, PODS, PodShape, Resources, is_amount
from edl.planner.queues.borrowing import borrowing_quotas
from edl.planner.queues.kueue_quotas import kueue_quotas

REFUSED = "trainers of one job"
"""The resource of the limit of a single job whose pods the API server rejects."""
LIMITS = "limits."
"""The beginning of the name of a resource for which a ResourceQuota counts limits instead of requests."""


class QuotaRow(NamedTuple):
    """One limit on the use of one resource by the jobs of a queue or namespace.

    Attributes:
        queue: name of the queue; of the ResourceQuota if there is a namespace.
        resource: name of the resource.
        limit: the most that the planned jobs of the queue may request together, in the units of `Resources`.
        namespace: the namespace of the ResourceQuota; empty for the quota of a queue.
        others: what pods that no plan changes use of the quota; with `limit` it is the whole quota.
    """

    queue: str
    resource: str
    limit: int
    namespace: str = ""
    others: int = 0

    @property
    def whole(self) -> int:
        """The quota as its owner has set it."""
        return self.limit + self.others

    @property
    def owner(self) -> str:
        """The object that sets the limit, for messages."""
        if self.namespace:
            return f"ResourceQuota {self.queue} of namespace {self.namespace}"
        cluster_queue, is_kueues, flavors = self.queue.partition("/")
        return f"ClusterQueue {cluster_queue} (flavor {flavors})" if is_kueues else f"queue {self.queue}"


class QuotaUse(NamedTuple):
    """What a job uses of one limit.

    Attributes:
        row: the limit.
        each: the request of one trainer.
        fixed: the requests of all its masters and pservers.
    """

    row: QuotaRow
    each: int
    fixed: int

    def total(self, count: int) -> int:
        """The use of the job with `count` trainers."""
        return self.fixed + self.each * count


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """A limit that keeps a job from having more.

    Attributes:
        row: the limit.
        used: what is used of it already.
        needs: what the job would use in addition.
    """

    row: QuotaRow
    used: int
    needs: int


def all_quotas(snapshot: ClusterSnapshot, quotas: Iterable[Quota]) -> tuple[Quota, ...]:
    """The quotas of the queues, and what the ResourceQuotas of the snapshot leave for the jobs of each namespace.

    A Queue object wins over a quota of the same name. What workloads that edl leaves alone use of their queue is
    taken off its quota. The quotas of Kueue, which counts such workloads itself, come besides.
    """
    borrowing, held = borrowing_quotas(snapshot), tuple(_held_quotas(snapshot))
    named = {quota.queue for quota in (*borrowing, *held)}
    given = (quota for quota in quotas if quota.queue not in named)
    of_queues = _beside_left_alone((*given, *borrowing), snapshot)
    return (
        *of_queues,
        *held,
        *kueue_quotas(snapshot),
        *(_left_by(quota, snapshot) for quota in snapshot.resource_quotas),
    )


class QuotaTable:
    """The quotas, indexed by queue and namespace, so that a job need not search a thousand of them."""

    def __init__(self, quotas: Iterable[Quota]) -> None:
        """Index the quotas."""
        self._of_queues: dict[str, list[Quota]] = {}
        self._of_namespaces: dict[str, list[Quota]] = {}
        for quota in quotas:
            if quota.namespace:
                self._of_namespaces.setdefault(quota.namespace, []).append(quota)
            else:
                self._of_queues.setdefault(quota.queue, []).append(quota)

    def of(self, job: Job) -> tuple[Quota, ...]:
        """The quotas that limit a job: of its queue, then of its namespace."""
        own = self._of_namespaces.get(job.key.namespace, ())
        return (
            *self._of_queues.get(job.queue, ()),
            *(quota for quota in own if not is_among(job.key, quota.exempt)),
        )


def pod_use(resource: str, shape: PodShape, limits: Resources) -> int:
    """What one pod uses of a quota's resource."""
    if resource == POD_OBJECTS:
        return 1
    return limits[resource.removeprefix(LIMITS)] if resource.startswith(LIMITS) else shape.request[resource]


def _beside_left_alone(quotas: Iterable[Quota], snapshot: ClusterSnapshot) -> Iterator[Quota]:
    """The queue quotas that remain for planned jobs beside the workloads that edl does not resize.

    It is never less than the minimums of the running jobs: nobody stops because a writer outside of edl made such a
    workload larger than its queue allows.
    """
    jobs: dict[str, list[Job]] = {job.queue: [] for job in snapshot.jobs_of_queues if job.kept_by_owner}
    for job in snapshot.jobs_of_queues if jobs else ():
        if job.queue in jobs:
            jobs[job.queue].append(job)
    for quota in quotas:
        own = jobs.get(quota.queue, ()) if not quota.namespace else ()
        yield _beside(quota, own) if own else quota


def _beside(quota: Quota, jobs: Iterable[Job]) -> Quota:
    jobs, amounts = list(jobs), []
    for resource, limit in quota.amounts:
        row = QuotaRow(quota.queue, resource, limit)
        used = sum(_used_by(pod, job, resource) for job in jobs for pod in job.kept_by_owner)
        least = sum(_use_of(job, _live(job), row).total(job.min_trainers) for job in jobs if _is_running(job))
        amounts.append((resource, max(limit - used, min(limit, least), 0)))
    return _with_others(quota, amounts)


def _with_others(quota: Quota, amounts: Iterable[tuple[str, int]]) -> Quota:
    """Return the quota lowered to these amounts, because pods that no plan changes use the rest."""
    left = dict(amounts)
    others = tuple((name, limit - left[name]) for name, limit in quota.amounts if left[name] < limit)
    return replace(quota, amounts=tuple(left.items()), others=others)


def _live(job: Job) -> list[Pod]:
    return [pod for pod in job.pods if pod.is_live]


def _is_running(job: Job) -> bool:
    return job.is_schedulable and job.was_admitted and any(pod.is_live for pod in job.pods)


def _held_quotas(snapshot: ClusterSnapshot) -> Iterator[Quota]:
    """Make quotas for queues of unknown limits, which let running jobs keep their size."""
    jobs: dict[str, list[Job]] = {queue.name: [] for queue in snapshot.queues if queue.is_unknown}
    for job in snapshot.jobs_of_queues if jobs else ():
        if job.queue in jobs:
            jobs[job.queue].append(job)
    for queue, own in jobs.items():
        shapes = [shape for job in own for shape in (job.trainer, *(f.shape for f in job.fixed))]
        named = {name for shape in shapes for name, _ in shape.request.amounts if is_amount(name)}
        names = named | {PODS}
        amounts = ((name, sum(_held(job, QuotaRow(queue, name, 0)) for job in own)) for name in names)
        yield Quota(queue, tuple(sorted(amounts)))


def _held(job: Job, row: QuotaRow) -> int:
    """How much quota a running job needs to keep its size: at least that of its minimum."""
    if not _is_running(job):
        return 0
    return _use_of(job, _live(job), row).total(max(len(job.live_trainers), job.min_trainers))


def _left_by(quota: ResourceQuota, snapshot: ClusterSnapshot) -> Quota:
    """What a ResourceQuota leaves for jobs: at least what running jobs need to keep their size."""
    others, amounts = dict(quota.others), []
    jobs = [job for job in snapshot.jobs if quota.limits(job.key)]
    for resource, hard in quota.hard:
        used = others.get(resource, 0)
        held = 0
        for job in jobs:
            if not job.is_schedulable:
                used += sum(_used_by(pod, job, resource) for pod in job.pods if pod.is_live)
            used += _finished_pods(job) if resource == POD_OBJECTS else 0
            held += _held(job, QuotaRow(quota.name, resource, 0, quota.namespace))
        amounts.append((resource, max(hard - used, held, 0)))
    return _with_others(Quota(quota.name, quota.hard, quota.namespace, exempt=quota.exempt), amounts)


def _finished_pods(job: Job) -> int:
    """The finished pods of a job that stay: those that an ended TrainingJob keeps for their logs can be deleted."""
    is_kept = not job.finished or job.owner_count is not None
    return sum(pod.is_finished for pod in job.pods) if is_kept else 0


def _used_by(pod: Pod, job: Job, resource: str) -> int:
    limits = next((f.limits for f in job.fixed if f.role is pod.role), job.limits)
    return pod_use(resource, pod.shape, limits)


def _present(jobs: Iterable[Job], resource: str, time_s: float) -> int:
    """The present use of the pods of jobs, terminating pods included until they are long overdue."""
    counts_all = resource == POD_OBJECTS
    return sum(
        _used_by(pod, job, resource)
        for job in jobs
        for pod in job.pods
        if counts_all or not (pod.is_finished or pod.charged_until_s <= time_s)
    )


class QuotaNow:
    """The free part of each ResourceQuota now; terminating pods count, as they do for the API server.

    The caller takes what it creates.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._left: dict[str, list[tuple[ResourceQuota, str, list[int]]]] = {}
        for quota in snapshot.resource_quotas:
            jobs = [job for job in snapshot.jobs if quota.limits(job.key)]
            used, others = dict(quota.used), dict(quota.others)
            for resource, hard in quota.hard:
                present = others.get(resource, 0) + _present(jobs, resource, snapshot.observed_at_s)
                left = hard - max(used.get(resource, 0), present)
                self._left.setdefault(quota.namespace, []).append((quota, resource, [left]))

    def has(self, job: Job, role: Role) -> bool:
        """Return True if every quota permits one more pod of a role."""
        return all(left[0] >= each for left, each in self._needs(job, role))

    def take(self, job: Job, role: Role) -> bool:
        """Use quota for one more pod; False, and nothing is used, if it does not suffice."""
        if not self.has(job, role):
            return False
        for left, each in self._needs(job, role):
            left[0] -= each
        return True

    def _needs(self, job: Job, role: Role) -> list[tuple[list[int], int]]:
        fixed = next((f for f in job.fixed if f.role is role), None)
        shape, limits = (job.trainer, job.limits) if fixed is None else (fixed.shape, fixed.limits)
        return [
            (left, each)
            for quota, resource, left in self._left.get(job.key.namespace, ())
            if quota.limits(job.key) and (each := pod_use(resource, shape, limits))
        ]


def quota_uses_of(job: Job, quotas: QuotaTable) -> tuple[QuotaUse, ...]:
    """Return the use of a job under each limit of its queue and namespace.

    Trainers differ if the job's resources were changed while it runs. All of them then count as the largest, so that
    no choice of victims can exceed a limit.
    """
    quota_uses = [] if job.refusal is None else [QuotaUse(row_of_refusal(job.key, job.refusal), 1, 0)]
    for quota in quotas.of(job):
        live, others = _live(job), dict(quota.others)
        for resource, limit in quota.amounts:
            row = QuotaRow(quota.queue, resource, limit, quota.namespace, others.get(resource, 0))
            quota_uses.append(_use_of(job, live, row))
    return tuple(quota_uses)


def row_of_refusal(key: JobKey, refusal: Refusal) -> QuotaRow:
    """The limit on a single job whose pods the API server rejects."""
    return QuotaRow(key.name, REFUSED, refusal.allowed, key.namespace)


def _use_of(job: Job, live: list[Pod], row: QuotaRow) -> QuotaUse:
    resource = row.resource
    trainers = [_used_by(pod, job, resource) for pod in live if pod.role is Role.TRAINER]
    each = max([pod_use(resource, job.trainer, job.limits), *trainers])
    return QuotaUse(row, each, _fixed(job, live, resource))


def _fixed(job: Job, live: list[Pod], resource: str) -> int:
    """The requests of masters and pservers: of the live ones, and of those that the job still lacks."""
    total = sum(_used_by(pod, job, resource) for pod in live if pod.role is not Role.TRAINER)
    for fixed in job.fixed:
        missing = max(0, fixed.count - sum(pod.role is fixed.role for pod in live))
        total += missing * pod_use(resource, fixed.shape, fixed.limits)
    return total


def most_alone(quota_uses: Iterable[QuotaUse]) -> float:
    """The most trainers that the limits allow a job if no other job of its queue runs.

    Infinite without a limit; minus infinity if the masters and pservers alone exceed one.
    """
    most = (
        float("-inf")
        if quota_use.fixed > quota_use.row.limit
        else (quota_use.row.limit - quota_use.fixed) // quota_use.each
        for quota_use in quota_uses
        if quota_use.each or quota_use.fixed > quota_use.row.limit
    )
    return min(most, default=float("inf"))


class QuotaMeter:
    """Adds up how much of each limit some jobs use at their counts.

    The caller keeps it up to date: `add` for each further trainer, `remove` for each that goes, `start` for each
    further job.

    Attributes:
        used: the sum of requests for each limit.
    """

    def __init__(self, quota_uses: Mapping[int, tuple[QuotaUse, ...]], counts: Mapping[int, int]) -> None:
        """Add up what jobs use.

        Args:
            quota_uses: what each job uses of each limit, by index of the job.
            counts: trainers of each job, by index of the job.
        """
        self._uses = quota_uses
        self.used: dict[QuotaRow, int] = {}
        for j, count in counts.items():
            for quota_use in quota_uses[j]:
                self.used[quota_use.row] = self.used.get(quota_use.row, 0) + quota_use.total(count)

    def add(self, j: int, number: int = 1) -> None:
        """Add trainers of a job."""
        for quota_use in self._uses.get(j, ()):
            self.used[quota_use.row] += number * quota_use.each

    def remove(self, j: int) -> None:
        """Subtract one trainer of a job."""
        for quota_use in self._uses.get(j, ()):
            self.used[quota_use.row] -= quota_use.each

    def start(self, quota_uses: Iterable[QuotaUse], low: int) -> None:
        """Count a job that was not counted yet, with `low` trainers, its minimum."""
        for quota_use in quota_uses:
            self.used[quota_use.row] = self.used.get(quota_use.row, 0) + quota_use.total(low)

    def quota_shortage(self, j: int, number: int = 1) -> QuotaShortage | None:
        """The first limit that `more` further trainers of the job would exceed; None if none would be exceeded."""
        for quota_use in self._uses.get(j, ()):
            if quota_use.each and self.used[quota_use.row] + number * quota_use.each > quota_use.row.limit:
                return QuotaShortage(quota_use.row, self.used[quota_use.row], quota_use.each)
        return None

    def short_of_start(self, quota_uses: Iterable[QuotaUse], low: int) -> QuotaShortage | None:
        """The first limit that a job, not counted yet, would exceed with `low` trainers; None if it may start."""
        for quota_use in quota_uses:
            used = self.used.get(quota_use.row, 0)
            if quota_use.total(low) and used + quota_use.total(low) > quota_use.row.limit:
                return QuotaShortage(quota_use.row, used, quota_use.total(low))
        return None

    def passed(self) -> tuple[QuotaRow, ...]:
        """The limits that are exceeded already, sorted."""
        return tuple(sorted(row for row, used in self.used.items() if used > row.limit))
