"""The Workloads that the writer makes for a TrainingJob, and what it tells Kueue about their pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web

from edl.model.actions import ChangeWorkloads, NewWorkload, Report, ReportWorkloads, Result, WorkloadReport
from edl.model.names import Role
from tests.kube.writer_on_fake_api import KEY, PODS, UID, Bench, bench, create
from tests.worlds.fake_api import refusal

API = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{API}/namespaces/ads/workloads"
BASE, FIRST = "ctr-4ecda13a", "ctr-4ecda13a-1"
Object = dict[str, Any]


def change(*new: NewWorkload, **more: Any) -> ChangeWorkloads:
    return ChangeWorkloads(KEY, UID, "blue", new=new, **more)


def report(kind: Report, uid: str, reason: str = "", message: str = "") -> ReportWorkloads:
    return ReportWorkloads(KEY, UID, (WorkloadReport(BASE, uid, kind, reason, message),))


def put(here: Bench, **status: str) -> str:
    """A stored base with these conditions; returns its UID."""
    conditions = [
        {"type": kind, "status": value, "reason": "x", "lastTransitionTime": "t"} for kind, value in status.items()
    ]
    body = {"metadata": {"name": BASE, "namespace": "ads", "generation": 1}}
    body |= {"status": {"admission": {"clusterQueue": "blue"}, "conditions": conditions}}
    return str(here.api.put(WORKLOADS, body)["metadata"]["uid"])


def stored(here: Bench, name: str = BASE) -> Object:
    found = here.stored(WORKLOADS, name)
    assert found is not None
    return found


def conditions(here: Bench) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in stored(here)["status"]["conditions"]}


async def test_the_base_asks_for_the_master_and_the_minimum_and_the_others_for_a_trainer(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        action = change(NewWorkload(0, 1, "d"), NewWorkload(1, 1, "d"), flavors=("spot",))
        assert (await here.apply(action)).result is Result.DONE
        base, first = stored(here), stored(here, FIRST)
        assert [(pods["name"], pods["count"]) for pods in base["spec"]["podSets"]] == [("master", 1), ("trainer", 1)]
        assert [(pods["name"], pods["count"]) for pods in first["spec"]["podSets"]] == [("trainer", 1)]
        assert (base["spec"]["priority"], first["spec"]["priority"]) == (0, -100)
        assert base["spec"]["queueName"] == "blue"
        requests = first["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
        assert requests["cpu"] == "1"
        assert first["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] == {"flavor": "spot"}
        assert base["metadata"]["ownerReferences"][0]["uid"] == UID
        assert [kind for _, kind, _ in here.seen.told] == ["Workload", "Workload"]


async def test_what_exists_is_recognised_and_what_is_somebody_elses_is_not_taken(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.apply(change(NewWorkload(0, 1, "d")))
        before = stored(here)
        assert (await here.apply(change(NewWorkload(0, 1, "d")))).result is Result.DONE
        assert stored(here) == before
        here.api.put(WORKLOADS, {"metadata": {"name": FIRST, "namespace": "ads"}})
        outcome = await here.apply(change(NewWorkload(1, 1, "d")))
        assert (outcome.result, outcome.reason) == (Result.REFUSED, "NameTaken")


async def test_a_priority_class_counts_for_the_base_and_must_exist(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        action = change(NewWorkload(0, 1, "d"), NewWorkload(1, 1, "d"), priority_class="low")
        outcome = await here.apply(action)
        assert (outcome.result, outcome.reason) == (Result.REFUSED, "PriorityClassMissing")
        assert "WorkloadPriorityClass low does not exist" in outcome.message
        here.api.put(f"{API}/workloadpriorityclasses", {"metadata": {"name": "low"}, "value": -500})
        assert (await here.apply(action)).result is Result.DONE
        assert (stored(here)["spec"]["priority"], stored(here, FIRST)["spec"]["priority"]) == (-500, -501)
        assert stored(here)["spec"]["priorityClassRef"]["name"] == "low"
        assert "priorityClassRef" not in stored(here, FIRST)["spec"]


async def test_what_is_gone_is_deleted_by_uid(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        uid = put(here)
        assert (await here.apply(change(gone=((BASE, "other"),)))).result is Result.CONFLICT
        assert (await here.apply(change(gone=((BASE, uid),)))).result is Result.DONE
        assert here.stored(WORKLOADS, BASE) is None
        assert (await here.apply(change(gone=((BASE, uid),)))).result is Result.DONE


async def test_what_a_job_that_is_not_valid_any_more_has_left_is_deleted(tmp_path: Path) -> None:
    async with bench(tmp_path, trainer={"min-instance": "wrong"}) as here:
        uid = put(here)
        assert (await here.apply(change(NewWorkload(0, 1, "d")))).result is Result.REFUSED
        assert (await here.apply(change(gone=((BASE, uid),)))).result is Result.DONE


async def test_a_release_frees_the_quota_as_kueues_own_jobs_do(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        uid = put(here, QuotaReserved="True", Admitted="True", PodsReady="True", Evicted="True")
        await here.apply(report(Report.RELEASED, uid, "Preempted", "an owner came"))
        assert conditions(here) == {
            "QuotaReserved": ("False", "Pending"),
            "Admitted": ("False", "NoReservation"),
            "PodsReady": ("False", "WaitForStart"),
            "Requeued": ("True", "Preempted"),
            "Evicted": ("True", "x"),
        }
        assert stored(here)["status"].get("admission") is None
        writes = len(here.api.requests)
        await here.apply(report(Report.RELEASED, uid, "Preempted", "an owner came"))
        assert [method for method, *_ in here.api.requests[writes:]] == ["GET"]


async def test_kueue_says_when_a_job_that_was_not_ready_in_time_waits_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        uid = put(here, QuotaReserved="True", Evicted="True")
        await here.apply(report(Report.RELEASED, uid, "PodsReadyTimeout", "not ready"))
        assert conditions(here)["Requeued"] == ("False", "PodsReadyTimeout")


async def test_ready_and_finished_are_told_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        uid = put(here, QuotaReserved="True", Admitted="True")
        for _ in range(2):
            await here.apply(report(Report.READY, uid))
            await here.apply(report(Report.FINISHED, uid, "Succeeded", "done"))
        assert conditions(here) == {
            "QuotaReserved": ("True", "x"),
            "Admitted": ("True", "x"),
            "PodsReady": ("True", "Started"),
            "Finished": ("True", "Succeeded"),
        }
        assert sum(method == "PATCH" for method, *_ in here.api.requests) == 2


async def test_a_report_about_another_workload_of_that_name_is_a_conflict(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        put(here)
        assert (await here.apply(report(Report.READY, "other"))).result is Result.CONFLICT
        assert (await here.apply(ReportWorkloads(KEY, UID, ()))).result is Result.DONE


async def test_a_missing_right_is_named(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:

        def forbid(request: web.Request) -> web.Response:
            return refusal(403, "Forbidden", "cannot create workloads")(request)

        here.api.faults.append(forbid)
        outcome = await here.apply(change(NewWorkload(0, 1, "d")))
        assert outcome.result is Result.REFUSED
        assert "give edl the rights of deploy/kueue-trainingjobs" in outcome.message


async def test_the_pods_of_a_flavor_need_its_nodes(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        action = create(Role.TRAINER)
        await here.apply(type(action)(KEY, UID, Role.TRAINER, 0, "n1", flavors=("spot",)))
        found = here.stored(PODS, "ctr-trainer-0")
        assert found is not None
        assert found["spec"]["nodeSelector"] == {"flavor": "spot"}
