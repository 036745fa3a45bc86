"""Disasters of objects, keys, clocks, nodes and versions; nothing of the data is lost."""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime
from pathlib import Path

from tests.drills.drill import JOB, RECORDS, WAIT_S, Drill, job
from tests.e2e.control_plane.kube import KubeError
from tests.e2e.worlds.harness import ROOT
from tests.e2e.worlds.real_master import PretendTrainer

TOLERANCE_S = 600.0
CRD = "trainingjobs.paddlepaddle.org"


def test_a_lost_key_costs_no_pod_and_no_record_and_a_copy_of_it_mends_all(drill: Drill) -> None:
    """Another key gives other tokens, which the running master refuses; its trainers keep theirs and train on."""
    controller, key = drill.world.controller, drill.plane.workdir / "key"
    copy, before = key.read_bytes(), drill.pods()
    controller.stop()
    key.unlink()
    controller.start()
    drill.wait_rounds()
    assert drill.pods() == before
    drill.train(RECORDS // 2)
    newcomer = replaced(drill)
    assert newcomer.sync(1)["status"] == "wait", "its name is not on the roster, which the master takes from nobody"
    controller.stop()
    key.write_bytes(copy)
    controller.start()
    drill.kube.wait_until(lambda: newcomer.sync(1)["leases"], WAIT_S, "the roster has its name")
    drill.workers[0] = newcomer
    drill.judge()


def replaced(drill: Drill) -> PretendTrainer:
    """Delete a trainer without grace; returns the one that replaces it."""
    drill.kube.delete("pods", f"{JOB}-trainer-0", grace_s=0)
    drill.wait_running()
    return PretendTrainer(drill.master, f"{JOB}-trainer-0")


def test_a_clock_that_steps_costs_no_pod_and_no_record(drill: Drill) -> None:
    """The clock of the controller's machine is an hour ahead, then an hour behind, while a trainer is replaced."""
    controller = drill.world.controller
    before = drill.pods()
    for offset_s in (3600, -3600):
        controller.stop()
        controller.environment = with_clock(drill.folder, offset_s)
        controller.start()
        drill.wait_rounds()
        assert abs(ahead_s(drill) - offset_s) < TOLERANCE_S, "the controller has that clock"
        assert drill.pods() == before, f"the clock is {offset_s} s ahead"
    drill.workers[0] = replaced(drill)
    drill.judge()


def ahead_s(drill: Drill) -> float:
    """By how much the clock of the controller is ahead, from the time of its last line."""
    last = drill.controller_log.splitlines()[-1]
    stamp = datetime.strptime(last.removeprefix("t=").split()[0], "%Y-%m-%dT%H:%M:%S%z")
    return stamp.timestamp() - time.time()


def with_clock(folder: Path, offset_s: int) -> dict[str, str]:
    """Variables with which Python's time of day is so many seconds ahead."""
    (folder / "clock").mkdir(exist_ok=True)
    shift = f"import time\n_now = time.time\ntime.time = lambda: _now() + ({offset_s})\n"
    (folder / "clock" / "sitecustomize.py").write_text(shift)
    return {"PYTHONPATH": f"{folder / 'clock'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}


def test_a_node_that_lies_about_its_capacity_costs_no_record(drill: Drill) -> None:
    """A node claims a hundred times its cores; its kubelet refuses what does not fit, as kubelets do."""
    before = drill.pods()
    lie = {"status": {"allocatable": {"cpu": "800"}, "capacity": {"cpu": "800"}}}
    drill.kube.patch("nodes", "small-0", lie, subresource="status")
    greedy = job()
    greedy["metadata"]["name"] = "greedy"
    greedy["spec"]["trainer"].update({"min-instance": 1, "max-instance": 60})
    drill.world.submit(greedy)
    drill.kube.wait_until(lambda: len(on_the_liar(drill)) > 8, WAIT_S, "pods go to the node that lies")
    for name in sorted(on_the_liar(drill))[8:12]:
        refusal = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
        drill.kube.patch("pods", name, {"status": refusal}, subresource="status")
    drill.wait_rounds()
    drill.kube.patch(
        "nodes", "small-0", {"status": {"allocatable": {"cpu": "8"}, "capacity": {"cpu": "8"}}}, subresource="status"
    )
    drill.wait_rounds()
    assert before.items() <= drill.pods().items()
    assert drill.kube.get("tj", "greedy")["status"]["phase"] != "Failed", "a refusal is no failure of the job"
    drill.judge()


def on_the_liar(drill: Drill) -> list[str]:
    pods = drill.kube.list("pods", "default", labels="paddlepaddle.org/job=greedy")
    return [p["metadata"]["name"] for p in pods if p["spec"].get("nodeName") == "small-0"]


def test_a_deleted_crd_ends_the_jobs_and_a_saved_job_goes_on_with_its_journal(drill: Drill) -> None:
    """Kubernetes deletes each job with its CRD. With the saved job and a copy of the journal, training goes on."""
    kube, saved, done = drill.kube, drill.kube.get("tj", JOB), drill.done()
    kube.delete("customresourcedefinitions", CRD)
    kube.wait_until(lambda: not drill.pods(), WAIT_S, "the pods end with their job")
    shutil.copytree(drill.folder / "master" / "journal", drill.folder / "copy" / "master" / "journal")
    kube.apply(ROOT / "deploy" / "crd" / "trainingjobs.yaml")
    kube.wait_until(lambda: create(drill, saved), WAIT_S, "the saved job is created again")
    drill.wait_running()
    assert drill.world.controller.is_alive(), "without a restart"
    drill.restart_master(drill.folder / "copy")
    assert drill.done() == done
    drill.judge()


def create(drill: Drill, saved: dict[str, object]) -> bool:
    """Create a saved job as `kubectl create` would; False while the resource is not served."""
    body = json.loads(json.dumps(saved))
    body["metadata"] = {"name": JOB, "namespace": "default"}
    body.pop("status", None)
    try:
        drill.kube.create(body)
    except KubeError as error:
        if error.code == 404:
            return False
        raise
    return True
