"""Two hostile tenants beside honest ones on the real control plane: honest jobs are as without them.

One phase without and one with the hostile tenants, of $MINUTES each; with $NAMESPACES the controller watches so many
namespaces by name. Run it with `make hostile-tenants [MINUTES=10] [NAMESPACES=100]`.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.hostile_tenants import TENANTS, HostileTenants
from tests.e2e.worlds.jobs import training_job

pytestmark = [pytest.mark.alone, pytest.mark.cluster("minutes at real speed, beside kube-scheduler and real quotas")]

ALLOWED = """
unknown-queues: refuse
namespaces:
  "*": {max-priority: 0, queues: [default]}
"""
HONEST = ("honest-0", "honest-1", "honest-2")
STATUS_WITHIN_S, RUNS_WITHIN_S = 10.0, 15.0
SHARES_DIFFER_BY = 1.0
"""Trainers: a newcomer may take the place of one for as long as it runs."""
EACH_S = 15.0
"""From one newcomer to the next."""


@dataclass
class Phase:
    """What is seen of honest jobs.

    Attributes:
        counts: trainers of each honest job, sorted, at each look at a cluster without newcomer.
        lost: honest trainers that ended while no newcomer ran.
        status_s, runs_s: from the creation of a small honest job to its first status, and until it runs; seconds.
    """

    counts: list[list[int]] = field(default_factory=list)
    lost: int = 0
    status_s: list[float] = field(default_factory=list)
    runs_s: list[float] = field(default_factory=list)

    @property
    def shares(self) -> list[float]:
        """Mean trainers of each honest job."""
        return [statistics.fmean(column) for column in zip(*self.counts, strict=True)]


def test_honest_jobs_are_as_without_hostile_tenants(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    lasts_s = 60.0 * float(os.environ.get("MINUTES", "0.5"))
    (tmp_path / "tenants.yaml").write_text(ALLOWED)
    plane = control_plane(mix="twenty", pod_delete_s=1.0)
    others = [f"quiet-{i:03d}" for i in range(int(os.environ.get("NAMESPACES", "0")) - len(TENANTS) - 1)]
    for name in others:
        plane.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    watched = [f"--watch-namespace={name}" for name in ("default", *TENANTS, *others)] if others else []
    here = World(plane, "--tenants", str(tmp_path / "tenants.yaml"), *watched)
    HostileTenants.settle(plane.kube)
    with here.controller:
        for name in HONEST:
            here.submit(training_job(name, min_trainers=2, max_trainers=200, cpu="1"))
        here.wait_full(120)
        before = _play(here, lasts_s)
        with HostileTenants(plane.kube) as hostile:
            after = _play(here, lasts_s)
        print(_table(before, after, hostile, lasts_s, len(watched)))
        assert here.controller.tail(100_000).count("leading: this controller holds the Lease") == 1
    assert hostile.acts["created"] > lasts_s / 2, "they were busy"
    assert after.lost == 0, "no trainer of an honest job ended"
    assert after.counts[-1] == before.counts[-1]
    assert [abs(a - b) < SHARES_DIFFER_BY for a, b in zip(after.shares, before.shares, strict=True)] == [True] * 3
    assert _is_soon(before.status_s, after.status_s, STATUS_WITHIN_S)
    assert _is_soon(before.runs_s, after.runs_s, RUNS_WITHIN_S)


def _play(here: World, lasts_s: float) -> Phase:
    """Watch the honest jobs for a while; small honest jobs come and go meanwhile."""
    phase, began_s, due_s = Phase(), time.monotonic(), min(EACH_S, lasts_s / 2)
    uids = _trainers(here)
    while (now_s := time.monotonic() - began_s) < lasts_s or not phase.runs_s:
        if now_s >= due_s:
            _start_one(here, phase)
            here.wait_full(120)
            uids, due_s = _trainers(here), time.monotonic() - began_s + EACH_S
        phase.counts.append(sorted(here.counts().values()))
        now = _trainers(here)
        phase.lost += len(uids - now)
        uids = now
        time.sleep(0.5)
    here.wait_full(120)
    phase.counts.append(sorted(here.counts().values()))
    return phase


def _start_one(here: World, phase: Phase) -> None:
    began_s = time.monotonic()
    here.submit(training_job("newcomer", min_trainers=1, max_trainers=1, cpu="100m", memory="64Mi"))
    here.kube.wait_until(
        lambda: here.kube.get("trainingjobs", "newcomer").get("status"), 120, "the newcomer has a status"
    )
    phase.status_s.append(time.monotonic() - began_s)
    here.kube.wait_until(lambda: here.running("newcomer") >= 1, 120, "the newcomer runs")
    phase.runs_s.append(time.monotonic() - began_s)
    here.withdraw("newcomer")
    here.kube.wait_until(lambda: not _named(here, "newcomer-"), 120, "the newcomer's pods are gone")


def _named(here: World, prefix: str) -> list[str]:
    return [pod["metadata"]["name"] for pod in here.pods() if pod["metadata"]["name"].startswith(prefix)]


def _is_soon(without: Sequence[float], with_them: Sequence[float], limit_s: float) -> bool:
    """Whether the median is within the limit; on a busy machine, within twice the median without them."""
    return statistics.median(with_them) <= max(limit_s, 2 * statistics.median(without))


def _trainers(here: World) -> set[str]:
    pods = [pod for pod in here.pods() if pod["metadata"]["namespace"] == "default"]
    return {pod["metadata"]["uid"] for name in HONEST for pod in facts.trainers(pods, name)}


def _table(before: Phase, after: Phase, hostile: HostileTenants, lasts_s: float, namespaces: int) -> str:
    rows = [
        ("", "without", "with"),
        ("honest trainers at the end", *(_listed(p.counts[-1]) for p in (before, after))),
        ("honest trainers, mean", *(_listed(p.shares, 1) for p in (before, after))),
        (
            "honest trainers, lowest",
            *(_listed([min(c) for c in zip(*p.counts, strict=True)]) for p in (before, after)),
        ),
        ("honest trainers that ended", str(before.lost), str(after.lost)),
        ("small honest jobs started", *(str(len(p.runs_s)) for p in (before, after))),
        ("  first status after (s)", *(_spread(p.status_s) for p in (before, after))),
        ("  runs after (s)", *(_spread(p.runs_s) for p in (before, after))),
        ("hostile jobs created", "0", str(hostile.acts["created"])),
        ("  refused by the API server", "0", str(hostile.acts["refused"])),
        ("  deleted", "0", str(hostile.acts["deleted"])),
    ]
    head = f"\n{lasts_s:.0f} s each; namespaces watched by name: {namespaces or 'none, all are watched'}"
    return "\n".join([head, *(f"{name:<32}{left:>26}{right:>26}" for name, left, right in rows)])


def _listed(values: Sequence[float], digits: int = 0) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f}, longest {max(values):.1f}"
