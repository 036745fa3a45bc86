"""The answers to edl's own writes: the cache shows them ahead of its watches, and nothing older undoes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from edl.errors import NotSyncedError
from edl.kube.mirror.cache import OVERDUE_S
from edl.kube.mirror.mirrored import Mirrored
from edl.kube.mirror.store import ObjectStore
from edl.kube.translate.decoders import PODS as PODS_DECODER
from edl.kube.translate.objects import PodObject
from edl.model.names import JobKey
from tests.kube.mirror.mirrored_cluster import JOBS, OURS, PODS, World, job, pod, world
from tests.worlds.fake_api import FakeApi, eventually

KEY = ("ads", "ctr-trainer-0")
DELETED_S = "2026-01-05T10:00:00Z"


def answer(version: int | str, *, uid: str = "u", **metadata: Any) -> dict[str, Any]:
    return pod(KEY[1], labels=OURS, uid=uid, resourceVersion=str(version), **metadata)


def decoded(body: dict[str, Any]) -> PodObject:
    found = PODS_DECODER.from_dict(body)
    assert isinstance(found, PodObject)
    return found


def shown(w: World) -> list[tuple[str, bool]]:
    """The pods of the job in a snapshot, and whether each is terminating."""
    return [(p.uid, p.terminating) for j in w.cache.snapshot(0.0).jobs for p in j.pods]


def intents(w: World) -> list[str]:
    return [p.intent for j in w.cache.snapshot(0.0).jobs for p in j.pods]


@asynccontextmanager
async def list_under_way(w: World) -> AsyncIterator[None]:
    """What is done here makes edl list its pods; at the end the answer is made, and waits in `delayed`."""
    w.api.delayed[PODS] = asyncio.Event()
    w.api.requests.clear()
    yield
    own = {"labelSelector": "paddlepaddle.org/job"}
    await eventually(lambda: any(path == PODS and own.items() <= query.items() for _, path, query in w.api.requests))


async def with_job(w: World) -> None:
    w.api.put(JOBS, job())
    await w.settled()
    await eventually(lambda: w.cache.job_body(JobKey("ads", "ctr")) is not None)


async def test_the_next_snapshot_shows_what_the_api_server_answered() -> None:
    async with world() as w:
        await with_job(w)
        w.cache.answered("Pod", answer(500))
        assert shown(w) == [("u", False)]
        w.cache.answered("Pod", answer(501, annotations={"paddlepaddle.org/intent": "x"}))
        assert [p.intent for j in w.cache.snapshot(0.0).jobs for p in j.pods] == ["x"]
        body = {
            **job(),
            "metadata": {**job()["metadata"], "uid": "uid-ctr", "resourceVersion": "502"},
            "status": {"phase": "Running"},
        }
        w.cache.answered("TrainingJob", body)
        assert (w.cache.job_body(JobKey("ads", "ctr")) or {})["status"] == {"phase": "Running"}


async def test_an_answer_is_a_change_to_wait_for() -> None:
    async with world() as w:
        await with_job(w)
        while await w.cache.wait_for_change(0.0, debounce_s=0.0):
            pass
        w.cache.answered("Pod", answer(500))
        assert await w.cache.wait_for_change(60.0, debounce_s=0.0)
        w.cache.answered("Pod", answer(500))
        assert not await w.cache.wait_for_change(0.0, debounce_s=0.0), "nothing is new in it"


async def test_a_deletion_shows_the_pod_as_terminating_or_gone() -> None:
    async with world() as w:
        await with_job(w)
        w.cache.answered("Pod", answer(500))
        w.cache.deleted("Pod", KEY, "u", answer(501, deletionTimestamp=DELETED_S, deletionGracePeriodSeconds=30))
        assert shown(w) == [("u", True)]
        w.cache.deleted("Pod", KEY, "u", answer(501, deletionTimestamp=DELETED_S, deletionGracePeriodSeconds=0))
        assert shown(w) == []


@pytest.mark.parametrize(
    "gone", [{"kind": "Status", "status": "Success"}, answer(501)], ids=["status", "object-as-it-was"]
)
async def test_a_pod_without_a_grace_period_is_gone_at_once(gone: dict[str, Any]) -> None:
    async with world() as w:
        await with_job(w)
        w.cache.answered("Pod", answer(500))
        w.cache.deleted("Pod", KEY, "u", gone)
        assert shown(w) == []


async def test_a_deleted_pod_with_finalizers_is_terminating() -> None:
    async with world() as w:
        await with_job(w)
        held = answer(501, deletionTimestamp=DELETED_S, deletionGracePeriodSeconds=0, finalizers=["example.com/f"])
        w.cache.deleted("Pod", KEY, "u", held)
        assert shown(w) == [("u", True)]


async def test_a_deleted_job_is_gone() -> None:
    async with world() as w:
        await with_job(w)
        w.cache.urgent_changes()
        w.cache.deleted("TrainingJob", ("ads", "ctr"), "uid-ctr", {"kind": "Status"})
        assert w.cache.snapshot(0.0).jobs == ()
        assert w.cache.urgent_changes() == {"ads"}


async def test_a_job_of_one_of_several_namespaces_is_stored_where_its_watch_shows_it() -> None:
    async with world(mirrored=Mirrored(["ads", "other"])) as w:
        await w.settled()
        for name in ("ads", "other"):
            body = job()
            body["metadata"] |= {"namespace": name, "uid": name, "resourceVersion": "700"}
            w.cache.answered("TrainingJob", body)
        assert [list(r.store.objects) for r in w.cache._watched.jobs] == [[("ads", "ctr")], [("other", "ctr")]]


async def test_events_from_before_an_answer_do_not_undo_it() -> None:
    api = FakeApi()
    api.put(JOBS, job())
    before = api.put(PODS, pod(KEY[1], labels=OURS))
    async with world(api) as w:
        await w.settled()
        uid = before["metadata"]["uid"]
        w.cache.answered("Pod", answer(900, uid=uid, annotations={"paddlepaddle.org/intent": "x"}))
        api.put(PODS, pod(KEY[1], labels=OURS, annotations={"paddlepaddle.org/intent": "older"}))
        await eventually(lambda: w.cache._watched.pods[0]._version == str(api.revision))
        assert intents(w) == ["x"]


async def test_a_list_that_began_before_an_answer_does_not_undo_it() -> None:
    api = FakeApi()
    api.put(JOBS, job())
    before = api.put(PODS, pod(KEY[1], labels=OURS))
    async with world(api) as w:
        await w.settled()
        uid, lists = before["metadata"]["uid"], w.cache._watched.pods[0].lists_done
        async with list_under_way(w):
            w.cache._watched.pods[0].request_list()
        w.cache.answered("Pod", answer(900, uid=uid, annotations={"paddlepaddle.org/intent": "x"}))
        api.delayed.pop(PODS).set()
        await eventually(lambda: w.cache._watched.pods[0].lists_done > lists)
        assert intents(w) == ["x"]


async def test_a_list_that_began_after_an_answer_is_believed() -> None:
    """It shows the answer, except if etcd was put back to an older state in between."""
    api = FakeApi()
    api.put(JOBS, job())
    before = api.put(PODS, pod(KEY[1], labels=OURS, annotations={"paddlepaddle.org/intent": "restored"}))
    async with world(api) as w:
        await w.settled()
        uid, lists = before["metadata"]["uid"], w.cache._watched.pods[0].lists_done
        w.cache.answered("Pod", answer(900, uid=uid, annotations={"paddlepaddle.org/intent": "lost"}))
        w.cache.answered("Pod", pod("ctr-trainer-1", labels=OURS, uid="lost", resourceVersion="901"))
        w.cache._watched.pods[0].request_list()
        await eventually(lambda: w.cache._watched.pods[0].lists_done > lists)
        assert intents(w) == ["restored"]
        api.put(PODS, pod(KEY[1], labels=OURS, annotations={"paddlepaddle.org/intent": "since"}))
        await eventually(lambda: intents(w) == ["since"])


async def test_versions_that_are_no_numbers_cost_a_list_before_the_next_decision() -> None:
    api = FakeApi()
    api.put(JOBS, job())
    async with world(api) as w:
        await w.settled()
        api.put(PODS, pod(KEY[1], labels=OURS, uid="u"))
        w.cache.answered("Pod", answer("opaque"))
        with pytest.raises(NotSyncedError, match=r"edl lists .*pods.* again before it decides"):
            w.cache.snapshot(0.0)
        await eventually(lambda: not w.cache.unready())
        assert shown(w) == [("u", False)]


async def test_a_list_for_an_answer_does_not_forget_the_lists_of_a_takeover() -> None:
    async with world() as w:
        await with_job(w)
        w.cache.list_anew()
        w.cache.answered("Pod", answer("opaque"))
        assert len(w.cache._outdated()) == 2


async def test_an_answer_of_another_kind_changes_nothing() -> None:
    async with world() as w:
        await with_job(w)
        w.cache.answered("Service", {"metadata": {"name": "ctr", "namespace": "ads", "resourceVersion": "1"}})
        w.cache.snapshot(0.0)


async def test_an_answer_during_the_first_list_stays() -> None:
    api = FakeApi()
    api.put(JOBS, job())
    async with world(api) as w:
        async with list_under_way(w):
            pass
        w.cache.answered("Pod", answer(900))
        api.delayed.pop(PODS).set()
        await w.settled()
        assert shown(w) == [("u", False)]


async def test_a_watch_that_does_not_show_an_answer_in_time_is_lost_and_everything_is_listed() -> None:
    async with world() as w:
        await with_job(w)
        listed = w.cache._watched.pods[0].lists_begun
        w.cache.answered("Pod", answer(900))
        w.clock.time_s += OVERDUE_S - 1
        w.cache.answered("Pod", answer(901))
        w.cache.snapshot(0.0)
        assert w.cache._watched.pods[0].lists_begun == listed
        w.clock.time_s += 1
        w.cache.snapshot(0.0)
        await eventually(lambda: w.cache._watched.pods[0].lists_done == listed + 1)


async def test_an_answer_that_a_later_list_does_not_show_is_awaited_no_more() -> None:
    """Etcd was put back to a state without it."""
    async with world() as w:
        await with_job(w)
        w.cache.answered("Pod", answer(900))
        own, listed = w.cache._watched.pods[0], w.cache._watched.pods[0].lists_begun
        w.clock.time_s += OVERDUE_S
        w.cache.snapshot(0.0)
        await eventually(lambda: own.lists_done == listed + 1)
        w.clock.time_s += OVERDUE_S
        w.cache.snapshot(0.0)
        assert not own._list_again


async def test_a_watch_that_shows_the_answers_is_not_lost() -> None:
    async with world() as w:
        await with_job(w)
        listed = w.cache._watched.pods[0].lists_begun
        for _ in range(3):
            w.cache.answered("Pod", w.api.put(PODS, pod(KEY[1], labels=OURS)))
            await eventually(lambda: w.cache._watched.pods[0]._version == str(w.api.revision))
            w.clock.time_s += OVERDUE_S
            w.cache.snapshot(0.0)
        await asyncio.sleep(0)
        assert w.cache._watched.pods[0].lists_begun == listed


def store_of(*bodies: dict[str, Any]) -> ObjectStore[PodObject]:
    store = ObjectStore[PodObject]()
    for body in bodies:
        store.add(decoded(body))
    return store


def versions(store: ObjectStore[PodObject]) -> list[str]:
    return [found.metadata.resource_version or "" for found in store.objects.values() if found.metadata]


def test_the_larger_version_wins_whether_it_comes_first_or_last() -> None:
    store = store_of(answer(99), answer(100), answer(9), answer(100))
    assert versions(store) == ["100"]


def test_an_object_that_is_gone_for_ever_is_brought_back_by_no_event_and_no_list() -> None:
    store = store_of(answer(99))
    store.remove(KEY, "u", "for ever")
    for is_known in (True, False):
        assert not store.add(decoded(answer(101)), is_known=is_known)
    store.remove(KEY, "u", "102")  # the event of its watch
    store.replace([decoded(answer(101))], version="101")
    assert versions(store) == []
    store.add(decoded(answer(103, uid="successor")))
    assert versions(store) == ["103"]
    assert not store.add(decoded(answer(101)))
    assert versions(store) == ["103"]


def test_an_event_of_a_predecessor_does_not_replace_its_successor() -> None:
    store = store_of(answer(100, uid="successor"))
    assert not store.add(decoded(answer(98)), is_known=True)
    assert not store.remove(KEY, "u", "99")
    assert versions(store) == ["100"]


def test_a_list_keeps_what_an_answer_has_shown_since() -> None:
    other = pod("other", uid="o", resourceVersion="90")
    store = store_of(answer(100), other)
    store.replace([], version="95")
    assert versions(store) == ["100"]
    store.replace([decoded(answer(94))], version="95")
    assert versions(store) == ["100"]
    store.replace([decoded(answer(101))], version="101")
    assert versions(store) == ["101"]
    store.replace([], version="102")
    assert versions(store) == []


def test_an_object_that_leaves_a_watch_and_returns_is_shown_again() -> None:
    store = store_of(answer(100))
    assert store.remove(KEY, "u", "101")
    assert not store.add(decoded(answer(100)), is_known=True)
    assert store.add(decoded(answer(102)))
    assert not store.remove(KEY, "u", "101"), "a late event"
    assert versions(store) == ["102"]
