"""The TrainingJob resource on a real API server: it accepts what is shipped, and judges each job as the table says.

A cost estimate that is too high, a schema that is not structural, or a pod that admission rewrites is seen only here.
"""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from edl.api import manifest, pods, priorities
from edl.api.v1 import parse_job
from edl.install.job_network import job_network
from edl.install.manifests import controller_manifests
from edl.install.objects import NAMESPACE
from edl.install.operator_objects import operator_objects
from edl.install.rights import pod_reader, volcano_rights
from edl.kube.queue_file import read_queues
from edl.model.names import Role
from tests.e2e.conftest import SharedControlPlanes
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.e2e.worlds.harness import ROOT
from tests.worlds import golden_pods
from tests.worlds.hostile.changes import CHANGES
from tests.worlds.hostile.jobs import CASES
from tests.worlds.hostile.manifests import Case, Change, make_manifest, manifest_of

Object = dict[str, Any]
UID = "0123abcd-4567-89ef-0123-456789abcdef"
WORKLOADS = {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}
SERVED_S = 20.0
SCENARIOS = ROOT / "example" / "scenarios"  # files for the simulator
JOB_FILES = sorted(p for p in (ROOT / "example").rglob("*.yaml") if SCENARIOS not in p.parents)
OPERATIONS = ROOT / "docs" / "operations.md"


@pytest.fixture(scope="module")
def plane(shared_control_plane: SharedControlPlanes) -> ControlPlane:
    """The shared cluster with everything installed but what would run."""
    plane = shared_control_plane("small")
    for body in controller_manifests():
        if body["kind"] not in WORKLOADS:
            plane.kube.apply(body)
    plane.kube.wait_until(lambda: _is_served(plane.kube), SERVED_S, "the API server serves trainingjobs")
    return plane


@pytest.fixture(scope="module")
def kube(plane: ControlPlane) -> Kube:
    return plane.kube


@pytest.fixture(scope="module")
def space(plane: ControlPlane) -> str:
    """A namespace for jobs that are never admitted for long."""
    return plane.namespace("resource")


def _is_served(kube: Kube) -> bool:
    return isinstance(kube.list("trainingjobs.paddlepaddle.org"), list)


def try_out(kube: Kube, body: Object, namespace: str) -> Object:
    """Let the API server judge an object and store nothing."""
    path = kube.resource(body["kind"].lower()).path(body["metadata"].get("namespace", namespace))
    return kube.request("POST", path, query={"dryRun": "All"}, body=body)


def in_space(body: Object, space: str) -> Object:
    """A copy of an object for another namespace."""
    return {**body, "metadata": {**body["metadata"], "namespace": space}}


@pytest.mark.parametrize(
    "body", [b for b in controller_manifests() if b["kind"] in WORKLOADS], ids=lambda b: b["kind"]
)
def test_accepts_what_runs(kube: Kube, body: Object) -> None:
    assert try_out(kube, body, NAMESPACE)["metadata"]["name"] == "training-job-controller"


@pytest.mark.parametrize(
    "body", [*volcano_rights(), *pod_reader(), *job_network()], ids=lambda b: f"{b['kind']}-{b['metadata']['name']}"
)
def test_accepts_the_further_rights(kube: Kube, space: str, body: Object) -> None:
    assert try_out(kube, body, space)["kind"] == body["kind"]


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.name)
def test_accepts_the_examples(kube: Kube, space: str, path: Path) -> None:
    for body in yaml.safe_load_all(path.read_text()):
        assert try_out(kube, body, space)["kind"] == "TrainingJob"


@pytest.mark.cluster("Pod Security admission")
def test_controller_and_master_pass_the_restricted_standard(plane: ControlPlane, kube: Kube) -> None:
    (deployment,) = (body for body in controller_manifests() if body["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "try"}}
    assert try_out(kube, pod, NAMESPACE)["spec"]["securityContext"]["runAsNonRoot"] is True
    space = plane.namespace("restricted")
    kube.patch("namespaces", space, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    body = make_manifest()
    body["metadata"] |= {"uid": UID, "namespace": space}
    job, classes = parse_job(body), priorities.PRIORITY_CLASSES
    master = pods.pod_manifest(job, Role.MASTER, 0, default_master_image="edl", priority_classes=classes)
    assert try_out(kube, master, space)["spec"]["restartPolicy"] == "OnFailure"
    trainer = pods.pod_manifest(job, Role.TRAINER, 0, default_master_image="edl", priority_classes=classes)
    with pytest.raises(KubeError, match="violates PodSecurity"):
        try_out(kube, trainer, space)


@pytest.mark.cluster("kubectl")
def test_the_bases_together_are_the_file_in_one(kube: Kube) -> None:
    def named(bodies: list[Object]) -> dict[tuple[str, str], Object]:
        return {(body["kind"], body["metadata"]["name"]): body for body in bodies}

    built = list(yaml.safe_load_all(kube.kubectl("kustomize", str(ROOT / "deploy/base"))))
    assert len(built) == len(controller_manifests())
    assert named(built) == named(controller_manifests())


@pytest.mark.cluster("kubectl")
@pytest.mark.parametrize(
    ("base", "objects"),
    [
        ("volcano", volcano_rights()),
        ("prometheus", [*operator_objects().values()]),
        ("pod-reader", [in_space(body, "default") for body in pod_reader()]),
        ("job-network", job_network()),
    ],
)
def test_a_further_base_renders_to_its_objects(kube: Kube, base: str, objects: list[Object]) -> None:
    built = list(yaml.safe_load_all(kube.kubectl("kustomize", str(ROOT / "deploy" / base))))
    assert sorted(built, key=str) == sorted(objects, key=str)


@pytest.mark.cluster("kubectl")
def test_the_overlay_of_the_documents_renders_and_is_accepted(kube: Kube, tmp_path: Path) -> None:
    documented = re.search(r"(?s)```yaml\n# overlay/kustomization.yaml\n(.*?)```", OPERATIONS.read_text())
    assert documented is not None
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(documented[1])
    built = list(yaml.safe_load_all(kube.kubectl("kustomize", str(overlay))))
    (deployment,) = (body for body in built if body["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    image = "you/edl-controller:1"
    assert (container["image"], container["env"]) == (image, [{"name": "EDL_MASTER_IMAGE", "value": image}])
    (queues,) = (body for body in built if body["kind"] == "ConfigMap")
    mounted = {volume["configMap"]["name"] for volume in deployment["spec"]["template"]["spec"]["volumes"][2:]}
    assert mounted == {queues["metadata"]["name"]}
    file = tmp_path / "queues.yaml"
    file.write_text(queues["data"]["queues.yaml"])
    assert [quota.queue for quota in read_queues(file)] == ["blue", "green"]
    assert try_out(kube, deployment, NAMESPACE)["spec"]["replicas"] == 2


@pytest.mark.cluster("kubectl")
def test_kubectl_takes_the_file_in_one_and_the_crd_by_apply(kube: Kube) -> None:
    kube.kubectl(
        "apply",
        "--dry-run=server",
        "--force-conflicts",
        "--server-side",
        "-f",
        str(ROOT / "deploy/edl_controller.yaml"),
    )
    kube.kubectl("apply", "--dry-run=server", "-f", str(ROOT / "crds"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judges_a_job_as_the_models_do(kube: Kube, space: str, case: Case) -> None:
    body = manifest_of(case, "job")
    if case.accepted:
        assert try_out(kube, body, space)["spec"]["trainer"]["instances"] == case.job["spec"]["trainer"].get(
            "instances", 0
        )
        return
    with pytest.raises(KubeError) as caught:
        try_out(kube, body, space)
    assert caught.value.code == 422
    assert case.server_says in str(caught.value)


@pytest.mark.parametrize("case", [c for c in CASES if c.accepted], ids=lambda case: case.name)
def test_defaults_are_those_of_the_models(kube: Kube, space: str, case: Case) -> None:
    stored = parse_job(try_out(kube, manifest_of(case, "job"), space))
    assert stored.spec.model_dump() == parse_job(case.job).spec.model_dump()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_judges_a_change_by_the_pods_there_are(plane: ControlPlane, change: Change) -> None:
    kube, space = plane.kube, plane.namespace("change")
    path = kube.resource("trainingjobs").path(space)
    created = kube.create(change.before or make_manifest(), space)
    if change.status:
        patch = {"status": change.status}
        kube.request("PATCH", f"{path}/job/status", body=patch, content_type="application/merge-patch+json")
    body = copy.deepcopy(change.job)
    body["metadata"]["resourceVersion"] = kube.get("trainingjobs", "job", space)["metadata"]["resourceVersion"]
    if change.accepted:
        assert (
            kube.request("PUT", f"{path}/job", body=body)["metadata"]["generation"]
            > created["metadata"]["generation"]
        )
        return
    with pytest.raises(KubeError, match=change.server_says):
        kube.request("PUT", f"{path}/job", body=body)


def test_scale_pins_the_count_within_the_bounds(plane: ControlPlane) -> None:
    kube, space = plane.kube, plane.namespace("scale")
    kube.create(make_manifest(), space)
    path = f"{kube.resource('trainingjobs').path(space)}/job"
    status = {"phase": "Running", "selector": "a=b", "trainer": {"desired": 4, "ready": 3, "pending": 1}}
    kube.request("PATCH", f"{path}/status", body={"status": status}, content_type="application/merge-patch+json")
    kube.scale("tj", "job", 4, space)
    assert kube.get("trainingjobs", "job", space)["spec"]["trainer"]["instances"] == 4
    scale = kube.request("GET", f"{path}/scale")
    assert (scale["spec"]["replicas"], scale["status"]) == (4, {"replicas": 3, "selector": "a=b"})
    with pytest.raises(KubeError, match="write 0 to let the planner decide"):
        kube.scale("tj", "job", 7, space)
    kube.scale("tj", "job", 0, space)


def with_count(name: str, **trainer: int) -> Object:
    job = make_manifest()
    job["metadata"]["name"] = name
    job["spec"]["trainer"].update(trainer)
    return job


def autoscale(kube: Kube, path: str, wanted: int) -> bool:
    """What a HorizontalPodAutoscaler does: a target at 0 is left alone, else the Scale that was read is written."""
    scale = kube.request("GET", f"{path}/scale")
    if not scale["spec"].get("replicas"):
        return False
    kube.request("PUT", f"{path}/scale", body={**scale, "spec": {"replicas": wanted}})
    return True


def test_an_autoscaler_takes_over_a_count_that_is_set_and_leaves_edls_own_alone(plane: ControlPlane) -> None:
    kube, space = plane.kube, plane.namespace("autoscaled")
    jobs = kube.resource("trainingjobs").path(space)
    kube.create(with_count("set", instances=2), space)
    kube.create(with_count("free"), space)
    counts = {name: kube.request("GET", f"{jobs}/{name}/scale")["spec"] for name in ("set", "free")}
    assert counts == {"set": {"replicas": 2}, "free": {}}
    assert (autoscale(kube, f"{jobs}/set", 4), autoscale(kube, f"{jobs}/free", 4)) == (True, False)
    stored = {name: kube.get("trainingjobs", name, space)["spec"]["trainer"] for name in ("set", "free")}
    assert {name: trainer["instances"] for name, trainer in stored.items()} == {"set": 4, "free": 0}
    with pytest.raises(KubeError, match="between min-instance and max-instance"):
        autoscale(kube, f"{jobs}/set", 99)


def test_an_autoscaler_that_read_an_old_count_gets_a_conflict(plane: ControlPlane) -> None:
    kube, space = plane.kube, plane.namespace("outdated")
    path = f"{kube.resource('trainingjobs').path(space)}/set"
    kube.create(with_count("set", instances=2), space)
    read = kube.request("GET", f"{path}/scale")
    kube.scale("tj", "set", 3, space)
    with pytest.raises(KubeError) as caught:
        kube.request("PUT", f"{path}/scale", body={**read, "spec": {"replicas": 5}})
    assert caught.value.code == 409


@pytest.mark.cluster("kube-controller-manager scales by HorizontalPodAutoscalers")
def test_a_real_autoscaler_does_as_documented(plane: ControlPlane) -> None:
    kube, space = plane.kube, plane.namespace("hpa")
    for name, trainer in (("set", {"instances": 2}), ("free", {})):
        kube.create(with_count(name, **trainer), space)
        target = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": name}
        spec = {"scaleTargetRef": target, "minReplicas": 4, "maxReplicas": 6, "metrics": [_CPU_METRIC]}
        autoscaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec}
        kube.create({**autoscaler, "metadata": {"name": name}}, space)

    def reasons(name: str) -> set[str]:
        status = kube.get("horizontalpodautoscalers", name, space).get("status") or {}
        return {condition["reason"] for condition in status.get("conditions") or ()}

    def count(name: str) -> int:
        found: int = kube.get("trainingjobs", name, space)["spec"]["trainer"]["instances"]
        return found

    kube.wait_until(lambda: count("set") == 4, 60, "the autoscaler scales the job whose count is set")
    kube.wait_until(lambda: "ScalingDisabled" in reasons("free"), 60, "the other one says that it is disabled")
    assert count("free") == 0


_CPU_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


@pytest.mark.cluster("kubectl")
def test_kubectl_shows_the_documented_columns(plane: ControlPlane) -> None:
    kube, space = plane.kube, plane.namespace("columns")
    kube.create(make_manifest(), space)
    status = {"phase": "Running", "reason": "AtMax", "trainer": {"desired": 6, "ready": 5}}
    path = f"{kube.resource('trainingjobs').path(space)}/job/status"
    kube.request("PATCH", path, body={"status": status}, content_type="application/merge-patch+json")
    head, line = kube.kubectl("get", "tj", "-n", space).splitlines()
    assert head.split() == ["NAME", "PHASE", "MIN", "MAX", "DESIRED", "READY", "REASON", "AGE"]
    assert line.split()[:7] == ["job", "Running", "2", "6", "6", "5", "AtMax"]
    assert "Minimum number of trainers" in kube.kubectl("explain", "tj.spec.trainer.min-instance")
    assert kube.kubectl("get", "edl", "-n", space, "-o", "name").strip() == "trainingjob.paddlepaddle.org/job"


@pytest.mark.parametrize("path", golden_pods.inputs(), ids=lambda path: path.name.partition(".")[0])
def test_accepts_the_pods_of_a_job_as_they_are(kube: Kube, space: str, path: Any) -> None:
    kube.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}, space)
    for pod in yaml.safe_load_all(golden_pods.render(path)):
        stored = try_out(kube, in_space(pod, space), space)
        for field in ("hostname", "subdomain", "restartPolicy", "affinity", "priorityClassName"):
            if field in pod["spec"]:
                assert stored["spec"][field] == pod["spec"][field]
        given = [container["resources"] for container in pod["spec"]["containers"]]
        assert [container["resources"] for container in stored["spec"]["containers"]] == given


@pytest.mark.parametrize(
    "make",
    [
        manifest.service_manifest,
        manifest.volume_claim_manifest,
        lambda job: manifest.token_secret_manifest(job, "aa", "bb"),
    ],
    ids=["service", "claim", "secret"],
)
def test_accepts_what_a_job_needs_besides(kube: Kube, space: str, make: Callable[[Any], Object]) -> None:
    body = make_manifest("a" * 50)
    body["metadata"] |= {"uid": UID, "namespace": space}
    assert try_out(kube, make(parse_job(body)), space)["metadata"]["ownerReferences"][0]["uid"] == UID


def test_pods_of_every_role_fit_the_longest_name(kube: Kube, space: str) -> None:
    body = make_manifest("a" * 50)
    body["metadata"] |= {"uid": UID, "namespace": space}
    for role, index in ((Role.MASTER, 0), (Role.PSERVER, 9999), (Role.TRAINER, 9999)):
        pod = pods.pod_manifest(
            parse_job(body), role, index, default_master_image="edl", priority_classes=priorities.PRIORITY_CLASSES
        )
        assert try_out(kube, pod, space)["spec"]["hostname"].endswith(f"-{index}")


def test_no_job_runs_beside_the_controller(kube: Kube) -> None:
    with pytest.raises(KubeError, match="must not run in paddlecloud"):
        kube.create(make_manifest(), NAMESPACE)


def test_who_may_not_create_pods_may_not_create_or_change_jobs(plane: ControlPlane) -> None:
    kube, space = plane.kube, plane.namespace("rights")
    grant(kube, space, "trainingjobs", "paddlepaddle.org", ["create", "update", "get"])
    user = Kube(plane.kubeconfig_for("default", space))
    path = f"{kube.resource('trainingjobs').path(space)}/job"
    try:
        kube.wait_until(lambda: _answer(user, path) == 404, SERVED_S, "the right to read jobs is there")
        with pytest.raises(KubeError, match="you need the right to create pods"):
            user.create(make_manifest(), space)
        stored = kube.create(make_manifest(), space)
        labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
        stored = user.request("PUT", path, body=labelled)
        stored["spec"]["image"] = "example/other"
        with pytest.raises(KubeError, match="you need the right to create pods"):
            user.request("PUT", path, body=stored)
        grant(kube, space, "pods", "", ["create"])
        kube.wait_until(lambda: _is_allowed(user, path, stored), SERVED_S, "the change passes with that right")
    finally:
        user.close()


@pytest.mark.cluster("kubectl, and kube-controller-manager, which adds to the role `edit`")
def test_the_usual_roles_may_write_jobs_and_the_role_for_jobs_alone_may_not(plane: ControlPlane) -> None:
    kube, space = plane.kube, plane.namespace("users")
    body = yaml.safe_dump(make_manifest())
    for user, role in (("ann", "edit"), ("bob", "edl-trainingjobs-edit"), ("eve", "view")):
        kube.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}", "-n", space)

    def create_as(user: str) -> str:
        return kube.kubectl("create", "-f", "-", "-n", space, "--as", user, "--dry-run=server", stdin=body)

    def says(user: str, answer: str) -> bool:
        return kube.kubectl("auth", "can-i", "create", "tj", "-n", space, "--as", user, check=False).strip() == answer

    # kube-controller-manager adds the rights on jobs to the role `edit` some moments after their creation.
    kube.wait_until(lambda: says("ann", "yes"), SERVED_S, "who may edit may create jobs")
    assert "trainingjob.paddlepaddle.org/job created" in create_as("ann")
    assert says("bob", "yes")
    with pytest.raises(ControlPlaneError, match="you need the right to create pods in this namespace"):
        create_as("bob")
    with pytest.raises(ControlPlaneError, match='cannot create resource "trainingjobs"'):
        create_as("eve")
    assert kube.kubectl("get", "tj", "-n", space, "--as", "eve", "-o", "name") == ""


def grant(kube: Kube, space: str, resource: str, group: str, verbs: list[str]) -> None:
    """Give the namespace's default account a right."""
    kind = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
    meta = {"name": resource}
    kube.apply({"apiVersion": f"{kind}/v1", "kind": "Role", "metadata": meta, "rules": [rule]}, space)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": space}
    reference = {"apiGroup": kind, "kind": "Role", "name": resource}
    body = {"kind": "RoleBinding", "metadata": meta, "roleRef": reference, "subjects": [subject]}
    kube.apply({"apiVersion": f"{kind}/v1", **body}, space)


def _answer(user: Kube, path: str) -> int:
    try:
        user.request("GET", path)
    except KubeError as error:
        return error.code
    return 200


def _is_allowed(user: Kube, path: str, body: Object) -> bool:
    try:
        user.request("PUT", path, body=body)
    except KubeError:
        return False
    return True
