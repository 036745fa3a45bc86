"""Certificates of plans beside trainers that lend CPU: what they declare counts, by edl and by the check alike."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from edl.explain.certificates.document import LENT
from tests.tools.certified_clusters import Certified, Object, certify_objects
from tests.tools.verifier import faults
from tests.worlds.raw_objects import job, node, owned_by, pod


def lender(index: int, request: str, declared: str) -> Object:
    labels = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": "trainer", "paddlepaddle.org/index": str(index)}
    resources = {"requests": {"cpu": request, "memory": "1Gi"}, "limits": {"cpu": "1"}}
    return pod(
        f"ctr-trainer-{index}",
        labels=labels,
        owner=owned_by("uid-ctr"),
        metadata={"annotations": {"paddlepaddle.org/declared-cpu": declared}},
        spec={"nodeName": "n1", "containers": [{"name": "trainer", "resources": resources}]},
    )


def certified(tmp_path: Path, *more: Object) -> Certified:
    """A node of 8 cores with six trainers of a core, of which four lend 0.9; the job may have ten."""
    trainers = [lender(i, "1" if i < 2 else "100m", "1") for i in range(6)]
    amounts: dict[str, Any] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    bounds = {"entrypoint": "x", "min-instance": 2, "max-instance": 10, "resources": amounts}
    gang: Object = {"fault_tolerant": True, "trainer": bounds}
    items = [
        {"apiVersion": "v1", **node()},
        job(spec=gang, metadata={"creationTimestamp": "2026-01-05T10:00:00Z"}),
        *({"apiVersion": "v1", **one} for one in (*trainers, *more)),
    ]
    return certify_objects({"apiVersion": "v1", "kind": "List", "items": items}, tmp_path)


def serving(cpu: str, node_name: str = "") -> Object:
    spec = {"containers": [{"name": "web", "resources": {"requests": {"cpu": cpu}}}], "nodeName": node_name}
    return pod("web", namespace="web", spec=spec, status={"phase": "Running" if node_name else "Pending"})


def test_what_trainers_declare_leaves_no_room_that_they_lend(tmp_path: Path) -> None:
    found = certified(tmp_path)
    (decision,) = found.plan["decisions"]
    assert decision["target"] == 7, "8 cores beside a master of a quarter of a core"
    assert faults(found.objects, found.plan, found.certificate) == []


def test_bound_serving_on_lent_room_keeps_plan_and_proof_together(tmp_path: Path) -> None:
    found = certified(tmp_path, serving("4", "n1"))
    assert found.plan["decisions"][0]["lending"] == {"cpuMilli": 3600, "slowed": 4}
    assert faults(found.objects, found.plan, found.certificate) == []


def test_a_plan_that_places_waiting_serving_in_lent_room_has_a_certificate(tmp_path: Path) -> None:
    found = certified(tmp_path, serving("4"))
    (decision,) = found.plan["decisions"]
    assert (decision["target"], decision["victims"]) == (6, []), (
        "5.1 cores are free by requests, 1.75 by declared CPU"
    )
    assert found.certificate["pods"] == {"web/web": "n1"}
    assert LENT in found.certificate["leftOut"]
    assert faults(found.objects, found.plan, found.certificate) == []


def test_serving_in_lent_room_keeps_to_what_trainers_lend(tmp_path: Path) -> None:
    found = certified(tmp_path, serving("5.35"))  # 6.25 - 6 + 3.6 beside the new master of a quarter of a core
    assert found.plan["decisions"][0]["victims"] == []
    assert faults(found.objects, found.plan, found.certificate) == []
    more = change_of(found.objects, "web", "5360m")
    assert any("overcommitted" in line for line in faults(more, found.plan, found.certificate))


def test_lent_room_is_counted_once(tmp_path: Path) -> None:
    found = certified(tmp_path, serving("5"))
    twin = deepcopy(found.objects)
    (web,) = (item for item in twin["items"] if item["metadata"]["name"] == "web")
    twin["items"].append(web | {"metadata": web["metadata"] | {"name": "api"}})
    found.plan["serving"].update(waiting=2, placed=2)
    found.certificate["pods"]["web/api"] = "n1"
    assert any("overcommitted" in line for line in faults(twin, found.plan, found.certificate))


def test_memory_is_not_lent(tmp_path: Path) -> None:
    found = certified(tmp_path, serving("4"))
    more = change_of(found.objects, "web", "4", memory="30Gi")
    assert any("of memory" in line for line in faults(more, found.plan, found.certificate))


def test_a_new_trainer_may_not_use_room_that_others_lend(tmp_path: Path) -> None:
    found = certified(tmp_path, serving("4", "n1"))
    (decision,) = found.plan["decisions"]
    decision["nodes"], decision["target"] = {"n1": 1}, decision["target"] + 1
    assert any("overcommitted" in line for line in faults(found.objects, found.plan, found.certificate))


def test_a_request_that_the_kubelet_has_not_lowered_yet_is_not_lent(tmp_path: Path) -> None:
    found = certified(tmp_path, serving("4"))
    later = deepcopy(found.objects)
    for item in later["items"]:
        if item["metadata"].get("annotations"):
            reported = {"name": "trainer", "resources": {"requests": {"cpu": "1"}}}
            item["status"]["containerStatuses"] = [reported]
    assert any("overcommitted" in line for line in faults(later, found.plan, found.certificate))


def change_of(objects: Object, name: str, cpu: str, memory: str = "1Gi") -> Object:
    """The objects with another size of a serving pod."""
    changed = deepcopy(objects)
    (found,) = (item for item in changed["items"] if item["metadata"]["name"] == name)
    found["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu, "memory": memory}
    return changed
