"""A PyTorchJob with the real torchrun under the real training operator; `make kubeflow-torch` runs this."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edl.sandbox.stack import free_port
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds.jobs import serving
from tests.kubeflow.process_nodes import process_node
from tests.kubeflow.programs import kubeflow_on
from tests.kubeflow.scene import Object, Scene

pytestmark = pytest.mark.cluster("the training operator runs on a real control plane only")
SCRIPT = Path(__file__).with_name("elastic_train.py")
SEPARATE_STORE = {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"}
"""Without it a newcomer of PyTorch 2.15 waits for an address that those who are there do not tell again."""
EPOCHS = 3
"""So many epochs are waited for at each size."""


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[Scene]:
    """A node of seven cpus whose pods are processes, the training operator, and edl's controller."""
    with ExitStack() as stack:
        plane = control_plane(nodes=())
        kubeflow = stack.enter_context(kubeflow_on(plane))
        stack.enter_context(process_node(plane, cpu="7"))
        yield stack.enter_context(Scene(plane, kubeflow))


def torchrun(here: Scene, folder: Path) -> Object:
    """The sample with the script in a ConfigMap, the folder of its checkpoints, and one process in each worker."""
    job = here.sample(spec={"nprocPerNode": "1"})
    script = {"train.py": SCRIPT.read_text()}
    here.kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script"}, "data": script})
    job["spec"]["elasticPolicy"]["rdzvPort"] = free_port()
    spec = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = spec["containers"]
    container |= {
        "image": "python",
        "command": ["python", "-m", "torch.distributed.run", "/workspace/train.py", "/checkpoints"],
        "volumeMounts": [
            {"name": "script", "mountPath": "/workspace"},
            {"name": "checkpoints", "mountPath": "/checkpoints"},
        ],
    }
    container["env"] = [SEPARATE_STORE]
    spec["volumes"] = [
        {"name": "script", "configMap": {"name": "script"}},
        {"name": "checkpoints", "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"}},
    ]
    return job


def figures(folder: Path) -> list[dict[str, Any]]:
    """What the script has reported, epoch by epoch."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def container_restarts(here: Scene) -> int:
    """How often the kubelet has started containers of the job again."""
    found = (one for pod in here.pods() for one in pod["status"].get("containerStatuses") or ())
    return sum(one["restartCount"] for one in found)


@pytest.mark.timeout(1800)
def test_torchrun_trains_on_with_two_six_and_three_workers_and_its_script_is_unmodified(
    here: Scene, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"

    def wait_epochs(world: int) -> None:
        here.wait(lambda: [one["world"] for one in figures(folder)][-EPOCHS:] == [world] * EPOCHS, f"{world} train")

    web = serving(replicas=5, cpu="1", memory="1Gi")
    web["spec"]["template"]["spec"]["containers"][0]["image"] = "pause"
    here.kube.create(web)
    here.wait(lambda: here.world.ready_serving() == 5, "serving leaves two cpus")
    here.kube.create(torchrun(here, folder))
    here.wait_workers(2)
    wait_epochs(2)
    first = here.workers()
    here.kube.scale("deployments", "web", 0)
    here.wait_workers(6)
    wait_epochs(6)
    second = here.workers()
    here.kube.scale("deployments", "web", 4)
    here.wait_workers(3)
    wait_epochs(3)
    assert first.items() <= second.items() >= here.workers().items(), "no worker started again"
    assert container_restarts(here) == 0, "torchrun starts the script again, and nobody starts torchrun again"
    found = figures(folder)
    epochs = [one["epoch"] for one in found]
    assert epochs == list(range(len(found))), "each epoch once, in order: the training went on from its checkpoint"
    assert found[-1]["loss"] < found[0]["loss"] / 10
    assert not {"Failed", "Succeeded"} & here.conditions(), "a worker that goes neither ends nor fails the job"
    assert "NotResized" not in here.events()
    here.patch({"metadata": {"annotations": {"paddlepaddle.org/min-instance": "1"}}})
    here.wait(lambda: "NotResized" in here.events(), "torchrun would wait for its two")
    here.kube.scale("deployments", "web", 0)
    wait_epochs(3)
    assert here.replicas() == 3, "a job that edl refuses keeps its count"
    print(json.dumps(found))
