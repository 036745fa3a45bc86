"""`edl submit|get|watch|scale|delete` beside kubectl, on a real API server: equal columns, forms and words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from edl.api.crd import render_crd
from tests.e2e.conftest import SharedControlPlanes
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.processes import heed_interrupts
from tests.e2e.worlds.harness import ROOT

JOB = """
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: NAME}
spec:
  fault_tolerant: true
  trainer: {entrypoint: train, min-instance: 1, max-instance: 6, resources: {requests: {cpu: "1", memory: 1Gi}}}
"""
SERVED_S = 20.0
AGE = re.compile(r" +[0-9]+[smhd0-9]* *$", re.MULTILINE)  # kubectl fills up the empty columns after it


@pytest.fixture(scope="module")
def plane(shared_control_plane: SharedControlPlanes) -> ControlPlane:
    plane = shared_control_plane("small")
    plane.kube.apply(render_crd())
    plane.kube.wait_until(lambda: plane.kube.resource("TrainingJob"), SERVED_S, "the API server serves trainingjobs")
    return plane


@pytest.fixture
def space(plane: ControlPlane) -> str:
    return plane.namespace("by-hand")


def start(plane: ControlPlane, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'edl'; from edl.cli.main import main; main()",
        *arguments,
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed_interrupts
    )


def edl(plane: ControlPlane, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    process = start(plane, *arguments)
    out, err = process.communicate(stdin, timeout=120)
    return process.returncode, out, err


def without_ages(text: str) -> str:
    return AGE.sub(" AGE", text)


@pytest.mark.cluster("kubectl")
def test_a_job_lives_by_edl_as_it_does_by_kubectl(plane: ControlPlane, space: str, tmp_path: Path) -> None:
    kubectl = plane.kube.kubectl
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("NAME", "by-kubectl"))
    created = kubectl("create", "-n", space, "-f", str(path))
    assert edl(plane, "submit", "-n", space, "-", stdin=JOB.replace("NAME", "by-edl-now")) == (
        0,
        created.replace("by-kubectl", "by-edl-now"),
        "",
    )
    forms: tuple[tuple[str, ...], ...] = ((), ("-o", "wide"), ("-A",), ("-A", "-o", "wide"))
    for form in forms:
        scope = () if "-A" in form else ("-n", space)
        code, out, err = edl(plane, "get", *scope, *form)
        assert (code, err) == (0, "")
        assert without_ages(out) == without_ages(kubectl("get", "trainingjobs", *scope, *form)), form
    for output in ("json", "yaml", "name"):
        ours = edl(plane, "get", "-n", space, "by-edl-now", "-o", output)[1]
        theirs = kubectl("get", "trainingjobs", "-n", space, "by-edl-now", "-o", output)
        read = yaml.safe_load if output != "name" else str
        assert read(ours) == read(theirs)
    scaled = kubectl("scale", "-n", space, "trainingjob", "by-kubectl", "--replicas=3")
    assert edl(plane, "scale", "-n", space, "by-edl-now", "--replicas", "3")[1] == scaled.replace(
        "kubectl", "edl-now"
    )
    assert plane.kube.get("TrainingJob", "by-edl-now", space)["spec"]["trainer"]["instances"] == 3
    deleted = kubectl("delete", "-n", space, "trainingjob", "by-kubectl")
    assert edl(plane, "delete", "-n", space, "by-edl-now")[1] == deleted.replace("by-kubectl", "by-edl-now")
    assert plane.kube.find("TrainingJob", "by-edl-now", space) is None
    assert edl(plane, "get", "-n", space) == (0, "", f"No resources found in {space} namespace.\n")


def test_a_refusal_is_the_servers(plane: ControlPlane, space: str) -> None:
    wrong = JOB.replace("NAME", "wrong").replace("min-instance: 1", "min-instance: 9")
    code, out, err = edl(plane, "submit", "-n", space, "-", stdin=wrong)
    assert (code, out) == (1, "")
    assert "min-instance" in err
    assert "exceeds max-instance" in err
    unknown = JOB.replace("NAME", "unknown").replace("entrypoint", "entripoint")
    code, _, err = edl(plane, "submit", "-n", space, "-", stdin=unknown)
    assert code == 1
    assert 'unknown field "spec.trainer.entripoint"' in err


def test_a_watch_shows_what_others_change(plane: ControlPlane, space: str) -> None:
    edl(plane, "submit", "-n", space, "-", stdin=JOB.replace("NAME", "seen"))
    watching = start(plane, "get", "-n", space, "-w")
    assert watching.stdout is not None
    first = [watching.stdout.readline().split() for _ in range(2)]
    plane.kube.scale("TrainingJob", "seen", 5, space)
    changed = watching.stdout.readline().split()
    watching.send_signal(2)
    assert watching.wait(90) == 0
    watching.communicate()
    assert (first[0][0], first[1][0], changed[0]) == ("NAME", "seen", "seen")
