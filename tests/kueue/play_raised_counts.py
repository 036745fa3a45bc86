"""Does Kueue admit a size while it is raised? A Job that edl does not size goes from 2 pods to 3, and at once to 5.

It is no part of `make kueue-test`: it tries until the two meet. Once it fails, Kueue needs no care any more, and
`KueueState.is_pending` may go.
"""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.kueue.history import Change, Histories, History
from tests.kueue.programs import WORKLOADS
from tests.kueue.scene import Cluster, Scene, true_of

pytestmark = pytest.mark.cluster("Kueue runs on a real control plane only")
TRIES, BETWEEN_S, WITHIN_S = 60, 0.02, 1.5


@pytest.mark.alone
@pytest.mark.timeout(0)
def test_kueue_lets_pods_run_that_it_has_not_admitted(cluster: Cluster) -> None:
    with closing(Scene(cluster)) as scene, Histories(cluster.kube) as histories:
        scene.queue("blue", 16)
        history = histories.of(scene.name)
        scene.submit("train", "blue", 2)
        number = next((number for number in range(1, TRIES + 1) if _exceeds(scene, history)), None)
        assert number is not None, f"Kueue lets no more pods run than it has admitted, in {TRIES} tries"
        print(f"in try {number} of {TRIES}")
        scene.submit("other", "blue", 13, elastic=False)
        scene.wait_sizes(train=5, other=13)
        print("Kueue admits 13 pods beside the 5, of 16 cores")


def _exceeds(scene: Scene, history: History) -> bool:
    """Raise the count twice; true if more pods run than Kueue has admitted, and then print how it came."""
    _scale(scene, 2)
    scene.wait_sizes(train=2)
    list(history.take())
    start_s = time.monotonic()
    _scale(scene, 3)
    time.sleep(BETWEEN_S)
    _scale(scene, 5)
    time.sleep(WITHIN_S)
    changes = [(change.at_s - start_s, _told(change)) for change in history.take()]
    if len(history.moment.live("train")) <= history.moment.reserved("train"):
        return False
    print("\n".join(f"{at_s:.3f} s: {told}" for at_s, told in changes if told))
    return True


def _scale(scene: Scene, size: int) -> None:
    scene.kube.patch("jobs", "train", {"spec": {"parallelism": size}}, scene.name)


def _told(change: Change) -> str:
    """A change of the Job, or of a Workload, in a line; empty for any other."""
    body = change.body
    if body is None or change.kind not in {WORKLOADS, "jobs"}:
        return ""
    if change.kind == "jobs":
        return f"Job: parallelism {body['spec']['parallelism']}"
    admission = (body.get("status") or {}).get("admission") or {}
    granted = [one.get("count") for one in admission.get("podSetAssignments") or ()]
    asked = [one["count"] for one in body["spec"]["podSets"]]
    return f"{change.name}: asks for {asked}, has {granted}, is {sorted(true_of(body))}"
