"""Certificates of plans with trainers that request nothing: their minimum is proved, their surplus is checked."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from edl.explain.certificates.document import BEST_EFFORT
from tests.tools.certified_clusters import Certified, Object, certify_objects
from tests.tools.verifier import faults
from tests.worlds.raw_objects import job, node, owned_by, pod

CREATED = {"creationTimestamp": "2026-01-05T10:00:00Z"}


def gang(low: int, high: int, **trainer: Object) -> Object:
    bounds = {"entrypoint": "x", "min-instance": low, "max-instance": high, **trainer}
    return {"fault_tolerant": True, "trainer": bounds}


def certified(tmp_path: Path, running: int) -> Certified:
    """A node for twelve pods: a job with requests, and one without them that has some trainers already."""
    labels = {"paddlepaddle.org/job": "free", "paddlepaddle.org/role": "trainer"}
    riders = [
        pod(
            f"free-trainer-{i}",
            labels={**labels, "paddlepaddle.org/index": str(i)},
            owner=owned_by("uid-free", "free"),
            spec={"nodeName": "n1", "containers": [{"name": "trainer"}]},
        )
        for i in range(running)
    ]
    amounts: Object = {"requests": {"cpu": "1", "memory": "1Gi"}}
    room = node(status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "12"}})
    queue = {"apiVersion": "paddlepaddle.org/v1", "kind": "Queue", "metadata": {"name": "default"}}
    queue["spec"] = {"nominalQuota": {"pods": 100}, "bestEffort": "Allowed"}
    items = [
        {"apiVersion": "v1", **room},
        queue,
        job(spec=gang(2, 6, resources=amounts), metadata=CREATED),
        job("free", uid="uid-free", spec=gang(1, 10), metadata=CREATED),
        *({"apiVersion": "v1", **one} for one in riders),
    ]
    return certify_objects({"apiVersion": "v1", "kind": "List", "items": items}, tmp_path)


def test_the_check_accepts_a_plan_that_gives_them_what_is_left_and_says_what_is_not_proved(tmp_path: Path) -> None:
    for running in (0, 3, 10):
        found = certified(tmp_path, running)
        targets = {decision["name"]: decision["target"] for decision in found.plan["decisions"]}
        assert targets == {"ctr": 6, "free": 4}, "12 pods, of which two are masters"
        caps = {name.rpartition("/")[2]: facts["cap"] for name, facts in found.certificate["jobs"].items()}
        assert caps == {"ctr": 6, "free": 1}
        assert BEST_EFFORT in found.certificate["leftOut"]
        assert faults(found.objects, found.plan, found.certificate) == []


def test_the_check_finds_one_trainer_too_many(tmp_path: Path) -> None:
    found = certified(tmp_path, 0)
    plan = deepcopy(found.plan)
    rider = next(decision for decision in plan["decisions"] if decision["name"] == "free")
    rider["target"] += 1
    rider["nodes"]["n1"] += 1
    assert any("overcommitted" in fault for fault in faults(found.objects, plan, found.certificate))
