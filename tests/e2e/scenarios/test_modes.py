"""Other modes of the controller: dry run, single plan, records, followers; its pages and its log line."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.harness import World, install
from tests.e2e.worlds.jobs import training_job

INQUIRY = re.compile(
    r't=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+0000 lvl=dbug msg="Cluster\.InquiryResource done" resource="\{'
    r"NodeCount:4 GPURequest:0 GPULimit:0 GPUTotal:0 CPURequestMilli:\d+ CPULimitMilli:\d+ CPUTotalMilli:32000 "
    r"MemoryRequestMega:\d+ MemoryLimitMega:\d+ MemoryTotalMega:137439 "
    r"Nodes:\{NodesCPUIdleMilli:map\[(small-\d:\d+ ?){4}\] NodesMemoryFreeMega:map\[(small-\d:\d+ ?){4}\]\}\}\""
)


def run_controller(
    kubeconfig: Path, workdir: Path, *flags: str, listen: str = "127.0.0.1:0"
) -> subprocess.CompletedProcess[str]:
    """`edl controller` until it ends by itself."""
    edl = Path(sys.executable).with_name("edl")
    basics = ("--kubeconfig", str(kubeconfig), "--listen", listen, "--key-file", str(workdir / "key"))
    return subprocess.run(
        [str(edl), "controller", *basics, *flags], capture_output=True, text=True, timeout=60, check=False
    )


def versions(here: ControlPlane) -> dict[str, str]:
    """The version of every object that a controller might have touched."""
    kinds = ("pods", "services", "secrets", "trainingjobs", "events", "persistentvolumeclaims", "leases")
    return {
        item["metadata"]["uid"]: item["metadata"]["resourceVersion"]
        for kind in kinds
        for item in here.kube.list(kind)
        if item["metadata"].get("namespace") in {"default", "paddlecloud"}
    }


def test_a_dry_run_shows_the_plan_and_writes_nothing(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = control_plane(mix="small", pod_delete_s=1.0)
    kubeconfig = install(plane)
    plane.kube.create(training_job("a", min_trainers=2, max_trainers=6))
    before = versions(plane)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_controller(kubeconfig, tmp_path, "--once", "--dry-run", listen=listen)
    assert done.returncode == 0, done.stderr
    (decision,) = json.loads(done.stdout)["decisions"]
    assert (decision["name"], decision["current"], decision["target"]) == ("a", 0, 6)
    assert versions(plane) == before


def test_one_round_acts_once_and_leaves_a_record(control_plane: Callable[..., ControlPlane], tmp_path: Path) -> None:
    plane = control_plane(mix="small", pod_delete_s=1.0)
    kubeconfig = install(plane)
    plane.kube.create(training_job("a", min_trainers=2, max_trainers=6))
    done = run_controller(kubeconfig, tmp_path, "--once", "--record", str(tmp_path / "records"))
    assert done.returncode == 0, done.stderr
    names = {pod["metadata"]["name"] for pod in plane.kube.list("pods")}
    assert names == {"a-master-0", *(f"a-trainer-{i}" for i in range(6))}
    (file,) = (tmp_path / "records").iterdir()
    record: dict[str, Any] = json.loads(file.read_text())
    assert record["plan"]["decisions"][0]["target"] == 6
    assert len(record["snapshot"]["nodes"]) == 4


def test_two_replicas_lead_by_turns_and_both_tell_what_they_see(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0))
    standby = ControllerProcess(here.controller.kubeconfig, tmp_path)
    with here.controller as leader, standby:
        here.submit(training_job("a", min_trainers=2, max_trainers=4))
        here.kube.wait_until(lambda: here.running("a") == 4, 30, "the leader works")
        for replica in (leader, standby):
            wait_for_inquiry(here, replica)
            assert replica.answers("/healthz")
            assert replica.answers("/readyz")
        assert "CreatePod" not in standby.log.read_text()
        metrics = leader.fetch("/metrics")[1]
        assert 'edl_job_trainers{job="a",namespace="default",state="target"} 4.0' in metrics
        leader.stop()
        here.kube.delete("pods", "a-trainer-3")
        here.kube.wait_until(lambda: standby.log.read_text().count("CreatePod"), 30, "the standby takes over")
        here.kube.wait_until(lambda: here.running("a") == 4, 30, "and replaces what is missing")


def wait_for_inquiry(here: World, replica: ControllerProcess) -> None:
    """Wait until a replica has logged the resources of the cluster in the pinned form."""
    here.kube.wait_until(lambda: INQUIRY.search(replica.log.read_text()), 15, "the log has the line")
