"""What the metrics show of lent CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, ServingLimits
from edl.model.progress import Measured
from edl.observability.metrics import Metrics
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.small_clusters import plan_for, with_status


def cluster(*, lends: bool) -> ClusterSnapshot:
    """A node of 12 cores: trainers declare 10, of which one lends 4.5, and serving has 4."""
    job = with_status(make_job("ctr", trainers=2, cpu=5, on=("n000",)), admitted=True)
    lent = 4500 if lends else 0
    job = replace(job, pods=(job.pods[0], replace(job.pods[1], lent_cpu_milli=lent)))
    return make_snapshot(make_nodes(1, 12), (job,), (make_serving("web-0", cpu=4, node="n000"),))


def values(snapshot: ClusterSnapshot) -> dict[str, float]:
    metrics = Metrics()
    metrics.limited(Limits(serving=ServingLimits(headroom=1)))
    metrics.observed(snapshot, leader=True)
    metrics.planned(snapshot, plan_for(snapshot))
    lines = [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_offered_used_requested_and_declared_cpu_are_separate() -> None:
    found = values(cluster(lends=True))
    assert found['edl_lent_cpu_cores{state="offered"}'] == 4.5
    assert found['edl_lent_cpu_cores{state="used"}'] == 2.0
    assert found['edl_cluster_requested{resource="cpu",use="training"}'] == 5.5
    assert found['edl_cluster_requested{resource="cpu",use="serving"}'] == 4.0
    assert found["edl_cluster_declared_cpu_cores"] == 14.0
    assert found["edl_slowed_trainers"] == 1


def test_without_lending_nothing_is_offered() -> None:
    found = values(cluster(lends=False))
    assert found['edl_lent_cpu_cores{state="offered"}'] == found['edl_lent_cpu_cores{state="used"}'] == 0
    assert found["edl_slowed_trainers"] == 0


@pytest.mark.parametrize(("lends", "held"), [(True, 1), (False, 0)])
def test_lent_requests_hold_headroom(lends: bool, held: int) -> None:
    free = cluster(lends=lends)
    bigger = replace(free, nodes=make_nodes(1, 13.5))
    assert values(bigger)['edl_headroom_pods{state="held"}'] == held


def test_the_price_of_lending_is_that_of_the_status() -> None:
    snapshot = cluster(lends=True)
    (job,) = snapshot.jobs
    assert job.status is not None
    measured = replace(job.status, measured=Measured(lending_price=0.8))
    metrics = Metrics()
    name = 'edl_job_lending_price{job="ctr",namespace="default"}'
    metrics.observed(replace(snapshot, jobs=(replace(job, status=measured),)), leader=True)
    assert f"{name} 0.8" in metrics.render().decode()
    metrics.observed(snapshot, leader=True)
    assert name not in metrics.render().decode()
