"""Pods that lend CPU: the planner counts what they declare, kube-scheduler's count is known beside it."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.translate.snapshot import Translator
from edl.model.lending import Lending, RunningRequest
from edl.model.pods import Pod
from edl.model.status import LentCpu
from tests.worlds.raw_objects import Object, job, node, owned_by, pod, take, the_job, the_pod

DECLARED = "paddlepaddle.org/declared-cpu"
SIDECAR = {"name": "proxy", "resources": {"requests": {"cpu": "500m"}}}


def lender(request: str = "100m", limit: str = "1", declared: str = "1", *more: Object, **fields: Any) -> Object:
    labels = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": "trainer", "paddlepaddle.org/index": "4"}
    main = {
        "name": "trainer",
        "resources": {"requests": {"cpu": request, "memory": "1Gi"}, "limits": {"cpu": limit} if limit else {}},
    }
    return pod(
        "ctr-trainer-4",
        labels=labels,
        owner=owned_by("uid-ctr"),
        metadata={"annotations": {DECLARED: declared}},
        spec={"nodeName": "n1", "containers": [main, *more]},
        **fields,
    )


def trainer_of(*objects: Object) -> Pod:
    (found,) = the_job(job(), *objects).pods
    return found


def test_a_trainer_that_lends_has_the_shape_of_its_job_and_requests_less() -> None:
    found = the_job(job(), lender())
    (trainer,) = found.pods
    assert trainer.shape == found.trainer
    assert trainer.lent_cpu_milli == 900
    assert trainer.requested["cpu"] == 100


def test_a_trainer_that_lends_teaches_no_smaller_shape() -> None:
    translator = Translator()
    for _ in range(2):
        (found,) = take(job(), lender(), translator=translator).jobs
        assert found.trainer.request["cpu"] == 1000


def test_a_sidecar_beside_a_trainer_that_lends_is_learned_all_the_same() -> None:
    (found,) = take(job(), lender("100m", "1", "1", SIDECAR)).jobs
    assert found.trainer.request["cpu"] == 1500
    assert found.pods[0].shape.request["cpu"] == 1500
    assert found.pods[0].lent_cpu_milli == 900


@pytest.mark.parametrize(
    ("limit", "declared"), [("1", "64"), ("", "1"), ("1", "50m"), ("1", "much"), ("1", "")], ids=str
)
def test_a_claim_that_the_container_could_not_use_is_not_believed(limit: str, declared: str) -> None:
    found = trainer_of(lender("100m", limit, declared))
    assert (found.shape.request["cpu"], found.lent_cpu_milli) == (100, 0)


def test_a_pod_of_no_job_declares_what_it_requests() -> None:
    found = the_pod(lender(), node("n1"))
    assert (found.shape.request["cpu"], found.lent_cpu_milli) == (100, 0)


def test_a_resize_that_the_kubelet_has_not_carried_out_lends_nothing_yet() -> None:
    """kube-scheduler counts the larger of what the spec requests and what the kubelet has granted."""
    granted = {
        "phase": "Running",
        "containerStatuses": [{"name": "trainer", "resources": {"requests": {"cpu": "1"}}}],
    }
    assert trainer_of(lender(status=granted)).lent_cpu_milli == 0


def test_the_spec_says_who_lends_and_the_status_what_is_lent() -> None:
    spec = {"elasticity": {"lending": "Never"}}
    status = {"phase": "Running", "lending": {"cpu": "13500m", "slowed": 3}}
    found = the_job(job(spec=spec, status=status))
    assert found.lending is Lending.NEVER
    assert the_job(job()).lending is Lending.SURPLUS
    assert found.status is not None
    assert found.status.lending == LentCpu(13500, 3)


@pytest.mark.parametrize("lending", [None, "x", {"cpu": "lots"}, {"cpu": 3}, {"slowed": 2}, {"cpu": "0"}])
def test_a_stored_amount_that_makes_no_sense_counts_as_absent(lending: object) -> None:
    found = the_job(job(status={"phase": "Running", "lending": lending}))
    assert found.status is not None
    assert found.status.lending is None


def running(
    requested: str = "200m",
    granted: str = "1",
    *,
    limit: str = "1",
    declared: str = "1",
    main: Object | None = None,
    status: Object | None = None,
    spec: Object | None = None,
) -> RunningRequest | None:
    """The request of a trainer that runs, as it is translated."""
    source = lender(requested, limit, declared)
    reported: Object = {
        "name": "trainer",
        "state": {"running": {"startedAt": "2026-01-05T10:00:00Z"}},
        "resources": {"requests": {"cpu": granted}},
        "allocatedResources": {"cpu": granted},
    }
    source["status"] = {
        "phase": "Running",
        "qosClass": "Burstable",
        "containerStatuses": [reported],
        **(status or {}),
    }
    source["spec"]["containers"][0] |= main or {}
    source["spec"] |= spec or {}
    return trainer_of(source).running_request


def test_the_request_of_a_running_trainer_is_known_with_what_was_granted() -> None:
    assert running() == RunningRequest(1000, 200, 1000)
    assert running("200m", "200m") == RunningRequest(1000, 200, 200)


def test_a_trainer_that_never_lent_declares_what_it_requests() -> None:
    assert running("500m", "500m", limit="2", declared="") == RunningRequest(500, 500, 500)


def test_why_a_kubelet_does_not_carry_out_a_change_is_known() -> None:
    pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    found = running("1", "200m", status={"conditions": [pending]})
    assert found == RunningRequest(1000, 1000, 200, "Deferred")
    assert found is not None
    assert found.charged_milli == 1000, "kube-scheduler counts the larger"
    infeasible = running("1", "200m", status={"conditions": [{**pending, "reason": "Infeasible"}]})
    assert infeasible is not None
    assert infeasible.charged_milli == 200
    over = running("1", "200m", status={"conditions": [{**pending, "status": "False"}]})
    assert over == RunningRequest(1000, 1000, 200)


@pytest.mark.parametrize(
    "changed",
    [
        {"status": {"qosClass": "Guaranteed"}},
        {"status": {"containerStatuses": []}},
        {"status": {"containerStatuses": [{"name": "trainer", "state": {"running": {}}}]}},
        {"status": {"containerStatuses": [{"name": "trainer", "state": {"terminated": {}}, "resources": {}}]}},
        {"limit": "", "declared": ""},
        {"limit": "100m", "declared": ""},
        {"main": {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}},
        {"main": {"name": "another"}},
        {"spec": {"resources": {"requests": {"cpu": "1"}}}},
    ],
    ids=str,
)
def test_a_request_that_cannot_be_changed_without_a_restart_is_left_out(changed: Any) -> None:
    assert running(**changed) is None


def test_a_policy_for_memory_does_not_matter() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    assert running(main={"resizePolicy": policy}) is not None
