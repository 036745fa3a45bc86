"""What a kubelet grants to containers that run."""

from __future__ import annotations

from typing import Any

from edl.sandbox.kubelet.pod_status import RESIZE_PENDING, ContainerRecord, PodFacts, pod_status
from edl.sandbox.kubelet.resizing import DEFERRED, INFEASIBLE, grant, granted

NODE: dict[str, Any] = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}}


def requests(cpu: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu}}


def pod(*cpu: str) -> dict[str, Any]:
    containers = [{"name": f"c{i}", "resources": requests(one)} for i, one in enumerate(cpu)]
    return {"spec": {"containers": containers}, "status": {}}


def records(*cpu: str) -> list[ContainerRecord]:
    return [ContainerRecord(f"c{i}", "image", resources=requests(one)) for i, one in enumerate(cpu)]


def test_what_fits_beside_the_other_pods_is_granted() -> None:
    has = records("1", "1")
    assert grant(pod("1", "2500m"), has, NODE, [{"cpu": 500}]) == ""
    assert granted(has) == {"cpu": 3500}


def test_what_does_not_fit_now_is_deferred_and_the_rest_stays() -> None:
    has = records("1", "1")
    assert grant(pod("500m", "3"), has, NODE, [{"cpu": 501}]) == DEFERRED
    assert granted(has) == {"cpu": 2000}


def test_what_never_fits_is_infeasible() -> None:
    has = records("1")
    assert grant(pod("5"), has, NODE, []) == INFEASIBLE
    assert grant(pod("1"), has, NODE, [{"cpu": 4000}]) == "", "nothing changes"


def test_the_status_says_what_is_pending_until_it_is_not() -> None:
    def conditions(before: dict[str, Any], refusal: str) -> list[dict[str, Any]]:
        facts = PodFacts("127.9.0.1", "127.0.0.1", "2026-01-01T00:00:00Z", (), records("1"), True, refusal=refusal)
        found = pod_status(before, facts)
        return [one for one in found["conditions"] if one["type"] == RESIZE_PENDING]

    (pending,) = conditions(pod("5"), INFEASIBLE)
    assert (pending["status"], pending["reason"]) == ("True", INFEASIBLE)
    assert conditions(pod("1"), "") == []
    before = {**pod("1"), "status": {"conditions": [pending]}}
    assert conditions(before, "") == [{"type": RESIZE_PENDING, "$patch": "delete"}]
