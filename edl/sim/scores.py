"""Scores the nodes that can take a pod as kube-scheduler does.

Source: the plugins NodeResourcesFit (LeastAllocated, weight 1), NodeResourcesBalancedAllocation (1), NodeAffinity (2)
and PodTopologySpread (2, system default: one pod of a Deployment beside as few others as possible). Scores are whole
numbers from 0 to 100, so nodes are often equal, and kube-scheduler then chooses at random.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edl.model.pods import Pod
from edl.model.resources import CPU, MEMORY
from edl.sim.world import World

_SCORED = (CPU, MEMORY)
_SKEW = 3
"""`maxSkew` of the default constraint on `kubernetes.io/hostname`."""


def best_rows(world: World, pod: Pod, rows: NDArray[np.int64], mates: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The rows with the highest score.

    Args:
        world: the nodes.
        pod: to be bound.
        rows: (n,) nodes that can take it, at least one.
        mates: (n,) pods of the same Deployment there; None if the pod belongs to none.
    """
    columns = np.array([i for i, name in enumerate(world.resources) if name in _SCORED])
    wanted = world.request_of(pod)
    total = world.allocatable[np.ix_(rows, columns)].astype(np.float64)
    request = np.zeros(len(columns)) if wanted is None else wanted[columns]
    share = np.minimum(1.0, (world.used[np.ix_(rows, columns)] + request) / np.maximum(total, 1.0))
    score = np.floor((1.0 - share) * 100).mean(axis=1).astype(np.int64)
    score += ((1.0 - share.std(axis=1)) * 100).astype(np.int64)
    if pod.planned:
        score += np.where(rows == world.row.get(pod.planned, -1), 200, 0)
    if mates is not None:
        score += 2 * _spread(mates)
    best: NDArray[np.int64] = rows[score == score.max()]
    return best


def _spread(mates: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) 0 to 100, more where fewer pods of the Deployment run."""
    raw = mates * np.log(len(mates) + 2) + (_SKEW - 1)
    low, high = raw.min(), raw.max()
    scores: NDArray[np.int64] = (100 * (high + low - raw) / max(high, 1e-9)).astype(np.int64)
    return scores
