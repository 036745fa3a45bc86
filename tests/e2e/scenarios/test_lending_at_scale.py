"""The waves of the 2017 experiment over training that lends CPU: serving finds room as on an idle cluster.

The same wave is run three times on one cluster of 133 nodes: over nothing, over training without lending, and over
training that lends. The jobs, the serving and the figures are those of `test_scale`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.scenarios.test_scale import (
    FLAGS,
    JOBS,
    LEVELS,
    OPTIMAL,
    POD_DELETE_S,
    SERVING,
    Metrics,
    Pace,
    Wave,
    report,
    report_rest,
    train,
    wait_gone,
    wave,
)
from tests.e2e.worlds import facts
from tests.e2e.worlds.campaign import Watched
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.harness import World, bounds
from tests.e2e.worlds.jobs import serving

pytestmark = [pytest.mark.alone, pytest.mark.cluster("minutes at real speed, measured beside kube-scheduler")]

LENDING = ("--surplus-cpu-request", "0.1", "--clear-lending-after-s", "30")
SHORTFALL = 1.2  # of what the idle cluster's waves are short
REST_S = 300.0  # a clearing waits for its 30 s and for the cooldown of each job, and trainers then start elsewhere


def renamed(job: dict[str, Any], name: str) -> dict[str, Any]:
    """The same job under another name."""
    body = deepcopy(job)
    body["metadata"]["name"] = name
    return body


@pytest.mark.timeout(3000)
def test_waves_over_trainers_that_lend_find_room_as_on_an_idle_cluster(
    control_plane: Callable[..., ControlPlane], *, is_full_campaign: bool
) -> None:
    """The short campaign takes one step up; the full one all of them, and down again where trainers lend."""
    pace, levels = Pace(hold_s=0.0, rest_s=REST_S), LEVELS if is_full_campaign else LEVELS[:2]
    down = LEVELS[-2::-1] if is_full_campaign else ()
    here = World(control_plane(mix="edl2017", settings=Settings(pod_delete_s=POD_DELETE_S)), *FLAGS)
    lender = ControllerProcess(here.controller.kubeconfig, here.plane.workdir, *FLAGS, *LENDING)
    here.kube.create(serving(replicas=LEVELS[0]))
    watched = Watched(here, SERVING)
    with watched.following():
        here.kube.wait_until(lambda: here.ready_serving() == LEVELS[0], 60, "serving stands", poll_s=0.5)
        idle = wave(watched, [*levels, levels[0]], pace)
        with here.controller:
            train(watched)
            without = wave(watched, levels, pace)
            clear(watched)
        with lender:
            train(watched, [renamed(job, f"lending-{i}") for i, job in enumerate(JOBS)])
            ours = wave(watched, [*levels, *down], pace)
            slowed = facts.slowed(here.kube.list("nodes"), here.pods())
            metrics = Metrics(lender.fetch("/metrics")[1])
    waves = {"idle cluster": idle, "without lending": without, "with lending": ours}
    report(waves)
    report_lending(waves)
    report_rest(ours)
    print(metrics.decisions())
    assert shortfall(ours) < shortfall(without) / 2, "without lending serving waits for trainers"
    if is_full_campaign:
        assert shortfall(ours) <= SHORTFALL * shortfall(idle), "serving waits as on an idle cluster"
    for step in ours.rises():
        assert not step.early, f"{step}: nobody is deleted for serving"
        assert step.blocked == 0, f"{step}: every pod has capacity by requests"
    for filled in ours.filled:
        assert filled.used >= OPTIMAL * filled.bound, f"{filled}"
    assert not slowed, "at rest every trainer has what it declares"
    for name, job in here.jobs().items():
        assert watched.log.lowest[name] >= bounds(job)[0], f"{name} is never below its minimum"
    assert metrics.value("edl_plans_refused_total") == metrics.value("edl_decision_failures_total") == 0


def clear(watched: Watched) -> None:
    """Withdraw the jobs, and take serving back to where it began."""
    here = watched.here
    for name in list(here.jobs()):
        watched.log.forget(name)
        here.withdraw(name)
    here.kube.scale("deployments", "web", LEVELS[0])
    wait_gone(here, LEVELS[0])


def shortfall(one: Wave) -> float:
    """Pod-seconds below the target in the rises."""
    return sum(step.shortfall for step in one.rises())


def report_lending(waves: dict[str, Wave]) -> None:
    """Print what the goals of lending ask for."""
    idle = shortfall(waves["idle cluster"])
    for name, one in waves.items():
        print(
            f"{name}: {shortfall(one):.0f} pod-seconds short, {shortfall(one) / idle:.2f} of the idle cluster;"
            f" deleted in the first 10 s of rises: {sum(step.early.total() for step in one.rises())}; in all:"
            f" {sum((step.forced + step.later).total() for step in one.steps)}"
        )
        rested = [f"{s.before} -> {s.target}: {s.rested_s:.0f} s" for s in one.steps if s.rested_s is not None]
        print(f"  at rest and full after: {', '.join(rested)}" if rested else "  nothing to bring to rest")
