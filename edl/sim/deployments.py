"""Deployments whose number of replicas follows a timeline, as a ReplicaSet controller carries it out.

Source: which pods a ReplicaSet deletes first, k8s.io/kubernetes/pkg/controller, `ActivePodsWithRanks`: unbound, then
not ready, then those beside more pods of the same ReplicaSet, then those that have been ready for a shorter time by
its binary logarithm; among equals chance decides (`logarithmicRankDiff`, UIDs). Before Kubernetes 1.21 the youngest
went first.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from edl.model.pods import Pod
from edl.sim.scenario import DeploymentSpec
from edl.sim.shapes import shape_of
from edl.sim.world import Engine, World

NAMESPACE = "serving"


class Deployment:
    """A simulated Deployment with its pods.

    Attributes:
        target: replicas that it should have now.
        ready: replicas that are ready.
        made: pods created so far.
    """

    def __init__(
        self, world: World, engine: Engine, spec: DeploymentSpec, create_per_s: float, *, youngest_first: bool = False
    ) -> None:
        self._world, self._engine, self.spec = world, engine, spec
        self._youngest_first = youngest_first
        self._shape, self._pause_s = shape_of(spec.resources), 1.0 / create_per_s
        self._pods: dict[str, Pod] = {}
        self.made = 0
        self._creating = False
        self.target = self.ready = 0
        world.listeners.append(self._changed)

    @property
    def name(self) -> str:
        """The name of the Deployment."""
        return self.spec.name

    def scale(self, replicas: int) -> None:
        """Set the number of replicas."""
        self.target = replicas
        live = self._live()
        surplus = len(live) - replicas
        if surplus > 0:
            beside = Counter(pod.node for pod in live)
            if self._youngest_first:
                live.sort(key=lambda p: (bool(p.node), p.ready, -beside[p.node], -p.created_s, p.name))
            else:
                self._engine.rng.shuffle(live)
                live.sort(key=lambda p: (bool(p.node), p.ready, -beside[p.node], self._age_rank(p)))
            for pod in live[:surplus]:
                self._delete(pod)
        self._create()

    def _age_rank(self, pod: Pod) -> int:
        """The binary logarithm of a pod's age since it became ready (or was created), in nanoseconds."""
        since_s = pod.started_s if pod.ready and pod.started_s is not None else pod.created_s
        age_s = self._engine.now_s() - since_s
        return int(math.log2(age_s * 1e9)) if age_s > 0 else -1

    def _live(self) -> list[Pod]:
        return [pod for pod in self._pods.values() if pod.is_live]

    def _create(self) -> None:
        if not self._creating and len(self._live()) < self.target:
            self._creating = True
            self._engine.later(self._pause_s, self._create_one)

    def _create_one(self) -> None:
        self._creating = False
        if len(self._live()) >= self.target:
            return
        self.made += 1
        pod = Pod(
            namespace=NAMESPACE,
            name=f"{self.name}-{self.made:06d}",
            uid=self._world.new_uid(),
            shape=self._shape,
            created_s=self._engine.now_s(),
        )
        self._world.put(pod, group=self.name)
        self._create()

    def _delete(self, pod: Pod) -> None:
        if pod.node:
            self._world.put(replace(pod, terminating=True, ready=False))
        else:
            self._world.drop((pod.namespace, pod.name))

    def _changed(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        if pod is None or pod.namespace != NAMESPACE or pod.name.rpartition("-")[0] != self.name:
            return
        if after is None:
            self._pods.pop(pod.name, None)
        else:
            self._pods[pod.name] = after
        was, now = bool(before and before.ready), bool(after and after.ready)
        self.ready += now - was
        if after is None and before is not None and not before.terminating:
            self._create()
