"""Volumes made by hand: each is for one claim, so there are pods for as many claims as there are free volumes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.rules.scenes import (
    HOSTNAME,
    Object,
    blocked,
    job,
    members,
    nodes,
    plan,
    pod,
    snapshot,
    storage,
    victims,
)
from tests.worlds.rules.volume_scenes import claim

WORDS = "rule: free volumes of StorageClass by-hand for claims of"


def own(size: str = "1Gi", **more: Any) -> Object:
    """A pod with a volume of its own, of the class made by hand."""
    requests = {"requests": {"storage": size}}
    made = {"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand", "resources": requests, **more}
    return {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": made}}}]}


def disks(*places: str, binding: str = "WaitForFirstConsumer", size: str = "10Gi") -> list[Object]:
    """The class, and a volume on each of some nodes."""
    kind: Object = storage("a")[0] | {"volumeBindingMode": binding}
    found = [kind]
    for number, place in enumerate(places):
        here = {"key": HOSTNAME, "operator": "In", "values": [place]}
        spec: Object = {"capacity": {"storage": size}, "storageClassName": "by-hand", "local": {"path": "/x"}}
        spec["accessModes"] = ["ReadWriteOnce"]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
        metadata = {"name": f"disk-{size}-{number}"}
        found.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
    return found


@pytest.mark.parametrize("binding", ["WaitForFirstConsumer", "Immediate"])
def test_a_job_gets_as_many_trainers_as_there_are_free_volumes(binding: str) -> None:
    (decision,) = plan(nodes(3), disks("n0", "n0", "n1", binding=binding), job("t", 1, 8, own())).decisions
    assert dict(decision.nodes) == {"n0": 2, "n1": 1}
    assert f"{WORDS} 1Gi (ReadWriteOnce): no more on all 2 nodes that accept its trainers" in decision.details


def test_claims_of_trainers_may_choose_volumes_by_labels() -> None:
    found = disks("n0", "n0", "n1")
    found[1]["metadata"]["labels"] = found[3]["metadata"]["labels"] = {"disk": "fast"}
    fast = own(selector={"matchLabels": {"disk": "fast"}})
    (decision,) = plan(nodes(2), found, job("t", 1, 8, fast)).decisions
    assert dict(decision.nodes) == {"n0": 1, "n1": 1}
    assert f"{WORDS} 1Gi (ReadWriteOnce, disk=fast): no more on all 2 nodes" in decision.details


def test_volumes_that_trainers_use_are_theirs_and_not_free_for_more() -> None:
    found = disks("n0", "n0", "n1")
    found[1]["status"] = found[3]["status"] = {"phase": "Bound"}
    runs = members("t", "n0", "n1", volumes=own()["volumes"])
    claims = [
        claim(f"t-trainer-{number}-scratch", storageClassName="by-hand", volumeName=f"disk-10Gi-{number * 2}")
        for number in range(2)
    ]
    (decision,) = plan(nodes(2), found, claims, job("t", 1, 8, own()), runs).decisions
    assert (decision.target, dict(decision.nodes)) == (3, {"n0": 1})


def test_two_jobs_share_the_free_volumes() -> None:
    found = plan(nodes(2), disks("n0", "n1", "n1"), job("a", 1, 8, own()), job("b", 1, 8, own())).decisions
    assert sorted(decision.target for decision in found) == [1, 2]


def test_large_claims_do_not_get_small_volumes() -> None:
    both = [*disks("n0", "n0"), *disks("n1", size="1Ti")[1:]]
    (large,) = plan(nodes(2), both, job("t", 1, 8, own("100Gi"))).decisions
    assert dict(large.nodes) == {"n1": 1}
    pair = plan(nodes(2), both, job("large", 1, 8, own("100Gi")), job("small", 1, 8, own())).decisions
    assert {decision.job.name: decision.target for decision in pair} == {"large": 1, "small": 2}


def test_a_volume_that_several_nodes_reach_is_for_one_trainer() -> None:
    in_zones = storage("ab", waits=True)  # two in each
    (decision,) = plan(nodes(6, "abc"), in_zones, job("t", 1, 40, own())).decisions
    assert decision.target == 4
    assert set(dict(decision.nodes)) <= {"n0", "n1", "n3", "n4"}
    full = [pod("db-0", "n0", cpu="8"), pod("db-1", "n1", cpu="8")]
    (beside,) = plan(nodes(6, "abc"), in_zones, full, job("t", 1, 40, own())).decisions
    assert dict(beside.nodes) == {"n3": 2, "n4": 2}


def test_serving_gets_its_volumes_before_trainers_do() -> None:
    uses = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    wants = (claim(storageClassName="by-hand"), pod("db-0", volumes=uses), job("t", 1, 40, own()))
    for volumes in (storage("a", waits=True), disks("n0", "n1")):
        found = plan(nodes(2, "aa"), volumes, *wants)
        assert (found.serving.placed, found.decisions[0].target) == (1, 1)


@pytest.mark.parametrize("never", [{"cpu": "1000"}, {"nodeSelector": {"no": "where"}}], ids=["too large", "no node"])
def test_pods_that_fit_nowhere_take_no_volume_from_trainers(never: Object) -> None:
    useless = [pod(f"w-{number}", **own(), **never) for number in range(4)]
    for volumes in (storage("a", waits=True), disks("n0", "n1")):
        (decision,) = plan(nodes(2, "aa"), volumes, useless, job("t", 1, 40, own())).decisions
        assert decision.target == 2


def test_each_node_has_serving_for_its_own_volumes_only() -> None:
    """Nobody ends on a node for a second pod that finds no volume there."""
    dbs = []
    for number in range(2):
        uses = [{"name": "d", "persistentVolumeClaim": {"claimName": f"data-{number}"}}]
        dbs += [claim(f"data-{number}", storageClassName="by-hand"), pod(f"db-{number}", cpu="3", volumes=uses)]
    scene = (nodes(2), disks("n0", "n1"), dbs, job("t"), members("t", *["n0"] * 7, *["n1"] * 8))
    assert blocked(snapshot(*scene)) == {}
    found = plan(*scene)
    assert found.serving.placed == 2
    numbers = [int(name.rpartition("-")[2]) for name in victims(found)]
    assert {sum(number < 7 for number in numbers), sum(number >= 7 for number in numbers)} == {3}


def test_a_trainer_that_terminates_holds_its_volume() -> None:
    found = disks("n0", "n1")
    found[1]["status"] = {"phase": "Bound"}
    ends = members("t", "n0", volumes=own()["volumes"], metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"})
    (decision,) = plan(nodes(2), found, job("t", 1, 8, own()), ends).decisions
    assert dict(decision.nodes) == {"n1": 1}
