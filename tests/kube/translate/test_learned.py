"""What admission adds to pods is read from the pods that exist, and planned for."""

from __future__ import annotations

import msgspec

from edl.kube.translate.objects import PodSpec
from edl.kube.translate.snapshot import Translator
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from tests.worlds.raw_objects import GI, Object, job, owned_by, pod, take

KEY = JobKey("ads", "ctr")
SIDECAR = {"name": "proxy", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}


def main(cpu: str = "1", memory: str = "1Gi") -> Object:
    return {"name": "trainer", "resources": {"requests": {"cpu": cpu, "memory": memory}}}


def trainer_pod(*containers: Object, **spec: object) -> Object:
    labels = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": "trainer", "paddlepaddle.org/index": "0"}
    fields = {"nodeName": "n1", "containers": list(containers), **spec}
    return pod("ctr-trainer-0", labels=labels, owner=owned_by("uid-ctr"), spec=fields)


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
    spec = msgspec.convert({"containers": [main(), SIDECAR]}, PodSpec)
    assert translator.learn(KEY, "uid-ctr", Role.TRAINER, spec) is True
    assert translator.learn(KEY, "uid-ctr", Role.TRAINER, spec) is False, "nothing new"
    assert translator.learn(KEY, "uid-of-another", Role.TRAINER, spec) is False
    assert request_of(take(job(), translator=translator))["cpu"] == 1500
