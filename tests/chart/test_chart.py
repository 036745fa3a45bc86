"""Helm renders the objects of the manifests, applies values, and refuses wrong ones."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from edl.install.chart import FOLDER
from edl.install.manifests import CRD_FILE, QUEUE_CRD_FILE, controller_manifests
from edl.install.objects import RESOURCES
from tests.e2e.control_plane.build import ensure_helm

ROOT = Path(__file__).parents[2]
Object = dict[str, Any]


@pytest.fixture(scope="module")
def program() -> Path:
    return ensure_helm()


def helm(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def rendered(program: Path, *flags: str, namespace: str = "paddlecloud") -> dict[tuple[str, str], Object]:
    """(kind, name) -> object."""
    words = ("template", "edl", FOLDER, "--namespace", namespace, "--kube-version", "1.36.0", *flags)
    done = helm(program, *words)
    assert done.returncode == 0, done.stderr
    return {(body["kind"], body["metadata"]["name"]): body for body in yaml.safe_load_all(done.stdout) if body}


def test_helm_lint_finds_nothing_wrong(program: Path) -> None:
    done = helm(program, "lint", "--strict", FOLDER)
    assert done.returncode == 0, done.stdout


def test_the_chart_renders_the_objects_of_the_manifests(program: Path) -> None:
    elsewhere = {"Namespace", "CustomResourceDefinition"}
    wanted = {(b["kind"], b["metadata"]["name"]): b for b in controller_manifests() if b["kind"] not in elsewhere}
    assert rendered(program) == wanted
    assert (ROOT / FOLDER / "crds" / "trainingjobs.yaml").read_text() == (ROOT / CRD_FILE).read_text()
    assert (ROOT / FOLDER / "crds" / "queues.yaml").read_text() == (ROOT / QUEUE_CRD_FILE).read_text()


def test_values_reach_the_deployment(program: Path) -> None:
    values = ("--set", "image=you/edl:1,replicas=1,logLevel=info", "--set", "flags={--serving-headroom=2}")
    found = rendered(program, *values)
    spec = found["Deployment", "training-job-controller"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 1
    assert container["image"] == container["env"][0]["value"] == "you/edl:1"
    assert container["args"][-2:] == ["--log-level=info", "--serving-headroom=2"]
    assert not [kind for kind, _ in found if kind == "PodDisruptionBudget"]


def test_one_amount_of_the_resources_can_be_set_alone(program: Path) -> None:
    found = rendered(program, "--set", "resources.requests.memory=640Mi")
    (container,) = found["Deployment", "training-job-controller"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "200m", "memory": "640Mi"}, "limits": {"memory": "2Gi"}}


def test_an_upgrade_that_reuses_the_values_of_an_older_chart_keeps_the_resources(program: Path) -> None:
    found = rendered(program, "--set", "resources=null")
    (container,) = found["Deployment", "training-job-controller"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == RESOURCES


def test_the_files_that_values_have_as_texts_are_mounted_and_read(program: Path, tmp_path: Path) -> None:
    flags = {"tenants": "tenants", "queues": "queues", "expectedNodes": "expect-nodes"}
    texts = {
        "tenants": 'namespaces:\n  "*": {max-priority: 0}\n',
        "queues": "blue: {cpu: 64}\n",
        "expectedNodes": "groups: []\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    sets = {name: ("--set-file", f"{name}={tmp_path / name}") for name in texts}
    checksums = set()
    for names in (("tenants",), ("queues",), ("expectedNodes",), ("tenants", "queues", "expectedNodes")):
        found = rendered(program, *(word for name in names for word in sets[name]))
        template = found["Deployment", "training-job-controller"]["spec"]["template"]
        (container,) = template["spec"]["containers"]
        assert container["args"][4:] == [f"--{flags[name]}=/etc/edl/{flags[name]}.yaml" for name in names]
        assert {"name": "files", "mountPath": "/etc/edl", "readOnly": True} in container["volumeMounts"]
        assert {"name": "files", "configMap": {"name": "edl-files"}} in template["spec"]["volumes"]
        data = found["ConfigMap", "edl-files"]["data"]
        assert data == {f"{flags[name]}.yaml": text if name in names else "" for name, text in texts.items()}
        checksums.add(template["metadata"]["annotations"]["checksum/files"])
    assert len(checksums) == 4, "a changed file starts new pods"


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("replicas=0", "replicas"),
        ("logLevel=loud", "logLevel"),
        ("flags={headroom}", "flags"),
        ("queues.blue=1", "queues"),
        ("resources.request.memory=1Gi", "resources"),
        ("imag=x", "imag"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(program: Path, value: str, rule: str) -> None:
    done = helm(
        program, "template", "edl", FOLDER, "--namespace", "paddlecloud", "--kube-version", "1.36.0", "--set", value
    )
    assert done.returncode != 0
    assert rule in done.stderr


def test_another_namespace_is_refused_with_the_remedy(program: Path) -> None:
    done = helm(program, "template", "edl", FOLDER, "--namespace", "ads", "--kube-version", "1.36.0")
    assert done.returncode != 0
    assert "add --namespace paddlecloud" in done.stderr
