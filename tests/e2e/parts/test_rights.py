"""The rights of the shipped ServiceAccount are sufficient and necessary, according to the API server's audit log.

One test plays the main scenarios by itself, with exactly that account, and then compares what the account may do with
what it did: no request was refused for want of a right, and no right was left unused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.kube import WaitTimeoutError
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import NAMESPACE, ROOT, World
from tests.e2e.worlds.jobs import batch_job, serving, training_job, volcano_job
from tests.e2e.worlds.rights import Right, forbidden, granted_by, grounds, requests_of, roles_of, unused

Object = dict[str, Any]
ACCOUNT = "training-job-controller"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
DISCOVERY = 'ClusterRoleBinding "system:discovery"'


def definition(group: str, version: str, kind: str) -> Object:
    """A CustomResourceDefinition that takes any object."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


POD_GROUPS = definition("scheduling.volcano.sh", "v1beta1", "PodGroup")
OTHER_GROUPS = (
    definition("scheduling.volcano.sh", "v1beta1", "Queue"),
    definition("scheduling.x-k8s.io", "v1alpha1", "PodGroup"),
    definition("scheduling.run.ai", "v2alpha2", "PodGroup"),
)
OF_NEWER_VERSIONS = {f"{verb} podgroups.scheduling.k8s.io" for verb in ("list", "watch")}
"""Needed from Kubernetes 1.37 on, which has these."""
OF_VOLCANO = "podgroups.scheduling.volcano.sh"
VOLCANO_JOBS = definition("batch.volcano.sh", "v1alpha1", "Job")


@pytest.mark.cluster("RBAC and the audit log")
def test_no_right_is_missing_and_none_goes_unused(control_plane: Callable[..., ControlPlane]) -> None:
    plane = control_plane(settings=Settings(audit_level="Metadata"))
    log = plane.workdir / "logs" / "audit.log"
    mount = plane.workdir / "mounted"
    mount.symlink_to(plane.workdir / "not-there-yet")
    queues = plane.workdir / "queues.yaml"
    queues.write_text("small: {cpu: 1}\n")
    here = World(plane, "--key-file", str(mount / "key"), "--queues", str(queues))
    has_volcano(here)
    try:
        play_the_main_scenarios(here, mount)
    except WaitTimeoutError as error:
        error.add_note(f"refused for want of a right: {forbidden(requests_of(log, USER))}")
        raise
    asked, roles = requests_of(log, USER), roles_of(here.kube, ACCOUNT, NAMESPACE)
    # The roles of deploy/kuberay, lws, kubeflow and kueue are not installed here: edl takes a refusal for an answer.
    kubeflow = {"kubeflow.org", "trainer.kubeflow.org", "jobset.x-k8s.io"}
    optional = {"ray.io", "leaderworkerset.x-k8s.io", "kueue.x-k8s.io", *kubeflow}
    asked = [event for event in asked if (event.get("objectRef") or {}).get("apiGroup") not in optional]
    assert forbidden(asked) == []
    assert {role["metadata"]["name"] for role in roles} == {ACCOUNT, f"{ACCOUNT}-volcano"}
    others = [why for why in grounds(asked) if ACCOUNT not in why and DISCOVERY not in why]
    assert others == [], "of what all accounts may do, it only needs to read the resource list"
    idle = [right for right in unused(granted_by(roles), asked) if right not in OF_NEWER_VERSIONS]
    assert idle == [], "take these away"


def play_the_main_scenarios(here: World, mount: Path) -> None:
    """Everything that the controller does to a cluster, in two lives of it."""
    with here.controller:
        jobs_of_every_kind_begin(here)
        a_job_of_another_controller_is_resized(here)
        one_grows_shrinks_and_makes_way(here)
        mount_the_key(here, mount)
    here.controller.flags = (*here.controller.flags, "--surplus-cpu-request", "0.1", "--lend-by-resize")
    with here.controller:
        what_is_there_is_recognised(here)
        a_running_trainer_lends(here)
        a_finished_job_goes_by_itself(here)
        here.withdraw("vision")
        here.kube.wait_until(lambda: not here.kube.find("tj", "vision"), 30, "the job is gone")


def has_volcano(here: World) -> None:
    """Install what the controller needs where Volcano is, and what it reads of other schedulers; none runs."""
    here.kube.apply(POD_GROUPS)
    here.kube.apply(VOLCANO_JOBS)
    for one in OTHER_GROUPS:
        here.kube.apply(one)
    here.kube.kubectl("apply", "-k", str(ROOT / "deploy/volcano"))
    for kind in (OF_VOLCANO, "jobs.batch.volcano.sh", *(one["metadata"]["name"] for one in OTHER_GROUPS)):
        here.kube.wait_until(partial(is_served, here, kind), 20, f"the API server serves {kind}")


def is_served(here: World, kind: str) -> bool:
    return here.kube.list(kind) == []


def jobs_of_every_kind_begin(here: World) -> None:
    """An elastic job, a gang, one with a volume claim, one whose name is taken, one that its queue holds back.

    A Queue object has none of them.
    """
    team = {"metadata": {"name": "team"}, "spec": {"nominalQuota": {"cpu": 4}}}
    here.kube.create({"apiVersion": "paddlepaddle.org/v1", "kind": "Queue", **team})
    stranger = {"containers": [{"name": "a", "image": "example/a"}], "schedulerName": "nobody"}
    name = {"name": "taken-trainer-0"}
    here.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": stranger})
    here.submit(training_job("vision", min_trainers=2, max_trainers=6, ttlSecondsAfterFinished=1))
    here.submit(training_job("gang", min_trainers=2, max_trainers=2, gang=True, fault_tolerant=False))
    here.submit(training_job("kept", min_trainers=1, max_trainers=1, master={"storage": {"size": "1Gi"}}))
    here.submit(training_job("taken", min_trainers=1, max_trainers=1))
    here.submit(training_job("held", min_trainers=2, max_trainers=2, queue="small"))
    wait = here.kube.wait_until
    wait(lambda: here.running("vision") == 6, 40, "the elastic job grows to its maximum")
    wait(lambda: here.running("gang") == 2, 30, "the gang runs")
    wait(lambda: here.kube.find(OF_VOLCANO, "gang"), 20, "the gang has its PodGroup")
    wait(lambda: here.kube.list("persistentvolumeclaims", "default"), 20, "the claim is made")
    wait(
        lambda: condition(here, "taken", "Degraded")["reason"] == "NameTaken", 20, "the stranger's pod is left alone"
    )
    queues = "queues.paddlepaddle.org"
    wait(lambda: here.kube.get(queues, "team").get("status", {}).get("running") == 0, 40, "the queue has a status")
    wait(lambda: status(here, "held").get("reason") == "QuotaReached", 20, "the queue's quota holds the job")


def a_job_of_another_controller_is_resized(here: World) -> None:
    """A `batch/v1` Job and a Volcano Job that ask for it; they leave again."""
    here.kube.create(batch_job("batch", parallelism=1, low=1, high=2))
    grown = "the Job asks for a second pod"
    here.kube.wait_until(lambda: here.kube.get("jobs.batch", "batch")["spec"]["parallelism"] == 2, 30, grown)
    here.kube.delete("jobs.batch", "batch")
    here.kube.create(volcano_job("volcano", replicas=1, low=1, high=2))
    here.kube.wait_until(lambda: replicas_of(here, "volcano") == 2, 60, "the Volcano Job asks for a second pod")
    here.kube.delete("jobs.batch.volcano.sh", "volcano")


def replicas_of(here: World, name: str) -> int:
    tasks = here.kube.get("jobs.batch.volcano.sh", name)["spec"]["tasks"]
    return int(tasks[0]["replicas"])


def one_grows_shrinks_and_makes_way(here: World) -> None:
    """Pinned twice to the same count, which makes one event that counts; then serving takes room."""
    for _ in range(2):
        here.kube.kubectl("scale", "tj/vision", "--replicas=3")
        here.kube.wait_until(lambda: here.running("vision") == 3, 30, "the job is pinned")
        here.kube.kubectl("scale", "tj/vision", "--replicas=0")
        here.kube.wait_until(lambda: here.running("vision") == 6, 40, "and grows again")
    here.kube.wait_until(lambda: times_counted(here, "vision", "ScaledDown") >= 2, 20, "the repetition is counted")
    here.kube.create(serving(replicas=8))
    here.kube.wait_until(lambda: here.ready_serving() == 8, 60, "serving is ready")


def mount_the_key(here: World, mount: Path) -> None:
    """Show the controller the Secret that it made, as the kubelet does in its Deployment."""
    secret = here.kube.get("secrets", "edl-master-key", NAMESPACE)
    mount.unlink()
    mount.mkdir()
    (mount / "key").write_bytes(base64.b64decode(secret["data"]["key"]))


def what_is_there_is_recognised(here: World) -> None:
    """A controller that starts anew finds everything that its jobs need, and makes only what is missing."""
    before = {pod["metadata"]["uid"] for pod in here.pods()}
    here.kube.patch(OF_VOLCANO, "gang", {"spec": {"minMember": 9}})
    here.kube.delete("pods", "gang-trainer-1")
    here.kube.delete("pods", "vision-master-0")
    here.kube.wait_until(lambda: here.running("gang") == 2, 40, "the gang starts anew")
    assert here.kube.get(OF_VOLCANO, "gang")["spec"]["minMember"] == 2, "the PodGroup is repaired"
    here.kube.wait_until(lambda: here.kube.find("pods", "vision-master-0"), 20, "the master is back")
    assert before != {pod["metadata"]["uid"] for pod in here.pods()}


def a_running_trainer_lends(here: World) -> None:
    """A job allows it while its trainers run; it leaves again."""
    amounts = {"requests": {"cpu": "200m", "memory": "1Mi"}, "limits": {"cpu": "1"}}
    trainer, never = {"resources": amounts}, {"lending": "Never"}
    here.submit(training_job("lender", min_trainers=1, max_trainers=1, trainer=trainer, elasticity=never))
    here.kube.wait_until(lambda: here.running("lender") == 1, 40, "its trainer runs")
    here.kube.patch("tj", "lender", {"spec": {"elasticity": {"lending": "All"}}})
    here.kube.wait_until(lambda: status(here, "lender").get("lending"), 30, "it lends")
    here.withdraw("lender")


def a_finished_job_goes_by_itself(here: World) -> None:
    """Every trainer of the gang exits 0: the job has succeeded."""
    here.kube.patch("tj", "gang", {"spec": {"ttlSecondsAfterFinished": 1}})
    for pod in facts.trainers(here.pods(), "gang"):
        here.kube.annotate("pods", pod["metadata"]["name"], exit_code="0")
    here.kube.wait_until(lambda: here.kube.find("tj", "gang") is None, 60, "it is deleted after its time")


def status(here: World, name: str) -> Object:
    """The status of a job; empty before it has one."""
    stored: Object = here.kube.get("tj", name).get("status") or {}
    return stored


def condition(here: World, name: str, kind: str) -> Object:
    """One condition of a job; one without a reason before it has any."""
    found = (c for c in status(here, name).get("conditions") or () if c["type"] == kind)
    return next(found, {"reason": ""})


def times_counted(here: World, name: str, reason: str) -> int:
    """How often the most frequent event of a job with that reason was counted."""
    events = here.kube.list("events", "default", fields=f"involvedObject.name={name},reason={reason}")
    return max((int(event.get("count") or 1) for event in events), default=0)


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Path]:
    """Writes an audit log: (verb, objectRef, decision) of one user."""

    def write(*lines: tuple[str, Object, str]) -> Path:
        file = tmp_path / "audit.log"
        events = [
            {
                "user": {"username": USER},
                "verb": verb,
                "objectRef": about,
                "annotations": {"authorization.k8s.io/decision": decision},
            }
            for verb, about, decision in lines
        ]
        events.append({"user": {"username": "other"}, "verb": "delete", "objectRef": {"resource": "nodes"}})
        file.write_text("".join(json.dumps(event) + "\n" for event in events))
        return file

    return write


def test_a_right_that_nobody_used_is_named(log: Callable[..., Path]) -> None:
    asked = requests_of(log(("list", {"resource": "pods"}, "allow")), USER)
    rule = {"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["list", "*"]}
    assert unused(granted_by([{"rules": [rule]}]), asked) == ["* pods", "* pods/exec", "list pods/exec"]


def test_a_right_on_one_object_is_used_by_no_other(log: Callable[..., Path]) -> None:
    asked = requests_of(log(("get", {"resource": "leases", "name": "mine"}, "allow")), USER)
    rights = [Right("", "leases", "get", "mine"), Right("", "leases", "get", "other"), Right("", "leases", "get")]
    assert unused(rights, asked) == ["get leases other"]


def test_a_request_that_was_refused_is_named_and_uses_nothing(log: Callable[..., Path]) -> None:
    about = {"apiGroup": "paddlepaddle.org", "resource": "trainingjobs", "subresource": "status", "name": "a"}
    asked = requests_of(log(("patch", about, "forbid")), USER)
    assert forbidden(asked) == ["patch trainingjobs/status.paddlepaddle.org a"]
    right = Right("paddlepaddle.org", "trainingjobs/status", "patch")
    assert unused([right], asked) == [str(right)]
