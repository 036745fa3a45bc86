"""The Workloads that the writer makes for a Job whose pods another controller makes, and how such a Job starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edl.model.actions import ChangeWorkloads, NewWorkload, ResizeWorkload, Result
from edl.model.names import JobKey, WorkloadKind
from edl.model.status import Resize
from tests.kube.writer_on_fake_api import BATCH_JOBS, Bench, bench
from tests.worlds.kueue.owned_jobs import owned_batch_job

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ads/workloads"
KEY = JobKey.of(WorkloadKind.BATCH_JOB, "ads", "train")
Object = dict[str, Any]


def put(here: Bench, **status: str) -> str:
    """A stored Job whose pods have more fields than edl reads; returns its UID."""
    body = owned_batch_job()
    del body["metadata"]["uid"]
    body["status"] = status
    body["spec"]["template"]["spec"]["containers"][0] |= {"image": "you/train", "command": ["train"]}
    return str(here.api.put(BATCH_JOBS, body)["metadata"]["uid"])


def change(uid: str, *new: NewWorkload, **more: Any) -> ChangeWorkloads:
    return ChangeWorkloads(KEY, uid, "blue", new=new, **more)


async def test_the_pods_of_a_workload_are_those_of_the_template_as_it_is_stored(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        uid = put(here)
        action = change(uid, NewWorkload(0, 2, "d"), NewWorkload(1, 1, "d"), flavors=("spot",))
        assert (await here.apply(action)).result is Result.DONE
        base, first = (here.stored(WORKLOADS, f"train-{uid[:8]}{end}") for end in ("", "-1"))
        assert base is not None
        assert first is not None
        (pods,) = base["spec"]["podSets"]
        assert (pods["name"], pods["count"]) == ("trainer", 2)
        (container,) = pods["template"]["spec"]["containers"]
        assert (container["image"], container["command"]) == ("you/train", ["train"])
        assert "nodeSelector" not in pods["template"]["spec"]
        (pods,) = first["spec"]["podSets"]
        assert (pods["count"], pods["template"]["spec"]["nodeSelector"]) == (1, {"flavor": "spot"})
        assert (base["spec"]["priority"], first["spec"]["priority"]) == (0, -100)
        assert base["metadata"]["ownerReferences"] == [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
        ]


async def test_after_an_eviction_the_base_does_not_need_the_nodes_of_its_earlier_flavor(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        uid = put(here)
        resize = ResizeWorkload(KEY, uid, 0, 2, Resize(0.0, 0, 2, "AtMax"), flavors=("spot",))
        assert (await here.apply(resize)).result is Result.DONE
        stored = here.stored(BATCH_JOBS, "train")
        assert stored is not None
        assert stored["spec"]["template"]["spec"]["nodeSelector"] == {"flavor": "spot"}
        await here.apply(change(uid, NewWorkload(0, 2, "d")))
        base = here.stored(WORKLOADS, f"train-{uid[:8]}")
        assert base is not None
        assert "nodeSelector" not in base["spec"]["podSets"][0]["template"]["spec"]


async def test_another_job_of_that_name_gets_no_workload(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(change("uid-old", NewWorkload(0, 2, "d")))).result is Result.CONFLICT
        put(here)
        assert (await here.apply(change("uid-old", NewWorkload(0, 2, "d")))).result is Result.CONFLICT
        assert here.api.objects.get(WORKLOADS, {}) == {}


async def test_a_job_with_a_start_time_starts_with_the_second_request(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        uid = put(here, startTime="2026-01-01T00:00:00Z")
        resize = ResizeWorkload(KEY, uid, 0, 2, Resize(0.0, 0, 2, "AtMax"), flavors=("spot",))
        for is_suspended in (True, False):
            assert (await here.apply(resize)).result is Result.DONE
            stored = here.stored(BATCH_JOBS, "train")
            assert stored is not None
            assert "startTime" not in stored["status"]
            assert stored["spec"]["suspend"] is is_suspended
