"""The true objects of a simulated cluster: nodes, pods and jobs, and what the pods use of the nodes.

Everything that happens is a pod or a job that is put or dropped here; listeners are called for each change. The world
decides nothing and knows no time but that of the clock it is given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edl.lifecycle.status import is_over
from edl.model.actions import EmitEvent
from edl.model.cluster import ClusterSnapshot, Node, NodeRequest
from edl.model.jobs import Job
from edl.model.lending import RunningRequest
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.model.resources import CPU, Placement, PodShape
from edl.planner.eligibility import takes_each

PodKey = tuple[str, str]
Change = Callable[[Pod | None, Pod | None], None]
"""Called when a pod changes, with the pod before and after; None if it did not exist, or does not any more."""

Timer = Callable[[float, Callable[[], None]], object]
"""Calls a function after a number of seconds."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Clock, events and random numbers, which the parts of a simulation share besides the world.

    Attributes:
        now_s: reads the time.
        later: calls a function after so many seconds.
        rng: every random choice; one for each run, so that a seed gives one history.
    """

    now_s: Callable[[], float]
    later: Timer
    rng: random.Random


class World:
    """Nodes, pods and jobs.

    Attributes:
        names: the names of the nodes, in a fixed order; the rows of the arrays below.
        allocatable, used: (nodes, resources) amounts; `used` counts bound pods that are not finished.
        on_node: by node, its pods that are not finished.
        of_job: by UID of a job, its pods by name.
        groups: the Deployment of each serving pod.
        asks: the job and the node group of each request pod.
        ready_nodes: (nodes,) False for a node that is away.
        events: what the controller reported to users.
    """

    def __init__(self, nodes: Iterable[Node], system: Iterable[int] = ()) -> None:
        """Take the nodes; `system` are cores in use on them by pods that no snapshot shows, in millicores."""
        self.nodes = {node.name: node for node in nodes}
        self.names = list(self.nodes)
        self.row = {name: i for i, name in enumerate(self.names)}
        self.resources = sorted({name for node in self.nodes.values() for name in node.allocatable})
        self.allocatable = np.array([self._amounts(n.allocatable.as_dict()) for n in self.nodes.values()])
        self.used = np.zeros_like(self.allocatable)
        self.ready_nodes = np.ones(len(self.nodes), dtype=np.bool_)
        self.system_milli = sum(system)
        self.pods: dict[PodKey, Pod] = {}
        self.jobs: dict[JobKey, Job] = {}
        self.owner: dict[PodKey, str] = {}
        self.groups: dict[PodKey, str] = {}
        self.of_job: dict[str, dict[str, Pod]] = {}
        self.on_node: dict[str, dict[PodKey, Pod]] = {name: {} for name in self.names}
        self.events: list[EmitEvent] = []
        self.listeners: list[Change] = []
        self.job_listeners: list[Callable[[JobKey], None]] = []
        self.born = 0
        self.asks: dict[PodKey, tuple[JobKey, str]] = {}
        self._foreign: dict[PodKey, Pod] = {}
        self._shown_foreign: tuple[Pod, ...] | None = ()
        self._shown_jobs: dict[JobKey, Job] = {}
        self._shown_nodes: tuple[Node, ...] | None = None
        self._vectors: dict[PodShape, NDArray[np.int64] | None] = {}
        self._eligible: dict[Placement, NDArray[np.bool_]] = {}

    # --- What pods need

    def _amounts(self, amounts: dict[str, int]) -> list[int]:
        return [amounts.get(name, 0) for name in self.resources]

    def vector(self, shape: PodShape) -> NDArray[np.int64] | None:
        """(resources,) what a pod requests; None if it requests something that no node has."""
        if shape not in self._vectors:
            wanted = shape.request.as_dict()
            known = set(wanted) <= set(self.resources)
            self._vectors[shape] = np.array(self._amounts(wanted), dtype=np.int64) if known else None
        return self._vectors[shape]

    def request_of(self, pod: Pod) -> NDArray[np.int64] | None:
        """(resources,) what kube-scheduler counts for a pod: what it declares without the CPU that it lends."""
        vector = self.vector(pod.shape)
        if vector is None or not pod.lent_cpu_milli:
            return vector
        return vector - np.array(self._amounts({CPU: pod.lent_cpu_milli}), dtype=np.int64)

    def eligible(self, placement: Placement) -> NDArray[np.bool_]:
        """(nodes,) True where a pod with that placement may run, whatever is free there."""
        if placement not in self._eligible:
            self._eligible[placement] = takes_each(list(self.nodes.values()), [placement])[placement]
        return self._eligible[placement] & self.ready_nodes

    # --- Pods

    def new_uid(self) -> str:
        """Make a UID that no other pod has."""
        self.born += 1
        return f"pod-{self.born}"

    def put(self, pod: Pod, owner: str = "", group: str = "") -> None:
        """Add a pod, or replace it by its next version."""
        key = (pod.namespace, pod.name)
        before = self.pods.get(key)
        if before is None:
            if owner:
                self.owner[key] = owner
            if group:
                self.groups[key] = group
        else:
            self._release(before)
        self.pods[key] = pod
        if pod.node and not pod.is_finished:
            vector = self.request_of(pod)
            if vector is not None:
                self.used[self.row[pod.node]] += vector
            self.on_node[pod.node][key] = pod
        if uid := self.owner.get(key):
            self.of_job.setdefault(uid, {})[pod.name] = pod
            if pod.job is not None:
                self._shown_jobs.pop(pod.job, None)
        else:
            self._show_foreign(key, pod)
        for listener in self.listeners:
            listener(before, pod)

    def put_request(self, job: JobKey, group: str, pod: Pod) -> None:
        """Add a request pod of a job; the scheduler treats it as any other pod."""
        self.asks[pod.namespace, pod.name] = (job, group)
        self.put(pod)

    def drop(self, key: PodKey) -> None:
        """Remove a pod for good."""
        pod = self.pods.pop(key, None)
        if pod is None:
            return
        self._release(pod)
        self.groups.pop(key, None)
        if uid := self.owner.pop(key, None):
            self.of_job[uid].pop(pod.name)
            if pod.job is not None:
                self._shown_jobs.pop(pod.job, None)
        elif self._foreign.pop(key, None) is not None:
            self._shown_foreign = None
        self.asks.pop(key, None)
        for listener in self.listeners:
            listener(pod, None)

    def _release(self, pod: Pod) -> None:
        if pod.node and not pod.is_finished:
            vector = self.request_of(pod)
            if vector is not None:
                self.used[self.row[pod.node]] -= vector
            self.on_node[pod.node].pop((pod.namespace, pod.name), None)

    def _show_foreign(self, key: PodKey, pod: Pod) -> None:
        if pod.is_finished:
            self._foreign.pop(key, None)
        else:
            self._foreign[key] = pod
        self._shown_foreign = None

    # --- Jobs and nodes

    def put_job(self, job: Job) -> None:
        """Add a job, or replace it; its pods are kept apart."""
        self.jobs[job.key] = replace(job, finished=is_over(job), pods=())
        self.of_job.setdefault(job.uid, {})
        self._shown_jobs.pop(job.key, None)
        for listener in self.job_listeners:
            listener(job.key)

    def drop_job(self, key: JobKey) -> Job | None:
        """Remove a job; its pods have no owner then."""
        job = self.jobs.pop(key, None)
        self._shown_jobs.pop(key, None)
        if job is not None:
            for listener in self.job_listeners:
                listener(key)
        return job

    def job(self, key: JobKey) -> Job:
        """Return a job with its pods."""
        shown = self._shown_jobs.get(key)
        if shown is None:
            job = self.jobs[key]
            pods = sorted(self.of_job[job.uid].values(), key=lambda p: (p.role or "", p.index or 0, p.name))
            shown = self._shown_jobs[key] = replace(job, pods=tuple(pods))
        return shown

    def remove_node(self, name: str) -> None:
        """Take a node away; the garbage collector removes its pods."""
        self.ready_nodes[self.row[name]] = False
        self._shown_nodes = None
        for key in list(self.on_node[name]):
            self.drop(key)

    def return_node(self, name: str) -> None:
        """Let a node join again, empty."""
        self.ready_nodes[self.row[name]] = True
        self._shown_nodes = None

    def snapshot(self, now_s: float) -> ClusterSnapshot:
        """The cluster as the controller reads it."""
        if self._shown_nodes is None:
            present = [name for name in self.names if self.ready_nodes[self.row[name]]]
            self._shown_nodes = tuple(self.nodes[name] for name in sorted(present))
        if self._shown_foreign is None:
            self._shown_foreign = tuple(self._foreign[key] for key in sorted(self._foreign) if key not in self.asks)
        requests = [NodeRequest(*asked, self.pods[key]) for key, asked in self.asks.items()]
        requests.sort(key=lambda request: (request.job, request.pod.name))
        jobs = tuple(self.job(key) for key in sorted(self.jobs))
        return ClusterSnapshot(now_s, self._shown_nodes, self._shown_foreign, jobs, node_requests=tuple(requests))


def with_request(pod: Pod, running: RunningRequest) -> Pod:
    """The pod with another request; it lends what it declares beyond what kube-scheduler counts for it."""
    return replace(pod, running_request=running, lent_cpu_milli=running.declared_milli - running.charged_milli)
