"""kube-scheduler in virtual time: one pod at a time, filter, score, bind; preempt where nothing fits; try again.

Source: the scheduling framework's queues (active, backoff, unschedulable), `numFeasibleNodesToFind`, and the default
plugins of Kubernetes 1.32; https://kubernetes.io/docs/concepts/scheduling-eviction/. With `retry: backoff` and
without priorities it is the scheduler of Kubernetes 1.6, which tried a pod again after a pause and never preempted.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
    """A pod that has been tried and fits nowhere."""

    tries: int
    until_s: float
    is_queued: bool = False


class Scheduler:
    """Binds the pods of a world; `evict` deletes a victim with its grace period."""

    def __init__(self, world: World, engine: Engine, spec: SchedulerSpec) -> None:
        self._world, self._engine, self._spec = world, engine, spec
        self._active: list[tuple[int, float, int, PodKey]] = []
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
        freed = before is not None and before.node and (after is None or _frees_room(before, after))
        if freed and before is not None and self._spec.retry == "events":
            self._room_on(self._world.row[before.node])

    def node_came(self, name: str) -> None:
        """A node can take pods again."""
        self._room_on(self._world.row[name])

    def _push(self, pod: Pod) -> None:
        self._sequence += 1
        heapq.heappush(self._active, (-pod.priority, pod.created_s, self._sequence, (pod.namespace, pod.name)))
        self._wake()

    def _room_on(self, row: int) -> None:
        """Try those pods again that fit on a node now; kube-scheduler's queueing hints do the same."""
        if not self._waiting:
            return
        free = self._world.allocatable[row] - self._world.used[row]
        for key, waiting in self._waiting.items():
            pod = self._world.pods.get(key)
            if waiting.is_queued or pod is None:
                continue
            vector = self._world.request_of(pod)
            if vector is not None and bool(np.all(vector <= free)):
                waiting.is_queued = True
                self._after_backoff(key, waiting)

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
        took_s = self._spec.pod_s
        while self._active:
            *_, key = heapq.heappop(self._active)
            pod = self._world.pods.get(key)
            if pod is not None and not pod.node and pod.is_live:
                took_s = self._schedule(key, pod)
                break
        if self._active:
            self._engine.later(took_s, self._next)
        else:
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
        waiting = self._waiting.setdefault(key, _Waiting(0, 0.0))
        waiting.tries += 1
        backoff_s = min(self._spec.backoff_max_s, FIRST_BACKOFF_S * 2 ** (waiting.tries - 1))
        waiting.until_s = self._engine.now_s() + backoff_s
        waiting.is_queued = self._spec.retry == "backoff"
        took_s, nominated = self._spec.pod_s, pod.nominated
        if self._spec.preempts and self._may_preempt(pod):
            took_s = self._spec.preempt_s
            found = find_preemption(self._world, pod, free, self._engine.rng)
            if found is not None:
                nominated = found.node
                self._nominated[key] = nominated
        if waiting.is_queued:
            self._after_backoff(key, waiting)
        if not pod.tried or nominated != pod.nominated:
            self._world.put(replace(pod, tried=True, answered_s=self._engine.now_s(), nominated=nominated))
        if nominated and nominated != pod.nominated and found is not None:
            for victim in found.victims:
                self._evict(victim)
        return took_s

    def _may_preempt(self, pod: Pod) -> bool:
        """Its class allows it, and it does not wait for victims of its last preemption to end."""
        if pod.priority < 0:
            return False
        place = self._nominated.get((pod.namespace, pod.name))
        here = self._world.on_node.get(place or "", {})
        return not any(other.terminating and other.priority < pod.priority for other in here.values())

    def _evict(self, key: PodKey) -> None:
        victim = self._world.pods.get(key)
        if victim is not None and not victim.terminating:
            self.preempted += 1
            self._world.put(replace(victim, terminating=True, ready=False, disruption="PreemptionByScheduler"))

    def waiting_counts(self) -> Counter[str]:
        """How many tried pods wait, by namespace."""
        return Counter(namespace for namespace, _ in self._waiting)


def _nodes_to_find(count: int) -> int:
    """How many feasible nodes end the search, by `percentageOfNodesToScore: 0`."""
    if count <= MIN_FEASIBLE:
        return count
    percentage = max(5, 50 - count // 125)
    return max(MIN_FEASIBLE, count * percentage // 100)


def _frees_room(before: Pod, after: Pod) -> bool:
    """True if a bound pod uses less of its node than before: it has finished, or its request was lowered in place."""
    return (after.is_finished and not before.is_finished) or after.lent_cpu_milli > before.lent_cpu_milli
