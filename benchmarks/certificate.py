"""Measures certificates: `python -m benchmarks.certificate`.

For each size it plans an empty cluster and the full one that results, proves both plans, writes snapshot, plan and
certificate as files, and lets `tools/verify_certificate.py` check them in a process of its own. It prints the CPU
seconds of plan, bounds, proof and check (reading the files included), the sizes of the files, and the bounds: the
planner's gap, by how much the exact one is higher, how far the worst off could be, the gap with these levels and the
trainers that stay, and what not moving pods costs. Compare figures only with those of one run on one machine.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.worlds import carried_out, fleet, jobs_2017, mixed, nodes_2017
from edl.explain.best_possible import BestPossible, best_possible
from edl.explain.certificates.document import certify
from edl.explain.decision import explained_study
from edl.explain.plan_table import plan_dict
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.plan import Certificate
from edl.model.pods import Pod
from edl.model.quantity import format_quantity
from edl.model.resources import Resources
from edl.planner.policies.registry import POLICIES
from tests.worlds.builders import make_snapshot

LIMITS = Limits(deadline_s=300.0)
SCRIPT = Path(__file__).parents[1] / "tools" / "verify_certificate.py"


def objects_of(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """A snapshot as the List that `kubectl get -o json` would print, with the fields that decide."""
    items = [*map(_node, snapshot.nodes), *(_pod(pod, {}) for pod in snapshot.pods)]
    for job in snapshot.jobs:
        items.append(_job(job))
        items += [_pod(pod, _labels(pod)) for pod in job.pods]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _quantities(request: Resources) -> dict[str, str]:
    return {name: format_quantity(amount, name) for name, amount in request.amounts}


def _node(node: Node) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "status": {
            "allocatable": _quantities(node.allocatable),
            "conditions": [{"type": "Ready", "status": str(node.ready)}],
        },
    }


def _container(request: Resources, name: str = "main") -> dict[str, Any]:
    requests = {name: amount for name, amount in _quantities(request).items() if name != "pods"}
    return {"name": name, "image": "i", "resources": {"requests": requests}}


def _labels(pod: Pod) -> dict[str, str]:
    name = pod.job.name if pod.job else ""
    return {
        "paddlepaddle.org/job": name,
        "paddlepaddle.org/role": pod.role or "",
        "paddlepaddle.org/index": str(pod.index),
    }


def _pod(pod: Pod, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": labels},
        "spec": {"containers": [_container(pod.shape.request)], **({"nodeName": pod.node} if pod.node else {})},
        "status": {"phase": pod.phase.value},
    }


def _job(job: Job) -> dict[str, Any]:
    sizes = {fixed.role: (fixed.count, fixed.shape.request) for fixed in job.fixed}
    spec: dict[str, Any] = {
        "fault_tolerant": Role.MASTER in sizes,
        "trainer": {
            "min-instance": job.min_trainers,
            "max-instance": job.max_trainers,
            "resources": _container(job.trainer.request)["resources"],
        },
    }
    for role, (count, request) in sizes.items():
        spec[role.value] = {"resources": _container(request)["resources"]}
        if role is Role.PSERVER:
            spec[role.value]["min-instance"] = count
    metadata = {"name": job.key.name, "namespace": job.key.namespace}
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}


def checked(documents: tuple[dict[str, Any], ...], folder: Path) -> tuple[float, list[float]]:
    """CPU seconds of the check in its own process, and the sizes of the files in MB."""
    paths = [folder / name for name in ("snapshot.json", "plan.json", "certificate.json")]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-I", str(SCRIPT), *map(str, paths)], capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"the check fails: {done.stdout.decode()}{done.stderr.decode()}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, [path.stat().st_size / 1e6 for path in paths]


def measure(name: str, snapshot: ClusterSnapshot, folder: Path) -> ClusterSnapshot:
    """Plan, prove and check; print the line; return the cluster with the plan carried out."""
    started_s = time.process_time()
    made = explained_study(snapshot, POLICIES["maxmin"], LIMITS)
    planned_s = time.process_time()
    best = best_possible(made, LIMITS.deadline_s)
    bounded_s = time.process_time()
    certificate = certify(made, best, LIMITS)
    proved_s = time.process_time()
    check_s, sizes = checked((objects_of(snapshot), plan_dict(made.plan, best=best), certificate), folder)
    stated, proofs = made.plan.certificate, certificate["proofs"]
    over = [
        float(Fraction(int(proofs[name]["bound"]), int(certificate["denominator"]))) / stated.bound - 1
        for name in ("promised", "minimum")
    ]
    pods = len(snapshot.pods) + sum(len(job.pods) for job in snapshot.jobs)
    print(
        f"{name:<26} {pods:6d} {planned_s - started_s:7.2f} {bounded_s - planned_s:6.2f} {proved_s - bounded_s:6.2f}"
        f" {check_s:6.2f} {sizes[0]:8.1f} {sizes[2]:8.2f} {stated.gap:8.3%} {over[0]:9.4%} {over[1]:9.4%}"
        f" {_levels(best, certificate):>14} {_gap(stated, best):8.3%} {_price(stated, best):8.3%}",
        flush=True,
    )
    return carried_out(snapshot, made.plan)


def _levels(best: BestPossible | None, certificate: dict[str, Any]) -> str:
    """The fulfilment of the worst off, and the two bounds of it: of the planner, and in rationals."""
    if best is None or not best.levels:
        return "-"
    level = best.levels[0]
    return f"{level.fulfilment:.3f} {level.bound:.3f} {float(Fraction(certificate['levels'][0]['bound'])):.3f}"


def _gap(stated: Certificate, best: BestPossible | None) -> float:
    """How much of the sum could be missing with these levels and the trainers that stay."""
    return 1 - stated.achieved / best.staying if best is not None and best.staying > 0 else 0.0


def _price(stated: Certificate, best: BestPossible | None) -> float:
    """What not moving pods costs at most, as a part of what the plan achieves."""
    return best.price_of_staying / stated.achieved if best is not None and stated.achieved > 0 else 0.0


def clusters(most_nodes: int) -> Iterator[tuple[str, ClusterSnapshot]]:
    """Named clusters of growing size."""
    yield "2017: 20 jobs x 133 nodes", make_snapshot(nodes_2017(), jobs_2017(20))
    yield "mixed: 100 jobs x 400", mixed(400, 100)
    for jobs, nodes in ((15, 20), (120, 200), (300, 1_000), (1_000, 10_000)):
        if nodes <= most_nodes:
            yield f"fleet: {jobs:,} jobs x {nodes:,}", fleet(nodes, jobs)


def main(arguments: list[str]) -> None:
    """Measure; an argument is the largest number of nodes."""
    head = (
        f"{'':<26} {'pods':>6} {'plan s':>7} {'bounds':>6} {'proof':>6} {'check':>6} {'snap. MB':>8} {'cert. MB':>8}"
    )
    print(f"{head} {'gap':>8} {'promised':>9} {'minimum':>9} {'worst off':>14} {'staying':>8} {'price':>8}")
    with TemporaryDirectory() as folder:
        for name, snapshot in clusters(int(arguments[0]) if arguments else 10_000):
            full = measure(name, snapshot, Path(folder))
            measure("  the same, full", full, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
