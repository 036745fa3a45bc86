"""Pods whose requests admission changes: edl plans what the pods request, and not what their manifests say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import batch_job, training_job

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"small-{i}", {"cpu": "4", "memory": "32Gi", "pods": "110"}) for i in range(2))


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[World]:
    """Two nodes of 4 cpus, and a controller that runs."""
    world = World(control_plane(nodes=NODES))
    with world.controller:
        yield world


def defaults(cpu: str) -> Object:
    limits = [{"type": "Container", "defaultRequest": {"cpu": cpu, "memory": "64Mi"}}]
    body = {"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": limits}}
    return {**body, "metadata": {"name": "defaults", "namespace": "default"}}


def with_agent(job: Object) -> Object:
    """The Job with a small first container, and a second one that requests nothing."""
    small = {"name": "main", "image": "example/train", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec = job["spec"]["template"]["spec"]
    spec["containers"] = [small, {"name": "agent", "image": "example/agent"}]
    return job


def resizes(here: World, name: str) -> list[str]:
    """The messages of edl's resizes of a Job, each counted as often as it happened."""
    found = here.kube.list("events", "default", fields=f"involvedObject.kind=Job,involvedObject.name={name}")
    return [e["message"] for e in found if "changes the number" in e["message"] for _ in range(e.get("count") or 1)]


def times_placed(here: World, job: str) -> Counter[str]:
    """How many pods of each trainer's name kube-scheduler has given a node so far."""
    found = here.kube.list("events", "default", fields="involvedObject.kind=Pod,reason=Scheduled")
    pods = {(e["involvedObject"]["name"], e["involvedObject"]["uid"]) for e in found}
    return Counter(name for name, _ in pods if name.startswith(f"{job}-trainer-"))


def test_a_job_that_fits_by_its_template_alone_is_stopped_once_and_costs_no_neighbour_twice(here: World) -> None:
    """Ten pods of 100m are 1100m each by the defaults of the namespace, and eight cores hold seven of them.

    The pods exist until the Job controller deletes them. Up to then kube-scheduler preempts the neighbour for them,
    before or after edl has stopped the Job. A trainer whose preempted pod still ends is replaced under a further
    index, so pods are counted and not names.
    """
    here.kube.create(defaults("1"))
    here.submit(training_job("neighbour", min_trainers=1, max_trainers=7, memory="64Mi"))
    here.kube.wait_until(lambda: here.running("neighbour") == 7, WITHIN_S, "the neighbour has its seven trainers")
    here.kube.create(with_agent(batch_job("side", parallelism=10, low=10, high=12)))
    here.kube.wait_until(
        lambda: here.kube.get("jobs.batch", "side")["spec"]["parallelism"] == 0, WITHIN_S, "the Job is stopped"
    )
    own = partial(here.kube.list, "pods", "default", labels="job-name=side")
    here.kube.wait_until(lambda: not own(), WITHIN_S, "the pods of the Job are gone")
    here.kube.wait_until(lambda: here.running("neighbour") == 7, WITHIN_S, "the neighbour has its trainers again")
    here.submit(training_job("later", min_trainers=1, max_trainers=1, cpu="100m", memory="64Mi"))
    here.kube.wait_until(lambda: here.running("later") == 1, WITHIN_S, "further plans are made")
    here.kube.wait_until(lambda: here.running("neighbour") == 7, WITHIN_S, "the neighbour keeps its trainers")
    made = resizes(here, "side")
    assert len(made) <= 3
    assert [message for message in made if "pods from 0 to" in message] == [], "it was started again"
    placed = times_placed(here, "neighbour")
    assert placed.total() <= 2 * 7, placed
    assert max(placed.values()) <= 2, placed


LARGE = tuple(NodeSpec(f"large-{i}", {"cpu": "8", "memory": "64Gi", "pods": "110"}) for i in range(4))


@pytest.fixture
def doubled(control_plane: Callable[..., ControlPlane]) -> Iterator[World]:
    """Four nodes of 8 cpus, a policy that gives every trainer 2 cpus, and a controller that runs."""
    world = World(control_plane(nodes=LARGE))
    for body in policy():
        world.kube.create(body)
    world.kube.wait_until(lambda: is_doubled(world), WITHIN_S, "the policy is in force")
    with world.controller:
        yield world


def policy() -> tuple[Object, Object]:
    """Admission that raises the CPU request of trainers, as a VerticalPodAutoscaler does."""
    change = ", ".join(
        f'JSONPatch{{op: "replace", path: "/spec/containers/0/resources/{side}/cpu", value: "2"}}'
        for side in ("requests", "limits")
    )
    role = "paddlepaddle.org/role"
    labels = "object.metadata.labels"
    is_trainer = f'has({labels}) && "{role}" in {labels} && {labels}["{role}"] == "trainer"'
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "doubled"}}
    spec = {
        "matchConstraints": {"resourceRules": [pods]},
        "matchConditions": [{"name": "trainer", "expression": is_trainer}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{change}]"}}],
    }
    binding = {"policyName": "doubled"}
    return (
        {**api, "kind": "MutatingAdmissionPolicy", "spec": spec},
        {**api, "kind": "MutatingAdmissionPolicyBinding", "spec": binding},
    )


def is_doubled(here: World) -> bool:
    """True if the API server answers to a dry run as the policy says."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    metadata = {"name": "asked", "namespace": "default", "labels": {"paddlepaddle.org/role": "trainer"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    answer = here.kube.request("POST", "/api/v1/namespaces/default/pods", body=pod, query={"dryRun": "All"})
    return bool(answer["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2")


def trainers(here: World, name: str) -> list[Object]:
    labels = f"paddlepaddle.org/job={name},paddlepaddle.org/role=trainer"
    return here.kube.list("pods", "default", labels=labels)


@pytest.mark.cluster("mutating admission policies")
def test_trainers_that_a_policy_doubles_are_made_as_many_as_fit(doubled: World) -> None:
    """Fifteen trainers of two cores fit beside the masters; none is made that waits for ever."""
    here = doubled
    small = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    here.submit(training_job("a", min_trainers=2, max_trainers=40, master=small))
    here.kube.wait_until(lambda: here.running("a") == 15, WITHIN_S, "job a has what fits")
    assert len(trainers(here, "a")) == 15
    here.submit(training_job("b", min_trainers=4, max_trainers=40, master=small))
    here.kube.wait_until(lambda: here.running("b") >= 7, WITHIN_S, "job b has its share")
    here.kube.wait_until(lambda: here.running("a") + here.running("b") == 15, WITHIN_S, "both have all that fits")
    assert len(trainers(here, "a")) + len(trainers(here, "b")) == 15


@pytest.mark.cluster("mutating admission policies")
def test_gangs_that_a_policy_doubles_start_only_where_they_fit(doubled: World) -> None:
    """Of three gangs of seven trainers two fit; the third makes no pod."""
    here = doubled
    small = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    for name in ("one", "two", "three"):
        here.submit(training_job(name, min_trainers=7, max_trainers=7, gang=True, master=small))
    here.kube.wait_until(
        lambda: sorted(here.running(name) for name in ("one", "two", "three")) == [0, 7, 7], WITHIN_S, "two gangs run"
    )
    (waiting,) = (name for name in ("one", "two", "three") if not here.running(name))
    status = here.kube.get("trainingjobs", waiting)["status"]
    assert status["reason"] in {"MinUnsatisfied", "Unschedulable"}
    assert trainers(here, waiting) == []
