"""Chooses which pods kube-scheduler preempts for a pod that fits on no node.

On each node that it looks at, all pods of lower priority go in thought; the most important come back as long as the
pod still fits. The node whose most important victim is least important wins, then the smaller sum of priorities, then
fewer victims, then the one whose most important victims started last, to the second; among equal nodes chance.

Source: k8s.io/kubernetes/pkg/scheduler/framework/preemption, `SelectVictimsOnNode` and `pickOneNodeForPreemption`; a
tenth of the nodes, at least 100, are looked at, from a random one on.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edl.model.pods import Pod
from edl.sim.world import PodKey, World

_OFFSET = 2**31  # priorities become positive, so that more victims are a larger sum
MIN_CANDIDATES = 100


@dataclass(frozen=True, slots=True)
class Preemption:
    """A node, and the pods to preempt on it."""

    node: str
    victims: tuple[PodKey, ...]


def find_preemption(world: World, pod: Pod, free: NDArray[np.int64], rng: random.Random) -> Preemption | None:
    """Choose the node on which to preempt pods; None if that helps on no node.

    Args:
        world: the cluster.
        pod: the pod that no node can take.
        free: (nodes, resources) free for it, nominated pods of no less priority counted as there.
        rng: chooses where the search begins, and among equal nodes.
    """
    wanted = world.request_of(pod)
    if wanted is None:
        return None
    could = np.all(world.allocatable >= wanted, axis=1) & world.eligible(pod.shape.placement)
    count = len(could)
    most, begin = max(MIN_CANDIDATES, count // 10), rng.randrange(count)
    least: tuple[float, ...] = (math.inf,)
    best: list[Preemption] = []
    seen = 0
    for step in range(count):
        row = (begin + step) % count
        if not could[row]:
            continue
        victims = _victims(world, pod, wanted.tolist(), free[row].tolist(), world.names[row])
        if victims:
            seen += 1
            cost = _cost(victims)
            if cost < least:
                least, best = cost, []
            if cost == least:
                best.append(Preemption(world.names[row], tuple((v.namespace, v.name) for v in victims)))
            if seen >= most:
                break
    return rng.choice(best) if best else None


def _victims(world: World, pod: Pod, wanted: list[int], free: list[int], node: str) -> list[Pod]:
    """Choose the pods to preempt on a node; empty if that does not help."""
    lower = [other for other in world.on_node[node].values() if other.priority < pod.priority]
    if not lower:
        return []
    amounts = {other.uid: _amounts(world, other) for other in lower}
    left = [have + sum(each) - want for have, want, *each in zip(free, wanted, *amounts.values(), strict=True)]
    if min(left) < 0:
        return []
    lower.sort(key=lambda other: (-other.priority, _start_of(other), other.created_s, other.name))
    victims = []
    for other in lower:
        after = [have - amount for have, amount in zip(left, amounts[other.uid], strict=True)]
        if min(after) < 0:
            victims.append(other)
        else:
            left = after
    return victims


def _amounts(world: World, pod: Pod) -> list[int]:
    vector = world.request_of(pod)
    return vector.tolist() if vector is not None else [0] * len(world.resources)


def _start_of(pod: Pod) -> float:
    """When a pod started, in whole seconds as `status.startTime` has it; later than all others if it has not."""
    return math.floor(pod.started_s) if pod.started_s is not None else math.inf


def _cost(victims: list[Pod]) -> tuple[float, ...]:
    highest = max(one.priority for one in victims)
    earliest = min(_start_of(one) for one in victims if one.priority == highest)
    return (highest, sum(one.priority + _OFFSET for one in victims), len(victims), -earliest)
