"""The controller, a real API server, and the job's master as a process at the address of its pod."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds.harness import Object, World
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.real_master import PretendTrainer, RealMaster

TTL_S = 30.0
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "journals"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/journals"},
        "persistentVolumeReclaimPolicy": "Retain",
    },
}


def sharded(name: str, *, durable: bool = False, **spec: Any) -> Object:
    """A job of two trainers whose master shards sixty records, ten at a time."""
    dataset = {"source": "index:60", "shardSize": 10}
    master = {"storage": {"size": "1Gi", "storageClassName": ""}} if durable else {}
    return training_job(name, min_trainers=2, max_trainers=2, dataset=dataset, master=master, **spec)


def status(here: World, name: str) -> Object:
    """What stands in the job's status."""
    return here.kube.get("tj", name).get("status") or {}


def condition(here: World, name: str, kind: str) -> Object:
    """One of its conditions."""
    return next((c for c in status(here, name).get("conditions", []) if c["type"] == kind), {})


def progress(here: World, name: str) -> tuple[int, int, int]:
    """(epoch, done, total) as the status says it."""
    dataset = status(here, name).get("dataset") or {}
    return dataset.get("epoch", -1), dataset.get("done", -1), dataset.get("total", -1)


def test_a_job_with_a_real_master_from_its_first_lease_to_its_end(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0), "--interval-s", "1")
    here.kube.apply(VOLUME)
    with here.controller:
        here.submit(sharded("a", durable=True))
        here.kube.wait_until(lambda: status(here, "a").get("phase") == "Running", 30, "the job runs")
        with RealMaster(here.kube, "a", tmp_path / "a", "127.77.0.1") as master:
            assert {"--dataset", "--controller-token-file", "--token-file"} <= set(master.command())
            here.kube.wait_until(lambda: progress(here, "a") == (0, 0, 60), 15, "the master was heard")
            assert condition(here, "a", "Degraded")["status"] == "False", "its journal is on a volume"
            one, two = (PretendTrainer(master, f"a-trainer-{i}") for i in (0, 1))
            one.sync(6)
            assert len(one.leases) == 6
            began_s = time.monotonic()
            here.kube.delete("pods", "a-trainer-0", grace_s=0)
            answer = two.sync(2, 20.0)
            took_s = time.monotonic() - began_s
            assert len(answer["leases"]) == 2
            assert took_s < TTL_S / 3, f"{took_s:.1f} s"
            print(f"leases of a deleted pod were given out again after {took_s:.2f} s; the TTL is {TTL_S:g} s")
            two.work()
            here.kube.wait_until(lambda: progress(here, "a") == (0, 20, 60), 15, "the status shows progress")
            here.kube.wait_until(lambda: here.running("a") == 2, 15, "the trainer is replaced")
            while two.work()["status"] != "job_end":
                pass
            here.kube.wait_until(lambda: progress(here, "a") == (0, 60, 60), 15, "the data is at its end")
            for name in ("a-trainer-0", "a-trainer-1"):
                here.kube.annotate("pods", name, exit_code="0")
            here.kube.wait_until(lambda: status(here, "a").get("phase") == "Succeeded", 15, "the job is complete")
            assert progress(here, "a") == (0, 60, 60)


def test_a_lost_pserver_takes_the_accounts_back_and_a_lost_journal_fails_the_job(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0), "--interval-s", "1")
    amounts = {"cpu": "500m", "memory": "512Mi"}
    pserver = {"min-instance": 1, "max-instance": 1, "resources": {"requests": amounts, "limits": amounts}}
    with here.controller:
        here.submit(sharded("a", pserver=pserver))
        here.kube.wait_until(lambda: status(here, "a").get("phase") == "Running", 30, "the job runs")
        with RealMaster(here.kube, "a", tmp_path / "a", "127.77.0.2") as master:
            here.kube.wait_until(lambda: progress(here, "a") == (0, 0, 60), 15, "the master was heard")
            assert condition(here, "a", "Degraded")["reason"] == "LedgerNotDurable"
            one = PretendTrainer(master, "a-trainer-0")
            for _ in range(3):
                one.work()
            here.kube.wait_until(lambda: progress(here, "a")[1] > 0, 15, "the status shows progress")
            model = status(here, "a")["dataset"]["model"]
            here.kube.delete("pods", "a-pserver-0", grace_s=0)
            here.kube.wait_until(
                lambda: status(here, "a")["dataset"].get("model") not in {model, None}, 30, "other pservers hold it"
            )
            assert master.ask("GET", "/v1/status")["done"] == 0, "no checkpoint was committed: the epoch begins again"
            while not one.leases:
                one.sync(1, 2.0)
            one.work()
            here.kube.wait_until(lambda: progress(here, "a")[1] == 10, 15, "training goes on")
        here.kube.delete("pods", "a-master-0", grace_s=0)
        here.kube.wait_until(lambda: expectation(here, "a") == "0:10", 30, "the next master must find that much")
        said = "edl: LedgerLost: the journal is empty, but 10 positions of epoch 0 were done; put the journal back"
        here.kube.annotate("pods", "a-master-0", exit_code="1", exit_message=said)
        here.kube.wait_until(lambda: status(here, "a").get("phase") == "Failed", 15, "the job fails")
        assert status(here, "a")["reason"] == "LedgerLost"
        assert "10 positions of epoch 0" in condition(here, "a", "Failed")["message"]


def expectation(here: World, name: str) -> str:
    """What the pod of the master says that its journal must hold."""
    found = here.kube.find("pods", f"{name}-master-0")
    words: list[str] = found["spec"]["containers"][0]["command"] if found else []
    return words[words.index("--expect-progress") + 1] if "--expect-progress" in words else ""
