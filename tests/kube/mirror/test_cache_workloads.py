"""Workloads of other kinds in the cache: mirrored where edl may read them, and never a condition for a decision."""

from __future__ import annotations

from aiohttp import web

from edl.kube.mirror.mirrored import Mirrored
from edl.model.names import JobKey, WorkloadKind
from tests.kube.mirror.mirrored_cluster import PODS, world
from tests.worlds.fake_api import FakeApi, eventually, refusal
from tests.worlds.raw_objects import batch_job, batch_pod, volcano_job

BATCH = "/apis/batch/v1/jobs"
VOLCANO = "/apis/batch.volcano.sh/v1alpha1/jobs"


class WithoutRight(FakeApi):
    """An API server that lets nobody read Jobs, as with the role of an older version."""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/apis/batch"):
            return refusal(403, "Forbidden", "jobs.batch is forbidden")(request)
        return await super()._handle(request)


async def test_a_job_that_asks_is_in_the_snapshot_with_its_pods() -> None:
    async with world() as w:
        await w.settled()
        w.api.put(BATCH, batch_job())
        w.api.put(PODS, batch_pod("train-a", ready_at=1))
        await eventually(lambda: [str(job.key) for job in w.cache.snapshot(0.0).jobs] == ["ads/job.batch/train"])
        (job,) = w.cache.snapshot(0.0).jobs

        def trainers() -> list[str]:
            return [pod.name for job in w.cache.snapshot(0.0).jobs for pod in job.live_trainers]

        await eventually(lambda: trainers() == ["train-a"])
        assert w.foreign() == []
        assert w.cache.workload(job.key) is not None


async def test_of_watched_namespaces_only() -> None:
    async with world(mirrored=Mirrored(("ads",))) as w:
        await w.settled()
        w.api.put(BATCH, batch_job())
        w.api.put(BATCH, batch_job("other", namespace="research"))
        await eventually(lambda: [str(job.key) for job in w.cache.snapshot(0.0).jobs] == ["ads/job.batch/train"])


async def test_without_the_right_to_read_jobs_decisions_are_made() -> None:
    async with world(WithoutRight()) as w:
        await eventually(lambda: not w.cache.unready())
        w.api.put(PODS, batch_pod("train-a", ready_at=1))
        await eventually(lambda: w.foreign() == ["train-a"])
        assert w.cache.is_synced
        assert w.cache.snapshot(0.0).jobs == ()


async def test_two_kinds_that_are_called_job_are_kept_apart() -> None:
    async with world() as w:
        await w.settled()
        w.api.put(BATCH, batch_job("ctr"))
        w.api.put(VOLCANO, volcano_job("ctr"))
        both = ["ads/job.batch.volcano.sh/ctr", "ads/job.batch/ctr"]
        await eventually(lambda: [str(job.key) for job in w.cache.snapshot(0.0).jobs] == both)
        ours = w.api.put(VOLCANO, volcano_job("ctr", spec={"minAvailable": 4}))
        newer = {**ours, "metadata": {**ours["metadata"], "resourceVersion": "900"}, "spec": {"minAvailable": 7}}
        w.cache.answered("job.batch.volcano.sh", newer)
        shown = w.cache.workload(JobKey.of(WorkloadKind.VOLCANO_JOB, "ads", "ctr"))
        assert shown is not None
        assert shown.spec.min_available == 7
