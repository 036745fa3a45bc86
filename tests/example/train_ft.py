"""Runs example/train_ft.py with kills, and example/examplejob.yaml in a sandbox; `make train-ft`.

Paddle is too large for every run of the tests. The data are those that the image has, too: example/digits.py.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from example.digits import TRAIN, write_all
from example.fit_flights.local import LocalJob, Plan
from tests.e2e.control_plane.kube import Kube
from tests.sandbox.sandboxes import sandbox

ROOT = Path(__file__).parents[2]
PASSES, GOOD = 4, 0.85


def local(folder: Path, data: Path) -> bool:
    """Train with two trainers and four kills; False if a record is lost or the network does not learn."""
    folder.mkdir()
    environment = {"DATASET_PATH": str(data), "PADDLE_INIT_NUM_PASSES": str(PASSES)}
    plan = Plan(trainers=2, kills=4, records=TRAIN, epochs=PASSES, module="example.train_ft", environment=environment)
    with LocalJob(folder, plan) as job:
        result = job.run()
    done = [epoch["done"] for epoch in result.audit["epochs"]]
    print(
        f"audit ok: {result.audit['ok']}, done per pass: {done}, {result.trainer_kills} trainers killed", flush=True
    )
    return result.audit["ok"] and done == [TRAIN] * PASSES and best(list(result.logs.values())) > GOOD


def best(logs: list[str]) -> float:
    """Print the tests after each pass, and return the best accuracy."""
    tests = [line for text in logs for line in text.splitlines() if "Test with" in line]
    print(*tests, sep="\n", flush=True)
    return max((float(line.rpartition(" ")[2]) for line in tests), default=0.0)


def in_sandbox(folder: Path, data: Path) -> bool:
    """Apply the job's YAML in a sandbox, with fewer passes; False if it fails or the network does not learn."""
    job = yaml.safe_load((ROOT / "example" / "examplejob.yaml").read_text())
    job["spec"]["trainer"]["passes"] = PASSES
    for role in ("trainer", "pserver"):
        place = {"name": role, "env": [{"name": "DATASET_PATH", "value": str(data)}]}
        job["spec"][role]["template"] = {"spec": {"containers": [place]}}
    with sandbox(folder, "--nodes", "2", "--cpu", "2", "--memory", "8Gi") as kube:
        kube.create(job)
        kube.wait_until(lambda: phase(kube) in {"Succeeded", "Failed"}, 1200, "the job ends")
        print(f"sandbox: {phase(kube)}: {kube.get('trainingjobs', 'example')['status'].get('explanation')}")
        command = [
            str(Path(sys.executable).with_name("edl")),
            "logs",
            "example",
            "--kubeconfig",
            str(kube.kubeconfig),
        ]
        logs = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout
        return phase(kube) == "Succeeded" and best([logs]) > GOOD


def phase(kube: Kube) -> str:
    """The phase of the job; empty while it has none."""
    return str(kube.get("trainingjobs", "example").get("status", {}).get("phase", ""))


def main() -> int:
    """Train on this machine and in a sandbox; 1 if one of both is not good."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        write_all(data)
        good = [local(Path(name) / "local", data), in_sandbox(Path(name) / "sandbox", data)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
