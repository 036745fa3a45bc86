"""Volumes and their claims: what they require of nodes, and what no eviction helps."""

from __future__ import annotations

import pytest

from tests.worlds.rules.scenes import (
    HOSTNAME,
    ZONE,
    Object,
    blocked,
    bound,
    job,
    members,
    near,
    nodes,
    plan,
    pod,
    snapshot,
    storage,
    victims,
)
from tests.worlds.rules.volume_scenes import USES, accepting, claim, stateful, storage_class

OLD_ZONE, REGION = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/region"
DB = pod("db-0", "n0", cpu="7500m")
TRAINERS = members("t", *["n1"] * 7)
IN_ZONE_B = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
BY_HAND, FREE, _ = storage("b", mode="ReadWriteOnce")
FREE_WITHOUT_CLASS = {**FREE, "spec": {**FREE["spec"], "storageClassName": ""}}


def test_nobody_ends_for_a_pod_whose_volume_is_in_a_full_zone() -> None:
    scene = (nodes(2, "ab"), bound(storage("a"), "pv-a0"), DB, job("t"), TRAINERS, stateful())
    found = plan(*scene)
    assert victims(found) == []
    assert (found.serving.placed, found.serving.short) == (0, 1)
    assert accepting(snapshot(*scene)) == ["n0"]
    where = "volume pv-a0 of claim data is in zone a"
    why = f"{where}; 1 node that this leaves has no capacity for it, even without training"
    assert blocked(snapshot(*scene)) == {"stateful-0": why}


def test_a_pod_whose_volume_is_in_a_zone_full_of_trainers_gets_their_room() -> None:
    scene = (nodes(2, "ab"), bound(storage("a"), "pv-a0"), job("t"), members("t", *["n0"] * 7), stateful())
    assert blocked(snapshot(*scene)) == {}
    assert len(victims(plan(*scene))) == 4


def test_a_volume_in_a_zone_without_nodes_blocks_its_pod() -> None:
    scene = (nodes(2, "bb"), bound(storage("a"), "pv-a0"), stateful())
    assert blocked(snapshot(*scene)) == {"stateful-0": "volume pv-a0 of claim data is in zone a; no node is left"}


def test_an_old_volume_is_in_the_zones_of_its_labels() -> None:
    old = bound(storage("a"), "pv-a0")
    del old[1]["spec"]["nodeAffinity"]
    old[1]["metadata"]["labels"] = {ZONE: "b__c"}
    assert accepting(snapshot(nodes(3, "abc"), old, stateful())) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("labels", "accepts"),
    [
        ({OLD_ZONE: "b"}, True),
        ({ZONE: "b"}, True),
        ({OLD_ZONE: "b", ZONE: "a"}, True),
        ({ZONE: "a"}, False),
        ({REGION: "r"}, False),
        ({}, True),
    ],
    ids=["the old label", "the new one", "the old one counts first", "another zone", "a region alone", "no label"],
)
def test_a_volume_with_the_old_label_of_zones_is_where_kube_scheduler_looks_for_it(
    labels: dict[str, str], *, accepts: bool
) -> None:
    """Nodes of present clouds have only the new label; a node takes any zone only if it has no label of zones."""
    old = bound(storage("a"), "pv-a0")
    del old[1]["spec"]["nodeAffinity"]
    old[1]["metadata"]["labels"] = {OLD_ZONE: "b"}
    (only,) = nodes(1, "a")
    only["metadata"]["labels"] = {HOSTNAME: "n0", **labels}
    assert accepting(snapshot([only], old, stateful())) == (["n0"] if accepts else [])


def test_an_unbound_claim_of_a_class_that_binds_at_once_waits() -> None:
    scene = (nodes(2, "ab"), storage_class("Immediate"), claim(storageClassName="ssd"), stateful())
    assert (
        "claim data has no volume yet; StorageClass ssd binds it at once" in blocked(snapshot(*scene))["stateful-0"]
    )
    assert victims(plan(*scene, job("t"), members("t", *["n0"] * 7, *["n1"] * 8))) == []


def test_a_job_begins_before_its_claim_of_such_a_class_is_bound() -> None:
    scene = (nodes(2, "ab"), storage_class("Immediate"), claim("own-journal-uid-own", storageClassName="ssd"))
    (decision,) = plan(*scene, job("own", 2, 4)).decisions
    assert decision.target == 4


@pytest.mark.parametrize(
    ("of_class", "kinds", "words"),
    [
        ("ssd", [storage_class("Immediate", allowedTopologies=IN_ZONE_B)], "volumes of StorageClass ssd"),
        ("by-hand", [BY_HAND, FREE], "volumes of StorageClass by-hand"),
        ("by-hand", [FREE], "volumes of StorageClass by-hand"),
        ("", [FREE_WITHOUT_CLASS], "free volumes without a class"),
    ],
    ids=["made in some zones", "made by hand", "of a class without an object", "without a class"],
)
def test_volumes_bound_before_their_trainers_run_are_in_their_zones_only(
    of_class: str, kinds: list[Object], words: str
) -> None:
    requests = {"requests": {"storage": "1Gi"}}
    made = {"accessModes": ["ReadWriteOnce"], "storageClassName": of_class, "resources": requests}
    scratch = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": made}}}]}
    (decision,) = plan(nodes(3, "abc"), kinds, job("t", 1, 40, scratch)).decisions
    assert set(dict(decision.nodes)) == {"n1"}
    assert f"{words} for claim scratch are in zone b" in decision.details


@pytest.mark.parametrize("is_default", [False, True])
def test_a_class_provides_volumes_in_its_zones_only(*, is_default: bool) -> None:
    found = storage_class(allowedTopologies=IN_ZONE_B)
    if is_default:
        found["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    wants = claim() if is_default else claim(storageClassName="ssd")
    assert accepting(snapshot(nodes(3, "abc"), found, wants, stateful())) == ["n1"]


def test_volumes_made_by_hand_are_where_free_ones_fit() -> None:
    by_hand = storage("ab", waits=True)
    by_hand[1]["spec"]["capacity"] = {"storage": "1Mi"}  # pv-a0 is too small
    by_hand[2]["status"] = {"phase": "Bound"}  # pv-a1 is taken
    assert accepting(snapshot(nodes(2, "ab"), by_hand, claim(), stateful())) == ["n1"]


def test_a_claim_that_one_pod_may_use_blocks_the_second() -> None:
    alone = bound(storage("a", mode="ReadWriteOncePod"), "pv-a0")
    scene = (nodes(2, "aa"), alone, pod("first-0", "n0", volumes=USES), stateful())
    assert "one pod uses claim data, which is ReadWriteOncePod" in blocked(snapshot(*scene))["stateful-0"]


def test_a_trainer_that_uses_such_a_claim_alone_ends_for_a_serving_pod() -> None:
    alone = bound(storage("a", mode="ReadWriteOncePod"), "pv-a0")
    trains = [job("t", 1, 1, volumes=USES), *members("t", "n1", volumes=USES)]
    found = plan(nodes(2, "aa"), alone, trains, stateful())
    assert found.serving.placed == 1
    assert victims(found) == ["t-trainer-0"]


def test_a_node_attaches_so_many_volumes() -> None:
    driver = "ebs.csi.aws.com"
    limits = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": f"n{i}"},
            "spec": {"drivers": [{"name": driver, "nodeID": f"n{i}", "allocatable": {"count": 1}}]},
        }
        for i in range(2)
    ]
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv{i}"},
            "spec": {"csi": {"driver": driver, "volumeHandle": f"v{i}"}},
        }
        for i in range(3)
    ]
    claims = [claim(f"data-{i}", volumeName=f"pv{i}") for i in range(3)]
    uses = [[{"name": "d", "persistentVolumeClaim": {"claimName": f"data-{i}"}}] for i in range(3)]
    pods = [pod(f"db-{i}", on, cpu="1", volumes=uses[i]) for i, on in enumerate(("n0", "", ""))]
    beside = members("t", *["n0"] * 7, *["n1"] * 8)
    found = plan(nodes(2), limits, volumes, claims, pods, job("t"), beside)
    assert (found.serving.placed, found.serving.short) == (1, 1)
    assert len(victims(found)) == 1
    assert int(victims(found)[0].rpartition("-")[2]) >= 7


def test_a_volume_in_the_spec_of_a_pod_counts_for_no_limit() -> None:
    """kube-scheduler counts the volumes of claims alone; a driver makes the others when the pod starts."""
    driver = "secrets.csi.example.com"
    limit = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n0"},
        "spec": {"drivers": [{"name": driver, "nodeID": "n0", "allocatable": {"count": 1}}]},
    }
    uses = [{"name": name, "csi": {"driver": driver}} for name in "ab"]
    assert plan(nodes(1), limit, pod("web-0", cpu="1", volumes=uses)).serving.placed == 1


@pytest.mark.parametrize("is_made", [False, True], ids=["by hand", "made by a driver"])
def test_pods_that_share_a_volume_to_come_share_its_zone(*, is_made: bool) -> None:
    """The first pod decides the zone of the volume, so no trainer ends for the others in the other zone."""
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    kinds = [storage_class(allowedTopologies=allowed)] if is_made else storage("ab", waits=True)
    wants = claim(storageClassName="ssd" if is_made else "by-hand", accessModes=["ReadWriteOnce"])
    webs = [pod(f"web-{number}", cpu="5", volumes=USES) for number in range(3)]
    scene = (nodes(4, "ab"), kinds, wants, webs)
    assert plan(*scene).serving.placed == 2
    zones = {accepting(snapshot(*scene), f"web-{number}")[0] for number in range(3)}
    assert len(zones) == 1
    beside = members("t", *["n0"] * 7, *["n1"] * 8, *["n2"] * 8, *["n3"] * 8)
    ended = victims(plan(*scene, job("t"), beside))
    numbers = [int(name.rpartition("-")[2]) for name in ended]
    places = {f"n{(number + 1) // 8}" for number in numbers}
    assert places in ({"n0", "n2"}, {"n1", "n3"})


@pytest.mark.parametrize("where", ["n0", "n1"])
def test_pods_that_share_a_volume_to_come_share_the_zone_of_the_pod_that_they_must_be_near(where: str) -> None:
    wants = claim(storageClassName="by-hand", accessModes=["ReadWriteOnce"])
    webs = [pod(f"web-{number}", cpu="1", volumes=USES, affinity=near(app="cache")) for number in range(2)]
    scene = (nodes(4, "ab"), storage("ab", waits=True), wants, pod("cache-0", where), webs)
    assert accepting(snapshot(*scene), "web-0") == [where]
    assert plan(*scene).serving.placed == 2


def test_trainers_that_share_a_volume_to_come_are_planned_in_one_zone() -> None:
    template = {"volumes": USES}
    scene = (nodes(4, "ab"), storage("ab", waits=True), claim(storageClassName="by-hand"), job("t", 2, 40, template))
    (decision,) = plan(*scene).decisions
    assert {name for name, _ in decision.nodes} in ({"n0", "n2"}, {"n1", "n3"})


def test_trainers_with_a_volume_of_their_own_run_where_its_class_makes_it_as_many_as_nodes_attach() -> None:
    driver = "ebs.csi.aws.com"
    kind = storage_class(allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}])
    kind["provisioner"] = driver
    limits = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": f"n{i}"},
            "spec": {"drivers": [{"name": driver, "nodeID": f"n{i}", "allocatable": {"count": 3}}]},
        }
        for i in range(4)
    ]
    made = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "ssd",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    template = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": made}}}]}
    scene = (nodes(4, "ab"), kind, limits, job("t", 2, 40, template))
    (decision,) = plan(*scene).decisions
    assert dict(decision.nodes) == {"n0": 3, "n2": 3}
    runs = members("t", "n0", "n0", volumes=template["volumes"])
    (after,) = plan(*scene, runs).decisions
    assert (after.target, dict(after.nodes)) == (6, {"n0": 1, "n2": 3})


def test_a_volume_that_is_attached_needs_no_more_on_its_node() -> None:
    driver = "ebs.csi.aws.com"
    limit = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n0"},
        "spec": {"drivers": [{"name": driver, "nodeID": "n0", "allocatable": {"count": 1}}]},
    }
    spec = {"csi": {"driver": driver, "volumeHandle": "v"}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec}
    scene = (nodes(1), limit, volume, claim(volumeName="pv"), pod("db-0", "n0", cpu="1", volumes=USES))
    assert plan(*scene, pod("web-0", cpu="1", volumes=USES)).serving.placed == 1
    assert plan(*scene, pod("web-0", cpu="1")).serving.placed == 1


def test_pods_that_share_two_volumes_need_a_node_that_attaches_both() -> None:
    driver = "ebs.csi.aws.com"
    limits = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": f"n{i}"},
            "spec": {"drivers": [{"name": driver, "nodeID": f"n{i}", "allocatable": {"count": i + 1}}]},
        }
        for i in range(2)
    ]
    csi = {"csi": {"driver": driver, "volumeHandle": "v"}}
    names = ("data-0", "data-1")
    kind = {"apiVersion": "v1", "kind": "PersistentVolume"}
    volumes = [{**kind, "metadata": {"name": f"pv-{name}"}, "spec": csi} for name in names]
    claims = [claim(name, volumeName=f"pv-{name}") for name in names]
    both = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    pods = [pod(f"web-{i}", cpu="1", volumes=both) for i in range(2)]
    assert accepting(snapshot(nodes(2), limits, volumes, claims, pods), "web-0") == ["n1"]


def test_a_claim_whose_volume_is_being_made_keeps_its_pods_to_the_node_that_was_chosen() -> None:
    chosen = claim(storageClassName="ssd")
    chosen["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "n1"}
    scene = (nodes(3), storage_class())
    assert accepting(snapshot(*scene, claim(storageClassName="ssd"), stateful())) == ["n0", "n1", "n2"]
    assert accepting(snapshot(*scene, chosen, stateful())) == ["n1"]
    assert victims(plan(*scene, chosen, stateful(), job("t"), members("t", *["n0"] * 7, *["n1"] * 4))) == []
    full = plan(*scene, chosen, stateful(), job("t"), members("t", *["n0"] * 7, *["n1"] * 8))
    assert victims(full)
    assert full.serving.placed == 1


def on_nodes(count: int, *keys: str) -> list[Object]:
    """The driver of the class on some nodes, with its topology keys."""
    driver = {"name": "ebs.csi.aws.com", "nodeID": "x", "topologyKeys": list(keys)}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "spec": {"drivers": [driver]}}
    return [{**kind, "metadata": {"name": f"n{number}"}} for number in range(count)]


def test_pods_that_share_a_volume_to_come_are_planned_in_one_topology_of_its_driver() -> None:
    """Nobody ends for the second pod, which has to follow the volume of the first."""
    webs = [pod(f"web-{number}", cpu="5", volumes=USES) for number in range(2)]
    scene = (nodes(2, "ab"), storage_class(), claim(storageClassName="ssd"), webs)
    assert plan(*scene).serving.placed == plan(*scene, on_nodes(2)).serving.placed == 2  # volumes are everywhere
    full = (*scene, job("t"), members("t", *["n0"] * 7, *["n1"] * 8))
    found = plan(*full, on_nodes(2, ZONE))
    assert (found.serving.placed, found.serving.short) == (1, 1)
    assert len(victims(found)) <= 5
    template = {"volumes": USES}
    wants = (nodes(3, "aba"), storage_class(), claim(storageClassName="ssd"), job("t", 2, 40, template))
    (decision,) = plan(*wants, on_nodes(3, ZONE)).decisions
    assert set(dict(decision.nodes)) == {"n0", "n2"}
    assert "the volume of claim data, which several pods share, will be in one place" in decision.details


def test_one_pod_alone_decides_where_its_volume_is_made() -> None:
    scene = (nodes(2, "ab"), storage_class(), claim(storageClassName="ssd"), stateful(), on_nodes(2, ZONE))
    assert accepting(snapshot(*scene)) == ["n0", "n1"]


def test_a_master_that_has_a_claim_alone_may_go_to_each_place_of_its_driver() -> None:
    journal = claim("own-journal-uid-own", storageClassName="ssd")
    found = snapshot(nodes(2, "ab"), storage_class(), journal, job("own", 2, 40), on_nodes(2, ZONE))
    assert [fixed.shape.placement.rules for fixed in found.jobs[0].fixed] == [()]


def test_a_volume_of_one_node_is_on_it() -> None:
    local = bound(storage("a"), "pv-a0")
    on_n1 = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["n1"]}]}]
    local[1]["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": on_n1}}
    assert blocked(snapshot(nodes(1), local, stateful())) == {
        "stateful-0": "volume pv-a0 of claim data is on node n1; no node is left"
    }
