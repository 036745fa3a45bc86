"""The job of example/torch_elastic in a sandbox, from its YAML to the trained model; `make torch-test` runs this."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import yaml

from example.torch_elastic.train import fingerprint, network
from tests.e2e.control_plane.kube import Kube
from tests.sandbox.sandboxes import sandbox

ROOT = Path(__file__).parents[2]
NAME = "torch-elastic"
ENDING = re.compile(r"accuracy (\S+) .* weights (\w+);")


def job_in(models: Path) -> dict[str, Any]:
    """The job of the example, with its models in another folder and with steps that take a tenth of a second."""
    job: dict[str, Any] = yaml.safe_load((ROOT / "example" / "torch_elastic" / "job.yaml").read_text())
    template = job["spec"]["trainer"]["template"]["spec"]
    template["volumes"][0]["hostPath"]["path"] = str(models)
    template["containers"][0]["env"].append({"name": "STEP_S", "value": "0.1"})
    return job


def trainers_of(kube: Kube) -> set[str]:
    """The trainers that run and are ready."""
    pods = kube.list("pods", "default", labels=f"paddlepaddle.org/job={NAME},paddlepaddle.org/role=trainer")
    live = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])
    return {
        pod["metadata"]["name"]
        for pod in live
        if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or ())
    }


def process_of(pod: str) -> int:
    """The Python process of a trainer."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            mine = f"POD_NAME={pod}".encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mine and b"torch_elastic.train" in words and b"-c" not in words:
            return int(entry.name)
    raise AssertionError(f"pod {pod} has no process")


def logs_of(kube: Kube, role: str) -> str:
    """What `edl logs` prints."""
    command = [str(Path(sys.executable).with_name("edl")), "logs", NAME, "--role", role]
    command += ["--kubeconfig", str(kube.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_job_of_the_example_trains_to_its_end_and_its_model_outlives_its_pods(tmp_path: Path) -> None:
    models = tmp_path / "models"
    with sandbox(tmp_path / "sandbox", "--nodes", "2", "--cpu", "4") as kube:
        kube.create(job_in(models))
        kube.scale("trainingjobs", NAME, 2)
        kube.wait_until(lambda: len(trainers_of(kube)) == 2, 300, "two trainers run")
        kube.wait_until(lambda: list(models.glob("checkpoint-*.pt")), 300, "they train")
        kube.scale("trainingjobs", NAME, 3)
        kube.wait_until(lambda: len(trainers_of(kube)) == 3, 300, "a third trainer runs")
        assert f"[pod/{NAME}-master-0/master] " in logs_of(kube, "all")
        os.kill(process_of(f"{NAME}-trainer-0"), signal.SIGKILL)

        def phase() -> str:
            return str(kube.get("trainingjobs", NAME)["status"]["phase"])

        kube.wait_until(lambda: phase() == "Succeeded", 900, "the job succeeds")
        endings = ENDING.findall(logs_of(kube, "trainer"))
        kube.delete("trainingjobs", NAME)
        kube.wait_until(lambda: not kube.list("pods", labels="paddlepaddle.org/job"), 60, "its pods are gone")
    trained = network()
    trained.load_state_dict(torch.load(models / "model.pt", weights_only=True))
    assert {weights for _, weights in endings} == {fingerprint(trained)}
    assert all(float(accuracy) > 0.9 for accuracy, _ in endings)
