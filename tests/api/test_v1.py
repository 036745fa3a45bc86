"""Which jobs are valid, what a refusal says, and what the accessors of a job return."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edl.api.v1 import parse_job
from edl.errors import InvalidJobError
from edl.model.job_policies import JobAction, JobEvent
from edl.model.names import JobKey, Role
from tests.worlds.hostile.jobs import CASES
from tests.worlds.hostile.manifests import Case, amounts, edited, make_manifest, trainer

EXAMPLES = Path(__file__).parents[2] / "example"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_accepts_or_refuses_hostile_jobs_as_the_table_says(case: Case) -> None:
    started = time.process_time()
    if case.accepted:
        assert parse_job(case.job).key.name == case.job["metadata"]["name"]
    else:
        with pytest.raises(InvalidJobError) as caught:
            parse_job(case.job)
        assert case.says in str(caught.value)
        assert str(caught.value).startswith("job default/")
        assert all(len(problem) < 500 for problem in caught.value.problems)
    assert time.process_time() - started < 5, "a hostile job must not keep the reader busy"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_accepts_the_examples(path: Path) -> None:
    assert all(parse_job(body).spec.image for body in yaml.safe_load_all(path.read_text()))


def test_the_example_of_the_original_controller_is_still_valid() -> None:
    job = parse_job(yaml.safe_load((EXAMPLES / "examplejob-2017.yaml").read_text()))
    spec = job.spec
    assert job.key == JobKey("default", "example")
    assert (spec.image, spec.port, spec.ports_num, spec.ports_num_for_sparse) == (
        "paddlepaddle/paddlecloud-job",
        7164,
        1,
        1,
    )
    assert (spec.trainer.bounds, spec.pserver.min_pservers) == ((2, 6), 2)
    assert (job.passes, spec.fault_tolerant, spec.trainer.workspace) == (50, True, "/workspace")
    assert spec.pserver.resources is not None
    assert spec.pserver.resources.effective_limits() == {"cpu": "800m", "memory": "1Gi"}


def test_a_problem_names_the_object_the_value_the_rule_and_the_remedy() -> None:
    job = trainer(min_instance=4, max_instance=2)
    job["metadata"] = {"name": "ctr", "namespace": "ads"}
    with pytest.raises(InvalidJobError) as caught:
        parse_job(job)
    assert str(caught.value) == "job ads/ctr: min-instance 4 exceeds max-instance 2; lower min-instance"
    assert caught.value.problems == ("min-instance 4 exceeds max-instance 2; lower min-instance",)


@pytest.mark.parametrize(
    ("others", "hint"),
    [
        ({"min_instance": 2}, "; the unknown field min_instance may be a misspelling of it"),
        ({"max-instance": 2}, ""),
        ({"colour": "red"}, ""),
        ({"min-instance\nedl: fine": 2}, ""),
        ({**{f"x{number}": 1 for number in range(100)}, "min_instance": 2}, ""),
    ],
    ids=["misspelled", "another known field", "too different", "not printable", "too many fields"],
)
def test_a_misspelled_field_is_named_with_the_missing_one(others: dict[str, Any], hint: str) -> None:
    job = make_manifest(trainer={"entrypoint": "train", "max-instance": 2, **others})
    with pytest.raises(InvalidJobError) as caught:
        parse_job(job)
    assert caught.value.problems == (f"spec.trainer.min-instance is missing; add it{hint}",)


def test_the_error_lists_every_problem_and_its_message_the_first_five() -> None:
    job = edited(port=0, passes=0, backoffLimit=-1, ports_num=0, suspend="x", queue="A B")
    with pytest.raises(InvalidJobError) as caught:
        parse_job(job)
    assert len(caught.value.problems) == 6
    assert "and 1 more problem" in str(caught.value)


@pytest.mark.parametrize("job", [None, 3, "job", [], {}, {"metadata": 3}, {"metadata": {"name": 3}, "spec": []}])
def test_an_object_that_is_not_a_job_is_refused(job: Any) -> None:
    with pytest.raises(InvalidJobError):
        parse_job(job)


@pytest.mark.parametrize(("field", "value"), [("kind", "Job"), ("apiVersion", "paddlepaddle.org/v2")])
def test_refuses_another_kind(field: str, value: str) -> None:
    with pytest.raises(InvalidJobError, match=field):
        parse_job({**make_manifest(), field: value})


def test_no_job_runs_in_the_namespace_of_the_controller() -> None:
    job = make_manifest()
    job["metadata"]["namespace"] = "paddlecloud"
    assert parse_job(job).key == JobKey("paddlecloud", "job")
    with pytest.raises(InvalidJobError, match="namespace paddlecloud is reserved for the controller"):
        parse_job(job, controller_namespace="paddlecloud")


def test_a_forged_status_does_not_make_a_job_invalid() -> None:
    assert parse_job({**make_manifest(), "status": {"phase": 7, "trainer": "x"}}).key.name == "job"


def test_reads_the_metadata_that_the_api_server_adds() -> None:
    job = make_manifest()
    job["metadata"] |= {
        "uid": "0123",
        "generation": 3,
        "creationTimestamp": "2026-01-05T10:00:00Z",
        "deletionTimestamp": "2026-01-05T11:00:00Z",
        "managedFields": [{}],
    }
    read = parse_job(job)
    assert (read.uid, read.generation, read.created_s, read.is_deleting) == ("0123", 3, 1767607200.0, True)


def test_defaults_are_the_documented_ones() -> None:
    job = parse_job(make_manifest())
    spec = job.spec
    assert (spec.port, spec.suspend, spec.priority, spec.queue, spec.backoff_limit) == (7164, False, 0, "default", 6)
    assert (spec.trainer.instances, spec.elasticity.cooldown_seconds, job.passes) == (0, 60, 1)
    assert (spec.active_deadline_seconds, spec.ttl_seconds_after_finished, spec.dataset) == (None, None, None)
    assert not job.host_network
    assert not job.needs_pod_group


@pytest.mark.parametrize("name", ["hostNetwork", "host_network"])
def test_both_spellings_of_host_network_mean_the_same(name: str) -> None:
    assert parse_job(edited(**{name: True})).host_network


@pytest.mark.parametrize("name", ["VolumeMounts", "volumeMounts"])
def test_both_spellings_of_volume_mounts_mean_the_same(name: str) -> None:
    job = parse_job(edited(**{name: [{"name": "v", "mountPath": "/v", "readOnly": True}]}))
    assert [mount.as_dict() for mount in job.volume_mounts] == [{"name": "v", "mountPath": "/v", "readOnly": True}]


def test_requests_default_to_limits_and_the_old_name_of_gpus_is_read() -> None:
    old = parse_job(amounts(limits={"cpu": 1, "memory": "1Gi", "alpha.kubernetes.io/nvidia-gpu": 2}))
    assert old.spec.trainer.resources is not None
    assert old.spec.trainer.resources.effective_requests() == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}


def test_a_device_without_a_limit_has_its_request_as_limit() -> None:
    job = parse_job(amounts({"cpu": "1", "nvidia.com/gpu": 1}))
    assert job.spec.trainer.resources is not None
    assert job.spec.trainer.resources.effective_limits() == {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("role", "event", "action"),
    [
        (Role.TRAINER, JobEvent.POD_FAILED, JobAction.RESTART_POD),
        (Role.PSERVER, JobEvent.POD_FAILED, JobAction.ABORT_JOB),
        (Role.PSERVER, JobEvent.POD_EVICTED, JobAction.COMPLETE_JOB),
        (Role.MASTER, JobEvent.POD_EVICTED, JobAction.RESTART_JOB),
        (Role.TRAINER, JobEvent.TASK_COMPLETED, JobAction.COMPLETE_JOB),
        (Role.MASTER, JobEvent.TASK_COMPLETED, None),
    ],
)
def test_policies_of_a_role_override_those_of_the_job(role: Role, event: JobEvent, action: JobAction | None) -> None:
    job = edited(policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    job["spec"]["pserver"]["policies"] = [
        {"event": "Any", "action": "CompleteJob"},
        {"event": "PodFailed", "action": "AbortJob"},
    ]
    assert parse_job(job).action_for(role, event) is action


def test_a_lost_pod_restarts_the_job_in_gang_mode() -> None:
    job = trainer(min_instance=6)
    del job["spec"]["fault_tolerant"]
    assert parse_job(job).action_for(Role.PSERVER, JobEvent.POD_EVICTED) is JobAction.RESTART_JOB


@pytest.mark.parametrize(
    ("spec", "expected"),
    [({}, False), ({"schedulerName": "volcano"}, True), ({"schedulerName": "volcano", "gang": False}, False)],
)
def test_volcano_implies_a_pod_group(spec: dict[str, Any], expected: bool) -> None:
    assert parse_job(edited(**spec)).needs_pod_group is expected


HUGE = {
    "a long number": 10**5000,
    "a long negative number": -(10**5000),
    "no number": float("nan"),
    "a long text": "x" * 10**6,
    "a long list": [[]] * 1000,
    "a large object": {str(i): i for i in range(1000)},
}


@pytest.mark.parametrize("value", HUGE.values(), ids=HUGE)
@pytest.mark.parametrize("field", ["port", "image", "trainer", "volumes", "fault_tolerant", "queue"])
def test_huge_values_are_refused_quickly_with_a_short_message(field: str, value: Any) -> None:
    started = time.process_time()
    with pytest.raises(InvalidJobError) as caught:
        parse_job(edited(**{field: value}))
    assert len(str(caught.value)) < 2500
    assert time.process_time() - started < 5, "a hostile job must not keep the reader busy"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [("spec", name) for name in make_manifest()["spec"]] + [
    ("spec", "trainer", name) for name in ("min-instance", "resources", "template", "policies", "instances")
]


@given(st.sampled_from(FIELDS), JSON)
def test_any_value_in_any_field_is_accepted_or_refused(path: tuple[str, ...], value: Any) -> None:
    job = make_manifest()
    target = job
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    try:
        parse_job(job)
    except InvalidJobError as error:
        assert error.problems  # noqa: PT017 - either outcome is right


def test_the_names_of_the_hostile_cases_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
