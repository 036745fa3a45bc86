"""Certificates of plans beside trainers that lend CPU: what they declare counts, by edl and by the check alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
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


def test_a_plan_that_places_waiting_serving_in_lent_room_has_no_certificate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in room that trainers lend"):
        certified(tmp_path, serving("4"))
