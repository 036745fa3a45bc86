"""Resizes of workloads over real HTTP: one conditional patch, and events about the object itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.kube.workloads.annotations import RECORD
from edl.model.actions import EmitEvent, EventKind, ResizeWorkload, Result
from edl.model.names import JobKey, WorkloadKind
from edl.model.status import Resize
from tests.kube.writer_on_fake_api import BATCH_JOBS, Bench, Object, bench
from tests.worlds.fake_api import refusal
from tests.worlds.raw_objects import batch_job

KEY = JobKey.of(WorkloadKind.BATCH_JOB, "ads", "train")
EVENTS = "/api/v1/namespaces/ads/events"
RESIZE = ResizeWorkload(KEY, "uid-train", 3, 5, Resize(0.0, 3, 5, "AtMax"))


def stored(here: Bench) -> Object:
    found = here.stored(BATCH_JOBS, "train")
    assert found is not None
    return found


async def test_the_count_and_the_record_are_written_in_one_patch_whose_answer_is_stored(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(BATCH_JOBS, batch_job())
        outcome = await here.apply(RESIZE)
        job = stored(here)
        assert outcome.result is Result.DONE
        assert (job["spec"]["parallelism"], RECORD in job["metadata"]["annotations"]) == (5, True)
        assert here.seen.told == [("answered", "job.batch", job)]
        assert len(here.api.requests) == 1


async def test_a_resize_that_was_done_already_is_a_conflict(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(BATCH_JOBS, batch_job())
        await here.apply(RESIZE)
        assert (await here.apply(RESIZE)).result is Result.CONFLICT
        assert stored(here)["spec"]["parallelism"] == 5


async def test_a_version_that_the_cache_does_not_show_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as here:
        here.api.put(BATCH_JOBS, batch_job())
        seen = here.seen.workload(KEY)
        here.api.put(BATCH_JOBS, {**stored(here), "status": {"active": 3}})
        monkeypatch.setattr(here.seen, "workload", lambda _: seen)
        assert (await here.apply(RESIZE)).result is Result.CONFLICT
        assert stored(here)["spec"]["parallelism"] == 3


async def test_a_job_that_is_gone_is_a_conflict(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(RESIZE)).result is Result.CONFLICT


async def test_a_refusal_names_the_workload(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(BATCH_JOBS, batch_job())
        here.api.faults.append(refusal(403, "Forbidden", "no right to patch jobs"))
        outcome = await here.apply(RESIZE)
        assert (outcome.result, outcome.reason) == (Result.REFUSED, "Forbidden")
        assert outcome.message.startswith("the API server refused to set the number of pods of ads/job.batch/train")


async def test_an_event_is_about_the_object_itself(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.apply(EmitEvent(KEY, "uid-train", EventKind.WARNING, "NotResized", "why"))
        (event,) = here.api.objects[EVENTS].values()
        assert event["involvedObject"] == {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": "ads",
            "name": "train",
            "uid": "uid-train",
        }
        assert event["metadata"]["name"].startswith("train.")
