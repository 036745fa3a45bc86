"""What admission adds to pods is read from the pods that exist, and planned for."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from edl.api.pods import PodTerms, pod_manifest
from edl.api.v1 import parse_job
from edl.controller.planning import plan_snapshot, report_snapshot
from edl.explain.job_text import job_report_json
from edl.kube.translate.objects import PodObject
from edl.kube.translate.snapshot import Translator
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from tests.worlds.raw_objects import GI, Object, job, node, owned_by, pod, take

KEY = JobKey("ads", "ctr")
SIDECAR = {"name": "proxy", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}


def main(cpu: str = "1", memory: str = "1Gi") -> Object:
    return {"name": "trainer", "resources": {"requests": {"cpu": cpu, "memory": memory}}}


def trainer_pod(*containers: Object, annotations: Object | None = None, index: int = 0, **spec: object) -> Object:
    labels = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": "trainer", "paddlepaddle.org/index": str(index)}
    fields = {"nodeName": "n1", "containers": list(containers), **spec}
    made = f"2026-01-01T00:00:{index:02}Z"
    metadata = {"annotations": annotations or {}, "creationTimestamp": made}
    return pod(f"ctr-trainer-{index}", labels=labels, owner=owned_by("uid-ctr"), spec=fields, metadata=metadata)


def admitted(obj: Object, cpu: str, *, role: Role = Role.TRAINER, **more: object) -> Object:
    """The pod that edl creates for a job, with another CPU request of its own container."""
    manifest = pod_manifest(
        parse_job(obj), role, 0, default_master_image="edl", priority_classes=(), **cast("dict[str, Any]", more)
    )
    own = next(one for one in manifest["spec"]["containers"] if one["name"] == role.value)
    own["resources"] = {"requests": {**own["resources"]["requests"], "cpu": cpu}}
    manifest["metadata"]["uid"] = f"uid-of-{role.value}"
    return manifest


def one_core(obj: Object) -> Object:
    """A job that can be rendered: with an image, and memory in whole numbers."""
    return {**obj, "spec": {"image": "x", **obj["spec"]}}


def the_job_of(found: ClusterSnapshot) -> Job:
    (one,) = found.jobs
    return one


def request_of(found: ClusterSnapshot) -> dict[str, int]:
    return the_job_of(found).trainer.request.as_dict()


def test_a_sidecar_that_was_injected_counts_for_the_next_trainers() -> None:
    translator = Translator()
    assert request_of(take(job(), translator=translator))["cpu"] == 1000
    found = take(job(), trainer_pod(main(), SIDECAR), translator=translator)
    assert request_of(found)["cpu"] == 1500
    assert request_of(found)["memory"] == 2 * GI
    assert request_of(take(job(), translator=translator))["cpu"] == 1500, "also once the pod is gone"


def test_overhead_and_defaults_of_other_resources_count_too() -> None:
    defaulted = main()
    defaulted["resources"]["requests"]["ephemeral-storage"] = "2Gi"
    found = take(job(), trainer_pod(defaulted, overhead={"cpu": "250m"}))
    assert request_of(found)["cpu"] == 1250
    assert request_of(found)["ephemeral-storage"] == 2 * GI


def test_a_pod_of_an_older_spec_teaches_nothing() -> None:
    assert request_of(take(job(), trainer_pod(main(cpu="2"), SIDECAR)))["cpu"] == 1000


def test_a_new_spec_forgets_what_was_learned() -> None:
    translator = Translator()
    take(job(), trainer_pod(main(), SIDECAR), translator=translator)
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}}
    trainer = {"min-instance": 2, "max-instance": 6, "entrypoint": "x", "resources": resources}
    assert request_of(take(job(spec={"trainer": trainer}), translator=translator))["cpu"] == 2000


def test_the_answer_to_a_dry_run_is_learned_before_the_first_pod() -> None:
    translator = Translator()
    take(job(), translator=translator)
    answer = msgspec.convert({"spec": {"containers": [main(), SIDECAR]}}, PodObject)
    assert translator.learn(KEY, "uid-ctr", Role.TRAINER, answer) is True
    assert translator.learn(KEY, "uid-ctr", Role.TRAINER, answer) is False, "nothing new"
    assert translator.learn(KEY, "uid-of-another", Role.TRAINER, answer) is False
    assert request_of(take(job(), translator=translator))["cpu"] == 1500


JOB = one_core(
    job(
        spec={
            "pserver": {
                "min-instance": 1,
                "max-instance": 1,
                "entrypoint": "x",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }
        }
    )
)


def request_of_role(found: ClusterSnapshot, role: Role) -> int:
    one = the_job_of(found)
    shapes = {fixed.role: fixed.shape for fixed in one.fixed} | {Role.TRAINER: one.trainer}
    return shapes[role].request["cpu"]


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(("cpu", "milli"), [("2", 2000), ("100m", 100)])
def test_a_request_that_admission_raises_or_lowers_is_the_request(role: Role, cpu: str, milli: int) -> None:
    translator = Translator()
    take(JOB, translator=translator)
    answer = msgspec.convert(admitted(JOB, cpu, role=role), PodObject)
    assert translator.learn(KEY, "uid-ctr", role, answer) is True
    assert request_of_role(take(JOB, translator=translator), role) == milli
    status = {**JOB, "status": {"phase": "Running"}}
    assert request_of_role(take(status, translator=translator), role) == milli, "the job has changed"


@pytest.mark.parametrize("role", list(Role))
def test_after_a_restart_the_pods_show_it(role: Role) -> None:
    changed = admitted(JOB, "2", role=role)
    assert request_of_role(take(JOB, changed), role) == 2000


def test_a_pod_of_an_older_spec_shows_nothing_even_if_its_request_could_be_that_of_admission() -> None:
    before = one_core(job(spec={"trainer": trainer_of("2")}))
    older = admitted(before, "2")
    assert request_of(take(JOB, older))["cpu"] == 1000
    assert request_of(take(before, older))["cpu"] == 2000


def trainer_of(cpu: str, **more: object) -> Object:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return {"min-instance": 2, "max-instance": 6, "entrypoint": "x", "resources": resources, **more}


def test_another_maximum_does_not_forget_it_while_a_pod_shows_it() -> None:
    translator, changed = Translator(), admitted(JOB, "2")
    take(JOB, changed, translator=translator)
    edited = one_core(job(spec={"trainer": trainer_of("1", **{"max-instance": 9})}))
    assert request_of(take(edited, changed, translator=translator))["cpu"] == 2000


def test_a_trainer_that_lends_does_not_undo_what_others_show() -> None:
    spec = {"trainer": trainer_of("1", resources={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}})}
    lends, full = one_core(job(spec=spec)), Translator()
    take(lends, translator=full)
    answer = msgspec.convert(admitted(lends, "500m"), PodObject)
    assert full.learn(KEY, "uid-ctr", Role.TRAINER, answer)
    lender = pod_manifest(
        parse_job(lends), Role.TRAINER, 5, default_master_image="", priority_classes=(), terms=PodTerms(0.2)
    )
    found = take(lends, {**lender, "metadata": {**lender["metadata"], "uid": "u"}}, translator=full)
    assert request_of(found)["cpu"] == 500


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("is_dry_run", [True, False])
def test_an_older_pod_does_not_undo_what_a_newer_one_showed_that_is_gone(role: Role, is_dry_run: bool) -> None:
    """A policy that came while the job ran doubles its pods: the ones that run say nothing about the next ones."""
    translator, older, newer = Translator(), admitted(JOB, "1", role=role), admitted(JOB, "2", role=role)
    older["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    newer["metadata"] |= {"creationTimestamp": "2026-01-01T00:01:00Z", "uid": "uid-newer", "name": "newer"}
    take(JOB, older, translator=translator)
    if is_dry_run:
        assert translator.learn(KEY, "uid-ctr", role, msgspec.convert(newer, PodObject))
    else:
        assert request_of_role(take(JOB, older, newer, translator=translator), role) == 2000
    assert request_of_role(take(JOB, older, translator=translator), role) == 2000
    status = {**JOB, "status": {"phase": "Running"}}
    assert request_of_role(take(status, older, translator=translator), role) == 2000, "the job has changed"
    newest = admitted(JOB, "1", role=role)
    newest["metadata"] |= {"creationTimestamp": "2026-01-01T00:02:00Z", "uid": "uid-newest", "name": "newest"}
    assert request_of_role(take(status, older, newest, translator=translator), role) == 1000, "the policy is gone"
    assert request_of_role(take(status, older, translator=translator), role) == 1000


def test_explain_names_both_requests() -> None:
    snapshot = take(JOB, admitted(JOB, "2"))
    assert the_job_of(snapshot).declared == take(JOB).jobs[0].trainer.request
    body = job_report_json(report_snapshot(snapshot, KEY, "", Limits()), snapshot)
    assert json.loads(body)["admission"] == {"spec": {"cpu": "1"}, "pods": {"cpu": "2"}}


def test_two_jobs_whose_trainers_a_policy_doubles_are_planned_as_large_as_they_are() -> None:
    """Four nodes of eight cores hold fifteen trainers of two cores beside two small masters, not thirty-one."""
    translator, small = Translator(), {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    nodes = [node(f"n{number}") for number in range(4)]
    jobs = [
        one_core(job(name, uid=f"uid-{name}", spec={"master": small, "trainer": trainer_of("1") | bounds}))
        for name, bounds in (
            ("a", {"min-instance": 2, "max-instance": 40}),
            ("b", {"min-instance": 4, "max-instance": 40}),
        )
    ]
    take(*nodes, *jobs, translator=translator)
    for obj in jobs:
        key, answer = JobKey("ads", obj["metadata"]["name"]), msgspec.convert(admitted(obj, "2"), PodObject)
        assert translator.learn(key, obj["metadata"]["uid"], Role.TRAINER, answer)
    plan = plan_snapshot(take(*nodes, *jobs, translator=translator), "", Limits())
    targets = [decision.target for decision in plan.decisions]
    assert (sum(targets), min(targets)) == (15, 7)


GPU = {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
TOLERATES = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
DEDICATED = node(
    "gpu",
    metadata={"labels": {"pool": "gpu"}},
    spec={"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
    status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "3"}},
)
OPEN = node("open", status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"}})


def on_gpus(metadata: Object | None = None) -> Object:
    return one_core(job(spec={"trainer": trainer_of("1", resources=GPU)}, metadata=metadata or {}))


def placed(obj: Object, name: str = "", **spec: object) -> Object:
    """A trainer as admission leaves it, with other labels of its node and other tolerations."""
    made = admitted(obj, "1")
    made["spec"] |= spec
    made["metadata"] |= {"uid": f"uid-{name}", "name": name} if name else {}
    return made


def target(found: ClusterSnapshot) -> int:
    return next(decision.target for decision in plan_snapshot(found, "", Limits()).decisions)


def test_a_taint_that_admission_tolerates_keeps_no_job_from_its_nodes() -> None:
    """Many clusters taint GPU nodes, and the API server adds the toleration to each pod that requests one."""
    translator, obj = Translator(), on_gpus()
    plain = node("plain")  # its master fits there
    assert target(take(plain, DEDICATED, obj, translator=translator)) == 0
    answer = msgspec.convert(placed(obj, tolerations=[TOLERATES]), PodObject)
    assert translator.learn(KEY, "uid-ctr", Role.TRAINER, answer)
    assert not translator.learn(KEY, "uid-ctr", Role.TRAINER, answer)
    assert target(take(plain, DEDICATED, obj, translator=translator)) == 3


@pytest.mark.parametrize("is_dry_run", [True, False])
def test_nodes_that_admission_takes_away_are_not_planned(is_dry_run: bool) -> None:
    """A RuntimeClass and a namespace may require labels of the node that the template does not name."""
    translator, obj = Translator(), on_gpus()
    assert target(take(OPEN, DEDICATED, obj, translator=translator)) == 6
    pod_of_it = placed(obj, nodeSelector={"pool": "gpu"}, tolerations=[TOLERATES])
    if is_dry_run:
        assert translator.learn(KEY, "uid-ctr", Role.TRAINER, msgspec.convert(pod_of_it, PodObject))
        assert target(take(OPEN, DEDICATED, obj, translator=translator)) == 3
    else:
        pod_of_it["metadata"]["ownerReferences"] = [owned_by("uid-ctr")]
        pod_of_it["spec"]["nodeName"] = "gpu"
        pod_of_it["status"] = {"phase": "Running"}
        assert target(take(OPEN, DEDICATED, obj, pod_of_it, translator=translator)) == 3
        assert target(take(OPEN, DEDICATED, obj, translator=translator)) == 3, "also once the pod is gone"


@pytest.mark.parametrize(
    ("more", "metadata"),
    [
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, {}),
        ({}, {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}),
    ],
    ids=["it-may-be-of-an-older-spec", "kueue-chose-its-flavor"],
)
def test_a_pod_whose_node_says_nothing_about_the_next_ones(more: Object, metadata: Object) -> None:
    obj = on_gpus(metadata)
    made = placed(obj, nodeSelector={"pool": "gpu"})
    made["metadata"] |= {"ownerReferences": [owned_by("uid-ctr")], **more.get("metadata", {})}
    assert the_job_of(take(OPEN, obj, made)).trainer.placement == the_job_of(take(OPEN, obj)).trainer.placement
