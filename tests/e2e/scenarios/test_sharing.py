"""Ten jobs on twenty nodes: a new job shrinks the others to their fair share, and they grow when a job ends."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World, bounds
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.pod_log import PodLog

pytestmark = [pytest.mark.alone, pytest.mark.cluster("minutes at real speed, measured beside kube-scheduler")]

NEW_MINIMUM_RUNS_WITHIN_S = 8.0  # 1 s for the victims to go, 0.5 s for the new pods to start, and the decision
JOBS = {
    f"job-{i}": training_job(
        f"job-{i}", min_trainers=2, max_trainers=max_trainers, cpu=cpu, elasticity={"cooldownSeconds": 600}
    )
    for i, (max_trainers, cpu) in enumerate([(40, "1"), (60, "1"), (30, "2"), (50, "1"), (20, "2")] * 2)
}


def test_ten_jobs_arrive_share_fairly_and_leave(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(mix="twenty", pod_delete_s=1.0))
    with here.controller, PodLog(here.kube) as log:
        for name, job in JOBS.items():
            arrive(here, log, name, job)
        here.wait_full(60)
        assert log.causes().keys() == {"controller: Admitted"}, "trainers only go to free capacity for an arrival"
        with PodLog(here.kube) as calm:
            for name in list(JOBS)[:7]:
                log.forget(name)
                calm.forget(name)
                here.withdraw(name)
                here.wait_full(60)
        reshared = calm.causes()
        assert reshared.keys() <= {"controller: InsufficientCapacity"}, "the rest grow by what became free"
        assert reshared.total() <= 2, f"a trainer ends for the share of another only where that pays: {reshared}"
        assert all(log.lowest[name] >= bounds(job)[0] for name, job in JOBS.items()), (
            "nobody is ever below its minimum"
        )
        assert all(log.most[name] <= bounds(job)[1] for name, job in JOBS.items()), "nobody is ever above its maximum"


def arrive(here: World, log: PodLog, name: str, job: dict[str, object]) -> None:
    """Submit one more job; it must run soon and the cluster must be full and fair again."""
    before = here.counts()
    since = time.monotonic()
    log.expect(name, bounds(job)[0])
    here.submit(job)
    here.kube.wait_until(
        lambda: here.running(name) >= bounds(job)[0], NEW_MINIMUM_RUNS_WITHIN_S, f"{name} runs at its minimum"
    )
    print(f"{name}: runs at its minimum {time.monotonic() - since:.1f} s after its creation")
    here.wait_full(60)
    after, shares = here.counts(), here.fulfilments()
    assert facts.jain(list(shares.values())) >= 0.95, f"{shares}"
    assert all(after[other] <= before[other] for other in before if shares[other] < 1), "running jobs only give"
