"""Resizes of Volcano Jobs over real HTTP: surplus pods are marked first, and no pod keeps a mark for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.model.actions import ResizeWorkload, Result
from edl.model.names import JobKey, WorkloadKind
from edl.model.status import Resize
from tests.kube.writer_on_fake_api import PODS, VOLCANO_JOBS, Bench, bench
from tests.worlds.fake_api import refusal
from tests.worlds.raw_objects import volcano_job, volcano_pod

KEY = JobKey.of(WorkloadKind.VOLCANO_JOB, "ads", "ctr")
SHRINK = ResizeWorkload(KEY, "uid-ctr", 3, 2, Resize(0.0, 3, 2, "ServingNeedsRoom"))
LAST = "ctr-trainer-2"


def put(here: Bench, *, owner: str = "ctr") -> None:
    here.api.put(VOLCANO_JOBS, volcano_job())
    here.api.put(PODS, volcano_pod(LAST, job=owner))


def replicas(here: Bench) -> int:
    job = here.stored(VOLCANO_JOBS, "ctr")
    assert job is not None
    count: int = job["spec"]["tasks"][1]["replicas"]
    return count


def version_of_pod(here: Bench) -> str:
    pod = here.stored(PODS, LAST)
    assert pod is not None
    version: str = pod["metadata"]["annotations"]["volcano.sh/job-version"]
    return version


async def test_a_surplus_pod_is_marked_and_then_the_count_falls(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        put(here)
        assert (await here.apply(SHRINK)).result is Result.DONE
        assert [path.rpartition("/")[2] for _, path, _ in here.api.requests] == [LAST, "ctr"]
        assert (replicas(here), version_of_pod(here)) == (2, "-1")
        assert here.seen.told[-1] == ("answered", "job.batch.volcano.sh", here.stored(VOLCANO_JOBS, "ctr"))


async def test_a_pod_that_does_not_exist_yet_needs_no_mark(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(VOLCANO_JOBS, volcano_job())
        assert (await here.apply(SHRINK)).result is Result.DONE
        assert replicas(here) == 2


async def test_a_pod_of_somebody_else_is_not_marked(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        put(here, owner="other")
        assert (await here.apply(SHRINK)).result is Result.DONE
        assert version_of_pod(here) == "4"


async def test_a_count_that_is_not_changed_takes_the_mark_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as here:
        put(here)
        seen = here.seen.workload(KEY)
        here.api.put(VOLCANO_JOBS, volcano_job(status={"state": {"phase": "Running"}, "version": 4, "running": 5}))
        monkeypatch.setattr(here.seen, "workload", lambda _: seen)
        assert (await here.apply(SHRINK)).result is Result.CONFLICT
        assert (replicas(here), version_of_pod(here)) == (3, "4")


async def test_a_right_that_is_missing_leaves_the_count_alone(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        put(here)
        here.api.faults.append(refusal(403, "Forbidden", "no right to patch pods"))
        assert (await here.apply(SHRINK)).result is Result.REFUSED
        assert replicas(here) == 3
