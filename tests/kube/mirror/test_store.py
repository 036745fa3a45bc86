"""A long list is taken in parts, as if an event came for each object."""

from __future__ import annotations

from unittest.mock import patch

from edl.kube.mirror.store import ObjectStore
from edl.kube.translate.decoders import PODS, Quarantined
from edl.kube.translate.objects import PodObject


def pod(name: str, version: str = "1") -> PodObject:
    found = PODS.from_dict({"metadata": {"name": name, "uid": name, "resourceVersion": version, "labels": {}}})
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
