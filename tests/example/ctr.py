"""Runs example/ctr on Paddle's own parameter servers: on this machine and in a sandbox, with kills; `make ctr`.

Paddle is too large for every run of the tests. Its release 3.0.0 is needed: later wheels have no parameter server.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from example.fit_flights.local import LocalJob, Plan, Process
from tests.e2e.control_plane.kube import Kube
from tests.sandbox.sandboxes import sandbox

ROOT = Path(__file__).parents[2]
RECORDS = 180_000
PODS = "paddlepaddle.org/job=ctr"
AUC = re.compile(r"^AUC ([0-9.]+) on ", re.MULTILINE)
GOOD = 0.82


class LocalCtr(LocalJob):
    """The job on this machine: trainers get a number, as in pods."""

    def _start(self, name: str, command: list[str], role: dict[str, str]) -> Process:
        return super()._start(name, command, {**role, "PADDLE_TRAINER_ID": name.rpartition("-")[2]})


def local(folder: Path, kills: int) -> float:
    """Train on this machine; returns the AUC that the saved model has afterwards."""
    folder.mkdir()
    environment = {"CTR_OUTPUT": str(folder / "model")}
    plan = Plan(kills=kills, trainers=2, records=RECORDS, module="example.ctr.train", environment=environment)
    with LocalCtr(folder, plan) as job:
        result = job.run()
    (epoch,) = result.audit["epochs"]
    found = predicted(folder / "model")
    print(
        f"local: AUC {found:.4f} after {result.seconds:.0f} s, {result.trainer_kills} trainers killed; audit"
        f" {'ok' if result.audit['ok'] else 'BROKEN'}: {epoch['done']} of {epoch['total']} done,"
        f" {epoch['redispatched']} dispatched again",
        flush=True,
    )
    return found if result.audit["ok"] and epoch["done"] == RECORDS else 0.0


def predicted(folder: Path) -> float:
    """The AUC of the saved model, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "example.ctr.predict", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (found,) = AUC.findall(done.stdout)
    return float(found)


def job_in(folder: Path) -> dict[str, Any]:
    """The job of the example, with its model in another folder."""
    job: dict[str, Any] = yaml.safe_load((ROOT / "example" / "ctr" / "job.yaml").read_text())
    job["spec"]["trainer"]["template"]["spec"]["volumes"][0]["hostPath"]["path"] = str(folder)
    return job


def logs_of(kube: Kube) -> str:
    """What `edl logs` prints of the trainers."""
    command = [str(Path(sys.executable).with_name("edl")), "logs", "ctr", "--kubeconfig", str(kube.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout


def process_of(pod: str) -> int:
    """The Python process of a pod that trains or serves.

    Raises:
        LookupError: there is none.
    """
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            mine = f"POD_NAME={pod}".encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mine and b"ctr.train" in words and b"-c" not in words:
            return int(entry.name)
    raise LookupError(pod)


def in_sandbox(folder: Path, victim: str) -> float:
    """Apply the job's YAML in a sandbox and kill a process; returns the AUC of its model once the job is deleted."""
    with sandbox(folder / "sandbox", "--nodes", "2", "--cpu", "4", "--memory", "16Gi") as kube:
        kube.create(job_in(folder / "model"))
        kube.wait_until(lambda: "batches: cost" in logs_of(kube), 300, "it trains")
        os.kill(process_of(victim), signal.SIGKILL)
        kube.wait_until(lambda: phase(kube) == "Succeeded", 600, "the job succeeds")
        status = kube.get("trainingjobs", "ctr")["status"]
        kube.delete("trainingjobs", "ctr")
        kube.wait_until(lambda: not kube.list("pods", labels=PODS), 60, "its pods are gone")
    found = predicted(folder / "model")
    done = status["dataset"]
    print(
        f"sandbox: AUC {found:.4f} after the loss of {victim}; {done['done']} of"
        f" {done['total']} records done, {status.get('failures', 0)} failures",
        flush=True,
    )
    return found


def phase(kube: Kube) -> str:
    """The phase of the job."""
    return str(kube.get("trainingjobs", "ctr")["status"]["phase"])


def main() -> int:
    """Every run; 1 if a record is lost or a model is bad."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = [local(folder / "quiet", 0), local(folder / "kills", 4)]
        for victim in ("ctr-trainer-1", "ctr-pserver-1"):
            (folder / victim).mkdir()
            found.append(in_sandbox(folder / victim, victim))
    return int(min(found) < GOOD)


if __name__ == "__main__":
    sys.exit(main())
