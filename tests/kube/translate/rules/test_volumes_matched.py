"""Which volumes that exist a claim may get, as kube-scheduler and the controller of volumes match them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.rules.scenes import ZONE, Object, blocked, job, members, nodes, plan, snapshot, storage, victims
from tests.worlds.rules.volume_scenes import accepting, claim, stateful, storage_class

IN_ZONE_B = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
WAITS = storage("a", waits=True)[0]


def labelled(zone: str, **spec: Any) -> Object:
    """A free volume made by hand, with its zone as label `disk`."""
    found = storage(zone, waits=True)[1]
    return {**found, "metadata": {**found["metadata"], "labels": {"disk": zone}}, "spec": {**found["spec"], **spec}}


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"disk": "b"}},
        {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["a", "c"]}]},
    ],
)
def test_a_claim_chooses_volumes_by_their_labels(selector: Object) -> None:
    volumes = [labelled(zone) for zone in "abc"]
    wants = claim(storageClassName="by-hand", selector=selector)
    assert accepting(snapshot(nodes(3, "abc"), WAITS, volumes, wants, stateful())) == ["n1"]
    trains = [job("t"), *members("t", *["n0"] * 7, *["n1"] * 8, *["n2"] * 8)]
    found = plan(nodes(3, "abc"), WAITS, volumes, wants, stateful(), trains)
    assert (found.serving.placed, len(victims(found))) == (1, 4)


def test_a_claim_whose_labels_no_volume_has_gets_none() -> None:
    wants = claim(storageClassName="by-hand", selector={"matchLabels": {"disk": "x"}})
    scene = snapshot(nodes(1, "a"), WAITS, labelled("a"), wants, stateful())
    assert blocked(scene) == {"stateful-0": "no free volume of StorageClass by-hand fits claim data"}


def test_a_volume_of_another_attributes_class_or_that_is_being_deleted_is_for_no_claim() -> None:
    fast, leaves = labelled("a", volumeAttributesClassName="fast"), labelled("b")
    leaves["metadata"]["deletionTimestamp"] = "2026-01-05T10:00:00Z"
    volumes, wants = [fast, leaves, labelled("c")], claim(storageClassName="by-hand")
    assert accepting(snapshot(nodes(3, "abc"), WAITS, volumes, wants, stateful())) == ["n2"]
    wants["spec"]["volumeAttributesClassName"] = "fast"
    assert accepting(snapshot(nodes(3, "abc"), WAITS, volumes, wants, stateful())) == ["n0"]


def test_a_class_may_stand_in_an_annotation() -> None:
    annotated = {"annotations": {"volume.beta.kubernetes.io/storage-class": "ssd"}}
    found, wants = storage_class(allowedTopologies=IN_ZONE_B), claim(metadata=annotated)
    assert accepting(snapshot(nodes(3, "abc"), found, wants, stateful())) == ["n1"]
    volume = labelled("c", storageClassName="")
    volume["metadata"] |= annotated
    by_hand = {**WAITS, "metadata": {"name": "ssd"}}
    assert accepting(snapshot(nodes(3, "abc"), by_hand, volume, labelled("a"), wants, stateful())) == ["n2"]


def test_the_newest_default_class_counts_and_of_two_the_first_by_name() -> None:
    def default(name: str, zone: str, created: str, key: str = "storageclass.kubernetes.io") -> Object:
        terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}]
        metadata = {"name": name, "annotations": {f"{key}/is-default-class": "true"}, "creationTimestamp": created}
        return {**storage_class(allowedTopologies=terms), "metadata": metadata}

    old, day = "2026-01-01T00:00:00Z", "2026-01-05T10:00:00Z"
    classes = [
        default("a", "a", old),
        default("z", "c", day),
        default("b", "b", day, "storageclass.beta.kubernetes.io"),
    ]
    assert accepting(snapshot(nodes(3, "abc"), classes, claim(), stateful())) == ["n1"]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ({"name": "other", "namespace": "ads"}, "claim other of namespace ads"),
        ({"name": "data", "namespace": "default", "uid": "before"}, "a former claim of that name"),
    ],
)
def test_a_claim_that_names_the_volume_of_another_one_waits_and_nobody_ends_for_it(
    reference: Object, words: str
) -> None:
    volume, wants = labelled("a", claimRef=reference), claim(metadata={"uid": "now"}, volumeName="pv-a0")
    scene = (nodes(1, "a"), WAITS, volume, wants, stateful())
    assert blocked(snapshot(*scene)) == {"stateful-0": f"PersistentVolume pv-a0 of claim data belongs to {words}"}
    assert victims(plan(*scene, job("t"), members("t", *["n0"] * 7))) == []
    volume["spec"]["claimRef"] = {"name": "data", "namespace": "default", "uid": "now"}
    assert blocked(snapshot(*scene)) == {}
