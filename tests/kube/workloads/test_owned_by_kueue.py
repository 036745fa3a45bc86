"""Jobs and PyTorchJobs whose Workloads edl makes: how they ask, what is refused, and the nodes of their flavor."""

from __future__ import annotations

from typing import Any

import pytest

from edl.errors import ConflictError
from edl.kube.translate.kueue.objects import FlavorSpec
from edl.kube.translate.snapshot import Translator
from edl.kube.workloads.owned_by_kueue import added_to
from edl.kube.workloads.registry import ADAPTERS, SUSPENDING
from edl.kube.workloads.resize import resize_request
from edl.model.actions import ResizeWorkload
from edl.model.names import JobKey, WorkloadKind
from edl.model.quota_trees import KueueState
from edl.model.status import Resize
from edl.sandbox.apiserver.patches.json_patch import merge_patch
from tests.worlds.kueue.objects import GATE, cluster_queue, flavor, kueue_job, local_queue, own_workload, workload
from tests.worlds.kueue.owned_jobs import flavor_spec, owned_batch_job, owned_pytorch_job, reference_to
from tests.worlds.raw_objects import (
    Object,
    batch_job,
    container,
    decoded,
    elastic_pytorch_job,
    node,
    pod,
    ray_cluster,
    take,
    the_job,
    volcano_job,
)

QUEUE, CLASS = "paddlepaddle.org/kueue-queue", "paddlepaddle.org/kueue-priority-class"
ELASTIC = "kueue.x-k8s.io/elastic-job"
GATED = {"containers": [container("1", "1Gi")], **GATE}
ADDED = "paddlepaddle.org/flavor-nodes"
BATCH = JobKey.of(WorkloadKind.BATCH_JOB, "ads", "train")
TORCH = JobKey.of(WorkloadKind.PYTORCH_JOB, "ads", "torch")
KINDS = [(BATCH, owned_batch_job), (TORCH, owned_pytorch_job)]
TAINT: Object = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}


def spec_of(name: str, *, tolerates: bool = False) -> FlavorSpec:
    body = flavor(name, pool=name)
    if tolerates:
        body["spec"]["tolerations"] = [TAINT]
    return flavor_spec(body)


def resized(body: Object, key: JobKey, count: int, *flavors: FlavorSpec) -> Object:
    """The object after edl has given it another count."""
    before = SUSPENDING[key.kind].count(decoded(body))
    uid = body["metadata"]["uid"]
    action = ResizeWorkload(key, uid, before, count, Resize(0.0, before, count, "AtMax"))
    request = resize_request(action, decoded(body), flavors=flavors)
    assert isinstance(request.patch, dict)
    assert not request.path.endswith("/status")
    stored: Object = merge_patch(body, request.patch)
    return stored


def template(body: Object, key: JobKey) -> Object:
    found = body["spec"]
    for name in SUSPENDING[key.kind].template_path:
        found = found[name]
    spec: Object = found["spec"]
    return spec


def is_suspended(body: Object) -> bool:
    return bool(body["spec"]["suspend"] if body["kind"] == "Job" else body["spec"]["runPolicy"]["suspend"])


@pytest.mark.parametrize(("key", "make"), KINDS)
def test_the_annotations_name_the_queue_and_suspension_is_edls(key: JobKey, make: Any) -> None:
    found = the_job(make({CLASS: "high"}))
    assert found.kueue == KueueState("blue", "trainer", is_owned=True, priority_class="high")
    assert (found.key, found.problem, found.owner_count, found.suspended) == (key, "", 0, False)
    assert ADAPTERS[key.kind].problem(decoded(make())) == ""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (owned_batch_job({"paddlepaddle.org/queue": "x"}), "one of Kueue; remove one of both"),
        (owned_batch_job({QUEUE: "", CLASS: "high"}), f"needs {QUEUE}"),
        (owned_batch_job({ELASTIC: "true"}), f"create it again without {ELASTIC}, or with label"),
        (owned_pytorch_job({ELASTIC: "true"}), f"create it again without {ELASTIC}, or with label"),
        (owned_batch_job(template={"spec": GATED}), "Kueue lets them start only if it makes the Workload"),
        (kueue_job(annotations={QUEUE: "blue"}), "so Kueue makes a Workload for it"),
        (elastic_pytorch_job(labels={"kueue.x-k8s.io/queue-name": "blue"}), f"name the queue in annotation {QUEUE}"),
        (volcano_job(annotations={QUEUE: "blue"}), "is for Jobs and PyTorchJobs, and this is a Volcano Job"),
        (ray_cluster(annotations={QUEUE: "blue"}), "is for Jobs and PyTorchJobs, and this is a RayCluster"),
        (batch_job(annotations={"paddlepaddle.org/kueue-que": "blue"}), "did you mean paddlepaddle.org/kueue-queue?"),
    ],
)
def test_what_edl_cannot_own_is_refused_in_words(body: Object, words: str) -> None:
    assert words in the_job(body).problem


@pytest.mark.parametrize(("key", "make"), KINDS)
def test_it_starts_on_the_nodes_of_its_flavor_and_then_on_those_of_another(key: JobKey, make: Any) -> None:
    body = make()
    template(body, key)["nodeSelector"] = {"disk": "ssd"}
    template(body, key)["tolerations"] = [{"key": "own", "operator": "Exists"}]
    started = resized(body, key, 3, spec_of("a", tolerates=True))
    assert not is_suspended(started)
    assert SUSPENDING[key.kind].count(decoded(started)) == 3
    assert template(started, key)["nodeSelector"] == {"disk": "ssd", "pool": "a"}
    assert template(started, key)["tolerations"] == [{"key": "own", "operator": "Exists"}, TAINT]
    stopped = resized(started, key, 0)
    assert is_suspended(stopped)
    assert template(stopped, key) == template(started, key), "only a suspended job may have another template"
    again = resized(stopped, key, 2, spec_of("b"))
    assert template(again, key)["nodeSelector"] == {"disk": "ssd", "pool": "b"}
    assert template(again, key)["tolerations"] == [{"key": "own", "operator": "Exists"}]
    plain = resized(resized(again, key, 0), key, 2)
    assert template(plain, key)["nodeSelector"] == {"disk": "ssd"}
    assert ADDED not in plain["metadata"]["annotations"]


@pytest.mark.parametrize(("key", "make"), KINDS)
def test_a_flavor_without_labels_changes_no_template(key: JobKey, make: Any) -> None:
    body = make()
    started = resized(body, key, 3, FlavorSpec())
    assert template(started, key) == template(body, key)
    assert ADDED not in started["metadata"]["annotations"]


def test_a_job_that_has_a_start_time_is_rid_of_it_first() -> None:
    body = owned_batch_job()
    body["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    action = ResizeWorkload(BATCH, "uid-train", 0, 2, Resize(0.0, 0, 2, "AtMax"))
    request = resize_request(action, decoded(body), flavors=[spec_of("a")])
    assert request.path == "/apis/batch/v1/namespaces/ads/jobs/train/status"
    assert request.patch == {
        "metadata": {"uid": "uid-train", "resourceVersion": "7"},
        "status": {"startTime": None},
    }
    assert not is_suspended(resized(body, BATCH, 2)), "there is no need to without another template"


def test_ranks_keep_their_completions_while_they_are_suspended() -> None:
    ranks = {"completionMode": "Indexed", "completions": 2, "suspend": False}
    running = owned_batch_job({"paddlepaddle.org/indexes": "ranks"}, **ranks)
    stopped = resized(running, BATCH, 0)
    assert (stopped["spec"]["completions"], stopped["spec"]["parallelism"]) == (2, 2)
    assert resized(stopped, BATCH, 4)["spec"]["completions"] == 4


@pytest.mark.parametrize(("key", "make"), KINDS)
def test_who_suspends_or_starts_it_is_no_other_writer_and_who_sets_its_count_is(key: JobKey, make: Any) -> None:
    started = resized(make(), key, 3)
    where = started["spec"] if key is BATCH else started["spec"]["runPolicy"]
    where["suspend"] = True
    assert the_job(started).problem == ""
    stopped = resized(resized(make(), key, 3), key, 0)
    (stopped["spec"] if key is BATCH else stopped["spec"]["runPolicy"])["suspend"] = False
    assert the_job(stopped).problem == ""
    scaled = resized(make(), key, 3)
    if key is BATCH:
        scaled["spec"]["parallelism"] = 5
    else:
        scaled["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 5
    assert "after edl had set it to 3" in the_job(scaled).problem


def test_a_smaller_minimum_that_kueue_has_admitted_may_run_and_nothing_above_the_maximum() -> None:
    body = owned_batch_job({"paddlepaddle.org/min-instance": "4"})
    assert SUSPENDING[BATCH.kind].count(decoded(resized(body, BATCH, 2))) == 2
    with pytest.raises(ConflictError):
        resized(body, BATCH, 21)


@pytest.mark.parametrize("value", ["[", "[]", '{"nodeSelector": 3}', "[" * 5000])
def test_an_annotation_that_cannot_be_read_counts_as_nothing(value: str) -> None:
    body = owned_batch_job({ADDED: value})
    assert added_to(decoded(body).metadata) == ({}, [])


@pytest.mark.parametrize(("key", "make"), KINDS)
def test_plans_see_the_pods_without_the_nodes_of_an_earlier_flavor(key: JobKey, make: Any) -> None:
    """Kueue may admit a job that it has evicted to another flavor."""
    body = resized(make(), key, 2, flavor_spec(flavor("a", spot="a")))
    shared = [node(), flavor("a", spot="a"), flavor("b", pool="b"), local_queue("blue"), cluster_queue("blue")]
    translator, owner = Translator(), reference_to(body)
    placed = {"nodeName": "n1", "nodeSelector": {"spot": "a"}, "containers": [CONTAINER]}
    old = pod("train-worker-0", owner=owner, spec=placed)
    take(*shared, body, old, own_workload(0, 2, owner=owner), translator=translator)
    stopped = resized(body, key, 0)
    there = own_workload(0, 2, owner=owner, flavor="b")
    (job,) = take(*shared, stopped, there, translator=translator).jobs
    assert job.trainer.placement.node_selector == (("pool", "b"),)


def test_a_job_that_kueue_manages_too_is_left_to_kueue() -> None:
    body, shared = owned_batch_job(), (node(), flavor(), local_queue("blue"), cluster_queue("blue"))
    base = own_workload(0, 2, owner=reference_to(body))
    (fine,) = take(*shared, body, base).jobs
    assert fine.problem == ""
    (found,) = take(*shared, body, base, workload("w", 3, job="train", admitted=3)).jobs
    assert "Kueue manages the job itself (manageJobsWithoutQueueName)" in found.problem
    assert found.kueue is not None
    assert [one.name for one in found.kueue.workloads] == ["ctr-0"], "so that edl can delete what it has made"


CONTAINER = container("1", "1Gi")
