"""What rules between pods cost the planner: worlds without them, with a tenth, and with all of serving apart by node.

`python -m benchmarks.ruled` prints for each world the CPU seconds to read the rules and to decide, how often that
the same world without rules costs, the gap of the certificate, and how many waiting serving pods are placed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from benchmarks.contended_worlds import contended
from edl.explain.decision import decide
from edl.kube.translate.rules.apply import RuledSnapshots
from edl.kube.translate.rules.facts import NO_FACTS
from edl.kube.translate.rules.terms import PodRules, PodTerm
from edl.kube.translate.rules.view import HOSTNAME
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.resources import Requirement
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_serving

WORLDS = ((100, 12, 4), (400, 40, 6), (1000, 60, 6))
"""Nodes, jobs, and sizes of trainers."""
SHARES = (0.0, 0.1, 1.0)
NAMESPACE = "serving"
OF_APP = 20
"""So many pods of each application run, and two more wait."""


def world(nodes: int, jobs: int, sizes: int, seed: int) -> ClusterSnapshot:
    """A contended cluster with applications of which two pods wait."""
    found = contended(nodes, jobs, sizes, seed)
    apps = max(1, len(found.pods) // OF_APP)
    waiting = [replace(make_serving(f"wait-{number}", cpu=2, memory_gib=4), tried=True) for number in range(2 * apps)]
    labelled = [replace(node, labels=(*node.labels, (HOSTNAME, node.name))) for node in found.nodes]
    return replace(found, nodes=tuple(labelled), pods=tuple(sorted((*found.pods, *waiting), key=lambda p: p.name)))


def rules_for(snapshot: ClusterSnapshot, share: float) -> Callable[[Pod], PodRules]:
    """The rules of each pod: an application has one pod a node, in so large a part of the applications."""
    apps = max(1, len(snapshot.pods) // (OF_APP + 2))
    known: dict[int, PodRules] = {}
    number = {pod.uid: place % apps for place, pod in enumerate(snapshot.pods)}

    def of(pod: Pod) -> PodRules:
        app = number[pod.uid]
        if app not in known:
            selector = (Requirement("app", "In", (f"a{app}",)),)
            apart = (PodTerm(selector, (NAMESPACE,), None, HOSTNAME),) if app < share * apps else ()
            known[app] = PodRules(NAMESPACE, (("app", f"a{app}"),), anti=apart)
        return known[app]

    return of


def measure(snapshot: ClusterSnapshot, share: float) -> tuple[float, float, ScalePlan]:
    """CPU seconds to read the rules, and to decide, and the plan."""
    rules = rules_for(snapshot, share)
    began_s = time.process_time()
    ruled = RuledSnapshots().apply(snapshot, NO_FACTS, rules, lambda _job, _role: PodRules("")) if share else snapshot
    read_s = time.process_time()
    plan = decide(ruled, policy_named("maxmin"), Limits(deadline_s=120.0))
    return read_s - began_s, time.process_time() - read_s, plan


def main() -> None:
    """Print a line for each world and share."""
    parser = argparse.ArgumentParser(description="What rules between pods cost the planner.")
    parser.add_argument("--times", type=int, default=3, help="the median of so many measurements, of one seed each")
    parser.add_argument("--worlds", type=int, default=len(WORLDS), help="so many of the worlds")
    chosen = parser.parse_args()
    print("nodes  jobs  serving apart  rules s  decide s  ratio  gap %  placed/waiting")
    for nodes, jobs, sizes in WORLDS[: chosen.worlds]:
        usual: list[float] = []
        for share in SHARES:
            seen = [measure(world(nodes, jobs, sizes, seed), share) for seed in range(chosen.times)]
            whole = [read + decided for read, decided, _ in seen]
            usual = usual or whole
            ratio = sum(whole) / sum(usual)
            gap = 100 * max(plan.certificate.gap for _, _, plan in seen)
            placed, waiting = (sum(getattr(p.serving, name) for _, _, p in seen) for name in ("placed", "waiting"))
            print(
                f"{nodes:5}  {jobs:4}  {share:12.0%}  {median(r for r, _, _ in seen):7.3f}"
                f"  {median(d for _, d, _ in seen):8.3f}  {ratio:5.2f}  {gap:5.2f}  {placed}/{waiting}",
                flush=True,
            )


if __name__ == "__main__":
    main()
