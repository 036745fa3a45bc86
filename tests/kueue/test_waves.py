"""A sample of the waves of `make kueue-waves`: serving, owners and jobs whose Workloads edl makes."""

from __future__ import annotations

import pytest

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
