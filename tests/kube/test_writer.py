"""Single actions over real HTTP: each is conditional, and each response becomes the right outcome."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edl.kube.translate.jobs import read_status
from edl.kube.translate.status_body import status_body
from edl.model.actions import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EnsureClaim,
    EnsurePodGroup,
    EnsureSecret,
    EnsureService,
    EventKind,
    MarkPod,
    PatchStatus,
    ProbePod,
    Result,
)
from edl.model.names import Role
from edl.model.pods import OVERDUE_S
from edl.model.progress import Goodput, Measured
from edl.model.status import Condition, JobPhase, JobStatus, Resize, RoleCount
from edl.model.times import text_of
from tests.kube.writer_on_fake_api import JOBS, KEY, PODS, UID, bench, create, pod, training_job
from tests.worlds.fake_api import refusal, reset


async def test_a_pod_is_created_for_its_planned_node_and_the_answer_is_stored(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        outcome = await here.apply(create())
        made = here.stored(PODS, "ctr-trainer-0")
        assert outcome.result is Result.DONE
        assert made is not None
        assert made["metadata"]["annotations"]["paddlepaddle.org/planned-node"] == "n1"
        assert made["spec"]["priorityClassName"] == "edl-training"
        assert here.seen.told == [("answered", "Pod", made)]


async def test_a_pod_has_the_next_higher_priority_class_if_the_cluster_lacks_its_own(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.apply(create(index=3))
        made = here.stored(PODS, "ctr-trainer-3")
        assert made is not None
        assert made["spec"]["priorityClassName"] == "edl-training"


@pytest.mark.parametrize(("asked_s", "given_s"), [(None, 30), (0, 0), (600, 600), (601, 600), (2**31 - 1, 600)])
async def test_no_pod_has_longer_to_end_than_the_operator_allows(
    tmp_path: Path, asked_s: int | None, given_s: int
) -> None:
    spec = {} if asked_s is None else {"terminationGracePeriodSeconds": asked_s}
    trainer = {**training_job()["spec"]["trainer"], "template": {"spec": spec}}
    async with bench(tmp_path, trainer=trainer) as b:
        assert (await b.writer.apply(create())).result is Result.DONE
        (pod,) = b.api.objects[PODS].values()
        assert pod["spec"]["terminationGracePeriodSeconds"] == given_s


async def test_an_existing_pod_of_the_job_counts_as_created(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        there = here.api.put(PODS, pod())
        assert (await here.apply(create())).result is Result.UNCHANGED
        assert here.seen.told == [("answered", "Pod", there)]


async def test_an_existing_pod_of_another_owner_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod(owner="another"))
        outcome = await here.apply(create())
        assert (outcome.result, outcome.reason) == (Result.REFUSED, "NameTaken")
        assert "rename the job" in outcome.message


@pytest.mark.parametrize("action", [create(), ProbePod(KEY, UID, Role.TRAINER, 0)])
@pytest.mark.parametrize("controller", [False, None])
async def test_a_pod_that_the_job_owns_and_does_not_control_is_refused_as_well(
    tmp_path: Path, controller: bool | None, action: CreatePod | ProbePod
) -> None:
    """No plan counts it, so that the same name would be tried again with each plan."""
    async with bench(tmp_path) as here:
        owned: dict[str, Any] = {"apiVersion": "v1", "kind": "TrainingJob", "name": "ctr", "uid": UID}
        if controller is not None:
            owned["controller"] = controller
        here.api.put(PODS, pod(ownerReferences=[owned]))
        outcome = await here.apply(action)
        assert (outcome.result, outcome.reason) == (Result.REFUSED, "NameTaken")


async def test_a_terminating_pod_of_the_job_is_a_conflict(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod(deletionTimestamp="2026-01-05T10:00:00Z"))
        assert (await here.apply(create())).result is Result.CONFLICT


async def test_a_terminating_pod_of_a_deleted_job_of_the_same_name_is_a_conflict(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod(owner="former", deletionTimestamp="2026-01-05T10:00:00Z"))
        assert (await here.apply(create())).result is Result.CONFLICT


@pytest.mark.parametrize("action", [create(), ProbePod(KEY, UID, Role.TRAINER, 0)])
async def test_a_pod_of_a_former_job_that_does_not_end_is_named_with_the_remedy(
    tmp_path: Path, action: CreatePod | ProbePod
) -> None:
    """On a node that is off it never ends, and the new job would wait without a word."""
    async with bench(tmp_path) as here:
        ends = text_of(here.clock.now_s() - OVERDUE_S)
        there = pod(owner="former", deletionTimestamp=ends)
        here.api.put(PODS, {**there, "spec": {**there.get("spec", {}), "nodeName": "n7"}})
        assert (await here.apply(action)).result is Result.CONFLICT
        here.clock.time_s += 1.0
        outcome = await here.apply(action)
        assert (outcome.result, outcome.reason) == (Result.REFUSED, "PodsDoNotEnd")
        assert "pod ads/ctr-trainer-0 on node n7 has a name that the job needs" in outcome.message
        assert "remove its finalizers" in outcome.message


async def test_a_job_created_again_gets_no_pod_from_the_old_decision(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        outcome = await here.apply(CreatePod(KEY, "another-uid", Role.TRAINER, 0, None))
        assert outcome.result is Result.CONFLICT
        assert here.stored(PODS, "ctr-trainer-0") is None


async def test_a_pod_is_annotated_with_the_intent_before_it_is_deleted(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod())
        outcome = await here.apply(DeletePod(KEY, UID, "ctr-trainer-0", "p1", "ServingNeedsRoom"))
        assert outcome.result is Result.DONE
        assert [r[0] for r in here.api.requests] == ["PATCH", "DELETE"]
        assert here.stored(PODS, "ctr-trainer-0") is None
        marked = here.api.history[-1][3]["metadata"]["annotations"]
        assert marked == {"paddlepaddle.org/intent": "ServingNeedsRoom"}
        assert [told[0] for told in here.seen.told] == ["answered", "deleted"]


async def test_a_deletion_whose_grace_period_says_why_is_one_request(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod())
        action = DeletePod(KEY, UID, "ctr-trainer-0", "p1", "ServingNeedsRoom", grace_s=29)
        here.api.faults.append(None)
        assert (await here.apply(action)).result is Result.DONE
        assert [r[0] for r in here.api.requests] == ["DELETE"]
        options = json.loads(here.api.bodies[-1])
        assert (options["gracePeriodSeconds"], options["preconditions"]) == (29, {"uid": "p1"})
        answer = {"kind": "Status", "status": "Success"}
        told = {"key": ("ads", "ctr-trainer-0"), "uid": "p1", "answer": answer}
        assert here.seen.told == [("deleted", "Pod", told)]


@pytest.mark.parametrize("grace_s", [None, 29])
async def test_a_pod_that_does_not_exist_is_gone_whatever_the_watch_has_shown(
    tmp_path: Path, grace_s: int | None
) -> None:
    """Else it would be deleted again and again until the watch shows its end."""
    async with bench(tmp_path) as here:
        action = DeletePod(KEY, UID, "ctr-trainer-0", "p1", "NodeLost", grace_s=grace_s)
        assert (await here.apply(action)).result is Result.UNCHANGED
        assert here.seen.told == [("deleted", "Pod", {"key": ("ads", "ctr-trainer-0"), "uid": "p1", "answer": {}})]


async def test_another_pod_of_the_same_name_is_neither_annotated_nor_deleted(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod(uid="p2"))
        for marked in (False, True):
            outcome = await here.apply(DeletePod(KEY, UID, "ctr-trainer-0", "p1", "x", marked=marked))
            assert outcome.result is Result.CONFLICT
        outcome = await here.apply(DeletePod(KEY, UID, "ctr-trainer-0", "p1", "ServingNeedsRoom", grace_s=29))
        assert outcome.result is Result.CONFLICT
        left = here.stored(PODS, "ctr-trainer-0")
        assert left is not None
        assert "annotations" not in left["metadata"]


async def test_a_marked_pod_is_not_deleted_if_another_pod_has_its_name(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod(uid="p2"))
        outcome = await here.apply(DeletePod(KEY, UID, "ctr-trainer-0", "p1", "Restart", marked=True))
        assert outcome.result is Result.CONFLICT
        assert here.stored(PODS, "ctr-trainer-0") is not None


async def test_an_action_stops_between_its_requests_if_the_lease_is_lost(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod())
        here.session.fence(lambda: not here.api.requests, exempt="/apis/coordination.k8s.io/v1")
        outcome = await here.apply(DeletePod(KEY, UID, "ctr-trainer-0", "p1", "ServingNeedsRoom"))
        assert outcome.result is Result.NOT_LEADER
        assert [r[0] for r in here.api.requests] == ["PATCH"], "the pod is annotated and not deleted"
        assert here.stored(PODS, "ctr-trainer-0") is not None
        for action in (create(index=1), EnsureService(KEY, UID), EmitEvent(KEY, UID, EventKind.NORMAL, "A", "b")):
            assert (await here.apply(action)).result is Result.NOT_LEADER
        assert len(here.api.requests) == 1
        lease = "/apis/coordination.k8s.io/v1/namespaces/paddlecloud/leases"
        stored = await here.session.post(lease, {"metadata": {"name": "edl-controller"}})
        assert stored["metadata"]["name"] == "edl-controller", "requests of leader election are always sent"


async def test_deleting_a_pod_that_does_not_exist_is_success(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        for action in (
            MarkPod(KEY, UID, "ctr-trainer-0", "p1", "x"),
            DeletePod(KEY, UID, "ctr-trainer-0", "p1", "x"),
            DeletePod(KEY, UID, "ctr-trainer-0", "p1", "x", marked=True),
        ):
            assert (await here.apply(action)).result is Result.UNCHANGED


async def test_a_forced_deletion_has_no_grace_period(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod())
        here.api.faults.extend([None, None])
        await here.apply(DeletePod(KEY, UID, "ctr-trainer-0", "p1", "NodeLost", force=True, marked=True))
        sent = json.loads(here.api.bodies[-1])
        assert (sent["gracePeriodSeconds"], sent["preconditions"]) == (0, {"uid": "p1"})


STATUS = JobStatus(
    phase=JobPhase.RUNNING,
    reason="AtMax",
    selector="a=b",
    observed_generation=3,
    conditions=(Condition("Admitted", "True", "AtMax", "4 of 4", 1000.0, 3),),
    trainer=RoleCount(4, 3, 1),
    pserver=RoleCount(2, 2, 0),
    master=RoleCount(1, 1, 0),
    start_s=990.0,
    completion_s=None,
    last_resize=Resize(995.0, 2, 4, "AtMax", 990.0),
    failures=1,
    explanation="4 of 4: at its maximum",
)


def test_a_status_is_read_back_as_it_was_written() -> None:
    goodputs = (Goodput(1, 90.0), Goodput(4, 262.0, 256, 0.77, is_measured=True))
    learns = replace(STATUS, measured=Measured(goodputs=goodputs, batch=256))
    for status in (STATUS, JobStatus(), learns):
        assert read_status({"status": status_body(status)}) == status


async def test_a_status_is_patched_on_the_observed_version_and_only_if_it_differs(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(PatchStatus(KEY, UID, STATUS))).result is Result.DONE
        stored = here.stored(JOBS, "ctr")
        assert stored is not None
        assert read_status(stored) == STATUS
        requests = len(here.api.requests)
        assert (await here.apply(PatchStatus(KEY, UID, STATUS))).result is Result.UNCHANGED
        assert len(here.api.requests) == requests
        assert here.seen.told == [("answered", "TrainingJob", stored)]


async def test_a_status_patch_keeps_the_fields_of_others(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(JOBS, {**training_job(), "status": {"dataset": {"epoch": 2}, "completionTime": "x"}})
        await here.apply(PatchStatus(KEY, UID, STATUS))
        stored = here.stored(JOBS, "ctr")
        assert stored is not None
        assert stored["status"]["dataset"] == {"epoch": 2}
        assert "completionTime" not in stored["status"]


async def test_a_status_is_never_written_on_another_job_of_the_same_name(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(PatchStatus(KEY, "another", STATUS))).result is Result.CONFLICT
        assert not here.api.requests


async def test_an_expired_job_is_deleted_by_its_uid(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(DeleteJob(KEY, "another"))).result is Result.CONFLICT
        assert (await here.apply(DeleteJob(KEY, UID))).result is Result.DONE
        assert here.stored(JOBS, "ctr") is None


@pytest.mark.parametrize(
    ("fault", "result", "reason"),
    [
        (refusal(403, "Forbidden", "exceeded quota: pods=4"), Result.REFUSED, "Forbidden"),
        (refusal(422, "Invalid", "spec.containers: required"), Result.REFUSED, "Invalid"),
        (refusal(400, "", "admission webhook denied"), Result.REFUSED, "Http400"),
        (refusal(401, "Unauthorized"), Result.FAILED, "Unauthorized"),
        (refusal(409, "Conflict"), Result.CONFLICT, "Conflict"),
        (refusal(404, "NotFound", 'namespaces "ads" not found'), Result.REFUSED, "NotFound"),
        (refusal(500, "InternalError"), Result.FAILED, "Unavailable"),
        (refusal(503, "ServiceUnavailable"), Result.FAILED, "Unavailable"),
        (reset, Result.FAILED, "Unavailable"),
    ],
)
async def test_every_error_of_the_server_becomes_an_outcome_with_a_message(
    tmp_path: Path, fault: Any, result: Result, reason: str
) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(fault)
        outcome = await here.apply(create())
        assert (outcome.result, outcome.reason) == (result, reason)
        assert outcome.message


async def test_the_retry_after_of_a_busy_server_reaches_the_outcome(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(refusal(429, "TooManyRequests", "slow down", **{"Retry-After": "7"}))
        outcome = await here.apply(create())
        assert (outcome.result, outcome.retry_after_s) == (Result.FAILED, 7.0)


@pytest.mark.parametrize(
    ("action", "attempt"),
    [
        (create(), "create a trainer pod of job ads/ctr"),
        (MarkPod(KEY, UID, "ctr-trainer-0", "p1", "x"), "annotate pod ads/ctr-trainer-0"),
        (DeletePod(KEY, UID, "ctr-trainer-0", "p1", "x", marked=True), "delete pod ads/ctr-trainer-0"),
        (EnsureService(KEY, UID), "create the Service of job ads/ctr"),
        (EnsureSecret(KEY, UID), "create the Secret of job ads/ctr"),
        (EnsureClaim(KEY, UID), "create the PersistentVolumeClaim of job ads/ctr"),
        (EnsurePodGroup(KEY, UID), "create the PodGroup of job ads/ctr"),
        (PatchStatus(KEY, UID, STATUS), "write the status of job ads/ctr"),
        (EmitEvent(KEY, UID, EventKind.NORMAL, "A", "b"), "write an event of job ads/ctr"),
        (DeleteJob(KEY, UID), "delete job ads/ctr"),
    ],
)
async def test_a_refusal_names_the_action_and_keeps_the_message_of_the_server(
    tmp_path: Path, action: Action, attempt: str
) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(refusal(422, "Invalid", "the server says no"))
        outcome = await here.apply(action)
        assert outcome.message == f"the API server refused to {attempt}: the server says no (422 Invalid)"
