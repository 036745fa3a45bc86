"""Two controllers of different versions take turns: the Lease decides, and no pod is deleted or created."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.drills.drill import WAIT_S, Drill
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.harness import ROOT

COMMITS_AGO = 100


def test_two_versions_take_turns_and_cost_no_pod_and_no_record(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """The older version leads, the newer one takes over, and the older one takes over again, as in a rollback."""
    with ExitStack() as stack:
        drill = Drill(control_plane(mix="small"), tmp_path, stack, ("--interval-s", "1"))
        older = drill.world.controller
        older.environment = {"PYTHONPATH": str(package_of(tmp_path / "older"))}
        older.is_preloaded = False
        stack.callback(older.kill)
        older.start()
        drill.with_job()
        before = drill.pods()
        newer = ControllerProcess(older.kubeconfig, older.workdir, *older.flags)
        stack.callback(newer.kill)
        newer.start()
        for leader, follower in ((older, newer), (newer, older)):
            wait_leads(drill, leader)
            leader.stop()
            wait_leads(drill, follower)
            leader.start()
            assert drill.pods() == before
        drill.judge()


def wait_leads(drill: Drill, controller: ControllerProcess) -> None:
    drill.kube.wait_until(lambda: leads(controller), WAIT_S, "it leads")


def leads(controller: ControllerProcess) -> bool:
    return controller.is_alive() and "\nedl_leader 1.0" in controller.fetch("/metrics")[1]


def package_of(folder: Path) -> Path:
    """The package as it was so many commits ago, in that folder."""
    revision = f"HEAD~{COMMITS_AGO}"
    packed = subprocess.run(
        [shutil.which("git") or "git", "archive", revision, "edl"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert packed.returncode == 0, f"{packed.stderr.decode()}; fetch the history: git fetch --unshallow"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
