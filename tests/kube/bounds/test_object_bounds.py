"""Objects beyond the bounds: set aside before they are decoded, under their names, whatever their kind."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import tracemalloc
from itertools import count
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from edl.kube.bounds.json_depth import LEVELS, cut_off
from edl.kube.bounds.object_bounds import (
    MAX_BYTES,
    MAX_BYTES_OF_POD,
    MAX_VALUES,
    MAX_VALUES_OF_POD,
    Oversized,
    decode_object,
    excess,
    outline,
)
from edl.kube.mirror.reflector import Reflector, Resource
from edl.kube.mirror.store import ObjectStore
from edl.kube.translate.decoders import (
    DAEMON_SETS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    Decoder,
    Quarantined,
)
from edl.kube.translate.jobs import JobReader
from edl.kube.translate.objects import JobObject, PodObject
from edl.kube.translate.queues import QUEUES
from edl.kube.workloads.registry import ADAPTERS
from edl.model.names import JobKey
from tests.worlds.fake_api import FakeApi, FakeClock, Object, connected, eventually
from tests.worlds.hostile.manifests import make_manifest

PATH = "/apis/paddlepaddle.org/v1/trainingjobs"
DECODERS: list[Decoder[Any]] = [
    PODS,
    NODES,
    DAEMON_SETS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    QUEUES,
    *(adapter.decoder for adapter in ADAPTERS.values()),
]
MEGABYTE = 1 << 20
FILLINGS = {
    "lists": b"[" + b"[]," * 400_000 + b"[]]",
    "objects": b"[" + b"{}," * 400_000 + b"{}]",
    "keys": b"{" + b",".join(b'"k%d":1' % number for number in range(100_000)) + b"}",
    "numbers": b"[" + b"99999," * 200_000 + b"1]",
    "texts": b"[" + b'"ab",' * 250_000 + b'""]',
    "one text": b'"' + b"\\u0000" * 200_000 + b'"',
    "depth": b"[" * 12_000 + b"]" * 12_000,
    "depth and lists": b'{"a":' + b"[" * 12_000 + b"]" * 12_000 + b',"b":[' + b"[]," * 400_000 + b"[]]}",
}
PLACES = ("spec", "status", "metadata.annotations.a")


def hostile(filling: bytes, place: str) -> bytes:
    """An object with that filling, as the API server writes it: the metadata come before the spec."""
    metadata: dict[str, Any] = {"name": "big", "namespace": "n", "uid": "u-big", "resourceVersion": "7"}
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Any", "metadata": metadata, "spec": {}}
    *outer, last = place.split(".")
    target = body
    for name in outer:
        target = target.setdefault(name, {})
    target[last] = "HERE"
    return json.dumps(body).encode().replace(b'"HERE"', filling)


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.kind)
@pytest.mark.parametrize("filling", sorted(FILLINGS))
def test_no_object_of_any_kind_costs_more_than_its_bytes(decoder: Decoder[Any], filling: str) -> None:
    for place in PLACES:
        raw = hostile(FILLINGS[filling], place)
        tracemalloc.start()
        try:
            read = decoder.from_bytes(raw)
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < MEGABYTE, place
        assert peak < 8 * MEGABYTE, place
        if isinstance(read, Quarantined):
            is_metadata = place.startswith("metadata")
            assert (read.namespace, read.name, read.uid) == ("n", "big", "u-big") or is_metadata, place


def job(**trainer: Any) -> Object:
    body: Object = make_manifest("big")
    body["metadata"] |= {"namespace": "ads", "uid": "u-big", "resourceVersion": "7", "generation": 3}
    body["spec"]["trainer"] |= trainer
    return body


def test_a_job_that_is_too_large_is_invalid_and_keeps_its_status() -> None:
    body = {**job(entrypoint="x" * MAX_BYTES), "status": {"phase": "Running"}}
    read = TRAINING_JOBS.from_bytes(json.dumps(body).encode())
    assert isinstance(read, JobObject)
    found = JobReader().read(read, JobKey("ads", "big"), (), 0.0)
    assert found.is_oversized
    assert found.problem.startswith("its JSON has 26")
    assert "edl reads up to 262144; make it smaller" in found.problem
    assert (found.uid, found.generation) == ("u-big", 3)
    assert found.status is not None
    assert found.status.phase == "Running"


def test_a_job_is_read_again_once_it_is_smaller() -> None:
    reader, key = JobReader(), JobKey("ads", "big")
    large = TRAINING_JOBS.from_bytes(json.dumps(job(entrypoint="x" * MAX_BYTES)).encode())
    small = TRAINING_JOBS.from_bytes(json.dumps(job()).encode())
    assert isinstance(large, JobObject)
    assert isinstance(small, JobObject)
    assert [bool(reader.read(one, key, (), 0.0).problem) for one in (small, large, small)] == [False, True, False]


def test_a_job_whose_status_is_too_large_is_left_out_so_that_nothing_is_written_again_and_again() -> None:
    body = {**job(), "status": {"reason": "x" * MAX_BYTES}}
    read = TRAINING_JOBS.from_bytes(json.dumps(body).encode())
    assert isinstance(read, Quarantined)
    assert str(read).startswith("TrainingJob ads/big is left out: its JSON has")


def pod(tolerations: int, **spec: Any) -> bytes:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    some = [{"key": f"k{number}", "operator": "Exists"} for number in range(tolerations)]
    metadata = {"name": "p", "namespace": "n", "uid": "u"}
    body = {"kind": "Pod", "metadata": metadata, "spec": {"containers": containers, "tolerations": some, **spec}}
    return json.dumps(body).encode()


def test_a_bound_pod_that_is_too_large_still_takes_its_node() -> None:
    read = PODS.from_bytes(pod(30_000, nodeName="n0"))
    assert isinstance(read, PodObject)
    assert read.spec is not None
    assert read.spec.tolerations is None
    assert read.spec.node_name == "n0"
    assert read.spec.containers is not None
    assert read.spec.containers[0].resources is not None
    assert read.spec.containers[0].resources.requests == {"cpu": "2"}


def test_an_unbound_pod_that_is_too_large_is_left_out() -> None:
    raw = pod(30_000)
    assert len(raw) > MAX_BYTES_OF_POD
    assert isinstance(PODS.from_bytes(raw), Quarantined)


def test_a_pod_may_be_larger_than_the_job_it_comes_from() -> None:
    body = json.loads(pod(3))
    body["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": {f"f:{n}": {} for n in range(MAX_VALUES)}}]
    raw = json.dumps(body).encode()
    assert MAX_VALUES < raw.count(b",") < MAX_VALUES_OF_POD
    read = PODS.from_bytes(raw)
    assert isinstance(read, PodObject)
    assert read.spec is not None
    assert len(read.spec.tolerations or ()) == 3
    assert not isinstance(decode_object(raw), Oversized)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('",[]{}\\a', max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('",[]{}\\a', max_size=5), inner, max_size=5),
    max_leaves=40,
)


def values(value: Any) -> int:
    """Lists and objects, and their members beyond the first."""
    members = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    if members is None:
        return 0
    return max(1, len(members)) + sum(map(values, members))


@given(ANY_JSON, st.integers(0, 60))
def test_texts_do_not_count_as_values(value: Any, most: int) -> None:
    raw = json.dumps(value).encode()
    assert bool(excess(raw, max_values=most)) == (values(value) > most)


@given(ANY_JSON, st.sampled_from(DECODERS))
def test_any_json_is_read_or_set_aside(value: Any, decoder: Decoder[Any]) -> None:
    for body in (value, {"metadata": value}, {"metadata": {"name": "a"}, "spec": value, "status": value}):
        decoder.from_bytes(json.dumps(body).encode())


@given(ANY_JSON)
def test_what_names_an_object_is_read_however_deep_the_rest_is(value: Any) -> None:
    metadata = {"annotations": {"text": json.dumps(value)}, "managedFields": [{"f": value}], "name": "deep"}
    head = json.dumps({"apiVersion": "v1", "kind": "Any", "metadata": metadata})
    raw = head[:-1].encode() + b',"spec":' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert outline(raw, "too large")["metadata"] == {"name": "deep"}


async def test_large_objects_come_in_small_pages_and_hide_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.kube.mirror.reflector.MAX_PAGE_BYTES", 3 * MAX_BYTES)
    api, limits = FakeApi(), []

    for number in range(12):
        body = job(entrypoint="x" * MAX_BYTES)
        body["metadata"] |= {"name": f"big-{number:02d}", "uid": f"u-{number}"}
        api.put(PATH, body)
    for number in range(30):
        small = job()
        small["metadata"] |= {"name": f"small-{number:02d}", "uid": f"v-{number}"}
        api.put(PATH, small)
    async with connected(api) as session:
        store = ObjectStore[JobObject]()
        listed = session.list

        async def noted(*args: Any, **options: Any) -> bytes:
            limits.append(options["limit"])
            return await listed(*args, **options)

        monkeypatch.setattr(session, "list", noted)
        reflector = Reflector(session, Resource(PATH), TRAINING_JOBS, store, FakeClock())
        task = asyncio.ensure_future(reflector.run())
        await eventually(lambda: len(store.objects) == 42)
        task.cancel()
    assert limits[0] == 500
    assert min(limits) <= 3
    assert limits[-1] > min(limits), "pages grow again"
    assert sum(bool(one.problem) for one in store.objects.values()) == 12


async def test_a_list_is_decoded_while_the_event_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each object takes as long as a slice: so others work between any two."""
    api, decoded, turns = FakeApi(), list[int](), 0
    for number in range(20):
        body = job()
        body["metadata"] |= {"name": f"j{number:02d}", "uid": f"u-{number}"}
        api.put(PATH, body)
    clock = count(step=1)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    decoder = TRAINING_JOBS.from_bytes

    def noted(raw: Any) -> JobObject | Quarantined:
        decoded.append(turns)
        return decoder(raw)

    monkeypatch.setattr(TRAINING_JOBS, "from_bytes", noted)
    async with connected(api) as session:
        store = ObjectStore[JobObject]()
        task = asyncio.ensure_future(Reflector(session, Resource(PATH), TRAINING_JOBS, store, FakeClock()).run())
        while len(store.objects) < 20:
            turns += 1
            await asyncio.sleep(0)
        task.cancel()
    assert len(set(decoded)) == 20


async def test_the_search_for_what_is_too_deep_in_a_list_leaves_the_event_loop_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, threads = FakeApi(), list[bool]()
    raw = hostile(FILLINGS["depth"], "spec")
    listed = b'{"metadata":{"resourceVersion":"7"},"items":[' + raw + b"]}"

    def searched(body: bytes) -> bytes:
        threads.append(threading.current_thread() is threading.main_thread())
        return cut_off(body)

    monkeypatch.setattr("edl.kube.client.responses.cut_off", searched)
    api.broken[PATH] = lambda _: web.Response(body=listed, content_type="application/json")
    async with connected(api) as session:
        store = ObjectStore[JobObject]()
        task = asyncio.ensure_future(Reflector(session, Resource(PATH), TRAINING_JOBS, store, FakeClock()).run())
        await eventually(lambda: store.objects)
        task.cancel()
    assert set(threads) == {False}


async def test_an_event_that_is_too_deep_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    raw = hostile(FILLINGS["depth"], "spec")
    monkeypatch.setattr("edl.kube.client.responses.decode", Mock(side_effect=AssertionError))
    api.extra_lines.append(b'{"type":"ADDED","object":' + raw + b"}")
    async with connected(api) as session:
        store = ObjectStore[JobObject]()
        task = asyncio.ensure_future(Reflector(session, Resource(PATH), TRAINING_JOBS, store, FakeClock()).run())
        await eventually(lambda: store.objects)
        task.cancel()
    assert list(store.objects) == [("n", "big")]


async def test_the_answer_to_a_write_is_bounded_too() -> None:
    api = FakeApi()

    async def answer(_: Any) -> web.Response:
        return web.Response(body=hostile(FILLINGS["lists"], "spec"), content_type="application/json")

    api.faults.append(answer)
    async with connected(api) as session:
        stored = await session.patch(f"{PATH}/big/status", {"status": {}})
    assert isinstance(stored, Oversized)
    assert stored["metadata"]["resourceVersion"] == "7"
    read = TRAINING_JOBS.from_dict(stored)
    assert isinstance(read, JobObject)
    assert read.problem


def test_what_is_nested_deeper_than_a_job_may_be_is_no_excess() -> None:
    assert excess(hostile(b"[" * LEVELS + b"]" * LEVELS, "spec")) == ""
