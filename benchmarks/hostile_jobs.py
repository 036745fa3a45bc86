"""Measures what one tenant's jobs cost a decision for all: `python -m benchmarks.hostile_jobs`.

A row for each kind of job, alone and ten at once, beside an honest job: CPU seconds of the decision, what it cut
short, and whether the honest job gets as many trainers as without the others. Policy `maxmin`, or what an empty name
stands for. Compare figures only with those of the same run on the same machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.resources import NodeTerm, Placement, PodShape, Preference, QosClass, Requirement, Toleration
from edl.model.topology import Topology, TopologyMode
from edl.planner.clock import Clock
from edl.planner.decide import study
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_shape, make_snapshot
from tests.worlds.oversized_pods import job_at_limits

DEADLINE_S = 10.0
HONEST = make_job("honest", max_trainers=20, cpu=2, namespace="other", age_s=-10.0)
"""A new job of another tenant: the youngest of all."""


def cluster(nodes: int) -> ClusterSnapshot:
    """Equal nodes in racks of ten, and the honest job."""
    rows = (
        make_node(f"n{i:05d}", 16, 64, labels={"rack": f"r{i // 10}", "kind": "abcd"[i % 4], "zone": f"z{i % 3}"})
        for i in range(nodes)
    )
    return make_snapshot(tuple(rows), (HONEST,))


def beside(world: ClusterSnapshot, *jobs: Job) -> ClusterSnapshot:
    """The cluster with further jobs."""
    return replace(world, jobs=tuple(sorted((*world.jobs, *jobs), key=lambda job: job.key)))


def _named(weight: int, key: str, *values: str) -> Preference:
    return Preference(weight, NodeTerm((Requirement(key, "In", values),)))


def hostnames(number: int, nodes: int) -> Job:
    """Prefers 64 nodes by name, each by another weight."""
    wishes = tuple(_named(1 + i, "kubernetes.io/hostname", f"n{nodes - 1 - i:05d}") for i in range(64))
    return replace(make_job(f"hostnames-{number}", cpu=0.1, memory_gib=0.1, max_trainers=10_000), preferred=wishes)


def levels(number: int, nodes: int) -> Job:
    """Gives many nodes a score of their own: each list names the nodes with one bit in their number."""
    lists = (tuple(f"n{i:05d}" for i in range(max(0, nodes - 400), nodes) if i >> bit & 1) for bit in range(9))
    wishes = tuple(_named(min(100, 2**bit), "kubernetes.io/hostname", *names) for bit, names in enumerate(lists))
    return replace(make_job(f"levels-{number}", cpu=0.1, memory_gib=0.1, max_trainers=10_000), preferred=wishes)


def ordinary(number: int, nodes: int) -> Job:
    """Has four ordinary preferences and 5,000 trainers."""
    wishes = (
        _named(10, "kind", "a"),
        _named(20, "kind", "b"),
        _named(40, "zone", "z1"),
        _named(70, "rack", f"r{(nodes - 1) // 10}"),
    )
    return replace(make_job(f"ordinary-{number}", cpu=0.5, memory_gib=0.5, max_trainers=5000), preferred=wishes)


def largest(number: int, _: int) -> Job:
    """Wants 10,000 trainers, and nothing else."""
    return make_job(f"largest-{number}", cpu=0.1, memory_gib=0.1, max_trainers=10_000)


def growing(number: int, nodes: int) -> Job:
    """Has ten trainers of a size of its own, and wants a thousand times as many."""
    names = tuple(f"n{(number + i) % nodes:05d}" for i in range(10))
    return make_job(
        f"growing-{number}", trainers=10, on=names, cpu=0.1 + number / 1000, memory_gib=0.1, max_trainers=10_000
    )


def without_nodes(number: int, _: int) -> Job:
    """Has 5,000 trainers that have no node yet."""
    return make_job(f"without-{number}", trainers=5000, on=("",), cpu=0.1, memory_gib=0.1, max_trainers=10_000)


def best_effort(number: int, _: int) -> Job:
    """Wants 10,000 trainers without requests."""
    job = make_job(f"best-effort-{number}", cpu=0, memory_gib=0, max_trainers=10_000)
    return replace(job, qos=QosClass.BEST_EFFORT)


def best_effort_with_preferences(number: int, nodes: int) -> Job:
    """Wants 10,000 trainers without requests on nodes that it names."""
    return replace(best_effort(number, nodes), preferred=hostnames(number, nodes).preferred)


def running_best_effort(number: int, nodes: int) -> Job:
    """Has 2,000 trainers without requests, wants three times as many, and at least half as many more."""
    names = tuple(f"n{i:05d}" for i in range(nodes))
    job = make_job(
        f"running-{number}", trainers=2000, on=names, cpu=0, memory_gib=0, min_trainers=3000, max_trainers=6000
    )
    return replace(job, qos=QosClass.BEST_EFFORT)


def pservers(number: int, nodes: int) -> Job:
    """Has 2,000 pservers with preferences."""
    fixed = (FixedPods(Role.PSERVER, make_shape(0.1, 0.1), 2000, hostnames(number, nodes).preferred),)
    return make_job(f"pservers-{number}", cpu=0.1, memory_gib=0.1, max_trainers=100, fixed=fixed)


def points(number: int, _: int) -> Job:
    """Declares its speed for 64 counts of trainers."""
    speeds = tuple((1 + 150 * i, 100.0 * (i + 1) ** 0.9) for i in range(64))
    return replace(make_job(f"points-{number}", cpu=0.1, memory_gib=0.1, max_trainers=10_000), throughput=speeds)


def points_nowhere(number: int, nodes: int) -> Job:
    """Declares speeds, and may use no node."""
    job = points(number, nodes)
    nowhere = Placement(node_selector=(("zone", "none"),))
    return replace(job, trainer=PodShape(job.trainer.request, nowhere))


def tolerations(number: int, _: int) -> Job:
    """Is at all limits of a pod at once: ports, tolerations, and lists of nodes to avoid."""
    return replace(job_at_limits(number), max_trainers=10_000)


def selectors(number: int, _: int) -> Job:
    """Selects nodes by 64 labels."""
    labels = tuple((f"label-{i:02d}", "x") for i in range(63))
    job = make_job(f"selectors-{number}", cpu=0.1, memory_gib=0.1, max_trainers=10_000)
    return replace(job, trainer=PodShape(job.trainer.request, Placement(node_selector=(*labels, ("zone", "z1")))))


def tolerating(number: int, _: int) -> Job:
    """Tolerates 64 taints."""
    accepted = tuple(Toleration(f"taint-{i}", "Exists") for i in range(64))
    job = make_job(f"tolerating-{number}", cpu=0.1, memory_gib=0.1, max_trainers=10_000)
    return replace(job, trainer=PodShape(job.trainer.request, Placement(tolerations=accepted)))


def terms(number: int, nodes: int) -> Job:
    """Requires one of 64 lists of names, another set of them for each job."""
    lists = (tuple(f"n{(number + 31 * i + k) % nodes:05d}" for k in range(31)) for i in range(64))
    required = tuple(NodeTerm((Requirement("kubernetes.io/hostname", "In", names),)) for names in lists)
    job = make_job(f"terms-{number}", cpu=0.1, memory_gib=0.1, max_trainers=10_000)
    return replace(job, trainer=PodShape(job.trainer.request, Placement(required=required)))


def one_node_domains(number: int, _: int) -> Job:
    """Wants all its trainers in one of as many domains as there are nodes."""
    job = make_job(f"domains-{number}", cpu=0.1, memory_gib=0.1, max_trainers=10_000)
    return replace(job, topology=Topology.of("kubernetes.io/hostname", TopologyMode.REQUIRED))


def racks(number: int, _: int) -> Job:
    """Would like its trainers in one rack."""
    job = make_job(f"racks-{number}", cpu=0.1, memory_gib=0.1, max_trainers=10_000)
    return replace(job, topology=Topology.of("rack", TopologyMode.PREFERRED))


KINDS: Mapping[str, Callable[[int, int], Job]] = {
    "hostnames": hostnames,
    "levels": levels,
    "ordinary": ordinary,
    "largest": largest,
    "growing": growing,
    "without nodes": without_nodes,
    "best effort": best_effort,
    "best effort, hostnames": best_effort_with_preferences,
    "best effort, running": running_best_effort,
    "pservers": pservers,
    "points": points,
    "points, no node": points_nowhere,
    "at limits": tolerations,
    "selectors": selectors,
    "tolerating": tolerating,
    "terms": terms,
    "hosts as domains": one_node_domains,
    "racks": racks,
}
"""Jobs that cost a decision as much as they can, by what they use for it."""


def measure(world: ClusterSnapshot, policy: str) -> tuple[float, int, str]:
    """CPU seconds of a decision, trainers of the honest job, and what was cut short or why there is no plan."""
    clock = Clock(DEADLINE_S, time.process_time)
    since_s = time.process_time()
    try:
        plan = study(world, policy_named(policy), Limits(deadline_s=DEADLINE_S), clock=clock).plan
    except PlanError as error:
        return time.process_time() - since_s, 0, f"no plan: {error.failure}"
    spent_s = time.process_time() - since_s
    target = next(decision.target for decision in plan.decisions if decision.job == HONEST.key)
    return spent_s, target, f"{plan.policy} {', '.join(plan.cut)}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=(200, 1000))
    parser.add_argument("--policy", default="")
    parser.add_argument("words", nargs="*", help="only kinds whose name contains one of these")
    chosen = parser.parse_args()
    print(f"{'kind':24} {'nodes':>6} {'jobs':>5} {'CPU s':>7} {'honest':>8}  policy and what was cut")
    for nodes in chosen.nodes:
        world = cluster(nodes)
        _, due, _ = measure(world, chosen.policy)
        for name, make in KINDS.items():
            if chosen.words and not any(word in name for word in chosen.words):
                continue
            for count in (1, 10):
                spent_s, got, cut = measure(beside(world, *(make(i, nodes) for i in range(count))), chosen.policy)
                print(f"{name:24} {nodes:6d} {count:5d} {spent_s:7.2f} {got:4d}/{due:<3d}  {cut}", flush=True)


if __name__ == "__main__":
    main()
