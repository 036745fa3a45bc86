"""kube-scheduler in virtual time: one pod at a time, filter, score, bind; preempt where nothing fits; try again.

Source: k8s.io/kubernetes/pkg/scheduler of Kubernetes 1.36. `backend/queue`: the queues (active, backoff,
unschedulable), the first two of them popped in this order, so that no pod pauses while the scheduler has nothing else
to do (KEP 5142). `plugins/noderesources`, `isSchedulableAfterPodEvent`: whenever a bound pod is gone, every pod that
fitted nowhere is tried again, wherever it would fit. `plugins/defaultpreemption`: who may preempt. With
`retry: backoff` and without priorities it is the scheduler of Kubernetes 1.6, which tried a pod again after a pause
and never preempted.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edl.lifecycle.pod_events import PREEMPTED
from edl.model.pods import Pod
from edl.sim.preemption import find_preemption
from edl.sim.scenario import SchedulerSpec
from edl.sim.scores import best_rows
from edl.sim.world import Engine, PodKey, World

FIRST_BACKOFF_S = 1.0
MIN_FEASIBLE = 100
"""`minFeasibleNodesToFind`: smaller clusters are searched whole."""


@dataclass(slots=True)
class _Waiting:
    """A pod that has been tried and fits nowhere: how often, when last, what came of it, and until when it pauses."""

    tries: int
    result: str
    tried_s: float
    until_s: float
    is_queued: bool = False


class Scheduler:
    """Binds the pods of a world; `evict` deletes a victim with its grace period."""

    def __init__(self, world: World, engine: Engine, spec: SchedulerSpec) -> None:
        self._world, self._engine, self._spec = world, engine, spec
        self._active: list[tuple[int, float, int, PodKey]] = []
        self._pausing: list[tuple[float, int, PodKey]] = []
        self._waiting: dict[PodKey, _Waiting] = {}
        self._nominated: dict[PodKey, str] = {}
        self._sequence, self._start = 0, 0
        self._is_running = False
        self.preempted = 0
        world.listeners.append(self._changed)

    # --- Queues

    def _changed(self, before: Pod | None, after: Pod | None) -> None:
        if before is None and after is not None and not after.node and not after.gated:
            self._push(after)
        if after is None and before is not None:
            key = (before.namespace, before.name)
            self._waiting.pop(key, None)
            self._nominated.pop(key, None)
        freed = before is not None and before.node and (after is None or _frees_capacity(before, after))
        if freed and self._spec.retry == "events":
            for key, waiting in self._waiting.items():
                self._retry(key, waiting)

    def node_came(self, name: str) -> None:
        """Note that a node accepts pods again, and queue the pending pods that fit on it."""
        row = self._world.row[name]
        free = self._world.allocatable[row] - self._world.used[row]
        for key, waiting in self._waiting.items():
            pod = self._world.pods.get(key)
            vector = None if pod is None else self._world.request_of(pod)
            if vector is not None and bool(np.all(vector <= free)):
                self._retry(key, waiting)

    def _push(self, pod: Pod) -> None:
        """Queue a pod by its priority, then by the time since which it waits for a try."""
        key = (pod.namespace, pod.name)
        since_s = self._waiting[key].tried_s if key in self._waiting else pod.created_s
        self._sequence += 1
        heapq.heappush(self._active, (-pod.priority, since_s, self._sequence, key))
        self._wake()

    def _retry(self, key: PodKey, waiting: _Waiting) -> None:
        """Queue a pod that was refused, behind all others if its pause is not over."""
        pod = self._world.pods.get(key)
        if waiting.is_queued or pod is None:
            return
        waiting.is_queued = True
        if waiting.until_s <= self._engine.now_s():
            self._push(pod)
        else:
            self._sequence += 1
            heapq.heappush(self._pausing, (waiting.until_s, self._sequence, key))
            self._wake()

    def _after_backoff(self, key: PodKey, waiting: _Waiting) -> None:
        pause_s = max(0.0, waiting.until_s - self._engine.now_s())
        self._engine.later(pause_s, lambda: self._again(key))

    def _again(self, key: PodKey) -> None:
        pod = self._world.pods.get(key)
        if pod is not None and not pod.node and key in self._waiting:
            self._push(pod)

    def _wake(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._engine.later(self._spec.pod_s, self._next)

    def _next(self) -> None:
        """Take the first pod of the queue, and come back when the scheduler would have finished with it."""
        while self._active or self._pausing:
            *_, key = heapq.heappop(self._active) if self._active else heapq.heappop(self._pausing)
            pod = self._world.pods.get(key)
            if pod is not None and not pod.node and pod.is_live:
                self._engine.later(self._schedule(key, pod), self._next)
                return
        self._is_running = False

    # --- One pod

    def _schedule(self, key: PodKey, pod: Pod) -> float:
        """Bind a pod, or preempt for it; returns the seconds that it took."""
        rows, free = self._feasible(key, pod)
        if len(rows):
            nominee = self._nominated.pop(key, "")
            row = self._world.row[nominee] if nominee else -1
            chosen = row if row in rows else self._best(key, pod, rows)
            self._waiting.pop(key, None)
            self._world.put(
                replace(
                    pod,
                    node=self._world.names[chosen],
                    nominated="",
                    tried=False,
                    answered_s=self._engine.now_s(),
                )
            )
            return self._spec.pod_s
        return self._refuse(key, pod, free)

    def _feasible(self, key: PodKey, pod: Pod) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the nodes that can take a pod, as many as kube-scheduler looks for, and what is free for it."""
        world = self._world
        free = world.allocatable - world.used
        for other, node in self._nominated.items():
            peer = world.pods.get(other)
            if other != key and peer is not None and peer.priority >= pod.priority:
                vector = world.request_of(peer)
                if vector is not None:
                    free[world.row[node]] -= vector
        wanted = world.request_of(pod)
        if wanted is None:
            return np.zeros(0, dtype=np.int64), free
        fits = np.all(free >= wanted, axis=1) & world.eligible(pod.shape.placement)
        if pod.pinned and pod.planned:
            fits &= np.arange(len(fits)) == world.row.get(pod.planned, -1)
        count = len(fits)
        order = (np.arange(count) + self._start) % count
        found = order[fits[order]]
        most = _nodes_to_find(count)
        seen = count if len(found) < most else int(np.flatnonzero(fits[order])[most - 1]) + 1
        self._start = (self._start + seen) % count
        return found[:most], free

    def _best(self, key: PodKey, pod: Pod, rows: NDArray[np.int64]) -> int:
        world, group = self._world, self._world.groups.get(key, "")
        mates: NDArray[np.int64] | None = None
        if group:
            names = [world.names[row] for row in rows.tolist()]
            mates = np.array([sum(world.groups.get(k) == group for k in world.on_node[name]) for name in names])
        best = best_rows(world, pod, rows, mates)
        return int(best[self._engine.rng.randrange(len(best))])

    def _refuse(self, key: PodKey, pod: Pod, free: NDArray[np.int64]) -> float:
        waiting = self._waiting.setdefault(key, _Waiting(0, "", 0.0, 0.0))
        waiting.tries += 1
        backoff_s = min(self._spec.backoff_max_s, FIRST_BACKOFF_S * 2 ** (waiting.tries - 1))
        waiting.tried_s = self._engine.now_s()
        waiting.until_s = waiting.tried_s + backoff_s
        waiting.is_queued = self._spec.retry == "backoff"
        result, nominated = "not eligible", pod.nominated
        victims: tuple[PodKey, ...] = ()
        if self._spec.preempts and self._may_preempt(pod):
            found = find_preemption(self._world, pod, free, self._engine.rng)
            nominated, victims = (found.node, found.victims) if found is not None else ("", ())
            result = f"on {nominated}" if nominated else "no help"
            self._nominated.pop(key, None)
            if nominated:
                self._nominated[key] = nominated
        if waiting.is_queued:
            self._after_backoff(key, waiting)
        is_new, waiting.result = result != waiting.result, result
        if not pod.tried or nominated != pod.nominated:
            self._world.put(replace(pod, tried=True, answered_s=self._engine.now_s(), nominated=nominated))
        if nominated != pod.nominated:
            for victim in victims:
                self._evict(victim)
        return self._spec.preempt_s if is_new and self._spec.preempts else self._spec.pod_s

    def _may_preempt(self, pod: Pod) -> bool:
        """True if the pod's class allows preemption, and no victim of an earlier preemption for it still ends."""
        if pod.priority < 0:
            return False
        place = self._nominated.get((pod.namespace, pod.name))
        here = self._world.on_node.get(place or "", {})
        return not any(_is_ending_victim(other) and other.priority < pod.priority for other in here.values())

    def _evict(self, key: PodKey) -> None:
        victim = self._world.pods.get(key)
        if victim is not None and not victim.terminating:
            self.preempted += 1
            self._world.put(replace(victim, terminating=True, ready=False, disruption=PREEMPTED))

    def waiting_counts(self) -> Counter[str]:
        """How many tried pods wait, by namespace."""
        return Counter(namespace for namespace, _ in self._waiting)


def _nodes_to_find(count: int) -> int:
    """How many feasible nodes end the search, by `percentageOfNodesToScore: 0`."""
    if count <= MIN_FEASIBLE:
        return count
    percentage = max(5, 50 - count // 125)
    return max(MIN_FEASIBLE, count * percentage // 100)


def _is_ending_victim(pod: Pod) -> bool:
    return pod.terminating and pod.disruption == PREEMPTED


def _frees_capacity(before: Pod, after: Pod) -> bool:
    """True if a bound pod uses less of its node than before: it has finished, or its request was lowered in place."""
    return (after.is_finished and not before.is_finished) or after.lent_cpu_milli > before.lent_cpu_milli
