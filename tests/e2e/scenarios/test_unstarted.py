"""Pods that cannot be created, never start or crash: they are named, made seldom, and keep no room from others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.kube import KubeError
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.pod_log import PodLog

Object = dict[str, Any]
WITHIN_S = 60.0
LONGEST_LINE = 700
NODES = tuple(NodeSpec(f"large-{i}", {"cpu": "8", "memory": "64Gi", "pods": "110"}) for i in range(4))
MASTER: Object = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
SETTINGS = Settings(audit_level="Metadata")


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[World]:
    """Four nodes of 8 cpus, which hold 31 trainers beside masters, and a controller that runs."""
    world = World(control_plane(nodes=NODES, settings=SETTINGS))
    with world.controller:
        yield world


def job(name: str, low: int, high: int, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """A job of trainers of one core, whose pods have these annotations `edl.test/...`."""
    marks = {f"edl.test/{key}": value for key, value in (annotations or {}).items()}
    template = {"template": {"metadata": {"annotations": marks}}}
    return training_job(name, min_trainers=low, max_trainers=high, master=MASTER, trainer=template, **spec)


def status(here: World, name: str) -> Object:
    """The status of a job; empty before the first."""
    found: Object = here.kube.get("trainingjobs", name).get("status") or {}
    return found


def condition(here: World, name: str, kind: str = "Degraded") -> Object:
    """A condition of a job; empty if it has none."""
    conditions = status(here, name).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


def texts(here: World, name: str) -> list[str]:
    """Every sentence of a job's status and events."""
    found = status(here, name)
    events = here.kube.list("events", "default", fields=f"involvedObject.name={name}")
    said = [one.get("message", "") for one in (*(found.get("conditions") or ()), *events)]
    return [found.get("explanation") or "", *said]


def wait_degraded(here: World, name: str, reason: str, within_s: float = WITHIN_S) -> None:
    """Wait until a job is Degraded for that reason."""
    here.kube.wait_until(
        lambda: condition(here, name).get("reason") == reason, within_s, f"{name} is degraded: {reason}"
    )


def wait_trainers(here: World, within_s: float = WITHIN_S, **wanted: int) -> None:
    """Wait until each job has so many live trainers, whatever they do."""

    def has() -> bool:
        pods = here.pods()
        return {name: len(facts.trainers(pods, name)) for name in wanted} == wanted

    here.kube.wait_until(has, within_s, f"the jobs have {wanted} trainers")


def wait_running(here: World, within_s: float = WITHIN_S, **wanted: int) -> None:
    """Wait until so many trainers of each job run."""
    here.kube.wait_until(
        lambda: {name: here.running(name) for name in wanted} == wanted, within_s, f"{wanted} trainers run"
    )


def test_an_image_that_cannot_be_pulled_keeps_nothing_but_its_minimum_from_others(here: World) -> None:
    with PodLog(here.kube) as log:
        here.submit(job("broken", 12, 24, {"waiting": "ImagePullBackOff"}))
        wait_degraded(here, "broken", "PodCannotStart")
        wait_trainers(here, broken=12)
        wait_message(here, "broken", "and 9 more pods cannot start: image")
        here.submit(job("good", 4, 30))
        wait_running(here, good=19)
        here.submit(job("later", 12, 12, fault_tolerant=False))
        wait_running(here, good=7, later=12)
        assert log.made["broken"] <= 25
    assert max(map(len, texts(here, "broken"))) < LONGEST_LINE


def wait_message(here: World, name: str, part: str) -> str:
    """Wait until the condition Degraded of a job says something; returns all that it says then."""
    said: list[str] = []

    def is_said() -> bool:
        said.append(str(condition(here, name).get("message", "")))
        return part in said[-1]

    here.kube.wait_until(is_said, WITHIN_S, f"{name} says {part}")
    return said[-1]


def test_a_crash_loop_is_tried_after_growing_pauses_and_keeps_its_minimum_alone(here: World) -> None:
    crashes = {"exit-code": "1", "exit-after-s": "3"}
    with PodLog(here.kube) as log:
        here.submit(job("crash", 12, 24, crashes, backoffLimit=1000))
        here.submit(job("crash6", 4, 8, crashes))
        here.kube.wait_until(lambda: status(here, "crash6").get("phase") == "Failed", WITHIN_S, "it fails")
        assert condition(here, "crash6", "Failed").get("reason") == "BackoffLimitExceeded"
        wait_degraded(here, "crash", "PodFailed")
        here.submit(job("good", 12, 30))
        here.kube.wait_until(lambda: here.running("good") >= 19, WITHIN_S, "the rest is for others")
        before = log.made["crash"]
        here.kube.wait_until(lambda: log.made["crash"] > before, WITHIN_S, "one is tried again")
        assert log.made["crash"] <= 24 + 1 + 6
        assert log.made["crash6"] <= 8 + 1 + 6
        assert here.running("good") >= 18
    assert max(map(len, texts(here, "crash"))) < LONGEST_LINE


def test_pods_that_no_kubelet_starts_are_named_after_two_minutes_and_give_way(here: World) -> None:
    with PodLog(here.kube) as log:
        here.submit(job("stuck", 12, 24, {"start-s": "100000"}))
        wait_trainers(here, stuck=24)
        here.submit(job("later", 16, 16, fault_tolerant=False))
        wait_degraded(here, "stuck", "PodsNotStarted", 180)
        wait_trainers(here, stuck=12, later=16)
        wait_running(here, later=16)
        assert log.made["stuck"] <= 25
    message = wait_message(here, "stuck", "and 9 more pods have not started for ")
    assert "kubectl describe pod stuck-trainer-0" in message


def policy() -> tuple[Object, Object]:
    """Admission that adds a sidecar to trainers in a way at which this API server breaks off every creation."""
    labels, role = "object.metadata.labels", "paddlepaddle.org/role"
    is_trainer = f'has({labels}) && "{role}" in {labels} && {labels}["{role}"] == "trainer"'
    container = "Object.spec.initContainers"
    requests = f'{container}.resources{{requests: {{"cpu": "500m", "memory": "64Mi"}}}}'
    sidecar = f'{container}{{name: "mesh", image: "x", restartPolicy: "Always", resources: {requests}}}'
    change = f'[JSONPatch{{op: "add", path: "/spec/initContainers", value: [{sidecar}]}}]'
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "mesh"}}
    spec = {
        "matchConstraints": {"resourceRules": [pods]},
        "matchConditions": [{"name": "trainer", "expression": is_trainer}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": change}}],
    }
    return (
        {**api, "kind": "MutatingAdmissionPolicy", "spec": spec},
        {**api, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "mesh"}},
    )


def breaks_off(here: World) -> bool:
    """True if the API server fails at the dry run of a trainer, as the policy makes it."""
    metadata = {"name": "asked", "namespace": "default", "labels": {"paddlepaddle.org/role": "trainer"}}
    spec = {"containers": [{"name": "c", "image": "x"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    try:
        here.kube.request("POST", "/api/v1/namespaces/default/pods", body=pod, query={"dryRun": "All"})
    except KubeError:
        return True
    return False


def asked_s(here: World, name: str) -> list[float]:
    """When the controller asked for trainers of a job, by the audit log."""
    lines = (here.plane.workdir / "logs" / "audit.log").read_text().splitlines()
    calls = [json.loads(line) for line in lines if '"create"' in line and f"{name}-trainer-" in line]
    asked = {call["auditID"]: call["requestReceivedTimestamp"] for call in calls}
    return sorted(datetime.fromisoformat(at).timestamp() for at in asked.values())


@pytest.mark.cluster("mutating admission policies, and this fault of its API server")
def test_creations_that_break_off_are_told_after_the_second_and_cost_nobody_a_trainer(here: World) -> None:
    here.submit(job("runs", 2, 40))
    wait_running(here, runs=31)
    for body in policy():
        here.kube.create(body)
    here.kube.wait_until(lambda: breaks_off(here), WITHIN_S, "the policy is in force")
    with PodLog(here.kube) as log:
        here.submit(job("a", 2, 40))
        here.kube.wait_until(lambda: condition(here, "a").get("status") == "True", WITHIN_S, "it is said")
        here.submit(job("b", 2, 40))
        here.kube.wait_until(lambda: condition(here, "b").get("status") == "True", WITHIN_S, "and of the other one")
        here.kube.wait_until(lambda: len(asked_s(here, "a")) >= 5, WITHIN_S, "it is tried again and again")
        assert not log.causes(), "nobody gives anything for pods that cannot be created"
    pauses = [later - sooner for sooner, later in pairwise(asked_s(here, "a")[1:])]
    assert all(later > 1.5 * sooner > 4 for sooner, later in pairwise(pauses)), f"the pauses grow: {pauses}"
    assert "Server disconnected" in condition(here, "a")["message"]
    assert condition(here, "b")["reason"] == "Unavailable"
    assert here.running("runs") == 31
    for body in policy():
        here.kube.delete(body["kind"], body["metadata"]["name"])
    here.kube.wait_until(lambda: here.running("a") >= 2 and here.running("b") >= 2, 3 * WITHIN_S, "both start")
