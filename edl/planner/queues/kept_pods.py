"""Finished pods that ended jobs keep for their logs, and that fill the quota of pods of their namespace.

Quota `count/pods` counts finished pods, so those of ended jobs could keep other jobs from their pods for ever. They
are deleted, those of the job that ended first before others, and no more than are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edl.model.cluster import ClusterSnapshot, ResourceQuota
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod
from edl.model.resources import POD_OBJECTS


def pods_in_the_way(snapshot: ClusterSnapshot) -> frozenset[str]:
    """UIDs of the kept pods that are to be deleted, because admitted jobs lack pods that the quota does not allow."""
    quotas = [quota for quota in snapshot.resource_quotas if POD_OBJECTS in dict(quota.hard)]
    found: set[str] = set()
    of_namespace: dict[str, list[Job]] = {}
    for job in snapshot.jobs if quotas else ():
        of_namespace.setdefault(job.key.namespace, []).append(job)
    for quota in quotas:
        jobs = [job for job in of_namespace.get(quota.namespace, ()) if quota.limits(job.key)]
        if kept := list(_kept(jobs)):
            needed = sum(map(_missing, jobs)) - _left(quota, jobs)
            found.update(pod.uid for pod in kept[: max(0, needed)])
    return frozenset(found)


def _missing(job: Job) -> int:
    """How many pods an admitted job has yet to get."""
    admitted = job.status.condition("Admitted") if job.status is not None else None
    if job.status is None or admitted is None or admitted.status != "True" or not job.is_schedulable:
        return 0
    fixed = (f.count - sum(pod.role is f.role and pod.is_live for pod in job.pods) for f in job.fixed)
    return max(0, job.status.trainer.desired - len(job.live_trainers)) + sum(max(0, lacking) for lacking in fixed)


def _left(quota: ResourceQuota, jobs: Sequence[Job]) -> int:
    """Return how many more pods the API server will accept once terminating pods are gone and counted out."""
    present = dict(quota.others).get(POD_OBJECTS, 0) + sum(not pod.terminating for job in jobs for pod in job.pods)
    return dict(quota.hard)[POD_OBJECTS] - present


def _kept(jobs: Sequence[Job]) -> Iterator[Pod]:
    """The finished pods of ended TrainingJobs, in the order in which they are deleted."""
    ended = [job for job in jobs if job.finished and job.owner_count is None and not job.deleting]
    for job in sorted(ended, key=lambda job: (job.status.completion_s or 0.0 if job.status else 0.0, job.key)):
        yield from sorted(
            (pod for pod in job.pods if pod.is_finished and not pod.terminating),
            key=lambda pod: (pod.role is Role.TRAINER, pod.role or "", pod.index or 0),
        )
