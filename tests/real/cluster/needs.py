"""Says what a machine lacks for a cluster of real kubelets, and how to get it, before anything is started."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from tests.e2e.control_plane.versions import ControlPlaneError
from tests.real.cluster import cgroups
from tests.real.cluster.files import CNI_PLUGINS

# Program -> the Debian package that has it.
_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "conntrack": "conntrack",
    "debootstrap": "debootstrap",
    "buildah": "buildah",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
}


PACKAGES = tuple(sorted({*_PROGRAMS.values(), "containernetworking-plugins"}))
INSTALL = "apt-get install --no-install-recommends"


def check_machine() -> None:
    """Refuse a machine on which a cluster cannot run.

    Raises:
        ControlPlaneError: with everything that is missing, and the remedy.
    """
    complaints = [*_system(), *_packages()]
    if complaints:
        raise ControlPlaneError("a cluster of real kubelets cannot run here:\n" + "\n".join(complaints))


def _system() -> list[str]:
    if platform.system() != "Linux":
        return [f"- the system is {platform.system()}; it needs Linux"]
    found = []
    if os.geteuid() != 0:
        found.append("- you are not root; it makes namespaces, control groups and mounts: run it as root")
    if not (cgroups.ROOT / "memory").is_dir():
        found.append(
            f"- {cgroups.ROOT} has no `memory` hierarchy; it needs control groups v1: boot with"
            " systemd.unified_cgroup_hierarchy=0"
        )
    return found


def _packages() -> list[str]:
    missing = {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    if not Path(CNI_PLUGINS, "ptp").is_file():
        missing.add("containernetworking-plugins")
    if not missing:
        return []
    return [f"- missing on Debian 12 or its like: {INSTALL} {' '.join(sorted(missing))}"]
