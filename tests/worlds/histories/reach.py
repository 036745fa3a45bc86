"""The Cluster port of the controller in a random history. It judges each write as far as the controller could see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from edl.lifecycle.status import is_over
from edl.model.actions import Action, CreatePod, DeletePod, MarkPod, Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import Reason
from edl.waiting import is_set_within
from tests.worlds.builders import make_nodes
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Crash

NODES = make_nodes(2, cpu=4)


@dataclass
class Reach:
    """The Cluster port of one controller.

    Attributes:
        slow_s: how long each write takes.
        broken: rules that its writes broke.
        dies_at: the number of the write at which the controller crashes; None for never.
        urges_at: the number of the write after which something urgent changes; None for never.
    """

    world: World
    broken: list[str]
    slow_s: float = 0.0
    dies_at: int | None = None
    urges_at: int | None = None
    wrote: int = 0
    alive: bool = True
    served: bool = False
    jobs: dict[JobKey, Job] = field(default_factory=dict)

    async def observe(self) -> ClusterSnapshot:
        snapshot = self.world.snapshot()
        self.served = any(pod.is_waiting_serving for pod in snapshot.pods)
        self.jobs = {job.key: job for job in snapshot.jobs}
        return snapshot

    async def wait_for_change(self, timeout_s: float) -> bool:
        return await is_set_within(self.world.changed, timeout_s)

    def urgent_changes(self) -> frozenset[str]:
        if self.urges_at is None or self.wrote < self.urges_at:
            return frozenset()
        self.urges_at = None
        return frozenset({"default"})

    async def apply(self, action: Action) -> Outcome:
        if not self.alive:
            raise Crash
        if self.urges_at is not None:
            await asyncio.sleep(0)  # the writes under way end one after the other
        self.wrote += 1
        if isinstance(action, MarkPod | DeletePod):
            self._judge(action)
        seen = self.jobs.get(action.job)
        self.world.judge(action)  # by what is known now, and not when it arrives
        if self.slow_s:
            await asyncio.sleep(self.slow_s)
            if not self.alive:
                raise Crash
        outcome = self.world.apply(action, is_judged=True)
        if isinstance(action, CreatePod) and action.role is Role.TRAINER and seen is not None:
            self._count(seen)
        if self.wrote == self.dies_at:
            self.alive = False
            raise Crash
        return outcome

    def _count(self, job: Job) -> None:
        """Note a trainer above the maximum that the controller saw, however stale its copies of the pods are."""
        if job.key in self.world.jobs and self.world.jobs[job.key].job.uid == job.uid:
            live = len(self.world.job(job.key).live_trainers)
            if live > job.max_trainers:
                self.broken.append(f"a trainer is created for {job.key}: {live} of at most {job.max_trainers}")

    def _judge(self, action: MarkPod | DeletePod) -> None:
        """Note a deletion of a good trainer that nothing calls for, as far as the controller could see."""
        job = self.jobs.get(action.job)
        pod = next((pod for pod in job.pods if pod.uid == action.pod_uid), None) if job is not None else None
        if job is None or pod is None or pod.role is not Role.TRAINER or pod.phase is not PodPhase.RUNNING:
            return
        if pod.terminating or pod.intent or pod.disruption or (isinstance(action, DeletePod) and action.marked):
            return
        if action.intent == Reason.SERVING_NEEDS_ROOM and not self.served:
            self.broken.append(f"{pod.name} is deleted for serving, but no serving pod waits")
        if not any(self._calls(job, pod)):
            self.broken.append(f"{pod.name} is deleted ({action.intent}) without a reason")

    def _calls(self, job: Job, pod: Pod) -> Iterator[bool]:
        """What may call for the end of a trainer."""
        node = self.world.nodes.get(pod.node)
        yield self.served
        yield node is None or not node.ready
        yield job.suspended or is_over(job) or bool(job.problem)
        yield len(job.live_trainers) > job.max_trainers
        yield not job.fault_tolerant or any(not p.is_live for p in job.pods if p.role is not Role.TRAINER)
        yield any(len(p.live_trainers) < p.max_trainers for key, p in self.jobs.items() if key != job.key)
        yield not {p.role for p in job.pods} >= {
            f.role for f in job.fixed
        }  # its pservers are gone, so it starts again
        capacity = sum(n.allocatable["cpu"] for n in self.world.nodes.values() if n.ready)
        yield capacity < sum(node.allocatable["cpu"] for node in NODES)
