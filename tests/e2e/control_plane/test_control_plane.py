"""The control plane behaves like a cluster, which the other end-to-end tests rely on.

Every test asserts the state of the world. Times have a floor, which is the point, and a ceiling
that leaves room for a busy machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ControlPlanes, SharedControlPlanes
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.kube import Kube, KubeError, WaitTimeoutError
from tests.e2e.control_plane.nodes import load_mix, make_nodes
from tests.e2e.control_plane.processes import Identity, is_alive, read_pid_file, wait_gone
from tests.e2e.control_plane.supervision import supervisor_of
from tests.e2e.control_plane.versions import ControlPlaneError

ROOT = Path(__file__).parents[3]
DELETE_S = 3.0
SLACK_S = 5.0
CHILDREN = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

Object = dict[str, Any]


@pytest.fixture(autouse=True)
def own_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about clusters that are started here."""
    monkeypatch.delenv("EDL_E2E_KUBECONFIG", raising=False)


@pytest.fixture
def plane(shared_control_plane: SharedControlPlanes) -> ControlPlane:
    return shared_control_plane("small", pod_delete_s=DELETE_S, pod_ready_s=0.2)


@pytest.fixture
def kube(plane: ControlPlane) -> Kube:
    return plane.kube


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    return plane.namespace()


def make_pod(name: str, *, cpu: str = "100m", restart: str = "Never", **spec: Any) -> Object:
    container = {"name": "main", "image": "edl", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {}},
        "spec": {"restartPolicy": restart, "containers": [container], **spec},
    }


def make_deployment(name: str) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def run(kube: Kube, namespace: str, pod: Object) -> str:
    """Create a pod and wait until it is ready."""
    name = str(kube.create(pod, namespace)["metadata"]["name"])
    kube.wait_until(lambda: is_pod_ready(kube, name, namespace), 20, f"pod {name} is ready")
    return name


def condition(pod: Object, kind: str) -> str:
    found = [c["status"] for c in pod["status"].get("conditions", ()) if c["type"] == kind]
    return str(found[0]) if found else ""


def is_pod_ready(kube: Kube, name: str, namespace: str) -> bool:
    return condition(kube.get("pods", name, namespace), "Ready") == "True"


def wait_phase(kube: Kube, name: str, namespace: str, phase: str) -> Object:
    def reached() -> Object | None:
        pod = kube.get("pods", name, namespace)
        return pod if pod["status"]["phase"] == phase else None

    found = kube.wait_until(reached, 20, f"pod {name} is {phase}")
    assert found is not None
    return found


def children(workdir: Path) -> dict[str, Identity]:
    """The processes of a cluster, without its supervisor."""
    found = {path.stem: read_pid_file(path) for path in (workdir / "run").glob("*.pid")}
    return {name: who for name, who in found.items() if who and name != "supervisor"}


def test_nodes_are_what_the_mix_says(control_plane: ControlPlanes) -> None:
    plane = control_plane("gpu")

    nodes = {n["metadata"]["name"]: n for n in plane.kube.list("nodes")}

    assert plane.ready_nodes() == set(nodes) == {spec.name for spec in load_mix("gpu")}
    gpu = nodes["gpu8-1"]
    assert gpu["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert gpu["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-b"
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    assert gpu["spec"]["taints"] == [taint]
    ranges = {node["spec"]["podCIDR"] for node in nodes.values()}
    assert len(ranges) == len(nodes)


def test_deployment_scales_up_and_down(kube: Kube, namespace: str) -> None:
    kube.create(make_deployment("web"), namespace)
    kube.scale("deployments", "web", 6, namespace)

    def ready() -> int:
        return int(kube.get("deployments", "web", namespace)["status"].get("readyReplicas", 0))

    kube.wait_until(lambda: ready() == 6, 20, "six replicas are ready")
    pods = kube.list("pods", namespace, labels="app=web")
    assert len({pod["status"]["podIP"] for pod in pods}) == 6
    assert all(condition(pod, "PodScheduled") == "True" for pod in pods)

    kube.scale("deployments", "web", 1, namespace)
    kube.wait_until(lambda: len(kube.list("pods", namespace)) == 1, DELETE_S + SLACK_S, "one pod is left")


@pytest.mark.parametrize("disturbed", [False, True], ids=["left-alone", "changed-meanwhile"])
def test_deletion_takes_as_long_as_said(kube: Kube, namespace: str, *, disturbed: bool) -> None:
    """A grace period shorter than the delay does not cut it, a change does not start it anew."""
    name = run(kube, namespace, make_pod("a", terminationGracePeriodSeconds=1))

    began = time.monotonic()
    kube.delete("pods", name, namespace)
    kube.wait_until(lambda: kube.get("pods", name, namespace)["metadata"].get("deletionTimestamp"), 5, "marked")
    while kube.find("pods", name, namespace) is not None:
        took = time.monotonic() - began
        assert took < DELETE_S + SLACK_S
        if disturbed:
            touch(kube, name, namespace)
    took = time.monotonic() - began

    assert took >= DELETE_S - 0.05


def touch(kube: Kube, name: str, namespace: str) -> None:
    """Change a pod that may be going away."""
    try:
        kube.annotate("pods", name, namespace, touched=str(time.monotonic()))
    except KubeError as error:
        if error.code != 404:
            raise


def test_deletion_ends_with_an_exit_code(kube: Kube, namespace: str) -> None:
    """As on a node, the last state that a watcher sees is a final phase."""
    name = run(kube, namespace, make_pod("a"))
    _, since = kube.list_at("pods")
    kube.delete("pods", name, namespace)

    last = watch_until_deleted(kube, namespace, since)

    assert last["status"]["phase"] == "Failed"
    assert last["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def watch_until_deleted(kube: Kube, namespace: str, since: str) -> Object:
    """The last state of the first pod of a namespace that is deleted."""
    changes = kube.watch("pods", since=since, seconds=30, opened=lambda _: None)
    return next(pod for kind, pod in changes if kind == "DELETED" and pod["metadata"]["namespace"] == namespace)


@pytest.mark.parametrize(("code", "phase"), [("0", "Succeeded"), ("137", "Failed")])
def test_pod_ends_on_demand(kube: Kube, namespace: str, code: str, phase: str) -> None:
    name = run(kube, namespace, make_pod("a"))

    kube.annotate("pods", name, namespace, exit_code=code, exit_reason="OOMKilled")

    pod = wait_phase(kube, name, namespace, phase)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (int(code), "OOMKilled")
    assert condition(pod, "Ready") == "False"


def test_pod_ends_by_its_template(kube: Kube, namespace: str) -> None:
    pod = make_pod("a")
    pod["metadata"]["annotations"] = {"edl.test/exit-code": "0", "edl.test/exit-after-s": "1"}

    name = run(kube, namespace, pod)

    wait_phase(kube, name, namespace, "Succeeded")


def test_restarted_container_crashes_until_it_is_set_to_stop(kube: Kube, namespace: str) -> None:
    name = run(kube, namespace, make_pod("a", restart="Always"))

    def status() -> Object:
        pod: Object = kube.get("pods", name, namespace)["status"]
        return {**pod["containerStatuses"][0], "phase": pod["phase"]}

    kube.annotate("pods", name, namespace, exit_code="1")
    kube.wait_until(lambda: status()["restartCount"] == 1, 10, "it crashed")
    assert status()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert (status()["phase"], status()["ready"]) == ("Running", False)
    assert status()["lastState"]["terminated"]["exitCode"] == 1

    kube.annotate("pods", name, namespace, exit_code=None)
    kube.wait_until(lambda: is_pod_ready(kube, name, namespace), 10, "it runs again")
    assert status()["restartCount"] == 1


def test_slow_start(kube: Kube, namespace: str) -> None:
    slow, quick = make_pod("slow"), make_pod("quick")
    slow["metadata"]["annotations"] = {"edl.test/start-s": "600"}
    kube.create(slow, namespace)

    run(kube, namespace, quick)

    bound = kube.get("pods", "slow", namespace)
    assert bound["spec"]["nodeName"]
    assert bound["status"]["phase"] == "Pending"


def test_scheduler_preempts_and_nominates(kube: Kube, namespace: str) -> None:
    kube.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "edl-test-high"},
            "value": 1000,
        }
    )
    for index in range(4):
        kube.create(make_pod(f"low-{index}", cpu="7"), namespace)
    kube.wait_until(lambda: all(is_pod_ready(kube, f"low-{i}", namespace) for i in range(4)), 20, "nodes full")

    kube.create(make_pod("high", cpu="7", priorityClassName="edl-test-high"), namespace)

    def nominated() -> str:
        return str(kube.get("pods", "high", namespace)["status"].get("nominatedNodeName", ""))

    node = kube.wait_until(nominated, 10, "a node is nominated")

    def doomed() -> list[Object]:
        return [
            pod
            for pod in kube.list("pods", namespace)
            if pod["metadata"].get("deletionTimestamp") and pod["spec"]["nodeName"] == node
        ]

    victims = kube.wait_until(doomed, 10, "a pod of that node goes: the scheduler deletes it after it has nominated")
    assert len(victims) == 1
    assert condition(victims[0], "DisruptionTarget") == "True"
    high = wait_phase(kube, "high", namespace, "Running")
    assert high["spec"]["nodeName"] == node
    for pod in kube.list("pods", namespace):
        kube.delete("pods", pod["metadata"]["name"], namespace, grace_s=0)


def test_lost_node_keeps_its_pods_until_it_is_back(control_plane: ControlPlanes) -> None:
    settings = Settings(pod_delete_s=2.0, node_grace_s=4, pod_ready_s=0.2)
    plane = control_plane(nodes=make_nodes(2, prefix="n"), settings=settings)
    kube = plane.kube
    for name in ("going", "staying", "forced"):
        run(kube, "default", make_pod(name, nodeSelector={"kubernetes.io/hostname": "n-0"}))
    other = run(kube, "default", make_pod("b", nodeSelector={"kubernetes.io/hostname": "n-1"}))
    kube.delete("pods", "going")

    began = time.monotonic()
    plane.lose_node("n-0")

    assert time.monotonic() - began < settings.node_grace_s + 2 + SLACK_S
    kube.delete("pods", other)
    kube.delete("pods", "staying")
    kube.delete("pods", "forced", grace_s=0)
    kube.wait_until(lambda: kube.find("pods", other) is None, 2 + SLACK_S, "the other node works")
    left = {p["metadata"]["name"]: p["metadata"].get("deletionTimestamp") for p in kube.list("pods")}
    assert set(left) == {"going", "staying"}
    assert all(left.values())
    assert plane.ready_nodes() == {"n-1"}

    plane.recover_node("n-0")

    kube.wait_until(lambda: not kube.list("pods"), 2 + SLACK_S, "the kubelet finished its work")
    run(kube, "default", make_pod("c", nodeSelector={"kubernetes.io/hostname": "n-0"}))


def test_service_account_has_its_own_rights_only(plane: ControlPlane, namespace: str) -> None:
    kube, rbac = plane.kube, "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}
    named = {"apiVersion": f"{rbac}/v1", "metadata": {"name": "r"}}
    kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}}, namespace)
    kube.create({**named, "kind": "Role", "rules": [rule]}, namespace)
    reference = {"apiGroup": rbac, "kind": "Role", "name": "r"}
    kube.create({**named, "kind": "RoleBinding", "subjects": [subject], "roleRef": reference}, namespace)

    with Kube(plane.kubeconfig_for("viewer", namespace)) as viewer:
        viewer.wait_until(lambda: viewer.list("pods", namespace) == [], 10, "the role is in force")
        with pytest.raises(KubeError, match="403 Forbidden"):
            viewer.list("pods", "default")


@pytest.mark.cluster("a namespace that is deleted stays for a while; in the sandbox an empty one is gone at once")
def test_running_cluster_is_used_and_left(plane: ControlPlane, tmp_path: Path) -> None:
    with ControlPlane.attach(plane.kubeconfig, tmp_path, settings=plane.settings) as same:
        assert same.ready_nodes() == plane.ready_nodes()
        mine = same.namespace()
        with Kube(same.kubeconfig_for("default", mine)) as guest, pytest.raises(KubeError, match="403"):
            guest.list("pods", mine)

    assert plane.kube.get("namespaces", mine)["metadata"]["deletionTimestamp"]
    assert plane.kube.list("nodes")
    with pytest.raises(ControlPlaneError, match=r"pod_delete_s=8\.0.*unset EDL_E2E_KUBECONFIG"):
        ControlPlane.attach(plane.kubeconfig, tmp_path, settings=Settings(pod_delete_s=8.0))


def test_waiting_in_vain_shows_the_world(kube: Kube, namespace: str) -> None:
    kube.create(make_pod("too-big", cpu="1000"), namespace)

    with pytest.raises(WaitTimeoutError) as caught:
        kube.wait_until(lambda: is_pod_ready(kube, "too-big", namespace), 0.5, "it is ready")

    assert "not yet: it is ready\nlast: False" in str(caught.value)
    assert f"{namespace}/too-big Pending on -" in str(caught.value)
    assert "FailedScheduling" in str(caught.value)


STARTER = """
import sys, time
from pathlib import Path
from tests.e2e.control_plane import ControlPlane
ControlPlane.start(Path(sys.argv[1]))
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.cluster("the programs of the control plane")
def test_killing_the_starter_leaves_nothing(tmp_path: Path) -> None:
    """Two at once: they do not clash, and the death of one starter ends its own cluster only."""
    folders = [tmp_path / "one", tmp_path / "two"]
    starters = [
        subprocess.Popen([sys.executable, "-c", STARTER, folder], cwd=ROOT, stdout=subprocess.PIPE)
        for folder in folders
    ]
    try:
        assert [read_line(starter) for starter in starters] == ["up", "up"]
        first, second = (children(folder) for folder in folders)
        assert set(first) == set(second) == CHILDREN
        supervisor = supervisor_of(folders[0])
        assert supervisor is not None

        starters[0].send_signal(signal.SIGKILL)

        assert all(wait_gone(who, 10) for who in (*first.values(), supervisor))
        assert all(is_alive(who) for who in second.values())
        other = Kube(folders[1] / "kubeconfig")
        assert len(other.list("nodes")) == 4
        other.close()
    finally:
        for starter in starters:
            starter.kill()
            starter.communicate()
    assert all(wait_gone(who, 10) for who in second.values())


def read_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@pytest.mark.cluster("the programs of the control plane")
def test_up_stays_until_down(tmp_path: Path) -> None:
    """The command's cluster outlives it; killing its supervisor, even, leaves nothing."""

    def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.e2e.control_plane", *arguments, "--dir", str(tmp_path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    try:
        first = cli("up", "--pod-delete-s", "8")
        export = f"export KUBECONFIG={tmp_path / 'kubeconfig'}\n"
        assert (first.returncode, first.stdout) == (0, export), first.stderr
        again = cli("up")
        assert (again.returncode, again.stdout) == (0, export)
        assert "already running" in again.stderr
        assert cli("status").returncode == 0
        kubectl = [str(tmp_path / "bin" / "kubectl"), "--kubeconfig", str(tmp_path / "kubeconfig")]
        listing = subprocess.run([*kubectl, "get", "nodes"], capture_output=True, text=True, check=True)
        assert listing.stdout.count(" Ready ") == 4

        running, supervisor = children(tmp_path), supervisor_of(tmp_path)
        assert supervisor is not None
        os.kill(supervisor.pid, signal.SIGKILL)
        assert all(wait_gone(who, 10) for who in running.values())
        assert cli("status").returncode == 1
    finally:
        down = cli("down")
    assert down.returncode == 0
    assert children(tmp_path) == {}
