"""Objects as large as etcd takes them: the controller starts beside them, keeps its lease, and serves all others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.faults.leading import leading, mallory
from tests.e2e.faults.stage import Stage
from tests.e2e.worlds.jobs import batch_job, training_job

Object = dict[str, Any]
pytestmark = pytest.mark.cluster("what the real API server stores, and how it lists it")
MANY, SOME = 40, 2
LISTS, MOST_LISTS = 90_000, 450_000
"""Each takes three bytes there, and 56 once it is decoded; etcd takes no object with many more."""
WORDS = 90_000
"""In the arguments of a container."""
MOST_MIB = 300.0


@pytest.fixture(scope="module")
def space(running: Stage) -> Iterator[str]:
    """The namespace with all these objects; they were created while no controller ran."""
    with mallory(running) as space:
        with running.without_controller():
            for body in objects():
                running.here.kube.create({**body, "metadata": {**body["metadata"], "namespace": space}})
        yield space


def objects() -> Iterator[Object]:
    """Suspended jobs, suspended `batch/v1` Jobs that ask to be resized, and pods that nobody schedules."""
    for number in range(MANY):
        job = training_job(f"large-{number}", suspend=True)
        lists = MOST_LISTS if number < SOME else LISTS
        job["spec"]["trainer"]["template"] = {"spec": {"securityContext": {"x": [[]] * lists}}}
        yield job
    for number in range(SOME):
        batch = batch_job(f"large-{number}", parallelism=1, low=1, high=2, suspend=True)
        (container,) = batch["spec"]["template"]["spec"]["containers"]
        container["args"] = [""] * WORDS
        yield batch
        pod = {"schedulerName": "nobody", "containers": [{"name": "a", "image": "a", "args": [""] * WORDS}]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"large-{number}"}, "spec": pod}


def test_a_controller_starts_beside_objects_of_megabytes_and_keeps_its_lease(stage: Stage, space: str) -> None:
    with leading(stage, stage.account) as leader:
        stage.submit("beside-large")
        stage.wait_grown("beside-large")
        stage.here.kube.wait_until(
            lambda: phases(stage, space) == ["Failed"] * MANY, 60, "all are set aside", poll_s=1
        )
        leader.assert_led(MOST_MIB)
        print(f"{leader.peak_bytes / 2**20:.0f} MiB")
    failed = stage.condition("large-0", "Failed", space)
    assert failed["reason"] == "InvalidSpec"
    assert "edl reads up to 262144; make it smaller" in failed["message"]
    stage.assert_only_grown("beside-large")


def phases(stage: Stage, space: str) -> list[str]:
    """The phases of these jobs, by the columns that the API server prints: they come without the megabytes."""
    path = stage.here.kube.resource("trainingjobs").path(space)
    table = stage.here.kube.request("GET", path, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    at = [column["name"] for column in table["columnDefinitions"]].index("Phase")
    return [str(row["cells"][at]) for row in table["rows"]]
