"""Two hostile tenants beside honest ones on the real control plane: honest jobs are as without them.

The honest phase and the hostile phase last equally long: half a minute, with `--campaign full` ten minutes. Run it
with `make hostile-tenants [NAMESPACES=100]`; with NAMESPACES the controller watches so many namespaces by name.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job

pytestmark = [pytest.mark.alone, pytest.mark.cluster("minutes at real speed, beside kube-scheduler and real quotas")]

Object = dict[str, Any]
HOSTILE = ("mallory", "eve")
TENANTS = """
unknown-queues: refuse
namespaces:
  "*": {max-priority: 0, queues: [default]}
"""
STARTS_WITHIN_S = 15.0


def test_honest_jobs_are_as_without_hostile_tenants(
    control_plane: Callable[..., ControlPlane], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lasts_s = 600.0 if request.config.getoption("--campaign") == "full" else 30.0
    (tmp_path / "tenants.yaml").write_text(TENANTS)
    plane = control_plane(mix="twenty", pod_delete_s=1.0)
    others = [f"quiet-{i:03d}" for i in range(int(os.environ.get("NAMESPACES", "0")) - len(HOSTILE) - 1)]
    for name in (*HOSTILE, *others):
        plane.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    watched = [f"--watch-namespace={name}" for name in ("default", *HOSTILE, *others)] if others else []
    here = World(plane, "--tenants", str(tmp_path / "tenants.yaml"), *watched)
    for name in HOSTILE:
        plane.kube.create(_quota(), name)
    with here.controller:
        for i in range(3):
            here.submit(training_job(f"honest-{i}", min_trainers=2, max_trainers=200, cpu="1"))
        here.wait_full(120)
        before = _play(here, lasts_s, None)
        after = _play(here, lasts_s, _hostilities(plane.kube))
        print(f"\nwithout: {before}\nwith:    {after}")
    assert after["lost"] == 0, "no trainer of an honest job ended"
    assert after["counts"] == before["counts"]
    assert after["start_s"] <= STARTS_WITHIN_S


def _play(here: World, lasts_s: float, hostile: Iterator[None] | None) -> Object:
    """Watch the honest jobs for a while; in the middle a small honest job starts and ends."""
    began_s = time.monotonic()
    uids = _trainers(here)
    counts = []
    start_s, acts = 0.0, 0
    while time.monotonic() - began_s < lasts_s:
        if hostile is not None:
            next(hostile)
            acts += 1
        if not start_s and time.monotonic() - began_s > lasts_s / 2:
            start_s = _start_one(here)
            here.wait_full(120)
            uids = _trainers(here)
        counts.append(sorted(here.counts().values()))
        time.sleep(0.5)
    return {
        "counts": counts[-1],
        "lowest": min(counts),
        "lost": len(uids - _trainers(here)),
        "start_s": round(start_s, 1),
        "hostile acts": acts,
        "samples": len(counts),
    }


def _start_one(here: World) -> float:
    began_s = time.monotonic()
    here.submit(training_job("newcomer", min_trainers=1, max_trainers=1, cpu="100m", memory="64Mi"))
    here.kube.wait_until(lambda: here.running("newcomer") >= 1, 120, "the newcomer runs")
    took_s = time.monotonic() - began_s
    here.withdraw("newcomer")
    return took_s


def _trainers(here: World) -> set[str]:
    pods = [pod for pod in here.pods() if pod["metadata"]["namespace"] == "default"]
    return {pod["metadata"]["uid"] for name in here.jobs() for pod in facts.trainers(pods, name)}


def _quota() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "0"}},
    }


def _hostilities(kube: Kube) -> Iterator[None]:
    """One hostile act at each step; what was made is deleted after some steps, so that objects come and go fast."""
    made: list[tuple[str, str]] = []
    for number in itertools.count():
        namespace = HOSTILE[number % 2]
        job = _HOSTILE_JOBS[number % len(_HOSTILE_JOBS)](number)
        job["metadata"]["namespace"] = namespace
        with suppress(KubeError):  # the API server refuses some of them
            kube.create(job, namespace)
            made.append((namespace, job["metadata"]["name"]))
        if len(made) > 12:
            old, name = made.pop(0)
            kube.delete("trainingjobs", name, old)
        yield


def _job(number: int, **spec: Any) -> Object:
    return training_job(f"h-{number}", min_trainers=spec.pop("low", 2), max_trainers=spec.pop("high", 200), **spec)


def _like_an_honest_one(number: int) -> Object:
    job = _job(number)
    job["metadata"]["name"] = f"honest-{number % 3}-{number}"
    return job


def _with_ports(number: int) -> Object:
    return _job(number, hostNetwork=True, ports_num=120)


def _with_affinity(number: int) -> Object:
    values = [f"n-{i}" for i in range(1500)]
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": values}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return _job(number, trainer={"template": {"spec": {"affinity": affinity}}})


def _giant(number: int) -> Object:
    env = [{"name": f"E{i}", "value": "x" * 200} for i in range(400)]
    return _job(number, trainer={"template": {"spec": {"containers": [{"name": "trainer", "env": env}]}}})


_HOSTILE_JOBS: tuple[Callable[[int], Object], ...] = (
    lambda number: _job(number, low=150, priority=1_000_000),
    lambda number: _job(number, queue="of-my-own"),
    _job,
    _like_an_honest_one,
    _with_ports,
    _with_affinity,
    _giant,
)
