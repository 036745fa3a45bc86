"""A job whose master finds an empty journal: the tests run the command that the controller writes into the pod."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edl.api.pods import MasterJournal, pod_manifest
from edl.api.template import JOURNAL_DIRECTORY, TOKEN_DIRECTORY
from edl.api.v1 import parse_job
from edl.model.actions import CreatePod
from edl.model.names import Role
from edl.model.status import JobPhase
from tests.kube.writer_on_fake_api import training_job
from tests.lifecycle.test_data_progress import hear, report
from tests.worlds.job_by_spec import MASTER, Life, fault_tolerant
from tests.worlds.master_processes import CONTROLLER_TOKEN, TOKEN, free_port

DATASET = {"source": "index:100", "epochs": 3, "shardSize": 10}


def run_by_hand(action: CreatePod, folder: Path, port: int, **dataset: Any) -> list[str]:
    """The command of the master in its pod, with the paths and the address of this machine."""
    (folder / "tokens").mkdir(exist_ok=True)
    (folder / "tokens" / "trainer").write_text(TOKEN)
    (folder / "tokens" / "controller").write_text(CONTROLLER_TOKEN)
    job = parse_job(training_job(dataset={**DATASET, **dataset}))
    pod = pod_manifest(
        job,
        Role.MASTER,
        0,
        default_master_image="edl:1",
        priority_classes=(),
        journal=MasterJournal(expected=action.expected, restarts_epoch=action.restarts_epoch),
    )
    (container,) = pod["spec"]["containers"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    places = {TOKEN_DIRECTORY: str(folder / "tokens"), JOURNAL_DIRECTORY: str(folder / "journal")}
    command: list[str] = container["command"]
    for inside, here in places.items():
        command = [word.replace(inside, here) for word in command]
    command = [word.replace("0.0.0.0:8080", f"127.0.0.1:{port}") for word in command]
    return [sys.executable, "-c", "from edl.cli.main import main; main()", *command[1:]]


def lost_master(**fields: Any) -> tuple[Life, CreatePod]:
    """A job that was at position 40 of epoch 1 when its master was lost, and the pod that replaces the master."""
    life = fault_tolerant(**fields)
    hear(life, report(40))
    life.settle(2)
    life.world.drop(life.key, "a-master-0")
    life.settle(3)
    return life, [a for a in life.world.writes if isinstance(a, CreatePod) and a.role is Role.MASTER][-1]


def test_a_master_without_its_journal_exits_and_the_job_fails_with_its_message(tmp_path: Path) -> None:
    life, action = lost_master()
    command = run_by_hand(action, tmp_path, free_port())
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    life.world.change(life.key, "a-master-0", ready=False, container_message=done.stderr)
    life.settle(3)
    assert (life.phase, life.status.reason) == (JobPhase.FAILED, "LedgerLost")
    assert "40 positions of epoch 1" in life.condition("Failed").message


def test_a_master_that_is_allowed_to_restarts_the_epoch(tmp_path: Path) -> None:
    _, action = lost_master(restarts_epoch=True)
    port = free_port()
    log = tmp_path / "log"
    with log.open("wb") as stream:
        command = run_by_hand(action, tmp_path, port, onLedgerLost="RestartEpoch")
        process = subprocess.Popen(command, stderr=stream)
    try:
        found = status_of(tmp_path, port)
        assert (found["epoch"], found["done"], found["dataset"]["epochs"]) == (1, 0, 3)
    finally:
        process.kill()
        process.wait()


def status_of(folder: Path, port: int) -> dict[str, Any]:
    command = [sys.executable, "-c", "from edl.cli.main import main; main()", "master", "status"]
    command += [f"http://127.0.0.1:{port}", "--token-file", str(folder / "tokens" / "trainer"), "-o", "json"]
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout)
            return found
        time.sleep(0.1)
    raise AssertionError(done.stderr)


@pytest.mark.parametrize("said", ["Fail", "RestartEpoch"])
def test_the_first_master_of_a_job_may_always_start(tmp_path: Path, said: str) -> None:
    life = fault_tolerant(fixed=(MASTER,), restarts_epoch=said == "RestartEpoch")
    (action,) = [a for a in life.world.writes if isinstance(a, CreatePod) and a.role is Role.MASTER]
    assert "--expect-progress" not in run_by_hand(action, tmp_path, 1, onLedgerLost=said)
