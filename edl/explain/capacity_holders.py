"""Who else holds capacity that a job could grow into: pods not of training, and trainers with older requests.

A running trainer keeps the requests with which it was made. If its job requests less now, the trainer still holds the
difference, and the plan counts it as it is until it is restarted.
"""

from __future__ import annotations

from dataclasses import dataclass

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.model.units import amount, count


@dataclass(frozen=True, slots=True)
class OlderTrainers:
    """Trainers of a job that request more of a resource than new ones would."""

    job: JobKey
    trainers: int
    requested: str
    asked: str
    least: int

    def __str__(self) -> str:
        who = f"{count(self.trainers, 'trainer')} of {self.job}"
        still = "requests" if self.trainers == 1 else "request"
        return f"{who} still {still} {self.requested} each; new ones request {self.asked}"

    @property
    def remedy(self) -> str:
        """Explain how to restart the trainers: pin the job to its minimum, then release it to get new trainers."""
        namespace, name = self.job.namespace, self.job.name
        return (
            f"restart the {count(self.trainers, 'trainer')} of {self.job} with older requests:"
            f" kubectl -n {namespace} scale tj {name} --replicas {self.least};"
            " once they are gone, --replicas 0 lets edl choose the number again"
        )


def older_trainers(snapshot: ClusterSnapshot, resource: str) -> tuple[OlderTrainers, ...]:
    """List by job the trainers that request more of a resource than a new one would; the most trainers first."""
    found = [older for job in snapshot.jobs if (older := _older(job, resource)) is not None]
    return tuple(sorted(found, key=lambda older: (-older.trainers, older.job)))


def _older(job: Job, resource: str) -> OlderTrainers | None:
    asked = job.trainer.request[resource]
    larger = [pod.shape.request[resource] for pod in job.live_trainers if pod.shape.request[resource] > asked]
    if not larger or not job.is_schedulable or job.owner_count is not None:
        return None
    return OlderTrainers(
        job.key, len(larger), amount(resource, max(larger)), amount(resource, asked), job.bounds.min_trainers
    )


def held_by_others(snapshot: ClusterSnapshot, resource: str, nodes: frozenset[str]) -> tuple[int, str]:
    """Count the serving and other pods that request a resource on these nodes; returns (pods, their sum in words)."""
    holders = [pod for pod in (*snapshot.pods, *snapshot.pods_left_alone) if _uses(pod, resource, nodes)]
    return len(holders), amount(resource, sum(pod.shape.request[resource] for pod in holders))


def _uses(pod: Pod, resource: str, nodes: frozenset[str]) -> bool:
    return pod.node in nodes and not pod.is_finished and pod.shape.request[resource] > 0
