"""A node whose pods are processes of this machine (`edl kubelet`), with names of Services for every program.

The kubelet of edl gives the names to Python programs. torchrun and PyTorch ask the C library, which reads /etc/hosts,
so the kubelet runs in a mount namespace in which that is a file of the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.processes import die_with_parent

NODE = "process-0"
_STOP_S = 90.0
_EVERY_S = 0.1
_MOUNT = 'mount --bind "$0" /etc/hosts && exec "$@"'


@contextlib.contextmanager
def process_node(plane: ControlPlane, *, cpu: str) -> Iterator[None]:
    """One node of the process kubelet of this Python, until the end of the block.

    Args:
        plane: the control plane.
        cpu: what the node offers.
    """
    folder = plane.workdir / "kubelet"
    folder.mkdir()
    hosts = folder / "hosts"
    hosts.write_text(Path("/etc/hosts").read_text())
    rights = () if os.geteuid() == 0 else ("--map-root-user",)
    where = ("unshare", *rights, "--mount", "--propagation", "private", "sh", "-c", _MOUNT, str(hosts))
    edl = (str(Path(sys.executable).with_name("edl")), "kubelet", "--kubeconfig", str(plane.kubeconfig))
    flags = ("--nodes", "1", "--cpu", cpu, "--memory", "64Gi", "--folder", str(folder), "--prefix", NODE[:-2])
    with (plane.workdir / "logs" / "kubelet.log").open("wb") as log:
        kubelet = subprocess.Popen([*where, *edl, *flags], stdout=log, stderr=log, preexec_fn=die_with_parent)
    ended = threading.Event()
    follower = threading.Thread(target=_follow, args=(folder / "names.json", hosts, ended))
    follower.start()
    try:
        plane.kube.wait_until(lambda: NODE in plane.ready_nodes(), 60, f"node {NODE} is ready")
        yield
    finally:
        kubelet.terminate()
        code = kubelet.wait(_STOP_S)
        ended.set()
        follower.join()
    assert code == 0


def _follow(names: Path, hosts: Path, ended: threading.Event) -> None:
    """Keep the file of hosts up to date. It is written in place: a mount leads to the file, not to its name."""
    known, machine = "", hosts.read_text()
    while not ended.wait(_EVERY_S):
        text = "".join([machine, *_lines(names)])
        if text != known:
            hosts.write_text(text)
            known = text


def _lines(names: Path) -> list[str]:
    if not names.exists():
        return []
    found = []
    for key, entry in json.loads(names.read_text()).items():
        namespace, name = key.split("/")
        full = f"{name}.{namespace}.svc"
        found += [f"{address} {name} {full} {full}.cluster.local\n" for address in entry["addresses"]]
    return found
