"""A serving pod that grows in place on a full node gets its capacity from the trainers of that node."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.pod_log import PodLog

WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"deferred-{i}", {"cpu": "8", "memory": "32Gi", "pods": "110"}) for i in range(2))
DEFERRED = "edl.test/resize"
WEB = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "annotations": {DEFERRED: "Deferred"}},
    "spec": {
        "containers": [
            {"name": "web", "image": "example/web", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
        ]
    },
}


def granted(here: World) -> str:
    """The CPU that the kubelet has granted the serving pod."""
    (container,) = here.kube.get("pods", "web")["status"]["containerStatuses"]
    return str(container["resources"]["requests"]["cpu"])


def test_trainers_of_its_node_end_for_a_resize_that_the_kubelet_defers(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = World(control_plane(nodes=NODES))
    with here.controller:
        here.submit(training_job("full", min_trainers=1, max_trainers=20))
        here.kube.wait_until(lambda: here.running("full") == 15, WITHIN_S, "the job fills both nodes")
        here.kube.create(WEB)
        here.kube.wait_until(lambda: here.running("full") == 14, WITHIN_S, "the pod costs one trainer")
        here.kube.wait_until(
            lambda: here.kube.get("pods", "web")["status"]["phase"] == "Running", WITHIN_S, "it runs"
        )
        node = here.kube.get("pods", "web")["spec"]["nodeName"]
        before = {pod["metadata"]["name"] for pod in here.pods() if pod["spec"].get("nodeName") != node}
        with PodLog(here.kube) as log:
            more = {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "3"}
            here.kube.patch("pods", "web", [more], subresource="resize")
            here.kube.wait_until(lambda: here.running("full") == 12, WITHIN_S, "two trainers make way")
            assert log.causes().total() == 2
        assert granted(here) == "1"
        here.kube.annotate("pods", "web", resize=None)
        here.kube.wait_until(lambda: granted(here) == "3", WITHIN_S, "the kubelet tries again, and grants it")
        here.wait_full(WITHIN_S)
        assert here.running("full") == 12
        assert before <= {pod["metadata"]["name"] for pod in here.pods()}, "no trainer of the other node ended"
