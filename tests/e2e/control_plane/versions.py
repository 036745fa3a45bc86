"""The programs of a control plane, their versions and where they are stored.

The versions have one source, the `go.mod` files under `modules/`, so that a bump is one edit and
the cache folder follows it. This module builds nothing and starts nothing.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "modules"

_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class ControlPlaneError(Exception):
    """The control plane could not be built, started, reached or changed; the message says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """One executable: the folder of its `go.mod` and the package it is built from.

    Attributes:
        files: folders and files of the required module that are kept beside the program, by their last name.
    """

    name: str
    module: str
    package: str
    files: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it is kept once it is built."""
        return binary_dir() if self.module in _REQUIRED else _folder(self.module)


PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Program("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Program("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
)

# What a node runs besides what Debian has; only the tests on real kubelets need it.
NODE_PROGRAMS = (
    Program("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
    Program("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"),
    Program("coredns", "nodes", "./coredns"),
    Program("pause", "nodes", "./pause"),
)

# What only the tests beside Volcano need.
VOLCANO_PROGRAMS = (
    Program("vc-controller-manager", "volcano", "volcano.sh/volcano/cmd/controller-manager", ("config/crd",)),
    Program(
        "vc-scheduler",
        "volcano",
        "volcano.sh/volcano/cmd/scheduler",
        ("installer/helm/chart/volcano/config/volcano-scheduler.conf",),
    ),
    Program("vc-webhook-manager", "volcano", "volcano.sh/volcano/cmd/webhook-manager"),
)

# What only the tests beside Karpenter need: its own provider, whose machines are nodes of kwok.
KARPENTER_PROGRAMS = (
    Program(
        "karpenter",
        "karpenter",
        "sigs.k8s.io/karpenter/kwok",
        ("kwok/charts/crds", "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml"),
    ),
)

# What only the tests beside KubeRay need.
KUBERAY_PROGRAMS = (
    Program(
        "ray-operator",
        "kuberay",
        "github.com/ray-project/kuberay/ray-operator",
        ("config/crd/bases", "config/samples/ray-cluster.sample.yaml"),
    ),
)

# What only the tests beside Kueue need: the oldest version that edl takes, and the newest that there was.
KUEUE_PROGRAMS = {
    module: (Program("kueue", module, "sigs.k8s.io/kueue/cmd/kueue", ("config",)),)
    for module in ("kueue", "kueue-0.19.1")
}
# What only the tests beside the training operator of Kubeflow need.
KUBEFLOW_PROGRAMS = (
    Program(
        "training-operator",
        "training-operator",
        "github.com/kubeflow/training-operator/cmd/training-operator.v1",
        (
            "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
            "manifests/base/webhook/manifests.yaml",
            "examples/pytorch/elastic/echo/echo.yaml",
        ),
    ),
)

# What only the tests beside LeaderWorkerSet's controller need.
LWS_PROGRAMS = (Program("lws", "lws", "sigs.k8s.io/lws/cmd", ("config", "docs/examples/sample/lws.yaml")),)

# What only the tests of the chart need.
CHART_PROGRAMS = (Program("helm", "helm", "helm.sh/helm/v3/cmd/helm"),)

# The minor version before, which only the drill of an upgrade needs.
PREVIOUS_PROGRAMS = (Program("kube-apiserver", "kubernetes-1.35", "k8s.io/kubernetes/cmd/kube-apiserver"),)

_REQUIRED = {
    "kubernetes": "k8s.io/kubernetes",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kwok": "sigs.k8s.io/kwok",
}
_REQUIRED_OF_NODES = {"nodes": "github.com/coredns/coredns"}
_REQUIRED_OF_CHARTS = {"helm": "helm.sh/helm/v3"}
_REQUIRED_OF_UPGRADES = {"kubernetes-1.35": "k8s.io/kubernetes"}
_REQUIRED_OF_VOLCANO = {"volcano": "volcano.sh/volcano"}
_REQUIRED_OF_KARPENTER = {"karpenter": "sigs.k8s.io/karpenter"}
_REQUIRED_OF_KUBERAY = {"kuberay": "github.com/ray-project/kuberay/ray-operator"}
_REQUIRED_OF_KUEUE = dict.fromkeys(KUEUE_PROGRAMS, "sigs.k8s.io/kueue")
_REQUIRED_OF_KUBEFLOW = {"training-operator": "github.com/kubeflow/training-operator"}
_REQUIRED_OF_LWS = {"lws": "sigs.k8s.io/lws"}
_REQUIRED_OF_TESTS = {
    **_REQUIRED_OF_NODES,
    **_REQUIRED_OF_CHARTS,
    **_REQUIRED_OF_UPGRADES,
    **_REQUIRED_OF_VOLCANO,
    **_REQUIRED_OF_KARPENTER,
    **_REQUIRED_OF_KUBERAY,
    **_REQUIRED_OF_KUEUE,
    **_REQUIRED_OF_KUBEFLOW,
    **_REQUIRED_OF_LWS,
}


def required_by(module: str) -> str:
    """What `modules/<module>/go.mod` is for: the module that the programs are built from."""
    return {**_REQUIRED, **_REQUIRED_OF_TESTS}[module]


def version_of(module: str) -> str:
    """The version that `modules/<module>/go.mod` requires, such as `v1.36.3`."""
    path, required = MODULES / module / "go.mod", required_by(module)
    wanted = re.escape(required)
    found = re.search(rf"^\s*(?:require\s+)?{wanted} (v\S+)", path.read_text(), re.MULTILINE)
    if found is None:
        raise ControlPlaneError(f"{path}: no requirement of {required}; add one")
    return found.group(1)


def kueue_programs(version: str = "") -> tuple[Program, ...]:
    """The programs of a version of Kueue.

    Args:
        version: such as `0.19.1`; by default that of `modules/kueue`.

    Raises:
        ControlPlaneError: there is no module of that version.
    """
    by_version = {version_of(module).removeprefix("v"): programs for module, programs in KUEUE_PROGRAMS.items()}
    if not version:
        return KUEUE_PROGRAMS["kueue"]
    if version not in by_version:
        known = ", ".join(by_version)
        raise ControlPlaneError(f"KUEUE is {version}, and there are modules of {known}; take one of them, or add one")
    return by_version[version]


def ldflags(module: str) -> str:
    """Linker flags: no debug tables, and the version, which a module build would call v0.0.0."""
    flags = ["-s", "-w"]
    version = version_of(module)
    if module.startswith("kubernetes"):
        major, minor, _ = version.removeprefix("v").split(".", 2)
        stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        flags += [f"-X {p}.{key}={value}" for p in _STAMPED for key, value in stamp.items()]
    return " ".join(flags)


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/edl/control-plane`, or `~/.cache/edl/control-plane`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "edl" / "control-plane"


def binary_dir() -> Path:
    """The folder of one set of versions on one kind of machine."""
    return _folder(*_REQUIRED)


def _folder(*modules: str) -> Path:
    names = "-".join(f"{module}-{version_of(module)}" for module in modules)
    return cache_root() / f"{names}-{platform.system()}-{platform.machine()}".lower()
