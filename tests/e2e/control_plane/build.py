"""Builds the programs of a control plane once and keeps them in the user's cache.

Nothing is downloaded but Go modules, and those only as the committed `go.sum` files say. A build
is done under a lock and put in place by a rename, so that two test runs, or one that was killed,
never leave a broken program behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.e2e.control_plane.processes import locked
from tests.e2e.control_plane.toolchain import Toolchain, toolchain
from tests.e2e.control_plane.versions import (
    CHART_PROGRAMS,
    KARPENTER_PROGRAMS,
    KUBEFLOW_PROGRAMS,
    KUBERAY_PROGRAMS,
    LWS_PROGRAMS,
    MODULES,
    NODE_PROGRAMS,
    PREVIOUS_PROGRAMS,
    PROGRAMS,
    VOLCANO_PROGRAMS,
    ControlPlaneError,
    Program,
    binary_dir,
    cache_root,
    kueue_programs,
    ldflags,
    required_by,
)

_SAY_EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where each program is."""

    etcd: Path
    kwok: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path


@dataclass(frozen=True, slots=True)
class NodeBinaries:
    """Where each program is that a real node runs."""

    kubelet: Path
    kube_proxy: Path
    coredns: Path
    pause: Path


@dataclass(frozen=True, slots=True)
class VolcanoBinaries:
    """Where each program of Volcano is."""

    vc_controller_manager: Path
    vc_scheduler: Path
    vc_webhook_manager: Path

    @property
    def crds(self) -> Path:
        """The folder with the CustomResourceDefinitions."""
        return self.vc_controller_manager.parent / "crd"

    @property
    def scheduler_configuration(self) -> Path:
        """The configuration of the scheduler that Volcano's chart installs."""
        return self.vc_scheduler.parent / "volcano-scheduler.conf"


@dataclass(frozen=True, slots=True)
class KarpenterBinary:
    """Where Karpenter with its kwok provider is."""

    karpenter: Path

    @property
    def crds(self) -> tuple[Path, Path]:
        """The folder with the CustomResourceDefinitions of Karpenter, and the file with that of the provider."""
        folder = self.karpenter.parent
        return folder / "crds", folder / "karpenter.kwok.sh_kwoknodeclasses.yaml"


@dataclass(frozen=True, slots=True)
class KubeRayBinary:
    """Where the operator of KubeRay is."""

    ray_operator: Path

    @property
    def crds(self) -> Path:
        """The folder with the CustomResourceDefinitions."""
        return self.ray_operator.parent / "bases"

    @property
    def sample(self) -> Path:
        """The RayCluster that KubeRay publishes as its first example."""
        return self.ray_operator.parent / "ray-cluster.sample.yaml"


@dataclass(frozen=True, slots=True)
class KueueBinary:
    """Where Kueue is."""

    kueue: Path

    @property
    def manifests(self) -> Path:
        """The folder from which kustomize renders what an installation creates."""
        return self.kueue.parent / "config" / "default"

    @property
    def configuration(self) -> Path:
        """The configuration of its program that an installation has."""
        return self.kueue.parent / "config" / "components" / "manager" / "controller_manager_config.yaml"


@dataclass(frozen=True, slots=True)
class KubeflowBinary:
    """Where the training operator of Kubeflow is."""

    training_operator: Path

    @property
    def crd(self) -> Path:
        """The CustomResourceDefinition of PyTorchJobs."""
        return self.training_operator.parent / "kubeflow.org_pytorchjobs.yaml"

    @property
    def webhooks(self) -> Path:
        """The configuration of its admission."""
        return self.training_operator.parent / "manifests.yaml"

    @property
    def sample(self) -> Path:
        """The elastic PyTorchJob that Kubeflow publishes as its first example."""
        return self.training_operator.parent / "echo.yaml"


@dataclass(frozen=True, slots=True)
class LeaderWorkerSetBinary:
    """Where the controller of LeaderWorkerSets is."""

    lws: Path

    @property
    def manifests(self) -> Path:
        """The folder from which kustomize renders what an installation creates."""
        return self.lws.parent / "config" / "default"

    @property
    def sample(self) -> Path:
        """The LeaderWorkerSet that its project publishes as its first example."""
        return self.lws.parent / "lws.yaml"


def ensure_binaries() -> Binaries:
    """Find every program, building those that are missing.

    A folder named by `KUBEBUILDER_ASSETS` is looked into first.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, or a build failed.
    """
    return Binaries(**_ensure(PROGRAMS))


def ensure_node_binaries() -> NodeBinaries:
    """The same for what a node runs.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, or a build failed.
    """
    return NodeBinaries(**_ensure(NODE_PROGRAMS))


def ensure_volcano() -> VolcanoBinaries:
    """The same for Volcano.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, or a build failed.
    """
    return VolcanoBinaries(**_ensure(VOLCANO_PROGRAMS))


def ensure_karpenter() -> KarpenterBinary:
    """The same for Karpenter.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, or the build failed.
    """
    return KarpenterBinary(**_ensure(KARPENTER_PROGRAMS))


def ensure_kuberay() -> KubeRayBinary:
    """The same for KubeRay.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, or the build failed.
    """
    return KubeRayBinary(**_ensure(KUBERAY_PROGRAMS))


def ensure_kueue() -> KueueBinary:
    """The same for Kueue, of the version that the environment names in EDL_KUEUE.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, the build failed, or the version is not known.
    """
    return KueueBinary(**_ensure(kueue_programs(os.environ.get("EDL_KUEUE", ""))))


def ensure_kubeflow() -> KubeflowBinary:
    """The same for the training operator of Kubeflow.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, or the build failed.
    """
    return KubeflowBinary(**_ensure(KUBEFLOW_PROGRAMS))


def ensure_lws() -> LeaderWorkerSetBinary:
    """The same for the controller of LeaderWorkerSets.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, or the build failed.
    """
    return LeaderWorkerSetBinary(**_ensure(LWS_PROGRAMS))


def ensure_helm() -> Path:
    """The same for Helm.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, or the build failed.
    """
    return _ensure(CHART_PROGRAMS)["helm"]


def ensure_previous_api_server() -> Path:
    """The same for the API server of the minor version before.

    Raises:
        ControlPlaneError: there is no Go and none can be fetched, or the build failed.
    """
    return _ensure(PREVIOUS_PROGRAMS)["kube_apiserver"]


def _ensure(programs: Sequence[Program]) -> dict[str, Path]:
    missing = [program for program in programs if _find(program) is None]
    if missing:
        with locked(binary_dir(), "another process is building the control plane; waiting for it"):
            _build([program for program in missing if _find(program) is None])
    return {_field(program): _found(program) for program in programs}


def _field(program: Program) -> str:
    return program.name.replace("-", "_")


def _find(program: Program) -> Path | None:
    folders = [program.folder]
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        folders.insert(0, Path(assets))
    for folder in folders:
        if os.access(folder / program.name, os.X_OK):
            return (folder / program.name).resolve()
    return None


def _found(program: Program) -> Path:
    path = _find(program)
    if path is None:
        raise ControlPlaneError(f"{program.name}: built, yet not in {program.folder}")
    return path


def _build(programs: Sequence[Program]) -> None:
    if not programs:
        return
    _say(f"building {len(programs)} programs into {cache_root()}, once; this takes minutes")
    began = time.monotonic()
    with toolchain() as tools:
        for index, program in enumerate(programs, start=1):
            _build_one(program, f"[{index}/{len(programs)}] {program.name}", tools)
    _say(f"built in {time.monotonic() - began:.0f} s")


def _build_one(program: Program, title: str, tools: Toolchain) -> None:
    target = program.folder / program.name
    target.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".build-", dir=program.folder) as folder:
        made, log = Path(folder) / program.name, Path(folder) / "log"
        command = [tools.go, "build", "-trimpath", "-ldflags", ldflags(program.module)]
        with log.open("w") as out:
            code = _run([*command, "-o", str(made), program.package], program, tools, out, title)
        if code != 0:
            tail = "\n".join(log.read_text().splitlines()[-20:])
            raise ControlPlaneError(f"{program.name}: go build ended with {code}:\n{tail}")
        if program.files:
            _keep_files(program, tools)
        made.replace(target)
    _say(f"{title}: {time.monotonic() - began:.0f} s")


def _keep_files(program: Program, tools: Toolchain) -> None:
    """Copy files of the module beside the program, before the program is there to be found."""
    command = [tools.go, "list", "-m", "-f", "{{.Dir}}", required_by(program.module)]
    answer = subprocess.run(
        command, cwd=MODULES / program.module, env=tools.environment, capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise ControlPlaneError(f"{program.name}: go list ended with {answer.returncode}:\n{answer.stderr}")
    for name in program.files:
        source, target = Path(answer.stdout.strip()) / name, program.folder / Path(name).name
        shutil.rmtree(target, ignore_errors=True)
        for file in (source, *source.rglob("*")):
            if file.is_file():
                made = target / file.relative_to(source) if source.is_dir() else target
                made.parent.mkdir(parents=True, exist_ok=True)
                made.write_bytes(file.read_bytes())  # files of the module cache are read-only, these are not


def _run(command: list[str], program: Program, tools: Toolchain, out: IO[str], title: str) -> int:
    """Run a build, saying now and then that it is alive, on a terminal every second; never leave it behind."""
    began = said = time.monotonic()
    every_s = 1.0 if sys.stderr.isatty() else _SAY_EVERY_S
    process = subprocess.Popen(
        command,
        cwd=MODULES / program.module,
        env=tools.environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
    )
    try:
        while True:
            try:
                return process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                if time.monotonic() - said >= every_s:
                    said = time.monotonic()
                    _say(f"{title}: {said - began:.0f} s so far", is_last=False)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _say(message: str, *, is_last: bool = True) -> None:
    """Print a line; on a terminal the next one takes the place of one that is not the last about its step."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="\n" if is_last else "", file=sys.stderr, flush=True)
    else:
        print(message, file=sys.stderr, flush=True)
