"""The parts of the control plane's code that need no running control plane."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.control_plane.build import ensure_binaries
from tests.e2e.control_plane.nodes import load_mix
from tests.e2e.control_plane.processes import identify
from tests.e2e.control_plane.stages import kwok_config
from tests.e2e.control_plane.versions import ControlPlaneError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("mix", "count", "capacity_cpu", "allocatable_milli"),
    [
        ("small", 4, 32, 32_000),
        ("twenty", 20, 160, 160_000),
        ("edl2017", 133, 2348, 2_348_000 - 133 * 380),
        ("gpu", 10, 384, 384_000),
        ("fragmented", 17, 97, 90_930),
    ],
)
def test_mixes_add_up(mix: str, count: int, capacity_cpu: int, allocatable_milli: int) -> None:
    specs = load_mix(mix)

    allocatable = [spec.allocatable.get("cpu", spec.capacity["cpu"]) for spec in specs]
    milli = [int(q[:-1]) if q.endswith("m") else int(q) * 1000 for q in allocatable]
    assert len({spec.name for spec in specs}) == count
    assert sum(int(spec.capacity["cpu"]) for spec in specs) == capacity_cpu
    assert sum(milli) == allocatable_milli


def test_a_mix_that_is_not_there_is_named() -> None:
    with pytest.raises(ControlPlaneError, match=r"no mix huge; give a file, or one of .*twenty"):
        load_mix("huge")


@pytest.mark.cluster("the programs of the control plane")
def test_assets_go_before_what_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = ensure_binaries()
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    found = ensure_binaries()
    assert found.kubectl == tmp_path / "kubectl"
    assert found.kube_scheduler == built.kube_scheduler


def test_a_recycled_pid_is_not_killed(tmp_path: Path) -> None:
    """A pid file that names this process's number, but another start, ends nothing."""
    mine = identify(os.getpid())
    assert mine is not None
    (tmp_path / "run").mkdir()
    record = {"pid": mine.pid, "start_ticks": mine.start_ticks - 1, "boot_id": mine.boot_id}
    (tmp_path / "run" / "etcd.pid").write_text(json.dumps(record))

    command = [sys.executable, "-m", "tests.e2e.control_plane", "down", "--dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert "nothing runs" in done.stderr


def test_no_pod_ends_because_a_job_owns_it() -> None:
    documents = list(yaml.safe_load_all(kwok_config(pod_delete_s=8, pod_ready_s=0.5)))

    stages = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Stage"}
    assert "pod-complete" not in stages
    removing = {name for name, spec in stages.items() if {"delete": True} in spec.get("steps", ())}
    assert all("delay" in stages[name] for name in removing)


def test_a_pod_is_deleted_once_so_that_no_other_pod_of_its_name_is() -> None:
    """Kwok deletes by name: what it does twice, it does to the pod that a controller has created meanwhile."""
    documents = yaml.safe_load_all(kwok_config(pod_delete_s=8, pod_ready_s=0.5))
    stages = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Stage"}
    removing = [name for name, spec in stages.items() if {"delete": True} in spec.get("steps", ())]
    assert removing == ["pod-delete"], "a stage that also changes the pod sets off this one, which deletes again"
    selected = stages["pod-delete"]["selector"]["matchExpressions"]
    grace = {"key": ".metadata.deletionGracePeriodSeconds // 0 | tostring", "operator": "NotIn", "values": ["0"]}
    assert grace in selected, "the deletion itself changes the pod once more, to a grace period of 0"
