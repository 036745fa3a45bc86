"""Install, drain, upgrade and uninstall with the commands of docs/operations.md; nothing is left behind.

kwok plays the controller's pods: what is judged here is what the API server and its controllers make of the files.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import NAMESPACE, ROOT
from tests.e2e.worlds.jobs import training_job

FILE = str(ROOT / "deploy" / "edl_controller.yaml")
NAME = "training-job-controller"
# Kind -> what a name of ours begins with.
OURS = {
    "customresourcedefinitions": "trainingjobs.paddlepaddle.org",
    "clusterroles": "edl-",
    "clusterrolebindings": NAME,
    "priorityclasses": "edl-",
    "validatingadmissionpolicies": "trainingjobs.paddlepaddle.org",
    "validatingadmissionpolicybindings": "trainingjobs.paddlepaddle.org",
    "namespaces": NAMESPACE,
}


@pytest.mark.cluster("kubectl")
def test_install_drain_upgrade_and_uninstall(control_plane: Callable[..., ControlPlane]) -> None:
    kube = control_plane(mix="small").kube
    kube.kubectl("create", "-f", FILE)
    kube.wait_until(lambda: ready(kube) == 2, 60, "both replicas pass admission and are ready")
    kube.wait_until(lambda: allowed(kube) == 1, 20, "one of them may be taken away")
    first, second = (pod["metadata"]["name"] for pod in kube.list("pods", NAMESPACE))
    evict(kube, first)
    with pytest.raises(KubeError, match="disruption budget"):
        evict(kube, second)
    kube.wait_until(lambda: ready(kube) == 2, 60, "the evicted one is replaced")
    before = present(kube)
    kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", FILE)
    assert {pod["metadata"]["uid"] for pod in kube.list("pods", NAMESPACE)} == before, (
        "the same version changes nothing"
    )
    kube.create(training_job("a"))
    kube.kubectl("delete", "tj", "-A", "--all")
    # A controller that runs watches both kinds. Nobody does here, and an API server that opens a kind only to delete
    # all of it may answer itself that its storage initialises, and then tries again later and later.
    kube.kubectl("get", "queues.paddlepaddle.org")
    kube.kubectl("delete", "-f", FILE, "--timeout=180s", timeout_s=200)
    kube.wait_until(lambda: not left_over(kube), 60, "nothing of edl is left")


def present(kube: Kube) -> set[str]:
    """The replicas of the controller that are to stay, by UID."""
    return {pod["metadata"]["uid"] for pod in kube.list("pods", NAMESPACE) if not facts.is_terminating(pod)}


def ready(kube: Kube) -> int:
    """Replicas of the controller that are ready."""
    return sum(map(facts.is_ready, kube.list("pods", NAMESPACE)))


def allowed(kube: Kube) -> int:
    """How many of them the disruption budget lets go now."""
    return int((kube.get("poddisruptionbudgets", NAME, NAMESPACE).get("status") or {}).get("disruptionsAllowed", 0))


def evict(kube: Kube, name: str) -> None:
    """Ask for an eviction as `kubectl drain` does."""
    path = kube.resource("pods").path(NAMESPACE, name, "eviction")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
    kube.request("POST", path, body=body)


def left_over(kube: Kube) -> list[str]:
    """What of edl is still in the cluster."""
    return [
        f"{kind}/{name}"
        for kind, start in OURS.items()
        for name in (item["metadata"]["name"] for item in kube.list(kind))
        if name.startswith((start, NAME))
    ]
