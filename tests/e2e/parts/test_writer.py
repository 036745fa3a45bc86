"""Single actions on a real API server: it enforces the preconditions that the writer relies on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from edl.clock import SystemClock
from edl.errors import NotSyncedError
from edl.kube.client.session import ApiSession
from edl.kube.cluster import KubernetesCluster
from edl.kube.leader_election import ApiLeaseStore, Elector
from edl.kube.master_key import MasterKey
from edl.kube.mirror.cache import ClusterCache
from edl.kube.writer import Writer
from edl.model.actions import (
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EnsureClaim,
    EnsureSecret,
    EnsureService,
    EventKind,
    MarkPod,
    PatchStatus,
    ResizePod,
    Result,
)
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.lending import RunningRequest
from edl.model.names import ANNOTATION_DECLARED_CPU, JobKey, Role
from edl.model.status import JobPhase, JobStatus
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds.harness import install
from tests.e2e.worlds.jobs import training_job

KEY = JobKey("default", "a")


@dataclass
class Bench:
    plane: ControlPlane
    cluster: KubernetesCluster
    session: ApiSession

    async def observe(self) -> ClusterSnapshot:
        """A snapshot as soon as the cache allows one."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await self.cluster.observe()
                except NotSyncedError:
                    await asyncio.sleep(0.02)

    async def job(self) -> Job:
        return next(job for job in (await self.observe()).jobs if job.key == KEY)

    async def until(self, condition: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
        async with asyncio.timeout(60):
            while not condition(snapshot := await self.observe()):  # noqa: ASYNC110 the cluster's own state
                await asyncio.sleep(0.05)
        return snapshot


@asynccontextmanager
async def bench(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Bench]:
    kubeconfig = install(plane)
    clock = SystemClock()
    async with await ApiSession.open(str(kubeconfig)) as session:
        cache = ClusterCache(session, clock, default_master_image="edl:1")
        key = MasterKey(tmp_path / "key", session, "paddlecloud")
        mirror = asyncio.create_task(cache.run())
        writer = Writer(session, cache, clock, key=key, default_master_image="edl:1", max_grace_s=600)
        try:
            await cache.wait_until_synced()
            yield Bench(plane, KubernetesCluster(cache, writer, clock), session)
        finally:
            mirror.cancel()
            await asyncio.gather(mirror, return_exceptions=True)


@pytest.mark.timeout(300)
async def test_effects_are_conditional_and_the_cache_shows_them(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    async with bench(control_plane(mix="small", pod_delete_s=1.0), tmp_path) as here:
        here.plane.kube.create(training_job("a"))
        await here.until(lambda s: any(j.key == KEY for j in s.jobs))
        uid = (await here.job()).uid
        apply = here.cluster.apply

        for action in (EnsureService(KEY, uid), EnsureSecret(KEY, uid)):
            assert (await apply(action)).result is Result.DONE
        assert (await apply(EnsureClaim(KEY, uid))).result is Result.UNCHANGED, "it needs none here"
        assert (await apply(CreatePod(KEY, uid, Role.TRAINER, 0, "small-1"))).result is Result.DONE
        assert [p.name for p in (await here.job()).pods] == ["a-trainer-0"], "the next snapshot shows it"
        assert (await apply(CreatePod(KEY, uid, Role.TRAINER, 0, "small-1"))).result is Result.UNCHANGED
        await here.until(lambda s: all(p.node for j in s.jobs for p in j.pods))
        pod = (await here.job()).pods[0]
        assert pod.node == "small-1", "the planned node is preferred"

        for wrong in (
            MarkPod(KEY, uid, pod.name, "another", "x"),
            DeletePod(KEY, uid, pod.name, "another", "x"),
            DeletePod(KEY, uid, pod.name, "another", "x", marked=True),
        ):
            assert (await apply(wrong)).result is Result.CONFLICT, f"{wrong}"
        assert (await here.job()).pods[0].intent == ""

        status = JobStatus(phase=JobPhase.CREATING, reason="Admitted", explanation="one")
        assert (await apply(PatchStatus(KEY, uid, status))).result is Result.DONE
        assert (await here.job()).status == status, "read back as it was written"
        assert (await apply(PatchStatus(KEY, uid, status))).result is Result.UNCHANGED
        assert (await apply(PatchStatus(KEY, "another", replace(status, failures=1)))).result is Result.CONFLICT

        event = EmitEvent(KEY, uid, EventKind.NORMAL, "ScaledUp", "2 -> 4: there is capacity")
        for _ in range(2):
            assert (await apply(event)).result is Result.DONE
        (scaled_up,) = (one for one in here.plane.kube.list("events") if one["reason"] == "ScaledUp")
        assert scaled_up["count"] == 2

        assert (await apply(DeletePod(KEY, uid, pod.name, pod.uid, "ServingNeedsRoom"))).result is Result.DONE
        assert all(p.terminating and p.intent == "ServingNeedsRoom" for p in (await here.job()).pods)
        assert (await apply(DeleteJob(KEY, "another"))).result is Result.CONFLICT
        assert (await apply(DeleteJob(KEY, uid))).result is Result.DONE
        await here.until(lambda s: not s.jobs)
        gone = await apply(CreatePod(KEY, uid, Role.TRAINER, 1, None))
        assert gone.result is Result.CONFLICT


@pytest.mark.timeout(300)
async def test_a_request_changes_in_the_pod_that_was_observed_and_in_no_other(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    async with bench(control_plane(mix="small", pod_delete_s=1.0), tmp_path) as here:
        here.plane.kube.create(training_job("a", trainer={"resources": resources}))
        await here.until(lambda s: any(j.key == KEY for j in s.jobs))
        uid = (await here.job()).uid
        apply = here.cluster.apply
        assert (await apply(CreatePod(KEY, uid, Role.TRAINER, 0, "small-1"))).result is Result.DONE
        await here.until(lambda s: all(p.running_request for j in s.jobs for p in j.pods))
        (pod,) = (await here.job()).pods
        assert pod.running_request == RunningRequest(1000, 1000, 1000)

        annotation = {"metadata": {"annotations": {ANNOTATION_DECLARED_CPU: "1"}}}
        here.plane.kube.patch("pods", pod.name, annotation)
        (marked,) = (await here.job()).pods
        assert (marked.shape, marked.lent_cpu_milli) == (pod.shape, 0), "a crash between the two writes lends nothing"

        lower = ResizePod(KEY, uid, pod.name, pod.uid, 100, 1000)
        assert (await apply(replace(lower, pod_uid="another"))).result is Result.CONFLICT
        assert (await apply(replace(lower, pod="a-trainer-9", pod_uid="none"))).result is Result.UNCHANGED
        refused = await apply(replace(lower, cpu_milli=3000))
        assert (refused.result, refused.reason) == (Result.REFUSED, "Invalid")
        assert "set the CPU request of a trainer of default/a" in refused.message

        assert (await apply(lower)).result is Result.DONE
        await here.until(lambda s: all(p.lent_cpu_milli == 900 for j in s.jobs for p in j.pods))
        (lends,) = (await here.job()).pods
        assert (lends.uid, lends.shape, lends.running_request) == (pod.uid, pod.shape, RunningRequest(1000, 100, 100))
        assert (await apply(replace(lower, cpu_milli=1000))).result is Result.DONE
        await here.until(lambda s: all(p.running_request == pod.running_request for j in s.jobs for p in j.pods))


@pytest.mark.timeout(300)
async def test_a_quota_is_that_jobs_trouble_in_the_servers_own_words(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    async with bench(control_plane(mix="small", pod_delete_s=1.0), tmp_path) as here:
        here.plane.kube.create(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "none", "namespace": "default"},
                "spec": {"hard": {"pods": "0"}},
            }
        )
        here.plane.kube.create(training_job("a"))
        await here.until(lambda s: any(j.key == KEY for j in s.jobs))
        uid = (await here.job()).uid
        async with asyncio.timeout(60):
            index = itertools.count()
            while (outcome := await here.cluster.apply(CreatePod(KEY, uid, Role.TRAINER, next(index), None))).is_ok:  # noqa: ASYNC110 the quota takes a moment
                await asyncio.sleep(0.2)
        assert (outcome.result, outcome.reason) == (Result.REFUSED, "Forbidden")
        assert "exceeded quota" in outcome.message


@pytest.mark.timeout(300)
async def test_two_electors_with_the_deployments_rights_share_one_lease(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    async with bench(control_plane(mix="small"), tmp_path) as here:
        stores = [ApiLeaseStore(here.session, "paddlecloud", "edl-controller") for _ in range(2)]
        first, second = (Elector(store, SystemClock(), name) for store, name in zip(stores, "ab", strict=True))
        running = [asyncio.ensure_future(first.run())]
        async with asyncio.timeout(60):
            while not first.is_held():  # noqa: ASYNC110 the elector tells by asking
                await asyncio.sleep(0.05)
        running.append(asyncio.ensure_future(second.run()))
        await asyncio.sleep(3)
        assert not second.is_held()
        running[0].cancel()
        await first.release()
        async with asyncio.timeout(10):  # less than a lease lasts
            while not second.is_held():  # noqa: ASYNC110 the elector tells by asking
                await asyncio.sleep(0.05)
        running[1].cancel()
        await asyncio.gather(*running, return_exceptions=True)
