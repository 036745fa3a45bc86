"""Where volumes can be attached: where their driver runs, if it must, and on one node only, if that is their mode.

kube-scheduler keeps a pod from a node without the driver only if the CSIDriver says so, and never from a node other
than that of its volume (kubernetes 103305): there the pod waits for the volume for ever.
"""

from __future__ import annotations

import pytest

from tests.worlds.rules.scenes import Object, blocked, job, members, node, nodes, plan, pod, snapshot, victims
from tests.worlds.rules.volume_scenes import USES, claim, storage_class

DRIVER = "ebs.csi.aws.com"
BOUND: Object = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "pv"},
    "spec": {"csi": {"driver": DRIVER, "volumeHandle": "v"}},
}
OWN: Object = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "ssd",
    "resources": {"requests": {"storage": "1Gi"}},
}
SCRATCH = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": OWN}}}]
CLAIMS: dict[str, tuple[list[Object], list[Object]]] = {
    "of a volume": ([BOUND, claim(volumeName="pv")], USES),
    "of a volume to come": ([claim(storageClassName="ssd")], USES),
    "of the pod itself": ([], SCRATCH),
}
"""Objects, and the volumes of a pod that uses them."""


def must_run(*, must: bool = True) -> Object:
    spec = {"preventPodSchedulingIfMissing": must}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": spec}


def runs_on(*names: str) -> list[Object]:
    """The CSINodes of two nodes, of which some have the driver; the other ones have another driver."""
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
    return [
        {
            **kind,
            "metadata": {"name": name},
            "spec": {"drivers": [{"name": DRIVER if name in names else "x", "nodeID": name}]},
        }
        for name in ("n0", "n1")
    ]


@pytest.mark.parametrize("how", CLAIMS)
def test_trainers_end_for_a_serving_pod_only_where_the_driver_of_its_volume_runs(how: str) -> None:
    objects, volumes = CLAIMS[how]
    waits = pod("web-0", volumes=volumes)
    scene = (nodes(2), storage_class(), objects, waits, job("t"), members("t", *["n0"] * 7, *["n1"] * 8))
    found = plan(*scene, must_run(), runs_on("n1"))
    assert found.serving.placed == 1
    assert {int(name.rpartition("-")[2]) >= 7 for name in victims(found)} == {True}
    assert victims(plan(*scene, must_run(), runs_on())) == []
    said = blocked(snapshot(*scene, must_run(), runs_on()))
    assert said["web-0"] == f"CSI driver {DRIVER} must run on the node; no node is left"
    assert plan(*scene, must_run(must=False), runs_on()).serving.placed == 1
    assert plan(*scene, must_run()).serving.placed == 1, "files without CSINodes say nothing about drivers"


@pytest.mark.parametrize("how", CLAIMS)
def test_trainers_begin_where_it_runs_and_stay_where_it_is_gone(how: str) -> None:
    objects, volumes = CLAIMS[how]
    scene = (nodes(2), storage_class(), objects, must_run(), job("t", 2, 40, {"volumes": volumes}))
    (decision,) = plan(*scene, runs_on("n1")).decisions
    assert dict(decision.nodes) == {"n1": 8}
    (decision,) = plan(*scene, runs_on("n1"), members("t", "n0", "n0", volumes=volumes)).decisions
    assert (decision.target, decision.victims, dict(decision.nodes)) == (10, (), {"n1": 8})


def test_a_pod_without_such_a_volume_goes_anywhere() -> None:
    found = plan(nodes(2), storage_class(), must_run(), runs_on(), job("t", 2, 40), pod("web-0"))
    assert found.serving.placed == 1
    assert [decision.target for decision in found.decisions] == [11]


def volume(*modes: str) -> list[Object]:
    """A volume with its claim."""
    spec = {**BOUND["spec"], "accessModes": list(modes)}
    return [{**BOUND, "spec": spec}, claim(volumeName="pv", accessModes=list(modes))]


def attached(*, required: bool) -> Object:
    return {**must_run(must=False), "spec": {"attachRequired": required}}


@pytest.mark.parametrize("objects", [volume("ReadWriteOnce"), [*volume("ReadWriteOnce"), attached(required=True)]])
@pytest.mark.parametrize(("holder", "first", "last"), [("n0", 0, 6), ("n1", 7, 14)])
def test_trainers_end_on_the_node_that_has_the_volume(
    objects: list[Object], holder: str, first: int, last: int
) -> None:
    uses = [pod("db-0", holder, cpu="10m", volumes=USES), pod("db-1", volumes=USES)]
    found = plan(nodes(2), objects, uses, job("t"), members("t", *["n0"] * 7, *["n1"] * 8))
    assert found.serving.placed == 1
    assert all(first <= int(name.rpartition("-")[2]) <= last for name in victims(found))


@pytest.mark.parametrize(
    ("objects", "more"),
    [
        (volume("ReadWriteMany"), {}),
        (volume("ReadWriteOnce", "ReadOnlyMany"), {}),
        (volume(), {}),
        ([*volume("ReadWriteOnce"), attached(required=False)], {}),
        (volume("ReadWriteOnce"), {"metadata": {"deletionTimestamp": "2026-01-05T10:00:00Z"}}),
    ],
)
def test_a_volume_of_several_nodes_or_that_becomes_free_keeps_no_pod_to_a_node(
    objects: list[Object], more: Object
) -> None:
    full = pod("web-0", "n0", cpu="7")
    uses = [pod("db-0", "n0", cpu="10m", volumes=USES, **more), pod("db-1", volumes=USES)]
    assert plan(nodes(2), objects, full, uses).serving.placed == 1


def test_nobody_ends_for_a_pod_that_the_node_of_its_volume_cannot_take() -> None:
    full = pod("web-0", "n0", cpu="7")
    uses = [pod("db-0", "n0", cpu="10m", volumes=USES), pod("db-1", volumes=USES)]
    scene = (nodes(2), volume("ReadWriteOnce"), full, uses, job("t"), members("t", *["n1"] * 7))
    assert victims(plan(*scene)) == []
    assert blocked(snapshot(*scene))["db-1"].startswith(
        "volume pv is in use on node n0, and its access mode allows no other one; "
    )


def test_trainers_that_share_such_a_volume_begin_on_one_node() -> None:
    places = [node("n0", cpu="4"), node("n1"), node("n2", cpu="6")]
    found = plan(places, volume("ReadWriteOnce"), job("t", 2, 40, {"volumes": USES}))
    assert [dict(decision.nodes) for decision in found.decisions] == [{"n1": 8}]
    assert "most pods that share it fit n1" in found.decisions[0].details
    busy = pod("web-0", "n1", cpu="7")
    found = plan(places, volume("ReadWriteOnce"), job("t", 2, 40, {"volumes": USES}), busy)
    assert [dict(decision.nodes) for decision in found.decisions] == [{"n2": 6}]
    found = plan(places, volume("ReadWriteMany"), job("t", 2, 40, {"volumes": USES}))
    assert [decision.target for decision in found.decisions] == [17]


def test_trainers_grow_where_their_volume_is() -> None:
    scene = (nodes(2), volume("ReadWriteOnce"), job("t", 1, 40, {"volumes": USES}))
    (decision,) = plan(*scene, members("t", "n0", "n0", volumes=USES)).decisions
    assert (decision.target, dict(decision.nodes)) == (7, {"n0": 5})
