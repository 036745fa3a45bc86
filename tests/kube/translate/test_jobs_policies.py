"""The policies in the spec of a TrainingJob become the policies of the `Job`."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.translate.decoders import TRAINING_JOBS, Quarantined
from edl.kube.translate.jobs import JobReader
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job, RolePolicy
from edl.model.names import JobKey, Role

FAILED, EVICTED, COMPLETED = JobEvent.POD_FAILED, JobEvent.POD_EVICTED, JobEvent.TASK_COMPLETED
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}}


def read(*, trainer: dict[str, Any] | None = None, **spec: Any) -> Job:
    source = TRAINING_JOBS.from_dict(
        {
            "apiVersion": "paddlepaddle.org/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "a", "namespace": "default", "uid": "u", "generation": 1},
            "spec": {
                "trainer": {"min-instance": 2, "max-instance": 2, "resources": RESOURCES, **(trainer or {})},
                "pserver": {"min-instance": 1, "resources": RESOURCES},
                **spec,
            },
        }
    )
    assert not isinstance(source, Quarantined), source
    job = JobReader().read(source, JobKey("default", "a"), (), 0.0)
    assert not job.problem
    return job


def test_a_job_without_policies_has_the_defaults_of_its_mode() -> None:
    assert read().policies == ()


def test_a_policy_of_the_job_applies_to_every_role() -> None:
    job = read(policies=[{"event": "PodEvicted", "action": "AbortJob"}])
    assert job.policies == tuple(RolePolicy(role, EVICTED, JobAction.ABORT_JOB) for role in Role)


def test_any_means_every_event_and_the_policy_of_a_role_overrides_that_of_the_job() -> None:
    job = read(
        policies=[{"event": "TaskCompleted", "action": "CompleteJob"}, {"event": "Any", "action": "AbortJob"}],
        trainer={"policies": [{"event": "PodFailed", "action": "RestartPod"}]},
    )
    trainer = {a.event: a.action for a in job.policies if a.role is Role.TRAINER}
    pserver = {a.event: a.action for a in job.policies if a.role is Role.PSERVER}
    assert trainer == {FAILED: JobAction.RESTART_POD, EVICTED: JobAction.ABORT_JOB}
    assert pserver == {FAILED: JobAction.ABORT_JOB, EVICTED: JobAction.ABORT_JOB, COMPLETED: JobAction.COMPLETE_JOB}


def test_a_policy_equal_to_the_default_of_the_mode_is_left_out() -> None:
    assert read(policies=[{"event": "PodFailed", "action": "RestartJob"}]).policies == ()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [({}, False), ({"gang": True}, True), ({"schedulerName": "volcano"}, True),
     ({"schedulerName": "volcano", "gang": False}, False)],
)  # fmt: skip
def test_a_gang_is_requested_or_implied_by_the_scheduler(spec: dict[str, Any], *, expected: bool) -> None:
    assert read(**spec).gang is expected


@pytest.mark.parametrize(("value", "restarts"), [(None, None), ("Fail", False), ("RestartEpoch", True)])
def test_the_spec_decides_what_a_lost_ledger_means_or_leaves_it_open(
    value: str | None, restarts: bool | None
) -> None:
    dataset = {"source": "index:9"} | ({"onLedgerLost": value} if value else {})
    found = read(dataset=dataset, fault_tolerant=True)
    assert found.problem == ""
    assert (found.has_dataset, found.restarts_epoch) == (True, restarts)
    assert (read().has_dataset, read().restarts_epoch) == (False, None)


def test_a_declared_resize_cost_of_zero_is_kept() -> None:
    assert read(elasticity={"resizeCostSeconds": 0}).resize_cost_s == 0.0
    assert read().resize_cost_s is None
