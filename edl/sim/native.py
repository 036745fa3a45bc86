"""Jobs without edl's controller: plain Kubernetes Jobs and ReplicaSets, resized or not by the autoscaler of 2017.

Every pod of a job is created at once and waits until it fits. The autoscaler changes only the parallelism of the
trainers; the Job controller then creates pods, or deletes them: unbound ones first, then those that do not run, then
the youngest. Nothing knows nodes.

Source: PaddlePaddle EDL of November 2017, pkg/autoscaler.go; Kubernetes 1.6, `controller.ActivePods`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.planner.policies.edl_2017 import MAX_LOAD_DESIRED, looked_at, rescale, totals_of
from edl.sim.port import new_pod
from edl.sim.world import Engine, World

LOOP_S = 5.0
"""Pause of the autoscaler between two looks at the cluster."""

CALLS_PER_S, BURST = 5.0, 10.0
"""How many requests its client sends: the defaults of client-go. It listed the pods of each job in every loop, and
read and wrote each Job that it changed."""


class NativeJobs:
    """Creates the pods of every job and keeps their number.

    Args:
        world: the cluster.
        engine: time.
        is_elastic: the autoscaler runs; else each job keeps the trainers that it was submitted with.
        has_priorities: pods have edl's PriorityClasses, so that serving can preempt trainers; else all have 0.

    Attributes:
        resizes: how often the parallelism of a job changed.
    """

    def __init__(self, world: World, engine: Engine, *, is_elastic: bool, has_priorities: bool) -> None:
        self._world, self._engine = world, engine
        self.is_elastic, self._has_priorities = is_elastic, has_priorities
        self._sizes: dict[JobKey, int] = {}
        self._pending: set[JobKey] = set()
        self._tokens, self._tokens_at_s = BURST, 0.0
        self.resizes = 0
        world.listeners.append(self._changed)

    def start(self) -> None:
        """Start the loop of the HorizontalPodAutoscaler."""
        if self.is_elastic:
            self._engine.later(LOOP_S, self._loop)

    def submit(self, job: Job, trainers: int) -> None:
        """Create a job with that many trainers."""
        self._sizes[job.key] = trainers
        self._world.put_job(job)
        self._sync(job.key)

    def forget(self, key: JobKey) -> None:
        """Forget a job that was deleted."""
        self._sizes.pop(key, None)

    def _loop(self) -> None:
        self._engine.later(self._calls(2 + len(self._sizes)), self._decide)

    def _decide(self) -> None:
        snapshot = self._world.snapshot(self._engine.now_s())
        jobs = [job for job in snapshot.jobs if job.key in self._sizes]
        sizes = {job.key: self._sizes[job.key] for job in jobs}
        wanted = {**sizes, **rescale(looked_at(jobs), sizes, totals_of(snapshot, jobs, sizes), MAX_LOAD_DESIRED)}
        took_s = 0.0
        for key in sorted(wanted):
            if wanted[key] != self._sizes[key]:
                took_s = self._calls(2)
                self._engine.later(took_s, partial(self._resize, key, wanted[key]))
        self._engine.later(max(LOOP_S, took_s), self._loop)

    def _resize(self, key: JobKey, trainers: int) -> None:
        if key in self._sizes:
            self.resizes += 1
            self._sizes[key] = trainers
            self._sync(key)

    def _calls(self, count: int) -> float:
        """How long the client needs for so many more requests, in seconds."""
        now_s = self._engine.now_s()
        self._tokens = min(BURST, self._tokens + (now_s - self._tokens_at_s) * CALLS_PER_S) - count
        self._tokens_at_s = now_s
        return max(0.0, -self._tokens / CALLS_PER_S)

    def _changed(self, before: Pod | None, after: Pod | None) -> None:
        """Replace a pod that somebody else has deleted."""
        if before is None or before.job is None or before.job not in self._sizes:
            return
        if (after is None or not after.is_live) and before.is_live and before.job not in self._pending:
            key = before.job
            self._pending.add(key)
            self._engine.later(0.0, lambda: self._sync(key))

    def _sync(self, key: JobKey) -> None:
        self._pending.discard(key)
        job = self._world.jobs.get(key)
        if job is None or key not in self._sizes:
            return
        pods = list(self._world.of_job[job.uid].values())
        for role, count in [*((fixed.role, fixed.count) for fixed in job.fixed), (Role.TRAINER, self._sizes[key])]:
            live = [pod for pod in pods if pod.role is role and pod.is_live]
            for pod in sorted(live, key=_deleted_first)[: max(0, len(live) - count)]:
                self._delete(pod)
            used = {pod.index for pod in pods if pod.role is role}
            free = (i for i in range(len(used) + count) if i not in used)
            for _ in range(count - len(live)):
                self._create(job, role, next(free))

    def _create(self, job: Job, role: Role, index: int) -> None:
        pod = new_pod(self._world, job, role, index, self._engine.now_s())
        self._world.put(pod if self._has_priorities else replace(pod, priority=0), owner=job.uid)

    def _delete(self, pod: Pod) -> None:
        if pod.node:
            self._world.put(replace(pod, terminating=True, ready=False))
        else:
            self._world.drop((pod.namespace, pod.name))


def _deleted_first(pod: Pod) -> tuple[bool, bool, float, str]:
    return bool(pod.node), pod.phase is PodPhase.RUNNING, -(pod.started_s or pod.created_s), pod.name
