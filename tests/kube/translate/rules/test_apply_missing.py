"""Pods that name what does not exist: kube-scheduler refuses them at once, so nobody gives anything for them."""

from __future__ import annotations

import pytest

from edl.kube.translate.rules.facts import RuleFacts
from tests.worlds.raw_objects import ray_cluster, ray_pod
from tests.worlds.rules.device_scenes import claim as device_claim
from tests.worlds.rules.device_scenes import device_class, slices, template, uses
from tests.worlds.rules.scenes import (
    ZONE,
    Object,
    apart,
    blocked,
    bound,
    job,
    members,
    near,
    node,
    nodes,
    plan,
    pod,
    snapshot,
    spread,
    storage,
    victims,
)
from tests.worlds.rules.volume_scenes import USES, claim, storage_class

MADE = {"accessModes": ["ReadWriteOnce"], "storageClassName": "ssd", "resources": {"requests": {"storage": "1Gi"}}}
OWN = [{"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec": MADE}}}]
IMMEDIATE = storage_class("Immediate")
LOST = claim(volumeName="pv", status={"phase": "Lost"})
GOING = claim(metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"}, storageClassName="ssd")


def volume(name: str, storage_class_name: str) -> Object:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class_name}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


VOLUMES: dict[str, tuple[list[Object], list[Object], str]] = {
    "no claim": ([], USES, "PersistentVolumeClaim data does not exist"),
    "a claim elsewhere": (
        [claim(metadata={"namespace": "other"}, storageClassName="ssd"), storage_class()],
        USES,
        "PersistentVolumeClaim data does not exist",
    ),
    "a lost claim": ([LOST], USES, "PersistentVolumeClaim data has lost its volume pv"),
    "a claim that is deleted": ([GOING, storage_class()], USES, "PersistentVolumeClaim data is being deleted"),
    "no volume": ([claim(volumeName="pv")], USES, "PersistentVolume pv of claim data does not exist"),
    "no class": (
        [claim(storageClassName="ssd")],
        USES,
        "claim data has no volume yet; StorageClass ssd does not exist, and no free volume of that class fits",
    ),
    "no default class": (
        [claim(), storage_class()],
        USES,
        "claim data has no volume yet; it names no StorageClass, none is the default, and no free volume fits",
    ),
    "a class that binds at once": (
        [claim(storageClassName="ssd"), IMMEDIATE],
        USES,
        "claim data has no volume yet; StorageClass ssd binds it at once",
    ),
    "no class for a volume of its own": (
        [],
        OWN,
        "has no volume yet; StorageClass ssd does not exist, and no free volume of that class fits",
    ),
}


@pytest.mark.parametrize("case", VOLUMES)
def test_nobody_gives_anything_for_a_pod_with(case: str) -> None:
    there, volumes, why = VOLUMES[case]
    scene = (nodes(2), there, job("t"), members("t", *["n0"] * 7, *["n1"] * 8), pod("web-0", volumes=volumes))
    found = plan(*scene)
    assert victims(found) == []
    assert (found.serving.placed, found.serving.short) == (0, 1)
    assert why in blocked(snapshot(*scene))["web-0"]
    assert "no node is left" not in blocked(snapshot(*scene))["web-0"]


@pytest.mark.parametrize("case", VOLUMES)
def test_no_trainer_is_planned_with(case: str) -> None:
    there, volumes, why = VOLUMES[case]
    neighbour = [job("n"), *members("n", *["n0"] * 7, *["n1"] * 8)]
    found = plan(nodes(2), there, neighbour, job("t", 2, 10, {"volumes": volumes}))
    (decision,) = [one for one in found.decisions if one.job.name == "t"]
    assert decision.target == 0
    assert why in decision.details
    assert victims(found) == []


def test_a_claim_that_a_running_pod_uses_exists_whatever_is_known_of_it() -> None:
    there = pod("first-0", "n0", volumes=USES)
    scene = (nodes(2), there, pod("web-0", volumes=USES))
    assert blocked(snapshot(*scene)) == {}
    assert plan(*scene).serving.placed == 1


def test_a_job_whose_claim_is_being_deleted_keeps_what_it_has_and_gets_no_more() -> None:
    scene = (nodes(2), GOING, storage_class(), job("t", 1, 10, {"volumes": USES}))
    found = plan(*scene, members("t", *["n0"] * 4, volumes=USES))
    (decision,) = found.decisions
    assert decision.target == 4
    assert victims(found) == []


JOURNAL = "t-journal-uid-t"


@pytest.mark.parametrize(
    "journal",
    [
        claim(JOURNAL, storageClassName="ssd"),
        claim(JOURNAL, volumeName="pv", status={"phase": "Lost"}),
        claim(JOURNAL, metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"}),
    ],
    ids=["unbound", "lost", "deleted"],
)
def test_trainers_run_on_while_a_master_waits_for_the_claim_of_its_journal(journal: Object) -> None:
    trainers = members("t", *["n0"] * 4)[1:]
    (decision,) = plan(nodes(2), journal, job("t", 2, 4), trainers).decisions
    assert (decision.target, decision.victims) == (4, ())


def test_a_head_whose_claim_is_missing_ends_no_worker_that_runs() -> None:
    """Edl may see the claim later than the pods."""
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [container], "volumes": USES}}}
    cluster = ray_cluster(spec={"headGroupSpec": head})
    kind = {"apiVersion": "v1"}
    workers = [kind | ray_pod(f"ray-workers-{n}", spec={"nodeName": "n0"}, namespace="ads") for n in range(3)]
    (new,) = plan(nodes(2), cluster).decisions
    assert (new.target, new.message) == (0, "no node accepts its masters: PersistentVolumeClaim data does not exist")
    (runs,) = plan(nodes(2), cluster, workers).decisions
    assert runs.victims == ()
    assert runs.target >= 3


@pytest.mark.parametrize("name", ["ssd", ""], ids=["of a class that does not exist", "without a class"])
def test_a_volume_made_by_hand_is_bound_before_a_job_begins(name: str) -> None:
    (decision,) = plan(
        nodes(2), claim(storageClassName=name), volume("pv", name), job("t", 2, 4, {"volumes": USES})
    ).decisions
    assert decision.target == 0, "kube-scheduler refuses its trainers until then"
    assert "a free volume is bound at once" in decision.details


def test_a_claim_that_is_made_for_a_pod_in_a_moment_is_not_missing() -> None:
    scene = (nodes(2), storage_class(), pod("web-0", volumes=OWN))
    assert blocked(snapshot(*scene)) == {}
    assert plan(*scene).serving.placed == 1


SHARES = "rule: it must share a zone with a pod of app=web"
UNLABELLED: dict[str, tuple[Object, str]] = {
    "a spread": (
        {"topologySpreadConstraints": spread(ZONE, app="web")},
        f"rule: pods of app=web differ by at most 1 between zones, and no node has label {ZONE}",
    ),
    "an affinity to its like": (
        {"affinity": near(ZONE, app="web")},
        f"{SHARES}, and no node has label {ZONE}",
    ),
    "an affinity to pods that run": (
        {"affinity": near(ZONE, app="db")},
        f"{SHARES.replace('web', 'db')}, and no node has label {ZONE}",
    ),
}


@pytest.mark.parametrize("case", UNLABELLED)
def test_a_label_that_no_node_has_is_named_with_the_rule_that_needs_it(case: str) -> None:
    spec, why = UNLABELLED[case]
    db = pod("db-0", "n0", cpu="1", labels={"app": "db"})
    scene = (nodes(2), db, pod("web-0", cpu="1", labels={"app": "web"}, **spec))
    assert blocked(snapshot(*scene)) == {"web-0": f"{why}; no node is left"}
    trains = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    wants = job("t", 2, 10)
    wants["spec"]["trainer"]["template"] = trains
    (decision,) = plan(nodes(2), db, wants).decisions
    assert decision.target == 0
    assert why in decision.details


def test_pods_on_nodes_without_the_label_of_an_affinity_are_near_nobody_and_run_all_the_same() -> None:
    db, web = pod("db-0", "n0", cpu="1", labels={"app": "db"}), pod("web-0", affinity=near(ZONE, app="db"))
    why = f"{SHARES.replace('web', 'db')}, and such pods run only on nodes without label {ZONE}"
    assert blocked(snapshot(nodes(1), node("n1", zone="a"), db, web)) == {"web-0": f"{why}; no node is left"}


DEVICES: dict[str, tuple[list[Object], Object, str]] = {
    "no claim": ([device_class()], uses("one", shared=True), "claim one: the ResourceClaim does not exist"),
    "no template": ([device_class()], uses(), "claim one-gpu: the ResourceClaimTemplate does not exist"),
    "no class": (
        [template()],
        uses(),
        "claim one-gpu: DeviceClass gpu.example.com does not exist",
    ),
    "none of all": ([], uses(), "claim one-gpu: the ResourceClaimTemplate does not exist"),
    "no class of a claim": (
        [device_claim("one")],
        uses("one", shared=True),
        "claim one: DeviceClass gpu.example.com does not exist",
    ),
}


@pytest.mark.parametrize("case", DEVICES)
def test_nobody_gives_anything_for_a_pod_that_claims_devices_with(case: str) -> None:
    there, claims, why = DEVICES[case]
    web = pod("web-0", **claims)
    scene = (nodes(2), slices(2), there, job("t"), members("t", *["n0"] * 7, *["n1"] * 8), web)
    found = plan(*scene)
    assert victims(found) == []
    assert blocked(snapshot(*scene)) == {"web-0": why}


@pytest.mark.parametrize("case", DEVICES)
def test_no_trainer_that_claims_devices_is_planned_with(case: str) -> None:
    there, claims, why = DEVICES[case]
    (decision,) = plan(nodes(2), slices(2), there, job("t", 2, 10, claims)).decisions
    assert decision.target == 0
    assert why in decision.details


def test_what_edl_may_not_read_is_not_missing() -> None:
    """Then kube-scheduler says what it finds."""
    assert not RuleFacts().lacks_claim(("default", "data"))
    assert RuleFacts(complete=frozenset({"claims"})).lacks_claim(("default", "data"))


def test_other_rules_of_such_a_pod_do_not_matter() -> None:
    web = pod("web-0", volumes=USES, affinity=apart(app="web"))
    assert blocked(snapshot(nodes(2), web)) == {"web-0": "PersistentVolumeClaim data does not exist"}


def test_a_bound_claim_is_as_it_was() -> None:
    scene = (nodes(2, "ab"), bound(storage("a"), "pv-a0"), pod("web-0", volumes=USES))
    assert blocked(snapshot(*scene)) == {}
