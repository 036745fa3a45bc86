"""What tests on real kubelets rely on: names, Services, logs, exec, exit codes, and kubelets that stop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.e2e.control_plane.report import is_ready
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.real.cluster.images import BASE_IMAGE
from tests.real.cluster.running import RealCluster

Object = dict[str, Any]
GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).status)"
EAT_MEMORY = "kept = [bytearray(1 << 20) for _ in range(400)]"
POD_S = 60.0


def pod(name: str, *command: str, resources: Object | None = None, **spec: Any) -> Object:
    """A pod of the base image that is never started again."""
    container = {"name": "main", "image": BASE_IMAGE, "command": list(command), "resources": resources or {}}
    body = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": body}


def service(name: str, **spec: Any) -> Object:
    """A Service before the pod `web`."""
    body = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": body}


def phase(cluster: RealCluster, name: str) -> str:
    return str(cluster.kube.get("pods", name)["status"]["phase"])


def terminated(cluster: RealCluster, name: str) -> Object:
    """How the only container of a pod ended; nothing while it runs."""
    statuses = cluster.kube.get("pods", name)["status"].get("containerStatuses") or [{}]
    ended: Object = statuses[0].get("state", {}).get("terminated", {})
    return ended


def answers(cluster: RealCluster, name: str) -> bool:
    """Whether a command runs in a pod."""
    with suppress(ControlPlaneError):
        return cluster.exec(name, "echo", "here").strip() == "here"
    return False


@pytest.fixture(scope="module")
def web(real_cluster: RealCluster) -> Iterator[RealCluster]:
    """A web server, a client on the node that kube-proxy calls its own, and two Services before the server."""
    serve = ("python3", "-u", "-m", "http.server", "8000")
    bodies = [
        pod("web", *serve, nodeName="node-2", hostname="first", subdomain="tier"),
        pod("client", "sleep", "3600", nodeName="node-1"),
        service("shop"),
        service("tier", clusterIP="None"),
    ]
    for body in bodies:
        real_cluster.kube.create(body)
    running = {"web", "client"}
    real_cluster.kube.wait_until(
        lambda: {name for name in running if phase(real_cluster, name) == "Running"} == running,
        POD_S,
        f"{running} run",
    )
    yield real_cluster
    for body in bodies:
        real_cluster.kube.delete(body["kind"], body["metadata"]["name"])


@pytest.mark.parametrize("url", ["http://shop/", "http://tier:8000/", "http://first.tier.default.svc:8000/"])
@pytest.mark.parametrize("source", ["client", "web"])
def test_a_service_answers_by_name_from_the_other_node_and_from_its_own_pod(
    web: RealCluster, source: str, url: str
) -> None:
    # kube-proxy and the name server may learn of a Service a second after it was made.
    attempt = f"for i in 1 2 3 4 5 6 7 8 9; do python3 -c '{GET}' {url} && exit; sleep 1; done"
    assert web.exec(source, "sh", "-c", attempt).split()[-1] == "200"


def test_the_log_of_a_container_tells_what_it_served(web: RealCluster) -> None:
    address = web.kube.get("pods", "web")["status"]["podIP"]
    web.exec("client", "python3", "-c", GET, f"http://{address}:8000/?who=client")
    assert '"GET /?who=client HTTP/1.1" 200' in web.kubectl("logs", "web")


def test_a_name_that_does_not_exist_is_answered_as_such(web: RealCluster) -> None:
    look_up = "import socket; socket.getaddrinfo('second.tier', 80)"
    said = web.exec("client", "sh", "-c", f'python3 -c "{look_up}" 2>&1 || true')
    assert "Name or service not known" in said or "No address associated with hostname" in said


def test_no_pod_reaches_anything_outside_the_cluster(web: RealCluster) -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    said = web.exec("client", "sh", "-c", f'python3 -c "{connect}" 2>&1 || true')
    assert "Network is unreachable" in said


def test_a_container_over_its_memory_is_killed_and_says_so(real_cluster: RealCluster) -> None:
    little = {"limits": {"memory": "32Mi", "cpu": "200m"}}
    real_cluster.kube.create(pod("greedy", "python3", "-c", EAT_MEMORY, resources=little))
    ended = real_cluster.kube.wait_until(lambda: terminated(real_cluster, "greedy"), POD_S, "greedy has ended")
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    real_cluster.kube.delete("pods", "greedy")


def test_a_killed_container_ends_with_137(real_cluster: RealCluster) -> None:
    real_cluster.kube.create(pod("victim", "sleep", "3600"))
    real_cluster.kube.wait_until(lambda: phase(real_cluster, "victim") == "Running", POD_S, "victim runs")
    real_cluster.kill_container("victim")
    ended = real_cluster.kube.wait_until(lambda: terminated(real_cluster, "victim"), POD_S, "victim has ended")
    assert ended["exitCode"] == 137
    real_cluster.kube.delete("pods", "victim")


def test_a_stopped_kubelet_leaves_its_containers_running_and_takes_them_up_again(web: RealCluster) -> None:
    def ready() -> bool:
        return is_ready(web.kube.get("nodes", "node-2"))

    before = web.kube.get("pods", "web")["status"]["containerStatuses"][0]["containerID"]
    web.stop_kubelet("node-2")
    web.kube.wait_until(lambda: not ready(), 30, "node-2 is not ready")
    address = web.kube.get("pods", "web")["status"]["podIP"]
    assert web.exec("client", "python3", "-c", GET, f"http://{address}:8000/").strip() == "200"
    began = time.monotonic()
    web.start_kubelet("node-2")
    web.kube.wait_until(ready, 30, "node-2 is ready again")
    print(f"node-2 was ready {time.monotonic() - began:.1f} s after its kubelet was started again")
    web.kube.wait_until(lambda: answers(web, "web"), 30, "the kubelet knows its pods again")
    assert web.kube.get("pods", "web")["status"]["containerStatuses"][0]["containerID"] == before


def test_a_cluster_fits_on_a_small_machine(web: RealCluster) -> None:
    assert web.memory_bytes() < 1.5e9
