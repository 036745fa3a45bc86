"""What the pods of a workload request is known from the first one on, also once all of them are gone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from edl.controller.planning import plan_snapshot, report_snapshot
from edl.explain.job_text import job_report_json
from edl.kube.translate.snapshot import Translator
from edl.kube.workloads.annotations import RECORD
from edl.kube.workloads.resize import resize_request
from edl.lifecycle.resized_workload import workload_actions
from edl.model.actions import ResizeWorkload
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import Role
from tests.worlds.raw_objects import (
    Object,
    batch_job,
    batch_pod,
    container,
    decoded,
    node,
    ray_cluster,
    ray_pod,
    take,
    task,
    volcano_job,
    volcano_pod,
)

AGENT = {"name": "agent", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
SMALL = {"template": {"spec": {"containers": [container("100m", "64Mi"), {"name": "agent"}]}}}
"""A template that a LimitRange makes larger by a core: its second container requests nothing."""


def real_pods(count: int, **more: Any) -> list[Object]:
    spec = {"containers": [container("100m", "64Mi"), AGENT]}
    return [batch_pod(f"p{number}", spec=spec, ready_at=1, **more) for number in range(count)]


def the_job(translator: Translator, *objects: Object) -> Job:
    (found,) = take(*objects, translator=translator).jobs
    return found


def cpu_of(job: Job) -> int:
    return job.trainer.request["cpu"]


def test_a_batch_job_is_planned_as_its_pods_were_once_they_are_gone() -> None:
    translator, obj = Translator(), batch_job(spec=SMALL)
    assert cpu_of(the_job(translator, obj)) == 100
    seen = the_job(translator, obj, *real_pods(2))
    assert (cpu_of(seen), seen.declared and seen.declared["cpu"]) == (1100, 100)
    assert cpu_of(the_job(translator, obj)) == 1100
    assert cpu_of(the_job(translator, {**obj, "status": {"active": 0}})) == 1100, "the object has changed"


def test_its_quota_counts_the_limits_that_its_pods_had() -> None:
    translator, obj = Translator(), batch_job()
    limited = batch_pod("a", spec={"containers": [{**container("1", "1Gi"), "resources": {"limits": {"cpu": "3"}}}]})
    the_job(translator, obj, limited)
    assert the_job(translator, obj).limits["cpu"] == 3000


def test_every_role_of_a_volcano_job_is_remembered() -> None:
    translator = Translator()
    obj = volcano_job(tasks=[task("pserver", 1), task("trainer", 2)])
    large = {"containers": [container("3", "1Gi")]}
    the_job(translator, obj, *(volcano_pod(f"ctr-{name}", spec=large) for name in ("pserver-0", "trainer-0")))
    after = the_job(translator, obj)
    assert (cpu_of(after), [fixed.shape.request["cpu"] for fixed in after.fixed]) == (3000, [3000])


def test_and_the_head_of_a_ray_cluster() -> None:
    translator, obj = Translator(), ray_cluster()
    the_job(translator, obj, ray_pod("head", group="headgroup", spec={"containers": [container("3", "1Gi")]}))
    (head,) = the_job(translator, obj).fixed
    assert (head.role, head.shape.request["cpu"]) == (Role.MASTER, 3000)


def test_admission_that_makes_pods_smaller_is_believed_too() -> None:
    translator, obj = Translator(), batch_job(spec={"template": {"spec": {"containers": [container("4", "1Gi")]}}})
    the_job(translator, obj, batch_pod("a", spec={"containers": [container("2", "1Gi")]}))
    assert cpu_of(the_job(translator, obj)) == 2000


def test_a_new_template_and_a_new_object_begin_anew() -> None:
    translator, obj = Translator(), batch_job(spec=SMALL)
    the_job(translator, obj, *real_pods(1))
    assert cpu_of(the_job(translator, batch_job())) == 1000, "another template"
    the_job(translator, obj, *real_pods(1))
    again = {**obj, "metadata": {**obj["metadata"], "uid": "uid-of-another"}}
    assert cpu_of(the_job(translator, again)) == 100
    the_job(translator, obj, *real_pods(1))
    take(translator=translator)
    assert cpu_of(the_job(translator, obj)) == 100, "it was deleted meanwhile"


MADE = {"creationTimestamp": "2026-01-01T00:01:00Z"}


@pytest.mark.parametrize("leaving", [{}, {"deletionTimestamp": "2026-01-01T00:05:00Z"}])
def test_pods_of_a_former_template_say_nothing_about_the_next_ones(leaving: Object) -> None:
    """Kubernetes lets the requests of a suspended Job change (enhancements 5440) while its pods still end."""
    translator, old, new = Translator(), container("1", "1Gi"), container("2", "1Gi")

    def sized(one: Object) -> Object:
        return batch_job(spec={"template": {"spec": {"containers": [one]}}})

    def made(one: Object, **metadata: Any) -> Object:
        return batch_pod("p", spec={"containers": [one]}, metadata=MADE | metadata, ready_at=1)

    assert cpu_of(the_job(translator, sized(old), made(old))) == 1000
    assert cpu_of(the_job(translator, sized(new), made(old, **leaving))) == 2000
    assert cpu_of(the_job(translator, sized(new))) == 2000
    later = made({**new, "resources": {"requests": {"cpu": "3"}}}, creationTimestamp="2026-01-01T00:06:00Z")
    assert cpu_of(the_job(translator, sized(new), later)) == 3000
    assert cpu_of(the_job(translator, sized(old), later)) == 1000, "and back"


def test_the_head_and_the_workers_of_a_ray_cluster_are_made_anew_by_a_new_template() -> None:
    translator = Translator()

    def sized(cpu: str) -> Object:
        found = ray_cluster()
        for group in (found["spec"]["headGroupSpec"], *found["spec"]["workerGroupSpecs"]):
            group["template"]["spec"]["containers"] = [container(cpu, "1Gi")]
        return found

    spec = {"containers": [container("1", "1Gi")]}
    pods = [ray_pod("head", group="headgroup", spec=spec), ray_pod("worker", spec=spec)]
    the_job(translator, sized("1"), *pods)
    after = the_job(translator, sized("3"), *pods)
    assert (cpu_of(after), [fixed.shape.request["cpu"] for fixed in after.fixed]) == (3000, [3000])


def test_an_older_pod_does_not_undo_what_a_newer_one_showed_that_is_gone() -> None:
    """A policy came while the Job ran: the pods that run say nothing about the next ones."""
    translator, obj = Translator(), batch_job(spec=SMALL)

    def made_at(minute: int, *containers: Object) -> Object:
        created = {"creationTimestamp": f"2026-01-01T00:{minute:02}:00Z"}
        return batch_pod(f"p{minute}", spec={"containers": list(containers)}, metadata=created, ready_at=1)

    plain, changed = made_at(1, container("100m", "64Mi")), made_at(2, container("100m", "64Mi"), AGENT)
    assert cpu_of(the_job(translator, obj, plain)) == 100
    assert cpu_of(the_job(translator, obj, plain, changed)) == 1100
    assert cpu_of(the_job(translator, obj, plain)) == 1100
    assert cpu_of(the_job(translator, obj, plain, made_at(3, container("100m", "64Mi")))) == 100, "it is gone again"


def made_at(second: int, cpu: str, *, generation: int | None = None, **more: Any) -> Object:
    """A pod of the Job; from Kubernetes 1.33 on its generation counts the changes of its spec."""
    created = {"creationTimestamp": f"2026-01-01T00:00:{second:02}Z", "generation": generation}
    spec = {"containers": [container(cpu, "1Gi")], **more}
    return batch_pod(f"p{second}", spec=spec, metadata=created, ready_at=second)


def test_a_pod_that_is_resized_in_place_says_nothing_about_the_next_ones() -> None:
    translator, obj = Translator(), batch_job()
    assert cpu_of(the_job(translator, obj, made_at(1, "1"), made_at(2, "1"))) == 1000
    assert cpu_of(the_job(translator, obj, made_at(1, "1"), made_at(2, "4"))) == 1000, "seen when it was created"
    assert cpu_of(the_job(translator, obj)) == 1000


@pytest.mark.parametrize("resized", [1, 2])
def test_nor_does_one_that_was_resized_before_edl_started_if_others_are_as_they_were(resized: int) -> None:
    pods = [made_at(n, "4" if n == resized else "1", generation=2 if n == resized else 1) for n in (1, 2, 3)]
    assert cpu_of(the_job(Translator(), batch_job(), *pods)) == 1000
    (decision,) = plan_snapshot(take(node(), batch_job(), *pods[:2]), "", Limits()).decisions
    assert decision.target == 5, "three cores are left beside pods of one core and of four"
    ungated = [made_at(n, cpu, generation=2) for n, cpu in ((1, "1"), (2, "3"))]
    assert cpu_of(the_job(Translator(), batch_job(), *ungated)) == 3000, "something else has changed in all of them"


EIGHT = [node(f"n{n}", status={"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}}) for n in range(2)]
"""Two nodes of four cores: ten pods fit by the template, and seven as they are."""
TEN = {"paddlepaddle.org/min-instance": "10", "paddlepaddle.org/max-instance": "12"}


def test_a_job_that_fits_by_its_template_alone_is_stopped_once() -> None:
    translator = Translator()
    obj = batch_job(annotations=TEN, spec=SMALL | {"parallelism": 0})
    (first,) = plan_snapshot(take(*EIGHT, obj, translator=translator), "", Limits()).decisions
    assert first.admitted
    running = batch_job(annotations=TEN, spec=SMALL | {"parallelism": 12})
    take(*EIGHT, running, *real_pods(6), translator=translator)
    stopped = take(*EIGHT, obj, translator=translator)
    (second,) = plan_snapshot(stopped, "", Limits()).decisions
    assert (second.admitted, second.reason) == (False, "Unschedulable")
    report = report_snapshot(stopped, second.job, "", Limits())
    body = json.loads(job_report_json(report, stopped))
    assert body["admission"] == {"spec": {"cpu": "100m"}, "pods": {"cpu": "1100m"}} | body["admission"]


def stopping(job: Job) -> ResizeWorkload:
    """The resize with which edl stops a workload."""
    (decision,) = plan_snapshot(take(*EIGHT, batch_job(annotations=TEN, spec=SMALL)), "", Limits()).decisions
    action, _ = workload_actions(job, replace(decision, admitted=False, target=0), 0, 1000.0)
    assert isinstance(action, ResizeWorkload)
    return action


def test_a_controller_that_starts_later_reads_it_from_the_record() -> None:
    obj = batch_job(annotations=TEN, spec=SMALL | {"parallelism": 6})
    patch = resize_request(stopping(the_job(Translator(), obj, *real_pods(2))), decoded(obj)).patch
    assert isinstance(patch, dict)
    record = patch["metadata"]["annotations"][RECORD]
    assert json.loads(record)["requests"] == {
        "template": {"cpu": "100m", "memory": "64Mi"},
        "pods": {"cpu": "1100m", "memory": "128Mi"},
    }
    later = batch_job(annotations=TEN | {RECORD: record}, spec=SMALL | {"parallelism": 0})
    read = the_job(Translator(), later)
    assert (cpu_of(read), read.declared and read.declared["cpu"]) == (1100, 100)
    other = batch_job(annotations=TEN | {RECORD: record})
    assert cpu_of(the_job(Translator(), other)) == 1000, "the template is another one"


def test_nothing_is_recorded_of_pods_that_are_as_their_template() -> None:
    obj = batch_job(annotations=TEN, spec={"parallelism": 6})
    patch = resize_request(stopping(the_job(Translator(), obj, batch_pod("a"))), decoded(obj)).patch
    assert isinstance(patch, dict)
    assert "requests" not in json.loads(patch["metadata"]["annotations"][RECORD])


@pytest.mark.parametrize(
    "requests",
    [
        None,
        7,
        {},
        {"template": {"cpu": "100m", "memory": "64Mi"}},
        {"template": {"cpu": "100m", "memory": "64Mi"}, "pods": {"cpu": "x"}},
        {"template": {"cpu": "100m", "memory": "64Mi"}, "pods": {"cpu": {"a": 1}}},
        {"template": [], "pods": []},
        {"template": {"cpu": True}, "pods": {"cpu": 1}},
    ],
)
def test_a_record_that_is_not_as_edl_writes_it_counts_for_nothing(requests: object) -> None:
    record = json.dumps({"to": 3, "uid": "uid-train", "requests": requests})
    assert cpu_of(the_job(Translator(), batch_job(annotations={RECORD: record}, spec=SMALL))) == 100
