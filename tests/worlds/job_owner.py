"""The controllers of a workload's pods in a simulated cluster: they keep their number and choose the victims.

The one of `batch/v1` Jobs deletes its youngest pods. The one of Volcano Jobs deletes the highest index, keeps other
tasks beside the trainers, and starts all pods of a job again if one is lost that it did not delete, as the policy of
the published example says. The one of LeaderWorkerSets deletes the groups with the highest indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from edl.model.actions import Outcome, ResizeWorkload, Result
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape
from edl.model.sizes import in_steps
from edl.model.status import JobStatus
from tests.worlds.builders import make_job, make_shape


def make_batch(name: str, count: int, *, low: int = 1, high: int = 10, cpu: float = 1) -> Job:
    """A `batch/v1` Job whose controller is to keep `count` pods, and has none yet."""
    job = make_job(name, min_trainers=low, max_trainers=high, cpu=cpu)
    return replace(job, key=JobKey.of(WorkloadKind.BATCH_JOB, "default", name), owner_count=count)


def make_volcano(name: str, count: int, *, low: int = 1, high: int = 10, pservers: int = 0) -> Job:
    """A Volcano Job of trainers and pservers of one cpu, whose controller has made no pod yet."""
    job = make_job(name, min_trainers=low, max_trainers=high)
    fixed = (FixedPods(Role.PSERVER, make_shape(1), pservers),) if pservers else ()
    key = JobKey.of(WorkloadKind.VOLCANO_JOB, "default", name)
    return replace(job, key=key, owner_count=count, fixed=fixed, gang=True, fault_tolerant=False)


def make_groups(name: str, groups: int, *, size: int = 4, low: int = 1, high: int = 3) -> Job:
    """A LeaderWorkerSet of groups of `size` pods of one cpu, whose controller has made no pod yet."""
    job = make_job(name, min_trainers=low * size, max_trainers=high * size)
    key = JobKey.of(WorkloadKind.LEADER_WORKER_SET, "default", name)
    sizes = in_steps(low * size, high * size, size)
    return replace(job, key=key, owner_count=groups * size, sizes=sizes, fault_tolerant=False)


@dataclass
class JobOwner:
    """Keeps the pods of all workloads of a cluster.

    Attributes:
        stands_still: it does nothing for now.
        born: how many pods it made.
        restarts: of each Volcano Job, how often a pod was lost that its controller did not delete.
    """

    stands_still: bool = False
    born: int = 0
    restarts: Counter[JobKey] = field(default_factory=Counter)
    _kept: dict[str, frozenset[str]] = field(default_factory=dict)  # UIDs of pods, by UID of the job

    def step(self, job: Job, now_s: float) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        """The pods that it makes, and those that it deletes."""
        if self.stands_still or job.owner_count is None:
            return (), ()
        if job.key.kind is WorkloadKind.VOLCANO_JOB:
            return self._keep_tasks(job, now_s)
        if job.key.kind is WorkloadKind.LEADER_WORKER_SET:
            return self._keep_groups(job, now_s)
        live = sorted(job.live_trainers, key=deletion_order)
        surplus = max(0, len(live) - job.owner_count)
        made = tuple(
            self._make(job, f"{self.born + 1:05d}", Role.TRAINER, job.trainer, now_s)
            for _ in range(job.owner_count - len(live))
        )
        return made, tuple(live[:surplus])

    def _keep_tasks(self, job: Job, now_s: float) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        live = {pod.uid: pod for pod in job.pods if pod.is_live}
        if self._kept.get(job.uid, frozenset()) - live.keys():
            self.restarts[job.key] += 1
            self._kept[job.uid] = frozenset()
            return (), tuple(live.values())
        wanted = {(role, index): shape for role, index, shape in _tasks(job)}
        doomed = tuple(pod for pod in live.values() if (pod.role, pod.index) not in wanted)
        there = {(pod.role, pod.index) for pod in job.pods}
        made = tuple(
            replace(self._make(job, f"{role.value}-{index}", role, shape, now_s), index=index)
            for (role, index), shape in wanted.items()
            if (role, index) not in there
        )
        self._kept[job.uid] = frozenset(live.keys() - {pod.uid for pod in doomed} | {pod.uid for pod in made})
        return made, doomed

    def _keep_groups(self, job: Job, now_s: float) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        count, there = job.owner_count or 0, {pod.index for pod in job.pods}
        made = tuple(
            replace(self._make(job, str(index), Role.TRAINER, job.trainer, now_s), index=index)
            for index in range(count)
            if index not in there
        )
        return made, tuple(pod for pod in job.live_trainers if (pod.index or 0) >= count)

    def _make(self, job: Job, suffix: str, role: Role, shape: PodShape, now_s: float) -> Pod:
        self.born += 1
        name = f"{job.key.object_name}-{suffix}"
        return Pod("default", name, f"owned-{self.born}", shape, created_s=now_s, job=job.key, role=role)


def _tasks(job: Job) -> Iterator[tuple[Role, int, PodShape]]:
    """The pods that a Volcano Job is to have; one that is stopped has none at all."""
    yield from ((Role.TRAINER, index, job.trainer) for index in range(job.owner_count or 0))
    if job.owner_count:
        yield from ((fixed.role, index, fixed.shape) for fixed in job.fixed for index in range(fixed.count))


def deletion_order(pod: Pod) -> tuple[bool, bool, bool, float, str]:
    """Pods without a node first, then those that do not run, then the youngest."""
    is_running = pod.phase is PodPhase.RUNNING
    return bool(pod.node), is_running, pod.ready, -(pod.started_s or 0.0), pod.name


def as_read(job: Job) -> Job:
    """The job as an adapter reads it: the first to be deleted has the highest index, doomed pods are terminating."""
    if job.owner_count is None:
        return job
    if job.key.kind is WorkloadKind.LEADER_WORKER_SET:
        kept = job.owner_count
        pods = (replace(p, terminating=p.terminating or (p.index or 0) >= kept) for p in job.pods)
        return replace(job, pods=tuple(sorted(pods, key=lambda pod: pod.index or 0)))
    if job.key.kind is WorkloadKind.VOLCANO_JOB:
        wanted = {(role, index) for role, index, _ in _tasks(job)}
        left = (replace(p, terminating=p.terminating or (p.role, p.index) not in wanted) for p in job.pods)
        return replace(job, pods=tuple(left))
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
