"""What `edl shadow` promises, and what comes of it once edl runs: the same load twice on a real control plane.

    python -m tests.e2e.scale.promise --minutes 5 --out DIR

Eight nodes of 8 cores hold serving pods of 2 cores, whose number follows a wave with noise, and three batch Jobs of
six pods of one core. First nobody resizes the Jobs, and `edl shadow --as-if-elastic` watches. Then the Jobs ask for
the bounds that shadow mode assumed, the controller runs, serving goes through the same counts, and shadow mode
measures what is used. The load is accelerated: a day of serving takes as long as a run.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from edl.shadow.document import Report
from tests.e2e.control_plane.build import ensure_binaries
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import ROOT, World
from tests.e2e.worlds.jobs import batch_job, serving
from tests.e2e.worlds.shadow_process import ShadowProcess

NODES = tuple(NodeSpec(f"node-{i}", {"cpu": "8", "memory": "32Gi", "pods": "110"}) for i in range(8))
JOBS, PODS, STEP_S, WITHIN_S = 3, 6, 15.0, 120.0
FEWEST, MOST = 4, 26
AGREEMENT = {"bound", "refused", "in_flight", "share"}
Object = dict[str, Any]


def levels(minutes: float, seed: int) -> list[int]:
    """How many serving pods there are in each step of 15 s: one wave in the whole time, and noise."""
    chance = random.Random(seed)  # noqa: S311 - a load, not a secret
    steps = max(1, round(60 * minutes / STEP_S))
    wave = (0.5 - 0.5 * math.cos(2 * math.pi * step / steps) for step in range(steps))
    return [round(FEWEST + (MOST - FEWEST) * min(1.0, max(0.0, part + chance.gauss(0, 0.06)))) for part in wave]


def job(number: int, *, asks: bool) -> Object:
    """A Job of six pods; it asks for three to twelve, or for nothing."""
    made = batch_job(f"train-{number}", parallelism=PODS, low=PODS // 2, high=2 * PODS)
    if not asks:
        del made["metadata"]["annotations"]
    return made


def run(plane: ControlPlane, credentials: Path, out: Path, counts: list[int], *, asks: bool) -> Report:
    """One run of the load under shadow mode; the cluster is empty before and after it."""
    kube = plane.kube
    flags = () if asks else ("--as-if-elastic",)
    for number in range(JOBS):
        kube.create(job(number, asks=asks))
    kube.create(serving(replicas=counts[0], cpu="2", memory="1Gi"))
    kube.wait_until(lambda: sum(map(facts.is_running, kube.list("pods", "default"))) >= JOBS * PODS, WITHIN_S, "full")
    with ShadowProcess(credentials, out, *flags) as shadow:
        for count in counts:
            kube.scale("deployments", "web", count)
            time.sleep(STEP_S)
        report = shadow.stop()
    kube.scale("deployments", "web", 0)
    for number in range(JOBS):
        kube.patch("jobs.batch", f"train-{number}", {"spec": {"suspend": True}})
        kube.delete("jobs.batch", f"train-{number}")
    kube.delete("deployments", "web")

    def is_empty() -> bool:
        pods = kube.list("pods", "default")
        for pod in pods:
            kube.delete("pods", pod["metadata"]["name"], grace_s=0)
        return not pods

    kube.wait_until(is_empty, WITHIN_S, "the cluster is empty", poll_s=0.5)
    return report


def figures(before: Report, after: Report) -> Object:
    """The promise of the first report beside the facts of the second."""
    promised = next(one for one in before.gain.resources if one.resource == "cpu")
    came = next(one for one in after.gain.resources if one.resource == "cpu")
    return {
        "observedS": [round(one.observed_s) for one in (before, after)],
        "cpuRequested": {
            "withoutEdl": round(promised.used, 4),
            "promised": round(promised.with_edl, 4),
            "came": round(came.used, 4),
        },
        "gain": promised.gain.model_dump(),
        "servingWaiting": {
            "withoutEdl": _waiting(before, "waiting"),
            "promised": _waiting(before, "waiting_with_edl"),
            "came": _waiting(after, "waiting"),
        },
        "agreement": [
            one.agreement.model_dump(include={"bound", "refused", "in_flight", "share"}) for one in (before, after)
        ],
        "evictions": before.evictions.model_dump(exclude={"evictions", "served"}),
        "costs": before.costs.model_dump(),
    }


def _waiting(report: Report, name: str) -> float:
    """Serving pods that waited, as a mean over time."""
    seconds = sum(one.seconds for one in report.intervals)
    pod_seconds: float = sum(getattr(one, name) * one.seconds for one in report.intervals)
    return round(pod_seconds / seconds, 3)


def main() -> int:
    """Play both runs and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True)
    ensure_binaries()
    counts = levels(arguments.minutes, arguments.seed)
    plane = ControlPlane.start(arguments.out / "cluster", nodes=NODES, settings=Settings())
    try:
        for body in yaml.safe_load_all((ROOT / "deploy/shadow/rbac.yaml").read_text()):
            plane.kube.apply(body)
        credentials = plane.kubeconfig_for("edl-shadow", duration_s=7200)
        before = run(plane, credentials, arguments.out / "before", counts, asks=False)
        with World(plane).controller:
            after = run(plane, credentials, arguments.out / "after", counts, asks=True)
    finally:
        plane.stop()
    json.dump(figures(before, after), sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
