"""JSON that is nested too deeply is cut off, and the objects beside it are read."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.api.v1 import MAX_LEVELS, parse_job
from edl.errors import InvalidJobError
from edl.kube.bounds.json_depth import LEVELS, cut_off
from edl.kube.mirror.reflector import Reflector, Resource
from edl.kube.mirror.store import ObjectStore
from edl.kube.translate.decoders import TRAINING_JOBS, Quarantined
from edl.kube.translate.jobs import JobReader
from edl.kube.translate.objects import JobObject
from edl.model.names import JobKey
from tests.worlds.fake_api import FakeApi, FakeClock, connected, eventually
from tests.worlds.hostile.manifests import make_manifest

PATH = "/apis/paddlepaddle.org/v1/trainingjobs"
TEN_THOUSAND = 9_990
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def deep_job(levels: int, name: str = "deep") -> bytes:
    """A job with deeply nested lists, in a field that the CRD does not validate."""
    job = make_manifest(name)
    job["metadata"] |= {"namespace": "ads", "uid": "u-deep", "resourceVersion": "7"}
    job["spec"]["trainer"]["template"] = {"spec": {"affinity": "HERE"}}
    return json.dumps(job).replace('"HERE"', "[" * levels + "]" * levels).encode()


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def cut(value: Any, levels: int) -> Any:
    if isinstance(value, dict):
        return {k: cut(v, levels - 1) for k, v in value.items()} if levels else None
    if isinstance(value, list):
        return [cut(v, levels - 1) for v in value] if levels else None
    return value


@given(ANY_JSON, st.integers(0, 6), st.sampled_from([None, 1]))
def test_null_replaces_what_is_too_deep_and_the_rest_is_unchanged(
    value: Any, levels: int, indent: int | None
) -> None:
    raw = json.dumps(value, indent=indent).encode()
    assert json.loads(cut_off(raw, levels)) == cut(value, levels)
    assert depth(json.loads(cut_off(raw, levels))) <= levels


@pytest.mark.parametrize("levels", [LEVELS, 1500, TEN_THOUSAND])
def test_a_job_that_is_nested_too_deeply_has_a_name_and_a_problem(levels: int) -> None:
    read = TRAINING_JOBS.from_bytes(deep_job(levels))
    assert isinstance(read, JobObject)
    assert read.metadata is not None
    assert (read.metadata.name, read.metadata.uid) == ("deep", "u-deep")
    job = JobReader().read(read, JobKey("ads", "deep"), (), 0.0)
    assert job.problem == f"spec is nested more than {MAX_LEVELS} levels deep; use fewer levels"


def test_a_spec_is_too_deep_only_above_the_limit() -> None:
    inside = len(("spec", "trainer", "template", "spec"))
    with pytest.raises(InvalidJobError, match="affinity"):
        parse_job(json.loads(deep_job(MAX_LEVELS - inside)))
    with pytest.raises(InvalidJobError, match="nested more than"):
        parse_job(json.loads(deep_job(MAX_LEVELS - inside + 1)))


def test_a_part_that_is_shared_is_checked_once() -> None:
    shared: Any = "x"
    for _ in range(MAX_LEVELS - 10):
        shared = [shared] * 10
    with pytest.raises(InvalidJobError, match="policies"):
        parse_job({**make_manifest(), "spec": {**make_manifest()["spec"], "policies": {"a": shared}}})


async def test_one_object_that_is_too_deep_hides_no_other_in_a_list_or_a_watch() -> None:
    api = FakeApi()
    api.put(PATH, make_manifest("before"))
    api.put(PATH, json.loads(deep_job(900)))
    async with connected(api) as session:
        clock, store = FakeClock(), ObjectStore[JobObject]()
        reflector = Reflector(session, Resource(PATH), TRAINING_JOBS, store, clock)
        task = asyncio.ensure_future(reflector.run())

        def names() -> set[str]:
            return {name for _, name in store.objects}

        await eventually(lambda: names() == {"before", "deep"})
        api.extra_lines.append(b'{"type":"ADDED","object":' + deep_job(TEN_THOUSAND, "deeper") + b"}")
        api.put(PATH, make_manifest("after"))
        await eventually(lambda: "after" in names())  # the watch sends it last
        assert names() == {"before", "deep", "deeper", "after"}
        assert reflector.problem == ""
        task.cancel()


async def test_the_response_to_a_write_may_be_nested_as_deeply() -> None:
    api = FakeApi()

    async def answer(_: Any) -> Any:
        from aiohttp import web  # noqa: PLC0415 - only here

        return web.Response(body=deep_job(TEN_THOUSAND), content_type="application/json")

    api.faults.append(answer)
    async with connected(api) as session:
        stored = await session.patch(f"{PATH}/deep/status", {"status": {}})
        assert stored["metadata"]["resourceVersion"] == "7"


def test_invalid_json_is_an_error() -> None:
    assert isinstance(TRAINING_JOBS.from_bytes(b"[" * 5000), Quarantined)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(cut_off(b"[" * 5000))
