"""An upgrade from an earlier commit, and a rollback: definitions first, then two controllers of different versions.

The Lease decides which of them leads, and no pod is deleted or created.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.drills.drill import WAIT_S, Drill
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.harness import ROOT


@pytest.mark.parametrize("commits_ago", [1, 100])
def test_two_versions_take_turns_and_cost_no_pod_and_no_record(
    control_plane: Callable[..., ControlPlane], tmp_path: Path, commits_ago: int
) -> None:
    """The older version leads, the newer one takes over, and the older one takes over again, as in a rollback."""
    package = checked_out(commits_ago, tmp_path / "older")
    with ExitStack() as stack:
        drill = Drill(control_plane(mix="small"), tmp_path, stack, ("--interval-s", "1"))
        apply_definitions(drill.kube, package)
        older = drill.world.controller
        older.environment = {"PYTHONPATH": str(package)}
        older.is_preloaded = False
        stack.callback(older.kill)
        older.start()
        drill.with_job()
        before = drill.pods()
        apply_definitions(drill.kube, ROOT)
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


def apply_definitions(kube: Kube, checkout: Path) -> None:
    """Apply the definitions of edl's resources, as docs/operations.md has it."""
    kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(checkout / "crds"))


def checked_out(commits_ago: int, folder: Path) -> Path:
    """The package and the definitions as they were so many commits ago, in that folder."""
    packed = subprocess.run(
        [shutil.which("git") or "git", "archive", f"HEAD~{commits_ago}", "edl", "crds"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert packed.returncode == 0, f"{packed.stderr.decode()}; fetch the history: git fetch --unshallow"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
