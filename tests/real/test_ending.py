"""A cluster of real kubelets leaves nothing on the machine, however it ends. Each test starts its own cluster."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.control_plane.processes import Identity, identify, is_alive, send
from tests.e2e.control_plane.supervision import supervisor_of
from tests.real.cluster import cgroups, measure
from tests.real.cluster.layout import HOST_LINK, PAUSE_IMAGE, cgroup_of
from tests.real.cluster.needs import INSTALL, PACKAGES

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0
END_S = 30.0

OWNER = """
import sys, time
from pathlib import Path
from tests.real.cluster.running import RealCluster
cluster = RealCluster.start(Path(sys.argv[1]))
cluster.kubectl("run", "sleeper", "--image", sys.argv[2])
cluster.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "--timeout=60s", timeout_s=90)
print(cluster.launched.first_process, flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has started a cluster in `tmp_path`, with one pod, and would keep it for minutes."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), PAUSE_IMAGE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def cluster_processes(owner: subprocess.Popen[str]) -> set[Identity]:
    """Everybody in the cluster's namespaces, once the owner says that it is up."""
    assert owner.stdout is not None
    pid_line = owner.stdout.readline().strip()
    assert pid_line, "the owner ended before its cluster was up"
    found = {identify(pid) for pid in measure.descendants(int(pid_line))}
    return {who for who in found if who is not None}


def left(workdir: Path) -> list[str]:
    """What of a cluster is still on the machine."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(workdir) in line]
    groups = [str(path) for path in cgroups.present(cgroup_of(workdir))]
    links = [HOST_LINK] if Path("/sys/class/net", HOST_LINK).exists() else []
    data = [str(workdir / name) for name in ("nodes", "etcd", "build") if (workdir / name).exists()]
    return [*mounts, *groups, *links, *data]


def wait_until(predicate: Callable[[], bool], timeout_s: float, what: Callable[[], str]) -> None:
    deadline = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def assert_gone(workdir: Path, processes: set[Identity]) -> None:
    def alive() -> list[Identity]:
        return [who for who in processes if is_alive(who)]

    assert len(processes) > 12, "a cluster has at least so many processes"
    wait_until(lambda: not alive() and not left(workdir), END_S, lambda: f"left: {alive()}, {left(workdir)}")


def test_nothing_is_left_when_the_owner_is_killed(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    processes = cluster_processes(owner)
    assert left(tmp_path), "what must go is there before"
    owner.kill()
    assert_gone(tmp_path, processes)


def test_nothing_is_left_when_the_supervisor_is_killed(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    processes = cluster_processes(owner)
    supervisor = supervisor_of(tmp_path)
    assert supervisor is not None
    assert send(supervisor, signal.SIGKILL)
    assert_gone(tmp_path, processes)


def test_up_leaves_a_cluster_running_and_down_leaves_nothing(tmp_path: Path) -> None:
    def run(*verb: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.real.cluster", *verb, "--dir", str(tmp_path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=True)

    try:
        assert run("up", "--bare").stdout == f"export KUBECONFIG={tmp_path / 'kubeconfig'}\n"
        kubectl = [str(tmp_path / "bin" / "kubectl"), "--kubeconfig", str(tmp_path / "kubeconfig")]
        nodes = subprocess.run([*kubectl, "get", "nodes"], capture_output=True, text=True, check=True).stdout
        assert nodes.count(" Ready ") == 2
        assert "already running" in run("up", "--bare").stderr
    finally:
        run("down")
    assert left(tmp_path) == []


def test_another_is_refused(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    processes = cluster_processes(owner)
    command = [sys.executable, "-m", "tests.real.cluster"]
    for verb, code, said in (("up", 1, HOST_LINK), ("down", 0, "nothing runs")):
        folder = str(tmp_path / "b")
        done = subprocess.run(
            [*command, verb, "--dir", folder], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert all(map(is_alive, processes))
    assert cgroups.present(f"{cgroup_of(tmp_path)}/node-2")


def test_a_machine_without_the_programs_reads_how_to_get_them(tmp_path: Path) -> None:
    for program in ("unshare", "nsenter", "ip", "nft", "runc"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.real.cluster", "up", "--dir", str(tmp_path / "cluster")],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{INSTALL} buildah conntrack containerd debootstrap\n" in done.stderr


def test_a_folder_with_too_long_a_name_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 60)
    command = [sys.executable, "-m", "tests.real.cluster", "up", "--dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "choose another folder (--dir)" in done.stderr


@pytest.mark.parametrize("place", ["docs/real-cluster.md", ".ci/run"])
def test_every_place_that_names_the_packages_names_all_of_them(place: str) -> None:
    assert f"{INSTALL} {' '.join(PACKAGES)}\n" in (ROOT / place).read_text().replace(" -y", "")
