"""Disasters of the control plane itself: data of yesterday, and an API server of the next minor version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.drills.drill import JOB, RECORDS, WAIT_S, Drill
from tests.e2e.control_plane.build import ensure_previous_api_server
from tests.e2e.control_plane.cluster import API_SERVER
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.real_master import PretendTrainer

LOST = 600
"""Changes of the job that a restore undoes: more than all others write until the test has changed it again."""


@pytest.mark.cluster("restores the data of etcd")
def test_an_older_snapshot_of_etcd_costs_no_record(drill: Drill) -> None:
    """After the snapshot half of the data is done and a trainer is replaced; the restore brings its old pod back."""
    workdir, kept = drill.plane.workdir, drill.folder / "snapshot"
    stop_server(drill)
    shutil.copytree(workdir / "etcd", kept)
    start_server(drill)
    old = drill.trainers()
    drill.kube.delete("pods", f"{JOB}-trainer-0", grace_s=0)
    drill.wait_running()
    drill.workers[0] = PretendTrainer(drill.master, f"{JOB}-trainer-0")
    drill.train(RECORDS // 2)
    stop_server(drill)
    shutil.rmtree(workdir / "etcd")
    shutil.copytree(kept, workdir / "etcd")
    start_server(drill)
    drill.kube.wait_until(lambda: drill.trainers() == old, WAIT_S, "the pods of the snapshot are back")
    drill.wait_rounds()
    assert drill.trainers() == old, "the controller deletes none of them"
    assert drill.world.controller.is_alive(), "without a restart"
    drill.workers[0] = PretendTrainer(drill.master, f"{JOB}-trainer-0")
    drill.workers[0].session["incarnation"] = 2  # its container starts again
    drill.judge()


@pytest.mark.cluster("restores the data of etcd")
def test_a_controller_that_goes_on_sees_events_whose_versions_it_has_seen_before(drill: Drill) -> None:
    """In the history that is lost a job was changed so often that the restored one gives out its versions again.

    It is suspended, so edl writes nothing about it, and no answer shows what an event does not.
    """
    workdir, kept = drill.plane.workdir, drill.folder / "snapshot"
    submit_suspended(drill, "sleeper")
    stop_server(drill)
    shutil.copytree(workdir / "etcd", kept)
    start_server(drill)
    drill.wait_rounds()
    lost = [changed(drill, metadata={"annotations": {"n": str(number)}}) for number in range(LOST)]
    changed(drill, spec={"priority": 1})
    drill.kube.wait_until(lambda: is_observed(drill), WAIT_S, "the controller has seen them")
    stop_server(drill)
    shutil.rmtree(workdir / "etcd")
    shutil.copytree(kept, workdir / "etcd")
    start_server(drill)
    submit_suspended(drill, "sign")
    while (version := changed(drill, spec={"suspend": False})) not in lost:
        assert version < lost[-1], "the histories collide"
        changed(drill, spec={"suspend": True})
        drill.kube.wait_until(lambda: is_observed(drill), WAIT_S, "the controller has seen that")
    drill.kube.wait_until(lambda: drill.world.running("sleeper"), WAIT_S, "the controller has seen that too")
    assert drill.world.controller.is_alive(), "without a restart"
    drill.judge()


@pytest.mark.timeout(1800)
@pytest.mark.cluster("runs the API server of another minor version")
def test_an_api_server_of_the_next_minor_version_costs_no_pod_and_no_record(drill: Drill) -> None:
    """The server of 1.35 is started on the same data, then upgraded to that of 1.36."""
    newer = run_program(drill, ensure_previous_api_server())
    assert served_minor(drill) == "35"
    drill.wait_rounds()
    before = drill.pods()
    run_program(drill, newer)
    assert served_minor(drill) == "36"
    drill.wait_rounds()
    assert drill.pods() == before
    assert drill.world.controller.is_alive(), "without a restart"
    drill.judge()


def submit_suspended(drill: Drill, name: str) -> None:
    """Create a suspended job and wait until the controller has seen it."""
    drill.world.submit(training_job(name, min_trainers=1, max_trainers=1, cpu="100m", memory="64Mi", suspend=True))
    drill.kube.wait_until(lambda: drill.kube.get("tj", name).get("status"), WAIT_S, f"{name} has a status")


def changed(drill: Drill, **sections: object) -> int:
    """Change the suspended job; returns its new version."""
    return int(drill.kube.patch("tj", "sleeper", sections)["metadata"]["resourceVersion"])


def is_observed(drill: Drill) -> bool:
    """Whether the controller has seen the last change of its spec."""
    job = drill.kube.get("tj", "sleeper")
    return bool(job["status"]["observedGeneration"] == job["metadata"]["generation"])


def stop_server(drill: Drill) -> None:
    drill.plane.stop_api_server()
    drill.plane.stop_process("etcd")


def start_server(drill: Drill) -> None:
    drill.plane.start_process("etcd")
    drill.plane.start_api_server()


def run_program(drill: Drill, program: Path) -> Path:
    """Start another program as the API server, with the same flags; returns the program before."""
    drill.plane.stop_api_server()
    path = drill.plane.workdir / "plan.json"
    plan = json.loads(path.read_text())
    (command,) = (command for command in plan["commands"] if command["name"] == API_SERVER)
    before, command["argv"][0] = Path(command["argv"][0]), str(program)
    path.write_text(json.dumps(plan))
    drill.plane.start_api_server()
    return before


def served_minor(drill: Drill) -> str:
    """The minor version of the server."""
    return str(drill.kube.request("GET", "/version")["minor"])
