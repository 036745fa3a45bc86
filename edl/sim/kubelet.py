"""Simulated kubelets: they start bound pods, change their CPU requests and end them, each after a delay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edl.model.lending import RunningRequest
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU
from edl.sim.scenario import LatencySpec
from edl.sim.world import Engine, PodKey, World, with_request

SERVING = "serving"
"""The kind of a pod without a role in the latencies of a scenario."""

ADDRESS = "192.0.2.1"
"""The address of every running master. Nobody connects to it; the controller only needs one."""


class Kubelet:
    """All kubelets of a simulated world."""

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
        running = after.running_request
        if running is not None and running.requested_milli != running.granted_milli:
            self._later((self._latency.resize_s,) * 2, key, after.uid, self._grant)

    def _later(
        self, between_s: tuple[float, float], key: PodKey, uid: str, what: Callable[[PodKey, str], None]
    ) -> None:
        self._engine.later(self._engine.rng.uniform(*between_s), lambda: what(key, uid))

    def _start(self, key: PodKey, uid: str) -> None:
        pod = self._world.pods.get(key)
        if pod is not None and pod.uid == uid and pod.is_live:
            now_s = self._engine.now_s()
            running = None
            if pod.role is Role.TRAINER:
                running = RunningRequest(pod.shape.request[CPU], pod.requested[CPU], pod.requested[CPU])
            started = replace(pod, phase=PodPhase.RUNNING, ready=True, started_s=now_s, running_request=running)
            self._world.put(replace(started, ip=ADDRESS) if pod.role is Role.MASTER else started)

    def _grant(self, key: PodKey, uid: str) -> None:
        """Grant the request that the spec of a running pod has now."""
        pod = self._world.pods.get(key)
        if pod is not None and pod.uid == uid and pod.running_request is not None:
            running = replace(pod.running_request, granted_milli=pod.running_request.requested_milli)
            self._world.put(with_request(pod, running))

    def _end(self, key: PodKey, uid: str) -> None:
        pod = self._world.pods.get(key)
        if pod is not None and pod.uid == uid:
            self._world.drop(key)
