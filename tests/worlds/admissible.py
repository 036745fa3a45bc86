"""Whether jobs could have run: an integer program over whole pods on whole nodes, which knows nothing of the planner.

It is strict: every pod must fit as a new one beside those that stay. So what it places can run, and what it does not
place may still run where a pod stands that could not be created there again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, identity, kron

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.resources import HOST_PORT_PREFIX, PodShape
from edl.planner.eligibility import takes

LIMIT_S = 60.0


def can_run(snapshot: ClusterSnapshot, jobs: Iterable[Job], serving: Mapping[PodShape, int]) -> bool:
    """True if the minimums of all these jobs fit at once, with their masters and pservers, beside serving pods.

    Args:
        snapshot: the cluster; all other jobs are gone, and so are all trainers.
        jobs: who runs; their masters and pservers stay where they are.
        serving: how many waiting serving pods of each shape need a place.
    """
    chosen, wanted = list(jobs), Counter(serving)
    for job in chosen:
        wanted[job.trainer] += job.bounds.min_trainers
        for fixed in job.fixed:
            there = sum(p.role is fixed.role and p.is_live and bool(p.node or p.nominated) for p in job.pods)
            wanted[fixed.shape] += max(0, fixed.count - there)
    wanted = +wanted
    return not wanted or _placed(snapshot, wanted, _free(snapshot, chosen))


def _free(snapshot: ClusterSnapshot, jobs: list[Job]) -> dict[str, Counter[str]]:
    """By node, what is free beside pods of others and the masters and pservers of these jobs."""
    free = {node.name: Counter(node.allocatable.as_dict()) for node in snapshot.nodes}
    for node in snapshot.nodes:
        free[node.name].subtract(node.reserved.as_dict())
    stay = [p for job in jobs for p in job.pods if p.is_live and p.role is not Role.TRAINER]
    leave = [p for job in snapshot.jobs for p in job.pods if not p.is_live and not p.is_finished]
    for pod in (*snapshot.pods, *stay, *leave):
        if not pod.is_finished and (pod.node or pod.nominated) in free:
            free[pod.node or pod.nominated].subtract(pod.shape.request.as_dict())
    return free


def _room(node: Node, free: Counter[str], resource: str) -> int:
    """What is free of a resource; each host port is there once, at every address."""
    return free[resource] + (1 if resource.startswith(HOST_PORT_PREFIX) and resource not in node.allocatable else 0)


def _placed(snapshot: ClusterSnapshot, wanted: Counter[PodShape], free: Mapping[str, Counter[str]]) -> bool:
    """Place all pods; the answer is checked in integers. A program that takes too long proves nothing."""
    shapes, nodes = list(wanted), snapshot.nodes
    names = sorted({name for shape in shapes for name in shape.request})
    room = np.array([[_room(node, free[node.name], name) for name in names] for node in nodes], dtype=np.int64)
    request = np.array([[shape.request[name] for name in names] for shape in shapes], dtype=np.int64)
    scale = room.max(axis=0, initial=1).clip(min=1).astype(np.float64)
    most = [
        [wanted[shape] if takes(node, shape.placement) and (request[s] <= room[n])[request[s] > 0].all() else 0
         for n, node in enumerate(nodes)]
        for s, shape in enumerate(shapes)
    ]  # fmt: skip
    use = kron(csr_array((request / scale).T), identity(len(nodes)), format="csr")
    total = kron(identity(len(shapes)), csr_array(np.ones((1, len(nodes)))), format="csr")
    counts = np.array([wanted[shape] for shape in shapes], dtype=np.float64)
    found = milp(
        np.zeros(len(shapes) * len(nodes)),
        constraints=[LinearConstraint(use, ub=(room / scale).T.ravel().clip(min=0)), LinearConstraint(total, counts)],
        integrality=np.ones(len(shapes) * len(nodes), dtype=np.int64),
        bounds=Bounds(0, np.array(most, dtype=np.float64).ravel()),
        options={"time_limit": LIMIT_S},
    )
    if found.x is None:
        return False
    pods = np.asarray(found.x).round().astype(np.int64).reshape(len(shapes), len(nodes))
    used = pods.T @ request
    return bool((pods.sum(axis=1) >= counts).all() and ((used <= room) | (used == 0)).all())
