"""Large clusters are translated in slices, so that the event loop goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from edl.kube.mirror.cache import SLICE, SLICE_OF_JOBS
from edl.kube.translate.books.node_book import read_node
from tests.kube.mirror.mirrored_cluster import JOBS, NODES, PODS, job, pod, world
from tests.worlds.fake_api import FakeApi


async def test_many_pods_are_translated_while_the_event_loop_goes_on() -> None:
    api = FakeApi()
    for number in range(3 * SLICE):
        api.put(PODS, pod(f"web-{number:03}"))
    async with world(api) as w:
        await w.settled()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await w.cache.translate(0.0)
        counting.cancel()
        assert turns >= 2
        assert len(w.foreign()) == 3 * SLICE


async def test_jobs_are_translated_while_the_event_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    for number in range(2 * SLICE_OF_JOBS):
        api.put(JOBS, job(f"j{number}"))
    async with world(api) as w:
        await w.settled()
        prepared: list[Any] = []
        reader = w.cache._translator._job_reader
        prepare = reader.prepare

        def noted(source: Any, *rest: Any) -> Any:
            prepared.append(source)
            return prepare(source, *rest)

        monkeypatch.setattr(reader, "prepare", noted)
        translating = asyncio.ensure_future(w.cache.translate(0.0))
        await asyncio.sleep(0)
        assert len(prepared) == SLICE_OF_JOBS
        await translating
        assert {source.metadata.name for source in prepared} == {f"j{number}" for number in range(2 * SLICE_OF_JOBS)}


async def test_jobs_with_their_pods_and_what_daemons_reserve_are_read_while_the_event_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A snapshot of a cluster that was just listed has nothing left to do for each job and each node."""
    monkeypatch.setattr("edl.kube.mirror.cache.SLICE", 2)
    monkeypatch.setattr("edl.kube.mirror.cache.SLICE_OF_NODES", 2)
    api = FakeApi()
    for number in range(5):
        api.put(JOBS, job(f"j{number}"))
        api.put(NODES, {"metadata": {"name": f"n{number}"}})
    async with world(api) as w:
        await w.settled()
        translator = w.cache._translator
        turn, done = 0, list[tuple[int, str]]()

        async def count() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        def spy(holder: Any, name: str, what: str) -> None:
            right = getattr(holder, name)

            def noted(*rest: Any) -> Any:
                done.append((turn, what))
                return right(*rest)

            monkeypatch.setattr(holder, name, noted)

        spy(translator, "_read_or_drop", "job")
        spy(translator._nodes, "_is_new", "node")
        counting = asyncio.ensure_future(count())
        await w.cache.translate(0.0)
        counting.cancel()
        turns = Counter(done)
        assert sorted(turns.values(), reverse=True) == [2, 2, 2, 2, 1, 1]
        done.clear()
        found = w.cache.snapshot(0.0)
        assert (len(found.jobs), len(found.nodes), done) == (5, 5, [])


async def test_nodes_are_translated_while_the_event_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.kube.mirror.cache.SLICE_OF_NODES", 3)
    api = FakeApi()
    for number in range(6):
        api.put(NODES, {"metadata": {"name": f"n{number}"}})
    api.put(NODES, {"metadata": {"name": "broken"}, "status": {"allocatable": {"cpu": "much"}}})
    async with world(api) as w:
        await w.settled()
        prepared: list[Any] = []

        def noted(source: Any) -> Any:
            prepared.append(source)
            return read_node(source)

        monkeypatch.setattr("edl.kube.translate.books.node_book.read_node", noted)
        translating = asyncio.ensure_future(w.cache.translate(0.0))
        await asyncio.sleep(0)
        assert len(prepared) == 3
        await translating
        assert len(prepared) == 7
        found = w.cache.snapshot(0.0)
        assert [node.name for node in found.nodes] == [f"n{number}" for number in range(6)]
        assert found.unread_nodes == ("broken",)


async def test_changed_pods_are_noted_while_the_event_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.kube.mirror.cache.SLICE_TO_NOTE", 2)
    api = FakeApi()
    for number in range(5):
        api.put(PODS, pod(f"web-{number}"))
    async with world(api) as w:
        await w.settled()
        counts: list[int] = []
        note = w.cache._translator.note_pods

        def noted(changes: Iterable[Any], classes: Iterable[Any]) -> None:
            found = list(changes)
            counts.append(len(found))
            note(found, classes)

        monkeypatch.setattr(w.cache._translator, "note_pods", noted)
        await w.cache.translate(0.0)
        assert counts == [2, 2, 1]
        assert w.foreign() == [f"web-{number}" for number in range(5)]
