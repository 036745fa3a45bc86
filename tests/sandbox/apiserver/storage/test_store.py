"""The store against the simplest one that is right: a list of all states."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.sandbox.apiserver.storage.store import Change, ChangeType, Store, TooOldError

Object = dict[str, Any]
KEYS = [("a", "x"), ("a", "y"), ("b", "x")]
steps = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 3) | st.none()), max_size=30)


def body(name: str, value: int) -> Object:
    return {"metadata": {"name": name}, "value": value}


def run(store: Store, history: list[tuple[tuple[str, str], int | None]]) -> list[tuple[int, dict[Any, int]]]:
    """Do the steps; a value is stored, None deletes. Returns every state with its version."""
    state: dict[Any, int] = {}
    states = [(store.version, dict(state))]
    for key, value in history:
        if value is not None:
            store.put("things", key, body(key[1], value))
            state[key] = value
        elif key in state:
            store.remove("things", key)
            del state[key]
        states.append((store.version, dict(state)))
    return states


def values(store: Store, at: int | None = None) -> dict[Any, int]:
    return {key: entry.value["value"] for key, entry in store.entries("things", at=at)}


@given(steps)
def test_every_past_state_can_be_read(history: list[tuple[tuple[str, str], int | None]]) -> None:
    store = Store()
    for version, state in run(store, history):
        assert values(store, version) == state


@given(steps, st.integers(0, 30))
def test_the_changes_since_a_version_lead_to_the_present(
    history: list[tuple[tuple[str, str], int | None]], begin: int
) -> None:
    store = Store()
    states = run(store, history)
    version, state = states[min(begin, len(states) - 1)]
    for change in store.changes_since("things", version):
        assert change.version > version
        if change.type is ChangeType.DELETED:
            del state[change.key]
        else:
            assert (change.key in state) is (change.type is ChangeType.MODIFIED)
            state[change.key] = change.entry.value["value"]
    assert state == values(store)


def test_a_listener_hears_each_commit_until_it_stops() -> None:
    store, heard = Store(), list[Change]()
    stop = store.listen("things", heard.append)
    store.put("others", ("", "o"), body("o", 1))
    store.put("things", ("", "a"), body("a", 1))
    store.remove("things", ("", "a"))
    stop()
    store.put("things", ("", "b"), body("b", 1))
    assert [change.type for change in heard] == [ChangeType.ADDED, ChangeType.DELETED]
    assert [int(change.entry.value["metadata"]["resourceVersion"]) for change in heard] == [3, 4]


def test_only_the_last_changes_are_kept() -> None:
    store = Store(kept_changes=2)
    for value in range(4):
        store.put("things", ("", "a"), body("a", value))
    assert [change.entry.value["value"] for change in store.changes_since("things", 3)] == [2, 3]
    with pytest.raises(TooOldError):
        store.changes_since("things", 2)
    with pytest.raises(TooOldError):
        store.entries("things", at=2)
