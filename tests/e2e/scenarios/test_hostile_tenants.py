"""All hostile tenants at once beside honest ones on the real control plane: honest jobs are as without them.

One phase without and one with the hostile tenants, of $MINUTES each; with $NAMESPACES the controller watches so many
namespaces by name, and $PACE multiplies how often the tenants act. Run it with
`make hostile-tenants [MINUTES=10] [NAMESPACES=100] [PACE=0.25]`.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.scenarios.test_scale import Metrics
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.hostile_pods import LIARS, TENANT, HostilePods
from tests.e2e.worlds.hostile_tenants import TENANTS, HostileTenants, Stranger
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.usage import cpu_seconds, machine_seconds, resident_bytes

pytestmark = [pytest.mark.alone, pytest.mark.cluster("minutes at real speed, beside kube-scheduler and real quotas")]

ALLOWED = """
unknown-queues: refuse
namespaces:
  "*": {max-priority: 0, queues: [default]}
"""
Object = dict[str, Any]
Look = Callable[[list[Object]], bool]
SMALL = "100m"
HONEST = ("honest-0", "honest-1", "honest-2")
STATUS_WITHIN_S, RUNS_WITHIN_S, SERVES_WITHIN_S = 10.0, 15.0, 20.0
GRACE_S = 30.0  # the most that the operator gives a pod to end
OVERDUE_S = GRACE_S + 30.0
"""Until then the plan takes a pod that does not end for one that will: a new job may wait so long for its place."""
PART, MOST_MIB = 0.1, 500
"""By how much honest shares may differ, and the memory of the controller."""
SHARES_DIFFER_BY = 1.0
"""Trainers: a newcomer may take the place of one for as long as it runs."""
EACH_S = 8.0
"""From one newcomer to the next."""


class Steps(NamedTuple):
    """When something happened to a pod, in seconds from the creation of what it is for.

    Attributes:
        written: edl had created the pod, or a trainer was ending for it, unless it got its node without that.
        bound: it had a node.
        running: it ran.
    """

    written: float
    bound: float
    running: float


@dataclass
class Phase:
    """What is seen of honest jobs.

    Attributes:
        counts: trainers of each honest job, sorted, at each look at a cluster without newcomer.
        lost: honest trainers that ended while no newcomer ran.
        status_s: from the creation of a small honest job to its first status, in seconds.
        runs, serves: what happened to the trainer of each small honest job, and to each serving pod for which
            trainers must go.
        busy: the cores that the controller used.
        machine: the cores that all processes used.
        decisions, decision_s: how many there were, and their mean duration.
    """

    counts: list[list[int]] = field(default_factory=list)
    lost: int = 0
    status_s: list[float] = field(default_factory=list)
    runs: list[Steps] = field(default_factory=list)
    serves: list[Steps] = field(default_factory=list)
    busy: float = 0.0
    machine: float = 0.0
    decisions: int = 0
    decision_s: float = 0.0

    @property
    def shares(self) -> list[float]:
        """Mean trainers of each honest job."""
        return [statistics.fmean(column) for column in zip(*self.counts, strict=True)]


def test_honest_jobs_are_as_without_hostile_tenants(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    lasts_s, pace = 60.0 * float(os.environ.get("MINUTES", "0.5")), float(os.environ.get("PACE", "1"))
    (tmp_path / "tenants.yaml").write_text(ALLOWED)
    plane = control_plane(mix="twenty", pod_delete_s=1.0)
    others = [f"quiet-{i:03d}" for i in range(int(os.environ.get("NAMESPACES", "0")) - len(TENANTS) - 2)]
    for name in others:
        plane.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    watched = [f"--watch-namespace={name}" for name in ("default", *TENANTS, TENANT, *others)] if others else []
    here = World(plane, "--tenants", str(tmp_path / "tenants.yaml"), "--max-grace-s", f"{GRACE_S:.0f}", *watched)
    HostileTenants.settle(plane.kube)
    here.restless = frozenset({TENANT})
    with here.controller:
        HostilePods.settle(plane)
        for name in HONEST:
            here.submit(training_job(name, min_trainers=2, max_trainers=200, cpu="1"))
        here.wait_full(120)
        before = _play(here, lasts_s)
        with (
            HostileTenants(plane.kube, pace) as hostile,
            HostilePods(plane.kube, pace) as pods,
            Stranger(lambda: here.controller.port, pace) as stranger,
        ):
            after = _play(here, lasts_s)
            peak_mib = resident_bytes(here.controller.pid) / 2**20
            leads = here.controller.tail(100_000).count("leading: this controller holds the Lease")
            here.controller.stop()
            times = max(2, round(lasts_s / 60))
            print(_table(before, after, hostile, lasts_s, len(watched)))
            for cpu in (SMALL, "3"):
                steps = _without_edl(here, cpu, times)
                print("\n".join(_lines(f"without edl, beside the same tenants: a pod of {cpu} cpu", steps)))
        print(f"jobs with finalizers and pods {dict(pods.acts)}; calls of masters that lie {pods.masters.by_lie()}")
        print(f"connections of a stranger {stranger.sent}; the controller had at most {peak_mib:.0f} MiB")
        assert peak_mib < MOST_MIB
        assert leads == 1
    assert hostile.acts["created"] > pace * lasts_s / 2, "they were busy"
    assert after.lost == 0, "no trainer of an honest job ended"
    assert after.counts[-1] == before.counts[-1]
    assert [abs(a - b) < SHARES_DIFFER_BY for a, b in zip(after.shares, before.shares, strict=True)] == [True] * 3
    assert _is_soon(before.status_s, after.status_s, STATUS_WITHIN_S)
    assert all(abs(a - b) <= PART * b for a, b in zip(after.shares, before.shares, strict=True))
    assert _is_soon(_running(before.runs), _running(after.runs), RUNS_WITHIN_S + OVERDUE_S)
    assert _is_soon(_running(before.serves), _running(after.serves), SERVES_WITHIN_S)
    assert stranger.sent > pace * lasts_s
    assert pods.acts["created"] > pace * lasts_s / 20
    assert set(pods.masters.by_lie()) == set(LIARS)


def _play(here: World, lasts_s: float) -> Phase:
    """Watch the honest jobs for a while; small honest jobs come and go meanwhile."""
    phase, began_s, due_s = Phase(), time.monotonic(), min(EACH_S, lasts_s / 2)
    cpu_s, all_s, decided = cpu_seconds(here.controller.pid), machine_seconds(), _decided(here)
    uids = _trainers(here.pods())
    while (now_s := time.monotonic() - began_s) < lasts_s or not phase.runs:
        if now_s >= due_s:
            _start_one(here, phase)
            _serve_one(here, phase)
            here.wait_full(120)
            uids, due_s = _trainers(here.pods()), time.monotonic() - began_s + EACH_S
        phase.counts.append(sorted(here.counts().values()))
        now = _trainers(here.pods())
        phase.lost += len(uids - now)
        uids = now
        time.sleep(0.5)
    took_s = time.monotonic() - began_s
    phase.busy = (cpu_seconds(here.controller.pid) - cpu_s) / took_s
    phase.machine = (machine_seconds() - all_s) / took_s
    count, seconds = (after - before for before, after in zip(decided, _decided(here), strict=True))
    phase.decisions, phase.decision_s = int(count), seconds / max(1.0, count)
    here.wait_full(120)
    phase.counts.append(sorted(here.counts().values()))
    return phase


def _decided(here: World) -> tuple[float, float]:
    """How many decisions the controller has made, and their seconds in all."""
    metrics = Metrics(here.controller.fetch("/metrics")[1])
    return metrics.value("edl_decision_seconds_count"), metrics.value("edl_decision_seconds_sum")


def _start_one(here: World, phase: Phase) -> None:
    """A small honest job comes and leaves again."""
    name, began_s = "newcomer", time.monotonic()
    here.submit(training_job(name, min_trainers=1, max_trainers=1, cpu=SMALL, memory="64Mi"))
    looks: dict[str, Look] = {
        "status": lambda _: bool(here.kube.get("trainingjobs", name).get("status")),
        "written": lambda pods: bool(facts.trainers(pods, name)),
        "bound": lambda pods: any(pod["spec"].get("nodeName") for pod in facts.trainers(pods, name)),
        "running": lambda pods: any(map(facts.is_running, facts.trainers(pods, name))),
    }
    at_s = _first_seen(here, began_s, looks)
    phase.status_s.append(at_s["status"])
    phase.runs.append(Steps(at_s["written"], at_s["bound"], at_s["running"]))
    here.withdraw(name)
    here.kube.wait_until(lambda: not _named(here.pods(), f"{name}-"), 120, "the newcomer's pods are gone")


def _serve_one(here: World, phase: Phase) -> None:
    """A serving pod comes, for which a trainer must go, and leaves again."""
    phase.serves.append(_served(here, "web", "3"))
    here.kube.delete("deployments", "web")
    here.kube.wait_until(lambda: not _named(here.pods(), "web-"), 120, "the serving pod is gone")


def _without_edl(here: World, cpu: str, times: int) -> list[Steps]:
    """What happens to some pods for which kube-scheduler preempts; nobody refills.

    It may choose a victim that never ends, and waits for it as long.
    """
    return [_served(here, f"alone-{cpu}-{number}", cpu, OVERDUE_S) for number in range(times)]


def _served(here: World, name: str, cpu: str, limit_s: float = inf) -> Steps:
    """Create a pod that comes before trainers, and wait until it is ready; a trainer may end for it.

    What has not happened after `limit_s` happened never.
    """
    held, began_s = _trainers(here.pods()), time.monotonic()
    here.kube.create(serving(name, replicas=1, cpu=cpu))
    looks: dict[str, Look] = {
        "written": lambda pods: bool(held - _trainers(pods) or any(_node_of(pods, name))),
        "bound": lambda pods: any(_node_of(pods, name)),
        "running": lambda pods: any(map(facts.is_ready, _named(pods, f"{name}-"))),
    }
    return Steps(**_first_seen(here, began_s, looks, limit_s))


def _first_seen(here: World, began_s: float, looks: Mapping[str, Look], limit_s: float = inf) -> dict[str, float]:
    """Look at all pods until each condition has held once; when that was, in seconds from a moment.

    What has not happened after `limit_s` happened never.
    """
    at_s: dict[str, float] = {}

    def is_over() -> bool:
        pods, now_s = here.pods(), time.monotonic()
        at_s.update({name: now_s - began_s for name, holds in looks.items() if name not in at_s and holds(pods)})
        return len(at_s) == len(looks) or now_s - began_s > limit_s

    here.kube.wait_until(is_over, 120, f"{', '.join(looks)} were seen")
    return {name: at_s.get(name, inf) for name in looks}


def _named(pods: Iterable[Object], prefix: str) -> list[Object]:
    return [pod for pod in pods if pod["metadata"]["name"].startswith(prefix)]


def _node_of(pods: Iterable[Object], name: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in _named(pods, f"{name}-")]


def _running(steps: Sequence[Steps]) -> list[float]:
    return [one.running for one in steps]


def _is_soon(without: Sequence[float], with_them: Sequence[float], limit_s: float) -> bool:
    """Whether the median is within the limit; on a busy machine, within twice the median without them."""
    return statistics.median(with_them) <= max(limit_s, 2 * statistics.median(without))


def _trainers(pods: Iterable[Object]) -> set[str]:
    here = [pod for pod in pods if pod["metadata"]["namespace"] == "default"]
    return {pod["metadata"]["uid"] for name in HONEST for pod in facts.trainers(here, name)}


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
        ("small honest jobs started", *(str(len(p.runs)) for p in (before, after))),
        ("  first status after (s)", *(_spread(p.status_s) for p in (before, after))),
        *_step_rows("its trainer", before.runs, after.runs),
        *_step_rows("serving pod", before.serves, after.serves),
        ("cores used by the controller", *(f"{p.busy:.2f}" for p in (before, after))),
        (f"cores in use, of {os.cpu_count()}", *(f"{p.machine:.2f}" for p in (before, after))),
        ("decisions, and seconds of one", *(f"{p.decisions}, {p.decision_s:.3f}" for p in (before, after))),
        ("hostile jobs created", "0", str(hostile.acts["created"])),
        ("  rejected by the API server", "0", str(hostile.acts["refused"])),
        ("  deleted", "0", str(hostile.acts["deleted"])),
    ]
    head = f"\n{lasts_s:.0f} s each; namespaces watched by name: {namespaces or 'none, all are watched'}"
    return "\n".join([head, *(f"{name:<40}{left:>42}{right:>42}" for name, left, right in rows)])


def _listed(values: Sequence[float], digits: int = 0) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def _step_rows(what: str, *phases: Sequence[Steps]) -> list[tuple[str, ...]]:
    """A row for each step: what edl, kube-scheduler and the kubelet took, and all of it."""
    parts: tuple[tuple[str, Callable[[Steps], float]], ...] = (
        ("creation to edl's write", lambda one: one.written),
        ("write to bound", lambda one: _from(one.written, one.bound)),
        ("bound to running", lambda one: _from(one.bound, one.running)),
        ("creation to running", lambda one: one.running),
    )
    return [(f"  {what}: {name} (s)", *(_spread([of(one) for one in p]) for p in phases)) for name, of in parts]


def _from(begun_s: float, ended_s: float) -> float:
    """How long something took; infinite if it did not happen."""
    return ended_s - begun_s if ended_s < inf else inf


def _lines(what: str, steps: Sequence[Steps]) -> list[str]:
    return [what, *(f"{name:<40}{value:>42}" for name, value in _step_rows("pod", steps))]


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    p90 = ordered[min(len(ordered) - 1, ceil(0.9 * len(ordered)) - 1)]
    which = values.index(ordered[-1]) + 1
    return f"p50 {statistics.median(ordered):.1f}, p90 {p90:.1f}, longest {ordered[-1]:.1f} (no. {which})"
