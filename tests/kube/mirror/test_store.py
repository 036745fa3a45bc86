"""A long list is taken in parts, as if an event came for each object."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from edl.kube.mirror.store import FOR_EVER, ObjectStore, uid_of, version_of
from edl.kube.translate.decoders import PODS, Quarantined
from edl.kube.translate.objects import PodObject


def pod(name: str, version: str = "1") -> PodObject:
    found = PODS.from_dict({"metadata": {"name": name, "uid": name, "resourceVersion": version, "labels": {}}})
    assert isinstance(found, PodObject)
    return found


def pod_of(name: str, uid: str, version: str, phase: str = "Pending") -> PodObject:
    metadata = {"name": name, "namespace": "n", "uid": uid, "resourceVersion": version}
    found = PODS.from_dict({"metadata": metadata, "status": {"phase": phase}})
    assert isinstance(found, PodObject)
    return found


def names(store: ObjectStore[PodObject]) -> list[str]:
    return sorted(name for _, name in store.objects)


def test_the_parts_of_a_list_are_taken_one_after_the_other() -> None:
    store = ObjectStore[PodObject]()
    store.replace([pod("gone"), pod("a")])
    with patch("edl.kube.mirror.store.SLICE", 2):
        parts = [(changed, names(store)) for changed in store.replacing([pod(name) for name in "abcde"])]
    assert parts == [
        *[(False, ["a", "gone"])] * 3,  # what is listed is read in parts, too
        (True, ["a"]),
        (True, ["a", "b"]),
        (True, ["a", "b", "c", "d"]),
        (True, ["a", "b", "c", "d", "e"]),
    ]


def test_a_list_without_news_changes_nothing() -> None:
    store = ObjectStore[PodObject]()
    assert store.replace([pod("a")])
    store.changed.clear()
    assert not store.replace([pod("a", "2")])
    assert not store.changed


def test_an_object_that_cannot_be_decoded_is_never_missing_while_a_list_is_taken() -> None:
    store = ObjectStore[PodObject]()
    bad = Quarantined("Pod", "", "bad", "bad", "no")
    store.replace([pod("a")], [bad])
    with patch("edl.kube.mirror.store.SLICE", 1):
        for _ in store.replacing([pod("a", "2"), pod("b")], [bad]):
            assert ("", "bad") in store.quarantined
    assert list(store.quarantined.values()) == [bad]
    store.replace([pod("a", "2"), pod("bad")])
    assert not store.quarantined


def test_what_was_known_of_an_object_stays_until_the_list_says_that_it_cannot_be_decoded() -> None:
    store = ObjectStore[PodObject]()
    store.replace([pod("a"), pod("bad")])
    bad = Quarantined("Pod", "", "bad", "bad", "no")
    for _ in store.replacing([pod("a", "2")], [bad]):
        assert names(store) == ["a", "bad"]
    assert names(store) == ["a"]
    assert ("", "bad") in store.quarantined


def put_back(store: ObjectStore[PodObject], *objects: PodObject, version: str) -> None:
    """A list that began now."""
    for _ in store.replacing(objects, (), version, store.mark()):
        pass


def shown(store: ObjectStore[PodObject]) -> dict[str, tuple[str, str]]:
    """Name -> (UID, version) of every object."""
    return {name: (uid_of(obj), version_of(obj)) for (_, name), obj in store.objects.items()}


@pytest.mark.parametrize("listed_at", ["950", "1100"], ids=["behind what was seen", "past what was seen"])
def test_after_a_restore_of_etcd_a_list_is_believed(listed_at: str) -> None:
    """The versions of the lost history are larger than those of the restored one, or collide with them."""
    store = ObjectStore[PodObject]()
    store.add(pod_of("changed", "u-1", "1000"))
    store.add(pod_of("lost", "u-2", "990"))
    store.add(pod_of("deleted", "u-3", "800"))
    store.remove(("n", "deleted"), "u-3", "995")
    store.add(pod_of("gone", "u-4", "800"))
    store.remove(("n", "gone"), "u-4", FOR_EVER)
    put_back(
        store,
        pod_of("changed", "u-1", "940"),
        pod_of("deleted", "u-3", "800"),
        pod_of("gone", "u-4", "800"),
        version=listed_at,
    )
    assert shown(store) == {"changed": ("u-1", "940"), "deleted": ("u-3", "800"), "gone": ("u-4", "800")}
    assert store.add(pod_of("changed", "u-1", "1000", phase="Running"), is_known=True), "versions collide"
    assert store.add(pod_of("deleted", "u-3", "990", phase="Running"), is_known=True)
    assert store.add(pod_of("gone", "u-4", "991", phase="Running"), is_known=True)


def test_what_an_answer_shows_while_a_list_is_read_stays() -> None:
    store = ObjectStore[PodObject]()
    store.add(pod_of("a", "u-1", "10"))
    store.add(pod_of("b", "u-2", "11"))
    begun = store.mark()
    store.add(pod_of("a", "u-1", "31"))
    store.add(pod_of("new", "u-3", "32"))
    store.remove(("n", "b"), "u-2", FOR_EVER)
    for _ in store.replacing([pod_of("a", "u-1", "10"), pod_of("b", "u-2", "11")], (), "30", begun):
        pass
    assert shown(store) == {"a": ("u-1", "31"), "new": ("u-3", "32")}
