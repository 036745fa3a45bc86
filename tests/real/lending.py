"""A serving wave beside `example/fit_flights` on a real kubelet: over nothing, with lending and without.

    python -m tests.real.lending [--waves 3] [--hold-s 20] [--cycle-s 60]     # as root; make real-lending

One node has the whole machine. Two serving pods come and go; each answers fifty requests a second, a few milliseconds
of a core each, and their time counts from when they were due. Trainers fill what the node has left by what they
declare. The table has, for each case: seconds from the change of the replicas until both pods are Ready, response
times while they serve, steps of training per second (pushes to a pserver), and trainers that were deleted.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import yaml

from tests.e2e.control_plane.build import ensure_binaries, ensure_node_binaries
from tests.e2e.control_plane.report import is_ready
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.e2e.worlds import facts
from tests.e2e.worlds.pod_log import PodLog
from tests.real.cluster import images
from tests.real.cluster.images import BASE_IMAGE, TRAINER_IMAGE
from tests.real.cluster.layout import NodeSpec
from tests.real.cluster.needs import check_machine
from tests.real.cluster.running import RealCluster
from tests.real.mission import (
    DEPLOYMENT,
    EXAMPLE,
    FLIGHTS_IMAGE,
    NAMESPACE,
    Journal,
    installed,
    names,
    pods,
)

Object = dict[str, Any]
JOB, SERVING = "lends", "web"
PROGRAM = Path(__file__).parent / "programs" / "respond.py"
PODS, SERVING_CPU = 2, "500m"
TRAINER_CPU = "300m"
MOST_TRAINERS = 5
EPOCHS = 10_000
ALONE_S = 20.0
SETTLED_S = 2.0
"""From a pod's readiness until its response times count."""

LENDING = {"EDL_SURPLUS_CPU_REQUEST": "0.1"}
PUSHES = (
    "import time, urllib.request as u;"
    " print(u.urlopen('http://127.0.0.1:7164/weights').headers['X-Pushes'], time.time())"
)
"""Asks the first pserver, where it listens."""


@dataclass
class Figures:
    """What one case came to.

    Attributes:
        ready_s: of each wave, from the change of the replicas until every serving pod was Ready.
        responses_ms: of every request while the pods served.
        alone, serving, through: steps of training per second before the first wave, while serving was there, and
            from the first rise to the end of the last cycle.
        deleted: trainers that were deleted, by cause.
        restarts: containers of the job that were started again.
        load: of the machine at the end, over a minute.
        audit: what `edl audit` said of the journal.
    """

    ready_s: list[float] = field(default_factory=list)
    responses_ms: list[float] = field(default_factory=list)
    alone: float = 0.0
    serving: list[float] = field(default_factory=list)
    through: float = 0.0
    deleted: dict[str, int] = field(default_factory=dict)
    restarts: int = 0
    load: float = 0.0
    audit: str = ""

    def row(self, name: str) -> str:
        """A line of the table."""
        p50, p99, p999 = np.quantile(self.responses_ms, [0.5, 0.99, 0.999])
        training = [f"{one:.0f}" if one else "" for one in (self.alone, mean(self.serving or [0]), self.through)]
        deleted = ", ".join(f"{count} ({cause})" for cause, count in self.deleted.items()) or "0"
        cells = (
            name,
            f"{mean(self.ready_s):.1f} s ({min(self.ready_s):.1f} to {max(self.ready_s):.1f})",
            f"{p50:.1f} / {p99:.1f} / {p999:.1f} ms",
            str(len(self.responses_ms)),
            *training,
            deleted,
            str(self.restarts),
            self.audit,
            f"{self.load:.1f}",
        )
        return f"| {' | '.join(cells)} |"


HEADS = (
    "beside",
    "Ready after, mean",
    "p50 / p99 / p99.9",
    "requests",
    "steps/s alone",
    "beside serving",
    "through all waves",
    "trainers deleted",
    "restarts",
    "audit",
    "load",
)


@dataclass(frozen=True)
class Pace:
    """How often serving comes, how long it stays, and how long one coming and going takes."""

    waves: int
    hold_s: float
    cycle_s: float


def job(cpu: str = TRAINER_CPU, most: int = MOST_TRAINERS) -> Object:
    """The example's job, which trains on for as long as it is let."""
    body: Object = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    body["metadata"]["name"] = JOB
    spec = body["spec"]
    spec["image"] = FLIGHTS_IMAGE
    spec["dataset"]["epochs"] = EPOCHS
    spec["master"] = {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}}
    spec["trainer"] |= {
        "max-instance": most,
        "resources": {
            "requests": {"cpu": cpu, "memory": "128Mi"},
            "limits": {"cpu": cpu, "memory": "256Mi"},
        },
    }
    return body


def serving(cpu: str = SERVING_CPU) -> Object:
    """A Deployment of no pods yet; its program is in a ConfigMap of the same name."""
    container = {
        "name": SERVING,
        "image": BASE_IMAGE,
        "command": ["python3", "/program/respond.py"],
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
        "volumeMounts": [{"name": "program", "mountPath": "/program"}],
    }
    pod = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "program", "configMap": {"name": SERVING}}],
    }
    labels = {"app": SERVING}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SERVING},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


@contextmanager
def deployed(cluster: RealCluster, cpu: str = SERVING_CPU) -> Iterator[None]:
    """The serving Deployment while the context lasts."""
    cluster.kubectl("create", "configmap", SERVING, f"--from-file={PROGRAM}")
    cluster.kube.create(serving(cpu))
    try:
        yield
    finally:
        cluster.kubectl("delete", f"deployment/{SERVING}", f"configmap/{SERVING}")
        cluster.kube.wait_until(lambda: not serving_pods(cluster), 60, "serving is gone")


@contextmanager
def flags(cluster: RealCluster, settings: dict[str, str]) -> Iterator[None]:
    """The controller with these variables."""
    _set_environment(cluster, [f"{name}={value}" for name, value in settings.items()])
    try:
        yield
    finally:
        _set_environment(cluster, [f"{name}-" for name in settings])


def _set_environment(cluster: RealCluster, changes: Sequence[str]) -> None:
    if not changes:
        return
    cluster.kubectl("set", "env", "-n", NAMESPACE, DEPLOYMENT, *changes)
    cluster.kubectl("rollout", "status", "-n", NAMESPACE, DEPLOYMENT, "--timeout=120s", timeout_s=150)
    cluster.kube.wait_until(
        lambda: not any(map(facts.is_terminating, cluster.kube.list("pods"))), 60, "the old ones are gone"
    )


def serving_pods(cluster: RealCluster) -> list[Object]:
    """The pods of the Deployment, also those that end."""
    return cluster.kube.list("pods", "default", labels=f"app={SERVING}")


def scale(cluster: RealCluster, replicas: int, timeout_s: float = 120) -> float:
    """Scale serving, and wait until so many pods are Ready and no other is there; returns the seconds."""
    began = time.monotonic()
    cluster.kube.scale("deployments", SERVING, replicas)
    cluster.kube.wait_until(
        lambda: [is_ready(pod) for pod in serving_pods(cluster)] == [True] * replicas,
        timeout_s,
        f"{replicas} serving pods are ready",
        poll_s=0.05,
    )
    return time.monotonic() - began


def responses_ms(cluster: RealCluster, since_s: float, until_s: float) -> list[float]:
    """What the users of every serving pod waited for requests that were due in that time."""
    found = []
    for pod in names(serving_pods(cluster)):
        for line in cluster.kubectl("logs", pod).splitlines():
            due_s, waited_ms = map(float, line.split())
            if since_s <= due_s <= until_s:
                found.append(waited_ms)
    return found


def steps(cluster: RealCluster) -> tuple[int, float]:
    """Steps of training so far, and the time of that."""
    server = names(pods(cluster, JOB, "pserver"))[0]
    pushes, at_s = cluster.exec(server, "python3", "-c", PUSHES).split()
    return int(pushes), float(at_s)


def wait_trained(cluster: RealCluster) -> None:
    """Wait until the trainers have taken steps: pods run before the programs in them listen."""

    def has_begun() -> bool:
        with suppress(ControlPlaneError, IndexError):
            return steps(cluster)[0] > 0
        return False

    cluster.kube.wait_until(has_begun, 120, "they train")


def per_s(before: tuple[int, float], after: tuple[int, float]) -> float:
    """Steps per second between two moments."""
    return (after[0] - before[0]) / (after[1] - before[1])


def wave(cluster: RealCluster, pace: Pace, figures: Figures, *, trains: bool) -> None:
    """Let serving come and go once; returns when the cycle is over."""
    began = time.monotonic()
    figures.ready_s.append(scale(cluster, PODS))
    time.sleep(SETTLED_S)
    since_s, before = time.time(), steps(cluster) if trains else (0, 0.0)
    time.sleep(pace.hold_s)
    until_s, after = time.time(), steps(cluster) if trains else (0, 0.0)
    figures.responses_ms += responses_ms(cluster, since_s, until_s)
    if trains:
        figures.serving.append(per_s(before, after))
    scale(cluster, 0)
    time.sleep(max(0.0, began + pace.cycle_s - time.monotonic()))


def restarts(cluster: RealCluster) -> int:
    """How often containers of the job's pods were started again."""
    found = cluster.kube.list("pods", "default", labels=f"paddlepaddle.org/job={JOB}")
    return sum(one["restartCount"] for pod in found for one in pod["status"].get("containerStatuses", []))


def idle_case(cluster: RealCluster, pace: Pace) -> Figures:
    """The waves on a node without training."""
    figures = Figures()
    with deployed(cluster):
        for _ in range(pace.waves):
            wave(cluster, Pace(1, pace.hold_s, 0.0), figures, trains=False)
    figures.load = os.getloadavg()[0]
    return figures


def training_case(cluster: RealCluster, pace: Pace, folder: Path, settings: dict[str, str]) -> Figures:
    """The waves beside training, with these variables of the controller."""
    figures = Figures()
    journal = Journal(cluster, folder)
    with flags(cluster, settings), deployed(cluster), PodLog(cluster.kube) as log:
        cluster.kube.create(job())
        cluster.kube.wait_until(lambda: len(pods(cluster, JOB)) == MOST_TRAINERS, 120, "training fills the node")
        wait_trained(cluster)
        before = steps(cluster)
        time.sleep(ALONE_S)
        began = steps(cluster)
        figures.alone = per_s(before, began)
        for _ in range(pace.waves):
            wave(cluster, pace, figures, trains=True)
        figures.through = per_s(began, steps(cluster))
        figures.deleted = dict(log.causes())
        figures.restarts, figures.load = restarts(cluster), os.getloadavg()[0]
        log.forget(JOB)
        cluster.kubectl("delete", f"tj/{JOB}", timeout_s=90)
        cluster.kube.wait_until(
            lambda: not cluster.kube.list("pods", "default", labels=f"paddlepaddle.org/job={JOB}"), 60, "it is gone"
        )
    report = journal.audit()
    closed = [epoch for epoch in report["epochs"] if epoch["closed"]]
    is_exact = report["ok"] and all(epoch["done"] == epoch["total"] for epoch in closed)
    figures.audit = f"{'ok' if is_exact else report['problems']}, {len(closed)} epochs"
    journal.remove()
    return figures


def measure(workdir: Path, pace: Pace) -> None:
    """Start the cluster, run the three cases and print the table."""
    with RealCluster.start(workdir, specs=(NodeSpec("node-1"),)) as cluster:
        cluster.import_base()
        cluster.build_own_images()
        cluster.build_image(FLIGHTS_IMAGE, context=EXAMPLE, base=TRAINER_IMAGE)
        with installed(cluster):
            cluster.kubectl("scale", "-n", NAMESPACE, DEPLOYMENT, "--replicas=1")
            say(f"the cluster runs; load {os.getloadavg()[0]:.1f}")
            print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|", flush=True)
            print(idle_case(cluster, pace).row("nothing (idle node)"), flush=True)
            for name, settings in (("trainers that lend", LENDING), ("trainers that do not lend", {})):
                found = training_case(cluster, pace, workdir / name.replace(" ", "-"), settings)
                print(found.row(name), flush=True)


def say(message: str) -> None:
    """Tell the person who waits."""
    print(message, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.lending", description=__doc__)
    parser.add_argument("--waves", type=int, default=3, help="how often serving comes; default: 3")
    parser.add_argument("--hold-s", type=float, default=20.0, help="how long it stays; default: 20")
    parser.add_argument("--cycle-s", type=float, default=60.0, help="from one rise to the next; default: 60")
    chosen = parser.parse_args(arguments)
    check_machine()
    ensure_binaries()
    ensure_node_binaries()
    images.fetch()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - the master's user reaches its journal in it
        measure(Path(folder) / "cluster", Pace(chosen.waves, chosen.hold_s, chosen.cycle_s))
    return 0


if __name__ == "__main__":
    sys.exit(main())
