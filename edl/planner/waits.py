"""The times that a decision keeps: cooldowns, graces, the arrival of jobs, and what an interruption costs a job.

`restrain` says which jobs may not be shrunk for another one now, so that a steady cluster stays steady.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from math import inf

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.model.status import Reason

HORIZON_S = 600.0
"""The gain of a resize or of a trainer is counted over this time."""

UNKNOWN_RESIZE_S = 30.0
"""The assumed cost of a resize that was not measured: that of the jobs of Pollux (OSDI 2021, section 5)."""

LONGEST_RESIZE_S = 86_400.0
"""A resize that costs more counts as this: no gain within the horizon pays for either."""

REST = 2.0
"""Under policy `goodput`, how long a job does not grow after a resize, as a multiple of the cost of a resize."""


def restrain(jobs: Iterable[Job], now_s: float) -> frozenset[JobKey]:
    """The jobs that may not be shrunk for another one now, because their cooldown is not over."""
    return frozenset(job.key for job in jobs if cooldown_left_s(job, now_s) > 0)


def cooldown_left_s(job: Job, now_s: float) -> float:
    """Seconds for which a job may not be shrunk for another one; 0 if it may.

    The cooldown starts when the job is shrunk for the share of another job. Shrinking for serving or for an admission
    does not start it, and growth does not.
    """
    resize = job.status.last_resize if job.status is not None else None
    if resize is None or resize.voluntary_s is None:
        return 0.0
    return _left_s(resize.voluntary_s, job.cooldown_s, now_s)


def growth_hold_left_s(job: Job, limits: Limits, now_s: float) -> float:
    """Seconds for which a job that was shrunk for serving may not grow; 0 if it may."""
    resize = job.status.last_resize if job.status is not None else None
    if resize is None or resize.reason != Reason.SERVING_NEEDS_ROOM or resize.to_count >= resize.from_count:
        return 0.0
    return _left_s(resize.time_s, limits.sharing.growth_hold_s, now_s)


def resize_cost_s(job: Job) -> float:
    """The training time that a resize costs a job, in seconds: declared, measured, or usual; a day at most."""
    return UNKNOWN_RESIZE_S if job.resize_cost_s is None else min(job.resize_cost_s, LONGEST_RESIZE_S)


def rest_left_s(job: Job, now_s: float) -> float:
    """Seconds for which a job that was resized does not grow under policy `goodput`; 0 if it may.

    A job that is admitted grows to its whole share at once, so it rests only after it has arrived.
    """
    resize = job.status.last_resize if job.status is not None else None
    if resize is None or is_arriving(job, now_s) or not job.live_trainers:
        return 0.0
    return _left_s(resize.time_s, REST * resize_cost_s(job), now_s)


def _left_s(since_s: float, lasts_s: float, now_s: float) -> float:
    """The seconds left of a period; 0 if its start lies further in the future than clocks may differ.

    The owner of a workload can write the annotation from which its last resize is read.
    """
    left_s = since_s + lasts_s - now_s
    return left_s if 0.0 < left_s <= 2.0 * lasts_s else 0.0


def serving_grace_left_s(snapshot: ClusterSnapshot, limits: Limits) -> dict[tuple[str, str], float]:
    """Seconds for which edl leaves each waiting serving pod to kube-scheduler before it deletes trainers for it.

    kube-scheduler takes pods one after the other, by priority and then by age. The grace time of a pod begins when it
    is created, and again each time that kube-scheduler has finished with a pod before it, however long the queue is.
    Only pods that kube-scheduler has not tried yet have one. A pod has none either if an equal one waits for which
    kube-scheduler found no capacity, and they must not preempt: it will say the same of this one, though in a rollout
    after hundreds of others.

    Returns:
        By (namespace, name); pods whose grace time is over are left out.
    """
    if all(pod.tried for pod in snapshot.waiting_serving):
        return {}
    left: dict[tuple[str, str], float] = {}
    has_no_room = refused(snapshot)
    answered_s = 0.0
    over_s = snapshot.observed_at_s - limits.serving.grace_s
    # Of tens of thousands of pods few count: answers that may begin a grace time, and those that may have one.
    queue = [pod for pod in snapshot.pods if pod.answered_s is not None and pod.answered_s > over_s]
    untried = [pod for pod in snapshot.waiting_serving if not pod.tried]
    queue += [pod for pod in untried if pod.answered_s is None or pod.answered_s <= over_s]
    queue.sort(key=_queue_order)
    for _, group in groupby(queue, key=_queue_order):
        equals = list(group)
        answered_s = max([answered_s, *(pod.answered_s for pod in equals if pod.answered_s is not None)])
        for pod in equals:
            since_s = max(pod.created_s, answered_s)
            still_s = since_s + limits.serving.grace_s - snapshot.observed_at_s
            if pod.is_waiting_serving and not pod.tried and still_s > 0 and pod.uid not in has_no_room:
                left[pod.namespace, pod.name] = still_s
    return left


def refused(snapshot: ClusterSnapshot) -> frozenset[str]:
    """UIDs of the serving pods for which kube-scheduler found no capacity: it has tried them, or an equal one.

    Equal pods have the same shape and scheduler, and no higher priority than the one that was tried. They must not
    preempt: for others kube-scheduler may find capacity by evicting pods.
    """
    waiting = [pod for pod in snapshot.waiting_serving if pod.needs_capacity]
    tried = sorted((pod for pod in waiting if pod.tried and not pod.may_preempt), key=lambda pod: pod.priority)
    highest = {(pod.shape, pod.scheduler): pod.priority for pod in tried}
    return frozenset(
        pod.uid
        for pod in waiting
        if pod.tried or (not pod.may_preempt and pod.priority <= highest.get((pod.shape, pod.scheduler), -inf))
    )


def _queue_order(pod: Pod) -> tuple[int, float]:
    """Sort key: the order in which kube-scheduler takes pods."""
    return -pod.priority, pod.created_s


def is_arriving(job: Job, now_s: float) -> bool:
    """Return True while a job may grow to its whole share at once: until it is admitted and its first pods run.

    A job that was resized since its admission has arrived, even if trainers of a later growth still start.
    """
    if not job.was_admitted:
        return True
    admitted = job.status.condition("Admitted") if job.status is not None else None
    if job.status is None or admitted is None or now_s - admitted.since_s >= job.cooldown_s:
        return False
    if job.status.last_resize is not None and job.status.last_resize.time_s > admitted.since_s:
        return False
    return any(pod.started_s is None for pod in job.live_trainers)


def price_in_trainers(job: Job) -> int:
    """How many more trainers in the cluster pay for an interruption that takes the job back to its last checkpoint.

    One in any case. Beyond that, they do as much in the horizon as the trainers of the job would have to repeat. A
    job that has never saved is charged all that it has trained in its epoch.
    """
    return 1 + int(job.unsaved_s * len(job.live_trainers) / HORIZON_S)


def payback_s(job: Job, more: int) -> float:
    """How many seconds a job takes, after a restart with more trainers, to make up for the restart.

    It repeats what it has not saved, and a start costs it what a resize costs. Times that are not known count as 0.

    Args:
        job: the job with its trainers of now.
        more: how many more trainers it would have, > 0.
    """
    return (job.unsaved_s + (job.resize_cost_s or 0.0)) * len(job.live_trainers) / more
