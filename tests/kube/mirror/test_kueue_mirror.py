"""The objects of Kueue in the cache: watched where they are, and a job says it if they cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.mirror.urgency import is_urgent
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.kueue.objects import WORKLOADS
from edl.model.jobs import Job
from tests.kube.mirror.mirrored_cluster import World, world
from tests.kube.translate.kueue.test_owned import queued
from tests.worlds.fake_api import FakeApi, eventually, refusal
from tests.worlds.kueue.objects import cluster_queue, flavor, kueue_job, local_queue, own_workload, workload
from tests.worlds.raw_objects import node

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


NAMESPACES = "/api/v1/namespaces"


def furnish(w: World, **blue: Any) -> None:
    w.api.put("/api/v1/nodes", node())
    w.api.put(f"{KUEUE}/clusterqueues", cluster_queue("blue", **blue))
    w.api.put(f"{KUEUE}/localqueues", local_queue("blue"))
    w.api.put(f"{KUEUE}/resourceflavors", flavor(zone="a"))
    w.api.put("/apis/batch/v1/jobs", kueue_job())


def problem(w: World) -> str | None:
    if w.cache.unready():
        return None
    jobs = w.cache.snapshot(0.0).jobs
    return jobs[0].problem if jobs else None


async def test_a_job_is_sized_by_what_the_watches_show() -> None:
    async with world() as w:
        furnish(w)
        await eventually(lambda: problem(w) == "")
        assert w.cache.names_kueue
        assert not w.cache.snapshot(0.0).jobs[0].has_quota
        w.api.put(f"{KUEUE}/workloads", workload("w", 3, admitted=3, job="train"))
        await eventually(lambda: w.cache.snapshot(0.0).jobs[0].has_quota)


@pytest.mark.parametrize(("code", "words"), [(403, "the rights of deploy/kueue"), (404, "install Kueue 0.19")])
async def test_a_collection_that_cannot_be_read_is_named(code: int, words: str) -> None:
    api = FakeApi()
    api.broken[f"{KUEUE}/cohorts"] = refusal(code, "Failure", "no")
    async with world(api) as w:
        furnish(w)
        await eventually(lambda: words in (problem(w) or ""))
        assert f"{KUEUE}/cohorts" in (problem(w) or "")


async def test_a_kueue_that_is_too_old_sizes_nothing_until_it_is_upgraded() -> None:
    async with world() as w:
        furnish(w)
        await eventually(lambda: problem(w) == "")
        w.cache.note_kueue("Kueue is too old")
        assert problem(w) == "Kueue is too old"
        w.cache.note_kueue("")
        assert problem(w) == ""


async def test_a_changed_label_of_a_namespace_wakes_the_controller_and_opens_a_queue() -> None:
    ads: dict[str, Any] = {"metadata": {"name": "ads"}}
    async with world() as w:
        w.api.put(NAMESPACES, ads)
        furnish(w, namespaceSelector={"matchLabels": {"team": "ads"}})
        await eventually(lambda: problem(w) == "" and the_job(w).is_barred)
        while await w.cache.wait_for_change(0.0, debounce_s=0.0):
            pass  # what was listed
        w.api.put(NAMESPACES, {"metadata": {"name": "ads", "labels": {"team": "ads"}}})
        await eventually(lambda: not the_job(w).is_barred)
        assert await w.cache.wait_for_change(0.0, debounce_s=0.0)


async def test_without_the_right_to_read_namespaces_a_selector_by_labels_excludes_nothing() -> None:
    api = FakeApi()
    api.broken[NAMESPACES] = refusal(403, "Forbidden", "no")
    async with world(api) as w:
        furnish(w, namespaceSelector={"matchLabels": {"team": "ads"}})
        await eventually(lambda: problem(w) == "")
        assert not the_job(w).is_barred
        assert any(line.startswith("namespaces cannot be read (403)") for line in w.cache.left_out())


async def test_a_training_job_is_admitted_by_what_the_api_server_answers() -> None:
    async with world() as w:
        furnish(w)
        w.api.put("/apis/paddlepaddle.org/v1/trainingjobs", queued())
        await eventually(lambda: problem(w) == "" and training(w).is_barred)
        answer = own_workload(0, 2)
        answer["metadata"]["resourceVersion"] = "900"
        w.cache.answered("Workload", answer)
        assert not training(w).is_barred
        w.cache.deleted("Workload", ("ads", "ctr-0"), "uid-of-ctr-0", {})
        assert training(w).is_barred
        assert [one.node_labels for one in w.cache.flavors(["a", "none"])] == [{"zone": "a"}]


async def test_a_new_leader_lists_the_workloads_again_if_kueue_admits_jobs() -> None:
    async with world() as w:
        furnish(w)
        await eventually(lambda: problem(w) == "")
        w.cache.list_anew()
        assert len(w.cache._outdated()) == 3
        await eventually(lambda: not w.cache.unready())


async def test_a_workload_that_comes_to_wait_is_in_no_group_with_pods_of_its_namespace() -> None:
    async with world() as w:
        furnish(w)
        await eventually(lambda: problem(w) == "")
        w.cache.urgent_changes()
        w.api.put(f"{KUEUE}/workloads", workload("owner", 2, queue="green"))
        await eventually(lambda: w.cache.urgent_changes() == {"ads/workloads"})


def test_a_plan_follows_the_base_of_a_job_soon_and_not_each_trainer() -> None:
    base, first = (WORKLOADS.from_dict(own_workload(index, 1)) for index in (0, 1))
    assert not isinstance(base, Quarantined)
    assert not isinstance(first, Quarantined)
    assert is_urgent(None, base)
    assert not is_urgent(None, first)


def the_job(w: World) -> Job:
    (job,) = w.cache.snapshot(0.0).jobs
    return job


def training(w: World) -> Job:
    return next(job for job in w.cache.snapshot(0.0).jobs if job.owner_count is None)
