"""A volume that a CSI driver is to make goes to nodes for which the driver has enough storage left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.rules.scenes import ZONE, Object, blocked, job, members, nodes, plan, snapshot, storage, victims
from tests.worlds.rules.volume_scenes import accepting, claim, stateful, storage_class

DRIVER = "ebs.csi.aws.com"  # of the class `ssd`
WANTS = claim(storageClassName="ssd", resources={"requests": {"storage": "5Gi"}})
EXISTS = storage("b", waits=True)[1]
EXISTS["spec"]["storageClassName"] = "ssd"


def driver(*, counts: bool = True) -> Object:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}}
    return {**kind, "spec": {"storageCapacity": counts}}


def left(zone: str, capacity: str | None = None, of: str = "ssd", **more: Any) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": f"{of}-{zone}", "namespace": "kube-system"},
        "storageClassName": of,
        "nodeTopology": {"matchLabels": {ZONE: zone}},
        "capacity": capacity,
        **more,
    }


def test_trainers_end_where_the_volume_of_a_serving_pod_can_be_made() -> None:
    scene = (nodes(3, "abc"), storage_class(), driver(), WANTS, left("a", "1Gi"), left("b", "9Gi"), left("c", "4Gi"))
    trains = [job("t"), *members("t", *["n0"] * 7, *["n1"] * 8, *["n2"] * 8)]
    assert accepting(snapshot(*scene, stateful())) == ["n1"]
    assert len(victims(plan(*scene, trains, stateful()))) == 4


@pytest.mark.parametrize(
    "places",
    [
        [left("a", "1Gi")],
        [left("a", "9Gi", of="other")],
        [left("a", "9Gi", nodeTopology=None)],
        [left("a", "9Gi", maximumVolumeSize="4Gi")],
        [left("a")],
        [],
    ],
)
def test_nobody_ends_for_a_pod_for_whose_volume_no_node_has_storage(places: list[Object]) -> None:
    scene = (nodes(1, "a"), storage_class(), driver(), WANTS, places, stateful())
    why = "no node has 5Gi of storage left for claim data of StorageClass ssd"
    assert blocked(snapshot(*scene)) == {"stateful-0": why}
    assert victims(plan(*scene, job("t"), members("t", *["n0"] * 7))) == []


@pytest.mark.parametrize(
    "more",
    [
        [driver(counts=False), left("a", "1Gi")],
        [left("a", "1Gi")],
        [driver(), left("a", "9Gi", nodeTopology={})],
        [driver(), EXISTS | {"spec": {**EXISTS["spec"], "nodeAffinity": None}}],
    ],
    ids=["a driver that does not count", "no driver", "storage that every node reaches", "a volume of every node"],
)
def test_what_a_driver_has_left_keeps_nothing_away_if_it_does_not_matter(more: list[Object]) -> None:
    assert accepting(snapshot(nodes(2, "ab"), storage_class(), WANTS, more, stateful())) == ["n0", "n1"]


def test_a_volume_that_exists_needs_no_storage_where_it_is() -> None:
    scene = (nodes(3, "abc"), storage_class(), driver(), WANTS, left("a", "1Gi"), left("c", "9Gi"))
    assert accepting(snapshot(*scene, EXISTS, stateful())) == ["n1", "n2"]


def test_trainers_get_volumes_where_storage_is_left_and_hear_where() -> None:
    made = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "ssd",
        "resources": {"requests": {"storage": "5Gi"}},
    }
    scratch = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": made}}}]}
    scene = (storage_class(), driver(), job("t", 1, 40, scratch))
    (decision,) = plan(nodes(2, "ab"), left("a", "1Gi"), left("b", "9Gi"), *scene).decisions
    assert set(dict(decision.nodes)) == {"n1"}
    says = f"driver {DRIVER} has 5Gi of storage left for claim scratch of StorageClass ssd only in"
    assert f"{says} zone b" in decision.details
    many = [left(zone, "9Gi") for zone in "bcdef"]
    (decision,) = plan(nodes(2, "ab"), left("a", "1Gi"), many, *scene).decisions
    assert f"{says} 5 places" in decision.details
