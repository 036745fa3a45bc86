"""A sample of the waves of `make kueue-waves`: serving, owners and jobs whose Workloads edl makes."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.e2e.control_plane.build import ensure_kueue
from tests.kueue.history import Histories
from tests.kueue.scene import Cluster
from tests.kueue.wave_results import Result
from tests.kueue.waves import Stage, play, waves_of

pytestmark = pytest.mark.cluster("Kueue runs on a real control plane only")


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_what_is_free_is_used_and_nothing_is_written_at_rest(cluster: Cluster) -> None:
    """In the second wave an owner comes to full nodes while the pods of a deleted job end."""
    with Histories(cluster.kube) as histories:
        found = play(Stage(cluster, histories), "owner", waves_of(1, 3), Result())
    assert found.utilisation == 1.0, f"used of what is allowed at the rest after each wave: {found.used}"
    assert (found.never, found.stops, found.writes) == (0, 0, 0)


def test_kueue_handles_as_many_objects_at_once_as_where_it_is_installed(cluster: Cluster) -> None:
    """With one Job at a time, the Jobs of many cohorts wait for each other on a busy machine."""
    installed = yaml.safe_load(ensure_kueue().configuration.read_text())["controller"]["groupKindConcurrency"]
    log = (cluster.world.plane.workdir / "logs" / "kueue.log").read_text()
    lines = [json.loads(line) for line in log.splitlines() if '"worker count"' in line]
    workers = {line["logger"]: line["worker count"] for line in lines}
    assert workers["job"] == installed["Job.batch"]
    assert workers["workload-reconciler"] == installed["Workload.kueue.x-k8s.io"]
