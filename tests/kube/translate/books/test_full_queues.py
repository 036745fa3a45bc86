"""Nobody ends for pods of Volcano whose queue is full: Volcano tries no node for them.

The reports are volcano 3198, 4311 and 4479: *queue resource quota insufficient* stands in an event of the PodGroup
alone, and the pod says no more than that its group is not ready.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.rules.scenes import Object, blocked, job, members, nodes, plan, pod, snapshot, victims

API = "scheduling.volcano.sh/v1beta1"
VOLCANO: Object = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "web"}}, "schedulerName": "volcano"}
FULL = [*nodes(2), job("t"), *members("t", *["n0"] * 7, *["n1"] * 8)]
CLOSED = "its queue team of Volcano is closed"
NO_CPU = "its queue team of Volcano allows 8 cores, and has not enough left"


def group(queue: str | None = "team", phase: str = "Pending", **least: str) -> Object:
    spec = {"minMember": 1, **({"queue": queue} if queue else {}), **({"minResources": least} if least else {})}
    metadata = {"name": "web", "namespace": "default"}
    return {"apiVersion": API, "kind": "PodGroup", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def queue(name: str = "team", parent: str = "", allocated: Object | None = None, **capability: str) -> Object:
    spec: Object = {"weight": 1, "parent": parent, **({"capability": capability} if capability else {})}
    status = {} if allocated is None else {"allocated": allocated}
    return {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec, "status": status}


def state(now: str, name: str = "team", **more: Any) -> Object:
    made = queue(name, **more)
    return {**made, "status": {**made["status"], "state": now}}


def web(**more: Any) -> Object:
    return pod("web-0", **{**VOLCANO, **more})


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([group(), queue(allocated={"cpu": "6"}, cpu="8")], NO_CPU),
        ([group(phase="Inqueue"), queue(allocated={"cpu": "6"}, cpu="8", memory="64Gi")], NO_CPU),
        ([group(cpu="3"), queue(allocated={"cpu": "6"}, cpu="8")], NO_CPU),
        (
            [group(**{"nvidia.com/gpu": "2"}), queue(allocated={"nvidia.com/gpu": "3"}, **{"nvidia.com/gpu": "4"})],
            "its queue team of Volcano allows 4 nvidia.com/gpu, and has not enough left",
        ),
        (
            [group(), queue(parent="all", allocated={"cpu": "0"}), queue("all", allocated={"cpu": "6"}, cpu="8")],
            "its queue all of Volcano allows 8 cores, and has not enough left",
        ),
        (
            [group(None), queue("default", allocated={}, cpu="2")],
            "its queue default of Volcano allows 2 cores, and has not enough left",
        ),
        ([group(), state("Closed")], CLOSED),  # volcano 4189
        ([group(phase="Running"), state("Closing", allocated={"cpu": "1"}, cpu="8")], CLOSED),
        ([group(), queue(parent="all"), state("Closed", "all")], "its queue all of Volcano is closed"),
    ],
)
def test_nobody_ends_for_a_pod_whose_queue_is_full(objects: list[Object], why: str) -> None:
    assert blocked(snapshot(FULL, web(), objects)) == {"web-0": why}
    found = plan(FULL, web(), objects)
    assert (victims(found), found.serving.placed, found.serving.short) == ([], 0, 1)


@pytest.mark.parametrize(
    "objects",
    [
        [group(), queue(allocated={"cpu": "4"}, cpu="8")],
        [group(phase="Running", cpu="6"), queue(allocated={"cpu": "4"}, cpu="8")],
        [group(), queue(allocated={"cpu": "100"})],
        [group(), queue(cpu="2")],
        [group("other"), queue(allocated={"cpu": "6"}, cpu="8")],
        [queue(allocated={"cpu": "6"}, cpu="8")],
        [group(), queue(allocated={"cpu": "many"}, cpu="8")],
        [group(), state("Open", allocated={"cpu": "1"}, cpu="8")],
        [group("other"), state("Closed")],
        [group(), queue(allocated={"cpu": "4", "memory": "65Gi"}, cpu="8", memory="64Gi")],
        [group(cpu="3"), queue(allocated={"cpu": "4", "nvidia.com/gpu": "3"}, **{"nvidia.com/gpu": "2"})],
        [group(), queue("team", "team", allocated={"cpu": "0"}, memory="1Ti")],
    ],
)
def test_a_pod_whose_queue_has_enough_left_as_far_as_is_known_gets_capacity(objects: list[Object]) -> None:
    assert blocked(snapshot(FULL, web(), objects)) == {}
    assert plan(FULL, web(), objects).serving.placed == 1


def test_the_reason_stays_while_what_the_queue_has_changes() -> None:
    """Each change of it is a line of the log for each waiting pod."""
    said = {
        blocked(snapshot(FULL, web(), group(), queue(allocated={"cpu": used}, cpu="8")))["web-0"] for used in "678"
    }
    assert said == {NO_CPU}


def test_pods_of_other_schedulers_are_not_in_these_queues() -> None:
    objects = [group(), queue(allocated={"cpu": "6"}, cpu="8")]
    other: Object = {"labels": {"scheduling.x-k8s.io/pod-group": "web"}, "metadata": {}}
    assert plan(FULL, web(**other), objects).serving.placed == 1
