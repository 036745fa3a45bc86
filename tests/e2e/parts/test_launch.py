"""`k8s_tools` and `paddle_k8s` as processes that call a real API server with the rights shipped for them."""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from edl.install.rights import pod_reader
from tests.e2e.conftest import SharedControlPlanes
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.kubeconfig import read_kubeconfig
from tests.worlds.launcher_processes import K8S_TOOLS, PADDLE_K8S, ROOT, pod_environment, termination_log

Object = dict[str, Any]
TRAINERS, PSERVERS = "paddle-job=j", "paddle-job-pserver=j"


def make_pod(name: str, label: str, index: int | None) -> Object:
    labels = {label: "j"} | ({"paddlepaddle.org/index": str(index)} if index is not None else {})
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example/trainer"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


pytestmark = pytest.mark.cluster("the API server by HTTPS, as in a pod")


@dataclass
class Space:
    """A namespace, and what is mounted in a pod of it."""

    plane: ControlPlane
    name: str
    folder: Path

    @property
    def kube(self) -> Kube:
        return self.plane.kube

    def add(self, *pods: Object) -> None:
        for pod in pods:
            self.kube.create(pod, self.name)
        names = {pod["metadata"]["name"] for pod in pods}
        self.kube.wait_until(lambda: names <= self.running(), 30, f"{names} run and have addresses")

    def running(self) -> set[str]:
        return {
            pod["metadata"]["name"]
            for pod in self.kube.list("pods", self.name)
            if pod["status"].get("phase") == "Running" and pod["status"].get("podIP")
        }

    def ip(self, name: str) -> str:
        return str(self.kube.get("pods", name, self.name)["status"]["podIP"])

    def fail(self, name: str) -> None:
        path = self.kube.resource("pods").path(self.name, name, "status")
        body = {"status": {"phase": "Failed"}}
        self.kube.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    def mount(self, account: str) -> Path:
        """The files of a ServiceAccount as the kubelet would lay them out."""
        folder = self.folder / account
        folder.mkdir(exist_ok=True)
        access = read_kubeconfig(self.plane.kubeconfig_for(account, self.name))
        entry = yaml.safe_load(self.plane.kubeconfig.read_text())["clusters"][0]["cluster"]
        inline = entry.get("certificate-authority-data")
        authority = base64.b64decode(inline) if inline else Path(entry["certificate-authority"]).read_bytes()
        (folder / "ca.crt").write_bytes(authority)
        (folder / "token").write_text(access.token)
        (folder / "namespace").write_text(self.name)
        return folder

    def environment(self, pod: str, account: str = "edl-pod-reader", **more: str) -> dict[str, str]:
        access = read_kubeconfig(self.plane.kubeconfig)
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "KUBERNETES_SERVICE_HOST": access.host,
            "KUBERNETES_SERVICE_PORT": str(access.port),
            "EDL_SERVICE_ACCOUNT_DIR": str(self.mount(account)),
            "PADDLE_JOB_NAME": "j",
            "NAMESPACE": self.name,
            "POD_NAME": pod,
            **more,
        }

    def tools(self, *words: str, pod: str = "j-trainer-10", **more: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*K8S_TOOLS, *words],
            env=self.environment(pod, **more),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def space(shared_control_plane: SharedControlPlanes, tmp_path: Path) -> Iterator[Space]:
    plane = shared_control_plane("small", pod_delete_s=8.0)
    made = Space(plane, plane.namespace("launch"), tmp_path)
    for body in pod_reader():
        if "subjects" in body:
            body["subjects"][0]["namespace"] = made.name
        plane.kube.apply(body, made.name)
    yield made
    for pod in plane.kube.list("pods", made.name):
        plane.kube.delete("pods", pod["metadata"]["name"], made.name, grace_s=0)


def test_the_tools_find_pods_through_the_api(space: Space) -> None:
    indices = (10, 2, 0, 11, 1)
    space.add(*(make_pod(f"j-trainer-{i}", "paddle-job", i) for i in indices))
    ips = [space.ip(f"j-trainer-{i}") for i in sorted(indices)]
    assert space.tools("fetch_ips", TRAINERS) == (0, ",".join(ips) + "\n", "")
    endpoints = ",".join(f"{ip}:{30236 + place}" for place, ip in enumerate(ips))
    assert space.tools("fetch_endpoints", TRAINERS, "30236") == (0, endpoints + "\n", "")
    assert space.tools("fetch_id", TRAINERS) == (0, "3\n", "")
    assert space.tools("fetch_id", TRAINERS, pod="j-trainer-2") == (0, "2\n", "")
    assert space.tools("fetch_ips", PSERVERS) == (0, "\n", "")
    ready = "waiting until all containers are ready (selector paddle-job=j)\n"
    assert space.tools("wait_containers_ready", TRAINERS) == (0, ready, "")
    space.fail("j-trainer-0")
    assert space.tools("count_pods_by_phase", TRAINERS, "Failed") == (0, "1\n", "")
    assert space.tools("count_pods_by_phase", TRAINERS, "Running") == (0, "4\n", "")
    assert space.tools("fetch_ips", TRAINERS)[1] == ",".join(ips[1:]) + "\n"
    code, out, err = space.tools("fetch_id", TRAINERS, pod="j-trainer-99")
    assert (code, out) == (1, "")
    assert "this pod (j-trainer-99) is not one of the running pods" in err


def test_a_pod_without_an_index_puts_all_in_the_order_of_their_addresses(space: Space) -> None:
    space.add(*(make_pod(f"t-{i}", "paddle-job", None if i == 7 else i) for i in range(12)))
    found = space.tools("fetch_ips", TRAINERS)[1].strip().split(",")
    assert sorted(found, key=lambda ip: tuple(map(int, ip.split(".")))) == found
    assert len(found) == 12


def test_a_terminating_pod_is_not_waited_for_as_running(space: Space) -> None:
    space.add(make_pod("j-trainer-0", "paddle-job", 0), make_pod("j-trainer-1", "paddle-job", 1))
    space.kube.delete("pods", "j-trainer-1", space.name, grace_s=30)
    process = subprocess.Popen(
        [*K8S_TOOLS, "wait_pods_running", TRAINERS, "2"],
        env=space.environment("j-trainer-0"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting for 2 running pods (selector paddle-job=j)\n"
    assert process.stdout.readline() == "1 of 2 pods are running; checking again in 5 s\n"
    space.add(make_pod("j-trainer-2", "paddle-job", 2))
    rest, _ = process.communicate(timeout=90)
    assert process.returncode == 0
    assert set(rest.splitlines()) <= {"1 of 2 pods are running; checking again in 5 s"}


def test_more_pods_than_one_answer_holds_are_all_counted(space: Space) -> None:
    """Unscheduled pods, so that it takes seconds: the API hands out 500 at a time."""
    for number in range(510):
        pod = make_pod(f"p-{number}", "paddle-job", number)
        pod["spec"]["schedulerName"] = "nobody"
        space.kube.create(pod, space.name)
    assert space.tools("count_pods_by_phase", TRAINERS, "Pending") == (0, "510\n", "")


def test_an_account_that_may_not_list_pods_reads_what_to_do_and_names_are_tried(space: Space) -> None:
    code, out, err = space.tools("count_pods_by_phase", TRAINERS, "Failed", account="default")
    assert (code, out) == (1, "")
    assert "403" in err
    assert "kubectl apply -k deploy/pod-reader" in err
    assert "until then pods are found by DNS" in err


def fluid(space: Space, role: str, pod: str, entry: str) -> subprocess.Popen[str]:
    environment = pod_environment(space.folder, entry) | space.environment(pod)
    environment |= {"PADDLE_TRAINING_ROLE": role, "PADDLE_PSERVERS_NUM": "2", "PADDLE_TRAINERS_NUM": "2"}
    return subprocess.Popen(
        [*PADDLE_K8S, "start_fluid"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


TELL = "echo launched $PADDLE_PSERVERS $PADDLE_TRAINER_IPS $PADDLE_TRAINER_ID $PADDLE_PSERVER_ID"


@pytest.mark.parametrize("role", ["TRAINER", "WORKER"])
def test_a_trainer_learns_of_all_pods_once_all_run(space: Space, role: str) -> None:
    space.add(*(make_pod(f"j-pserver-{i}", "paddle-job-pserver", i) for i in (1, 0)))
    space.add(make_pod("j-trainer-1", "paddle-job", 1))
    process = fluid(space, role, "j-trainer-1", TELL)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines[0] == "waiting for 2 running pods (selector paddle-job-pserver=j)\n"
    assert lines[1:] == [
        "waiting for 2 running pods (selector paddle-job=j)\n",
        "1 of 2 pods are running; checking again in 5 s\n",
    ]
    space.add(make_pod("j-trainer-0", "paddle-job", 0))
    out, err = process.communicate(timeout=60)
    pservers = ",".join(f"{space.ip(f'j-pserver-{i}')}:{7164 + i}" for i in range(2))
    trainers = ",".join(space.ip(f"j-trainer-{i}") for i in range(2))
    assert (process.returncode, err) == (0, "")
    assert f"launched {pservers} {trainers} 1 1\n" in out


def test_a_pserver_waits_for_pservers_only(space: Space) -> None:
    space.add(*(make_pod(f"j-pserver-{i}", "paddle-job-pserver", i) for i in (0, 1)))
    process = fluid(space, "PSERVER", "j-pserver-1", TELL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"launched {space.ip('j-pserver-0')}:7164,{space.ip('j-pserver-1')}:7165 1 1\n" in out


def test_too_many_failures_do_not_read_as_success(space: Space) -> None:
    space.add(*(make_pod(f"j-pserver-{i}", "paddle-job-pserver", i) for i in (0, 1)))
    space.add(*(make_pod(f"j-trainer-{i}", "paddle-job", i) for i in range(4)))
    space.fail("j-trainer-2")
    process = fluid(space, "TRAINER", "j-trainer-1", "exit 0")  # one may fail
    process.communicate(timeout=60)
    assert process.returncode == 0
    space.fail("j-trainer-3")
    process = fluid(space, "TRAINER", "j-trainer-1", "touch ran")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "job j: the number of failed trainers is above the limit of 1" in err
    assert "above the limit of 1" in termination_log(space.folder)
    assert not (space.folder / "ran").exists()


def test_a_gang_trainer_gets_the_variables_that_the_original_set(space: Space) -> None:
    space.add(*(make_pod(f"j-pserver-{i}", "paddle-job-pserver", i) for i in (0, 1)))
    space.add(*(make_pod(f"j-trainer-{i}", "paddle-job", i) for i in (0, 1)))
    environment = pod_environment(space.folder, "echo launched $PADDLE_INIT_PSERVERS $PADDLE_INIT_TRAINER_ID; pwd")
    environment |= space.environment("j-trainer-1")
    begun_s = time.monotonic()
    done = subprocess.run(
        [*PADDLE_K8S, "start_trainer", "v2"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert f"launched {space.ip('j-pserver-0')},{space.ip('j-pserver-1')} 1\n{space.folder}\n" in done.stdout
    assert time.monotonic() - begun_s < 20
