"""Jobs of one size in a tree of domains as one integer program, which shares no code with the planner.

Which jobs run is decided as the planner decides it: an older job before any number of younger ones. Among all ways to
run these jobs, the program finds one with the fewest domains on the Preferred levels. Only cpu is scarce.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.resources import CPU
from edl.model.topology import Level, Slices, Topology, TopologyMode
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot

KEYS = ("example.com/block", "example.com/rack")
PREFERRED, REQUIRED = TopologyMode.PREFERRED, TopologyMode.REQUIRED
LIMIT_S = 20.0
Domain = tuple[str, ...]
Name = tuple[object, ...]
Term = tuple[Name, float]


class Best(NamedTuple):
    """What is possible.

    Attributes:
        runs: for each job, by age, whether it runs.
        domains: the fewest domains on Preferred levels that are narrower than a Required one, if there is one; all
            running jobs and levels together.
    """

    runs: tuple[bool, ...]
    domains: int


def random_world(seed: int, most_nodes: int = 60) -> ClusterSnapshot:
    """Blocks of racks with nodes of 4 to 8 cores, some of them in use, and up to eight jobs of one size each.

    Some nodes lack a label, and blocks share the names of their racks.
    """
    random = Random(seed)  # noqa: S311
    nodes, pods = [], []
    for i in range(random.randint(8, most_nodes)):
        labels = {KEYS[0]: f"b{i % random.choice((2, 3, 3))}", KEYS[1]: f"r{random.randint(0, 2)}"}
        if random.random() < 0.05:
            del labels[random.choice(KEYS)]
        nodes.append(make_node(f"n{i:02d}", random.randint(4, 8), 64, labels=labels))
        if used := random.choice((0, 0, 1, 2, 4)):
            pods.append(make_serving(f"s{i}", cpu=used, memory_gib=1, node=nodes[-1].name))
    jobs = (_random_job(random, i) for i in range(random.randint(2, 8)))
    return make_snapshot(tuple(nodes), tuple(jobs), tuple(pods))


def _random_job(random: Random, number: int) -> Job:
    modes = random.choice(((REQUIRED, PREFERRED), (PREFERRED, REQUIRED), (PREFERRED, PREFERRED)))
    size = random.choice((0, 0, 2, 4, 6))
    count = size * random.randint(1, 4) if size else random.randint(2, 24)
    topology = Topology(tuple(map(Level, KEYS, modes)), Slices(size, 2) if size else None)
    job = make_job(
        f"j{number}",
        min_trainers=count,
        max_trainers=count,
        cpu=random.choice((1, 1, 2, 3)),
        memory_gib=0.1,
        age_s=100.0 - number,
    )
    sizes = (count,) if size else ()
    return replace(job, topology=topology, sizes=sizes)


def solve(world: ClusterSnapshot) -> Best | None:
    """What is possible at best; None if the solver did not prove it in time."""
    program = _Program(world)
    count = len(program.jobs)
    most: dict[Name, float] = {("runs", j): -float(2 ** (count - j)) for j in range(count)}
    first = program.solve(most, {})
    if first is None:
        return None
    runs = tuple(first["runs", j] > 0.5 for j in range(count))
    fixed: dict[Name, float] = {("runs", j): float(run) for j, run in enumerate(runs)}
    last = program.solve(dict.fromkeys(program.used, 1.0), fixed)
    return None if last is None else Best(runs, round(sum(last[name] for name in program.used)))


class _Program:
    """The variables and rows; a variable is named by a tuple.

    Attributes:
        jobs: by age, the oldest first.
        used: the variables that count domains of Preferred levels.
    """

    def __init__(self, world: ClusterSnapshot) -> None:
        self.jobs = sorted(world.jobs, key=lambda job: job.created_s)
        self._nodes, free = world.nodes, Counter({node.name: node.allocatable[CPU] for node in world.nodes})
        for pod in world.pods:
            free[pod.node] -= pod.shape.request[CPU]
        self._free = free
        self._most: dict[Name, float] = {}
        self._rows: list[tuple[list[Term], float, float]] = []
        self.used: list[Name] = []
        for j, job in enumerate(self.jobs):
            self._add_job(j, job)
        for node in world.nodes:
            here: list[Term] = [
                (("pods", j, node.name), float(job.trainer.request[CPU])) for j, job in enumerate(self.jobs)
            ]
            self._rows.append((here, -np.inf, float(free[node.name])))

    def _fits(self, job: Job, node: Node) -> int:
        return max(0, min(job.min_trainers, self._free[node.name] // job.trainer.request[CPU]))

    def _add_job(self, j: int, job: Job) -> None:
        topology = job.topology or Topology(())
        self._most["runs", j] = 1.0
        pods: list[Term] = []
        for node in self._nodes:
            self._most["pods", j, node.name] = float(self._fits(job, node))
            pods.append((("pods", j, node.name), 1.0))
        self._rows.append(([*pods, (("runs", j), -float(job.min_trainers))], 0.0, 0.0))
        modes = [level.mode for level in topology.levels]
        implied = modes.index(REQUIRED) if REQUIRED in modes else 0
        for depth, level in enumerate(topology.levels, start=1):
            if depth <= implied:
                continue
            if level.mode is REQUIRED:
                names = list(self._links(j, job, "in", depth))
                self._rows.append(([*((name, 1.0) for name in names), (("runs", j), -1.0)], 0.0, 0.0))
                self._close(j, depth)
            else:
                self.used += self._links(j, job, "uses", depth)
        if topology.slices is not None:
            self._close(j, topology.slices.depth)
            for domain, nodes in self._domains(topology.slices.depth).items():
                self._most["slices", j, domain] = float(job.min_trainers // topology.slices.size)
                row = [(("pods", j, node.name), 1.0) for node in nodes]
                self._rows.append(([*row, (("slices", j, domain), -float(topology.slices.size))], 0.0, 0.0))

    def _links(self, j: int, job: Job, kind: str, depth: int) -> Iterator[Name]:
        """A variable for each domain of a level that is 1 if the job has pods there."""
        for domain, nodes in self._domains(depth, is_whole=kind == "uses").items():
            name = (kind, j, depth, domain)
            self._most[name] = 1.0
            for node in nodes:
                self._rows.append(
                    ([(("pods", j, node.name), 1.0), (name, -float(self._fits(job, node)))], -np.inf, 0.0)
                )
            yield name

    def _close(self, j: int, depth: int) -> None:
        """Let no pod of a job go to a node outside of all domains of a level."""
        inside = {node.name for nodes in self._domains(depth).values() for node in nodes}
        for node in self._nodes:
            if node.name not in inside:
                self._most["pods", j, node.name] = 0.0

    def _domains(self, depth: int, *, is_whole: bool = False) -> dict[Domain, list[Node]]:
        """The nodes by the values of their labels; those that lack one count as one domain if `is_whole`."""
        found: dict[Domain, list[Node]] = {}
        for node in self._nodes:
            values = tuple(dict(node.labels).get(key, "") for key in KEYS[:depth])
            if all(values) or is_whole:
                found.setdefault(values if all(values) else (), []).append(node)
        return found

    def solve(self, cost: dict[Name, float], fixed: dict[Name, float]) -> dict[Name, float] | None:
        """The variables at the least cost; None if no solution was proved to be the best in time."""
        names = {name: column for column, name in enumerate(self._most)}
        low = np.array([fixed.get(name, 0.0) for name in names])
        high = np.array([fixed.get(name, most) for name, most in self._most.items()])
        at = [(row, names[name], factor) for row, (terms, _, _) in enumerate(self._rows) for name, factor in terms]
        rows, columns, factors = zip(*at, strict=True)
        matrix = coo_array((factors, (rows, columns)), shape=(len(self._rows), len(names))).tocsr()
        least, most = np.array([least for _, least, _ in self._rows]), np.array([most for _, _, most in self._rows])
        found = milp(
            np.array([cost.get(name, 0.0) for name in names]),
            integrality=np.ones(len(names), dtype=np.int64),
            bounds=Bounds(low, high),
            constraints=LinearConstraint(matrix, least, most),
            options={"time_limit": LIMIT_S, "mip_rel_gap": 0.0},
        )
        return dict(zip(names, found.x.tolist(), strict=True)) if found.status == 0 else None
