"""The controller of a workload's pods in a simulated cluster: it keeps their number and chooses the victims."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edl.model.actions import Outcome, ResizeWorkload, Result
from edl.model.jobs import Job
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod, PodPhase
from edl.model.status import JobStatus
from tests.worlds.builders import make_job


def make_batch(name: str, count: int, *, low: int = 1, high: int = 10, cpu: float = 1) -> Job:
    """A `batch/v1` Job whose controller is to keep `count` pods, and has none yet."""
    job = make_job(name, min_trainers=low, max_trainers=high, cpu=cpu)
    return replace(job, key=JobKey.of(WorkloadKind.BATCH_JOB, "default", name), owner_count=count)


@dataclass
class JobOwner:
    """Keeps the pods of all workloads of a cluster as the Job controller does.

    Attributes:
        stands_still: it does nothing for now.
        born: how many pods it made.
    """

    stands_still: bool = False
    born: int = 0

    def step(self, job: Job, now_s: float) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        """The pods that it makes, and those that it deletes."""
        if self.stands_still or job.owner_count is None:
            return (), ()
        live = sorted(job.live_trainers, key=deletion_order)
        surplus = max(0, len(live) - job.owner_count)
        made = tuple(self._make(job, now_s) for _ in range(job.owner_count - len(live)))
        return made, tuple(live[:surplus])

    def _make(self, job: Job, now_s: float) -> Pod:
        self.born += 1
        name = f"{job.key.object_name}-{self.born:05d}"
        role = Role.TRAINER
        return Pod("default", name, f"owned-{self.born}", job.trainer, created_s=now_s, job=job.key, role=role)


def deletion_order(pod: Pod) -> tuple[bool, bool, bool, float, str]:
    """Pods without a node first, then those that do not run, then the youngest."""
    is_running = pod.phase is PodPhase.RUNNING
    return bool(pod.node), is_running, pod.ready, -(pod.started_s or 0.0), pod.name


def as_read(job: Job) -> Job:
    """The job as an adapter reads it: the first to be deleted has the highest index, doomed pods are terminating."""
    if job.owner_count is None:
        return job
    ordered = sorted(job.pods, key=deletion_order, reverse=True)
    doomed = {pod.uid for pod in [pod for pod in ordered if pod.is_live][job.owner_count :]}
    pods = (
        replace(pod, index=index, terminating=pod.terminating or pod.uid in doomed)
        for index, pod in enumerate(ordered)
    )
    return replace(job, pods=tuple(pods))


def resized(action: ResizeWorkload, job: Job) -> tuple[Outcome, Job]:
    """What the API server answers to a resize, and the job after it."""
    is_wanted = action.count == 0 or job.min_trainers <= action.count <= job.max_trainers
    if job.owner_count != action.before or not is_wanted:
        return Outcome(action, Result.CONFLICT, "Conflict", "the object has been modified"), job
    status = replace(job.status or JobStatus(), last_resize=action.resize)
    return Outcome(action, Result.DONE), replace(job, owner_count=action.count, status=status)
