"""Clusters on their worst days, seeded: serving beyond the surplus, an outage, half of the nodes lost, mass arrival.

Every builder takes the number of nodes, the number of jobs and a seed; equal arguments give equal clusters. Printed
as a table with `python -m benchmarks.overload_worlds [WORD...]`: CPU seconds of one decision, what serving got, and
how many jobs run.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from benchmarks.worlds import running_pod
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import Condition, JobStatus
from edl.planner.policies.registry import POLICIES
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot

NODE_MILLI = 16_000
SERVING_MILLI = (1200, 1500, 1600, 1700)  # what running serving pods request
SERVING_A_NODE = 9
WAITING_CORES = 3.0
WAITING_A_NODE = 0.296  # more than nodes would have capacity for once every surplus trainer is gone
MASTER_MILLI = 100
TRAINER_MILLI = 1000
OUTAGE_TRAINERS = ((1, 2), (2, 4), (2.5, 10), (4, 16), (7, 30), (9, 18))
AGE_S = 100_000.0

World = Callable[[int, int, int], ClusterSnapshot]


def overload(nodes: int, jobs: int, seed: int = 1) -> ClusterSnapshot:
    """More serving pods of three cores wait than all surplus trainers could free capacity for.

    Each node runs nine serving pods and has 1 to 4.5 cores left; the jobs have a master of a tenth of a core and
    trainers of one core, and use most of that. A master that stands where three cores are just free blocks one pod.
    """
    random = Random(seed)  # noqa: S311
    left, pods = _serving_everywhere(nodes, random)
    slots = _Slots(left, random)
    found = tuple(_running_job(i, slots, random) for i in range(jobs))
    waiting = (
        make_serving(f"wait-{i:05d}", cpu=WAITING_CORES, memory_gib=1) for i in range(int(nodes * WAITING_A_NODE))
    )
    return make_snapshot(_nodes(nodes), found, (*pods, *waiting), now_s=AGE_S)


def outage(nodes: int, jobs: int, seed: int = 1) -> ClusterSnapshot:
    """Every node is not ready, and no job has a pod left."""
    random = Random(seed)  # noqa: S311
    dark = tuple(replace(node, ready=False) for node in _nodes(nodes))
    return make_snapshot(dark, tuple(_waiting_job(i, random) for i in range(jobs)), now_s=AGE_S)


def half_lost(nodes: int, jobs: int, seed: int = 1) -> ClusterSnapshot:
    """Every second node is not ready; what ran there is gone, and its serving pods wait for other nodes."""
    random = Random(seed)  # noqa: S311
    left, pods = _serving_everywhere(nodes, random)
    slots = _Slots(left, random)
    running = tuple(_running_job(i, slots, random) for i in range(jobs))
    known = _nodes(nodes)
    lost = {node.name for node in known[1::2]}
    kept = tuple(pod for pod in pods if pod.node not in lost)
    waiting = (replace(pod, node="", phase=PodPhase.PENDING, ready=False) for pod in pods if pod.node in lost)
    found = (replace(job, pods=tuple(pod for pod in job.pods if pod.node not in lost)) for job in running)
    return make_snapshot(
        tuple(replace(node, ready=node.name not in lost) for node in known),
        tuple(found),
        (*kept, *waiting),
        now_s=AGE_S,
    )


def mass_arrival(nodes: int, jobs: int, seed: int = 1) -> ClusterSnapshot:
    """Half of the jobs fill the cluster; the other half was created this minute."""
    random = Random(seed)  # noqa: S311
    left, pods = _serving_everywhere(nodes, random)
    slots = _Slots(left, random)
    old = tuple(_running_job(i, slots, random) for i in range(jobs // 2))
    new = tuple(replace(_waiting_job(i, random), created_s=AGE_S - 1) for i in range(jobs // 2, jobs))
    return make_snapshot(_nodes(nodes), (*old, *new), pods, now_s=AGE_S)


WORLDS: dict[str, World] = {
    "overload": overload,
    "outage": outage,
    "half lost": half_lost,
    "mass arrival": mass_arrival,
}


class _Slots:
    """Hands out nodes that still have capacity, in a random order that comes round again."""

    def __init__(self, left_milli: list[int], random: Random) -> None:
        self._left = left_milli
        self._order = list(range(len(left_milli)))
        random.shuffle(self._order)
        self._at = 0

    def take(self, milli: int) -> str:
        """The name of the next node with so much CPU left, which is then used; empty if no node has it."""
        for _ in self._order:
            node = self._order[self._at % len(self._order)]
            self._at += 1
            if self._left[node] >= milli:
                self._left[node] -= milli
                return _name(node)
        return ""


def _name(node: int) -> str:
    return f"n{node:05d}"


def _nodes(count: int) -> tuple[Node, ...]:
    return tuple(make_node(_name(i), NODE_MILLI / 1000, 128, labels={"pool": "ab"[i % 2]}) for i in range(count))


def _serving_everywhere(nodes: int, random: Random) -> tuple[list[int], tuple[Pod, ...]]:
    """What the serving pods of each node leave, in thousandths of a core, and these pods."""
    left, pods = [], []
    for node in range(nodes):
        sizes = [random.choice(SERVING_MILLI) for _ in range(SERVING_A_NODE)]
        left.append(NODE_MILLI - sum(sizes))
        pods += [
            make_serving(f"web-{node:05d}-{k}", cpu=milli / 1000, memory_gib=1, node=_name(node))
            for k, milli in enumerate(sizes)
        ]
    return left, tuple(pods)


def _running_job(number: int, slots: _Slots, random: Random) -> Job:
    """A job with a master and 4 to 11 trainers of one core, as far as there is capacity."""
    low = random.randint(1, 2)
    master = make_shape(MASTER_MILLI / 1000, 0.125)
    job = make_job(
        f"j{number:05d}",
        min_trainers=low,
        max_trainers=low + random.randint(3, 9),
        cpu=TRAINER_MILLI / 1000,
        memory_gib=2,
        fixed=(FixedPods(Role.MASTER, master, 1),),
    )
    pods = [running_pod(job, Role.MASTER, 0, slots.take(MASTER_MILLI))]
    trainers = (slots.take(TRAINER_MILLI) for _ in range(random.randint(low, job.max_trainers)))
    pods += [running_pod(job, Role.TRAINER, i, node) for i, node in enumerate(trainers)]
    admitted = Condition("Admitted", "True", "Admitted", "", 1000.0)
    return replace(
        job,
        created_s=1000.0 + number,
        pods=tuple(pod for pod in pods if pod.node),
        status=JobStatus(conditions=(admitted,)),
    )


def _waiting_job(number: int, random: Random) -> Job:
    """A job that has no pod, of one of six trainer sizes."""
    cpu, memory = random.choice(OUTAGE_TRAINERS)
    low = random.randint(1, 9)
    fixed = (FixedPods(Role.MASTER, make_shape(0.5, 1), 1), FixedPods(Role.PSERVER, make_shape(2, 4), 2))
    job = make_job(
        f"j{number:05d}",
        min_trainers=low,
        max_trainers=low + random.randint(0, 30),
        cpu=cpu,
        memory_gib=memory,
        fixed=fixed if number % 3 == 0 else (),
    )
    return replace(job, created_s=1000.0 + number)


def measure(names: Iterable[str], sizes: Iterable[tuple[int, int]], deadline_s: float = 600.0) -> None:
    """Print a line for each world and size."""
    print(f"{'world':<14} {'nodes':>6} {'jobs':>6} {'CPU s':>8} {'waiting':>8} {'placed':>7} {'run':>6} {'gap':>8}")
    for name in names:
        for nodes, jobs in sizes:
            snapshot = WORLDS[name](nodes, jobs, 1)
            started_s = time.process_time()
            plan = decide(snapshot, POLICIES["maxmin"], Limits(deadline_s=deadline_s))
            cpu_s = time.process_time() - started_s
            run = sum(decision.admitted for decision in plan.decisions)
            print(
                f"{name:<14} {nodes:6d} {jobs:6d} {cpu_s:8.2f} {plan.serving.waiting:8d} {plan.serving.placed:7d}"
                f" {run:6d} {plan.certificate.gap:8.3%}",
                flush=True,
            )


SIZES = ("200x50", "1000x200", "5000x1000")


def main() -> None:
    """Print the table; arguments limit it to worlds whose name contains one of them, and to sizes such as 100x40."""
    sizes = [word for word in sys.argv[1:] if re.fullmatch(r"[0-9]+x[0-9]+", word)]
    words = [word for word in sys.argv[1:] if word not in sizes]
    names = [name for name in WORLDS if not words or any(word in name for word in words)]
    measure(names, [(int(n), int(j)) for n, j in (size.split("x") for size in sizes or SIZES)])


if __name__ == "__main__":
    main()
