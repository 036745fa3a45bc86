"""Nodes that start pods that were bound to them and end pods that were deleted, each after a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edl.model.pods import Pod, PodPhase
from edl.sim.scenario import LatencySpec
from edl.sim.world import Engine, PodKey, World

SERVING = "serving"
"""The kind of a pod without a role in the latencies of a scenario."""


class Kubelet:
    """All kubelets of a world."""

    def __init__(self, world: World, engine: Engine, latency: LatencySpec) -> None:
        self._world, self._engine, self._latency = world, engine, latency
        world.listeners.append(self._changed)

    def _changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is None:
            return
        key = (after.namespace, after.name)
        if after.node and not (before is not None and before.node):
            self._later(self._latency.start_of(after.role or SERVING), key, after.uid, self._start)
        if after.terminating and not (before is not None and before.terminating):
            grace = self._latency.stop_of(after.role or SERVING) if after.node else (0.0, 0.0)
            self._later(grace, key, after.uid, self._end)

    def _later(
        self, between_s: tuple[float, float], key: PodKey, uid: str, what: Callable[[PodKey, str], None]
    ) -> None:
        self._engine.later(self._engine.rng.uniform(*between_s), lambda: what(key, uid))

    def _start(self, key: PodKey, uid: str) -> None:
        pod = self._world.pods.get(key)
        if pod is not None and pod.uid == uid and pod.is_live:
            now_s = self._engine.now_s()
            self._world.put(replace(pod, phase=PodPhase.RUNNING, ready=True, started_s=now_s))

    def _end(self, key: PodKey, uid: str) -> None:
        pod = self._world.pods.get(key)
        if pod is not None and pod.uid == uid:
            self._world.drop(key)
