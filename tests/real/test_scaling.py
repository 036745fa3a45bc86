"""Measured scaling in real containers: the cost of a resize, the speed of each number of trainers, and the plan.

Two jobs of the same size share the cluster. The trainers of one work alone, those of the other stand in line for one
server. Nobody tells policy `utility` which: it reads it off what their masters count.
"""

from __future__ import annotations

import functools
import json
import subprocess
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.cluster.images import ROOT, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.lending import flags
from tests.real.mission import Journal, pods, run_program, status

Object = dict[str, Any]
PROGRAM = Path(__file__).parent / "programs" / "pace.py"
SCALES, CONTENDS = "scales", "contends"
FEW, MANY = 1, 4
POLICY = "utility"
PER_S = 20.0  # of one trainer


def job(name: str, how: str) -> Object:
    """A job that is held at its fewest trainers at first."""
    amounts = {"cpu": "400m", "memory": "64Mi"}
    small = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "image": TRAINER_IMAGE,
            "fault_tolerant": True,
            "dataset": {"source": "index:1000000", "shardSize": 20},
            "trainer": {
                "entrypoint": f"python pace.py {how}",
                "min-instance": 1,
                "max-instance": 8,
                "instances": FEW,
                "resources": {"requests": amounts, "limits": {"cpu": "1", "memory": "64Mi"}},
                "template": {"spec": {"terminationGracePeriodSeconds": 2}},
            },
            "pserver": {"min-instance": 1, "resources": small},
            "master": {"resources": small},
        },
    }


@pytest.fixture
def jobs(controller: RealCluster, tmp_path: Path) -> Iterator[RealCluster]:
    """Both under policy `utility`, and volumes for their journals."""
    journals = [Journal(controller, tmp_path / name) for name in (SCALES, CONTENDS)]
    for name, how in ((SCALES, "alone"), (CONTENDS, "behind-one")):
        run_program(controller, job(name, how), PROGRAM)
    with flags(controller, {"EDL_POLICY": POLICY}):
        yield controller
    controller.kubectl("delete", "tj", "--all", timeout_s=60)
    controller.kubectl("delete", f"configmap/{SCALES}", f"configmap/{CONTENDS}")
    for journal in journals:
        journal.remove()


def speeds(cluster: RealCluster, name: str) -> dict[int, float]:
    """Records per second by number of trainers, as the job's status tells them."""
    measured = status(cluster, name).get("throughput") or []
    return {each["instances"]: each["samplesPerSecond"] for each in measured}


def is_measured(cluster: RealCluster, job: str, counts: Collection[int]) -> bool:
    return speeds(cluster, job).keys() >= set(counts)


def await_speeds(cluster: RealCluster, *counts: int) -> None:
    """Return once both jobs were measured with all these numbers of trainers."""
    for name in (SCALES, CONTENDS):
        cluster.kube.wait_until(
            functools.partial(is_measured, cluster, name, counts),
            120,
            f"{name} is measured with {counts}",
            poll_s=0.5,
        )


def explained(cluster: RealCluster, name: str) -> Object:
    """What `edl explain` says of a job now."""
    command = [
        str(ROOT / ".venv/bin/edl"),
        "explain",
        name,
        "--policy",
        POLICY,
        "--kubeconfig",
        str(cluster.kubeconfig),
    ]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: Object = json.loads(done.stdout)
    return found


def test_trainers_go_where_they_were_measured_to_help(jobs: RealCluster) -> None:
    await_speeds(jobs, FEW)
    began_s = time.monotonic()
    for name in (SCALES, CONTENDS):
        jobs.kubectl("scale", f"tj/{name}", f"--replicas={MANY}")
    await_speeds(jobs, FEW, MANY)
    took_s = time.monotonic() - began_s
    found = {name: speeds(jobs, name) for name in (SCALES, CONTENDS)}
    print(f"records/s by trainers: {found}")
    assert 0.8 * PER_S < found[SCALES][FEW] < 1.05 * PER_S
    assert 0.8 * PER_S * MANY < found[SCALES][MANY] < 1.05 * PER_S * MANY
    assert 0.7 * PER_S < found[CONTENDS][FEW] < 1.05 * PER_S
    assert 0.7 * PER_S < found[CONTENDS][MANY] < 1.05 * PER_S

    cost_s = {name: resize(jobs, name)["seconds"] for name in (SCALES, CONTENDS)}
    print(f"seconds of training lost to the resize {FEW} -> {MANY}: {cost_s}, within {took_s:.0f} s")
    assert 0 < cost_s[SCALES] < took_s, "three of four trainers did not work yet"
    assert 0 <= cost_s[CONTENDS] < took_s
    for name in (SCALES, CONTENDS):
        assert status(jobs, name)["resizeSeconds"] == cost_s[name]

    for name in (SCALES, CONTENDS):
        jobs.kubectl("scale", f"tj/{name}", "--replicas=0")
    jobs.kube.wait_until(
        lambda: (len(pods(jobs, SCALES)), len(pods(jobs, CONTENDS))) == (6, 2), 60, "they change hands"
    )
    print(jobs.kubectl("get", "tj"), status(jobs, SCALES)["explanation"], status(jobs, CONTENDS)["explanation"])
    assert explained(jobs, SCALES)["policy"] == POLICY


def resize(cluster: RealCluster, name: str) -> Object:
    """The last resize of a job, once its cost is known."""

    def with_cost() -> Object:
        last: Object = status(cluster, name)["lastResize"]
        return last if last.get("seconds") is not None else {}

    found = cluster.kube.wait_until(with_cost, 30, f"what the resize of {name} has cost")
    assert (found["from"], found["to"]) == (FEW, MANY)
    return found
