"""What the Dockerfile installs is pinned, agrees with pyproject.toml, and what it removes is used by nobody."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.sbom import read_lock

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
WANTED = {
    "controller": [*EXTRAS["controller"], *EXTRAS["lines"]],
    "build": PROJECT["build-system"]["requires"],
}
# Imports every module that the image can run, and reads a kubeconfig and a ServiceAccount, without what it removes.
WITHOUT_MODELS = """
import asyncio, importlib, importlib.abc, pathlib, re, sys
import edl

REMOVED = re.compile(r"kubernetes\\.(aio\\.)?client\\.(models|api)\\.[a-z]")

class Removed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if REMOVED.match(name):
            raise ModuleNotFoundError(f"the image has no {name}", name=name)

sys.meta_path.insert(0, Removed())
for file in sorted(pathlib.Path(edl.__path__[0]).rglob("*.py")):
    parts = file.relative_to(pathlib.Path(edl.__path__[0]).parent).with_suffix("").parts
    if "worker_torch" not in parts and parts[-1] not in {"__main__", "__init__"}:
        importlib.import_module(".".join(parts))
from edl.kube.client.credentials import load_configuration
print(asyncio.run(load_configuration(sys.argv[1])).host)
"""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443"}}]
contexts: [{name: c, context: {cluster: k, user: u}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.mark.parametrize("name", sorted(WANTED))
def test_the_lock_agrees_with_the_project(name: str) -> None:
    pins = read_lock((ROOT / "requirements" / f"{name}.txt").read_text())
    wanted: dict[str, Requirement] = {canonicalize_name(one.name): one for one in map(Requirement, WANTED[name])}
    roots = {pin.name for pin in pins if not pin.needed_by or "edl (pyproject.toml)" in pin.needed_by}
    assert roots == set(wanted), "run make lock"
    for pin in pins:
        assert pin.name not in wanted or wanted[pin.name].specifier.contains(pin.version), "run make lock"


def test_the_tests_use_versions_that_the_project_allows() -> None:
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    lines = [line for extra in EXTRAS.values() for line in extra if not line.startswith(("edl[", "torch"))]
    for one in map(Requirement, lines):
        found = [pin for pin in pins if canonicalize_name(pin.name) == canonicalize_name(one.name)]
        assert found, f"requirements/constraints.txt: {one.name} is missing; run make lock"
        for pin in found:
            (version,) = pin.specifier
            assert one.specifier.contains(version.version), f"{pin}: pyproject.toml asks for {one}; run make lock"


@pytest.mark.parametrize("name", sorted(WANTED))
def test_every_file_of_a_locked_library_has_a_hash(name: str) -> None:
    pins = read_lock((ROOT / "requirements" / f"{name}.txt").read_text())
    assert all(pin.hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", h) for h in pin.hashes) for pin in pins)


def test_the_image_installs_nothing_but_the_lock_and_edl() -> None:
    installed = re.findall(r"(?:pip|/opt/edl/bin/python) (?:install|wheel) ([^&\n]+)", DOCKERFILE)
    assert len(installed) == 5
    for words in installed:
        assert "--require-hashes" in words or "--no-deps" in words, words


def test_the_image_removes_the_generated_models_of_the_client_and_nothing_else_of_it() -> None:
    patterns = re.findall(r"-path '(\S*kubernetes\S*)' -delete", DOCKERFILE)
    library = "/opt/edl/lib/python3.12/site-packages/kubernetes/"
    for kept in (
        "client/__init__.py",
        "client/models/__init__.py",
        "aio/client/rest.py",
        "aio/client/api/__init__.py",
    ):
        assert not any(fnmatch(library + kept, pattern) for pattern in patterns)
    for removed in ("client/models/v1_pod.py", "client/api/core_v1_api.py", "aio/client/api/core_v1_api.py"):
        assert any(fnmatch(library + removed, pattern) for pattern in patterns)


def test_edl_works_without_the_generated_models_of_the_client(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    command = [sys.executable, "-c", WITHOUT_MODELS, str(kubeconfig)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "https://127.0.0.1:6443\n"), done.stderr
