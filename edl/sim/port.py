"""The simulated cluster as the controller's `Cluster` port: it observes the world and carries out actions in it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from edl.model.actions import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    MarkPod,
    Outcome,
    PatchStatus,
    RequestNode,
    ResizePod,
    Result,
    WithdrawNodeRequest,
)
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.lending import requested_milli
from edl.model.names import SURPLUS_VALUE, JobKey, Role
from edl.model.pods import Pod
from edl.model.resources import CPU, Placement, PodShape, Toleration
from edl.model.topology import with_labels
from edl.sim.scenario import LatencySpec
from edl.sim.world import Engine, World, with_request
from edl.waiting import is_set_within

CORE, BASE, SURPLUS = -1, -5, SURPLUS_VALUE
"""Priorities of edl's PriorityClasses: master and pservers, trainers up to the minimum, the other trainers."""
BEST_EFFORT_BASE, BEST_EFFORT_SURPLUS = -10, -1000
"""The priorities of trainers without requests: within the minimum, and above it."""


class SimulatedCluster:
    """Implements `ports.Cluster`. A snapshot always shows the controller's own writes.

    With `lends_by_resize`, trainers are created with all that they declare, as before lending was switched on.
    """

    def __init__(self, world: World, engine: Engine, latency: LatencySpec, *, lends_by_resize: bool = False) -> None:
        self._world, self._engine, self._latency = world, engine, latency
        self._busy_until_s = 0.0
        self._lends_by_resize = lends_by_resize
        self._changed = asyncio.Event()
        self._urgent: set[str] = set()
        self._specs: dict[JobKey, tuple[str, int, bool]] = {}
        world.listeners.append(self._note_pod)
        world.job_listeners.append(self._note_job)

    async def observe(self) -> ClusterSnapshot:
        """Take a snapshot."""
        self._changed.clear()
        return replace(self._world.snapshot(self._engine.now_s()), resizes_pods=self._lends_by_resize)

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait for a change after the last snapshot; False after that many seconds without one."""
        return await is_set_within(self._changed, timeout_s)

    def urgent_changes(self) -> frozenset[str]:
        """Return the namespaces of urgent changes since the last call; see `edl.kube.mirror.urgency`."""
        urgent, self._urgent = frozenset(self._urgent), set()
        return urgent

    def _note_job(self, key: JobKey) -> None:
        """Note that a job was created, edited or deleted; a new status is no urgent change."""
        self._changed.set()
        job = self._world.jobs.get(key)
        before = self._specs.pop(key, None)
        if job is not None:
            self._specs[key] = (job.uid, job.generation, job.deleting)
        if before != self._specs.get(key):
            self._urgent.add(key.namespace)

    def _note_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Note urgent changes of a pod: a serving pod waits or ceases to wait, or a job's pod has ended by itself."""
        self._changed.set()
        pod = after or before
        if pod is not None and (_waits(before) != _waits(after) or _has_ended(after) > _has_ended(before)):
            self._urgent.add(pod.namespace)

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action, if its job is still the one that was observed."""
        await asyncio.sleep(self._write_s())
        job = self._world.jobs.get(action.job)
        if job is None or job.uid != action.job_uid:
            return Outcome(action, Result.CONFLICT, "Conflict", "the job is another one now")
        match action:
            case CreatePod():
                return self._create(action, job)
            case MarkPod() | DeletePod() | ResizePod():
                return self._resize(action) if isinstance(action, ResizePod) else self._delete(action)
            case PatchStatus():
                was_set = self._changed.is_set()
                self._world.put_job(replace(job, status=action.status))
                if not was_set:
                    self._changed.clear()  # a status is no reason for another plan
            case EmitEvent():
                self._world.events.append(action)
            case DeleteJob():
                remove_job(self._world, action.job)
            case RequestNode():
                return self._request_node(action)
            case WithdrawNodeRequest():
                self._world.drop((action.job.namespace, action.pod))
            case _:
                return Outcome(action, Result.UNCHANGED)
        return Outcome(action, Result.DONE)

    def _write_s(self) -> float:
        """How long a write takes that is sent now, in seconds: the API server carries out one at a time."""
        now_s, rate = self._engine.now_s(), self._latency.writes_per_s
        self._busy_until_s = max(now_s, self._busy_until_s) + (1.0 / rate if rate is not None else 0.0)
        return self._latency.write_s + self._busy_until_s - now_s

    def _create(self, action: CreatePod, job: Job) -> Outcome:
        if (action.job.namespace, action.pod_name) in self._world.pods:
            return Outcome(action, Result.CONFLICT, "AlreadyExists", "the name is in use")
        pod = new_pod(self._world, job, action.role, action.index, self._engine.now_s(), is_base=action.is_base)
        declared = pod.shape.request[CPU]
        lent = 0 if self._lends_by_resize else declared - requested_milli(declared, action.cpu_request)
        if action.labels:
            pod = replace(pod, shape=with_labels(pod.shape, action.labels))
        pod = replace(pod, planned=action.node or "", pinned=action.pinned, lent_cpu_milli=lent)
        self._world.put(pod, owner=job.uid)
        return Outcome(action, Result.DONE)

    def _request_node(self, action: RequestNode) -> Outcome:
        tolerations = tuple(Toleration(t.key, "Equal", t.value, t.effect) for t in action.group.taints)
        pod = Pod(
            namespace=action.job.namespace,
            name=action.pod_name,
            uid=self._world.new_uid(),
            shape=PodShape(action.request, Placement(action.group.labels, (), tolerations)),
            priority=BASE,
            created_s=self._engine.now_s(),
        )
        self._world.put_request(action.job, action.group.name, pod)
        return Outcome(action, Result.DONE)

    def _resize(self, action: ResizePod) -> Outcome:
        pod = self._world.pods.get((action.job.namespace, action.pod))
        if pod is None or pod.uid != action.pod_uid or pod.running_request is None:
            return Outcome(action, Result.CONFLICT, "Conflict", "another pod")
        self._world.put(with_request(pod, replace(pod.running_request, requested_milli=action.cpu_milli)))
        return Outcome(action, Result.DONE)

    def _delete(self, action: MarkPod | DeletePod) -> Outcome:
        key = (action.job.namespace, action.pod)
        pod = self._world.pods.get(key)
        if pod is None:
            return Outcome(action, Result.UNCHANGED)
        if pod.uid != action.pod_uid:
            return Outcome(action, Result.CONFLICT, "Conflict", "another pod")
        pod = replace(pod, intent=pod.intent or action.intent)
        if isinstance(action, MarkPod):
            self._world.put(pod)
        elif action.force or pod.is_finished or not pod.node:
            self._world.put(pod)
            self._world.drop(key)
        else:
            self._world.put(replace(pod, terminating=True, ready=False))
        return Outcome(action, Result.DONE)


def new_pod(world: World, job: Job, role: Role, index: int, now_s: float, *, is_base: bool = False) -> Pod:
    """Make a pod of a job, which is not in the world yet; `is_base` is that of `CreatePod`."""
    return Pod(
        namespace=job.key.namespace,
        name=f"{job.key.name}-{role.value}-{index}",
        uid=world.new_uid(),
        shape=next((fixed.shape for fixed in job.fixed if fixed.role is role), job.trainer),
        priority=_priority(job, role, index, is_base=is_base),
        created_s=now_s,
        job=job.key,
        role=role,
        index=index,
    )


def _waits(pod: Pod | None) -> tuple[str, bool]:
    """The UID of a serving pod that waits for capacity, and whether the scheduler has tried it; else an empty UID."""
    return (pod.uid, pod.tried) if pod is not None and pod.is_waiting_serving else ("", False)


def _has_ended(pod: Pod | None) -> bool:
    """True for a job's pod that has finished, or that another program than edl has deleted or evicted."""
    return pod is not None and pod.job is not None and (pod.is_finished or (pod.terminating and not pod.intent))


def remove_job(world: World, key: JobKey) -> None:
    """Delete a job; the garbage collector deletes its pods."""
    job = world.drop_job(key)
    if job is None:
        return
    for pod in list(world.of_job.get(job.uid, {}).values()):
        if not pod.node or pod.is_finished:
            world.drop((pod.namespace, pod.name))
        elif not pod.terminating:
            world.put(replace(pod, terminating=True, ready=False))


def _priority(job: Job, role: Role, index: int, *, is_base: bool) -> int:
    if role is not Role.TRAINER:
        return CORE
    if is_base or index < job.min_trainers:
        return BEST_EFFORT_BASE if job.is_best_effort else BASE
    return BEST_EFFORT_SURPLUS if job.is_best_effort else SURPLUS
