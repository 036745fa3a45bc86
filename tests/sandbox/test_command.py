"""`edl sandbox` as a person uses it: a job, a serving load, scheduling, errors, and the end."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from edl.errors import ConfigError
from edl.sandbox.command import serve_sandbox
from edl.sandbox.stack import StackSettings
from edl.settings.sandbox import SandboxSettings
from tests.e2e.control_plane.kube import Kube
from tests.sandbox.pods import make_pod
from tests.sandbox.sandboxes import STOP_S, launch, leftovers, sandbox, wait_until_ready

ROOT = Path(__file__).parents[2]
EDL = str(Path(sys.executable).with_name("edl"))
RECORDS = 20_000
MOMENTS = [(seed, random.Random(seed).uniform(0.1, 9.0)) for seed in range(3)]  # noqa: S311 - not a secret


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """A client of a sandbox with two nodes of 4 cpu."""
    with sandbox(tmp_path_factory.mktemp("sandbox"), "--nodes", "2") as made:
        yield made


def serving(replicas: int, image: str = "nginx", cpu: str = "1") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "16Mi"}}
    container = {"name": "main", "image": image, "ports": [{"containerPort": 8080}], "resources": resources}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def test_a_real_job_trains_to_its_end_and_its_data_is_accounted_for(kube: Kube) -> None:
    job = yaml.safe_load((ROOT / "example" / "fit_flights" / "job.yaml").read_text())
    job["spec"]["dataset"]["source"] = f"index:{RECORDS}"
    job["spec"]["trainer"]["max-instance"] = 3
    kube.create(job)

    def has_succeeded() -> bool:
        return bool(kube.get("trainingjobs", "fit-flights").get("status", {}).get("phase") == "Succeeded")

    kube.wait_until(has_succeeded, 240, "the job succeeds")
    assert not kube.list("leases", "paddlecloud"), "the controller has no lease that a busy machine could lose"
    (claim,) = kube.list("persistentvolumeclaims", "default")
    folder = kube.kubeconfig.parent / "claims" / "default" / claim["metadata"]["name"]
    audit = subprocess.run([EDL, "audit", str(folder)], capture_output=True, text=True, check=True, timeout=120)
    assert str(RECORDS) in audit.stdout.replace(",", "")
    kube.delete("trainingjobs", "fit-flights")
    kube.wait_until(lambda: not kube.list("pods", labels="paddlepaddle.org/job"), 60, "its pods are collected")
    kube.wait_until(lambda: not kube.list("persistentvolumeclaims", "default"), 60, "its claim is collected")


def test_the_page_is_served_beside_the_sandbox(tmp_path: Path) -> None:
    def address() -> str:
        found = re.search(r"page: (http://\S+)", (tmp_path / "out").read_text())
        return found[1] if found else ""

    with sandbox(tmp_path, "--nodes", "1", "--page") as kube:
        page = kube.wait_until(address, 60, "the address of the page is printed")
        out = (tmp_path / "out").read_text()
        metrics, log = (re.search(rf"{what} of the controller: (\S+)", out) for what in ("metrics", "log"))
        assert metrics
        assert log
        assert "controller started" in Path(log[1]).read_text()
        with urllib.request.urlopen(metrics[1], timeout=120) as answer:
            assert b"edl_" in answer.read()
        link, _, token = page.partition("#token=")
        request = urllib.request.Request(f"{link}events", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=120) as stream:
            first = [stream.readline(), stream.readline()]
    assert first[0] == b"event: state\n"
    assert b'"sandbox-0"' in first[1]


def test_a_deployment_is_scaled_replaced_and_collected(kube: Kube) -> None:
    def ready() -> int:
        return int(kube.get("deployments", "web").get("status", {}).get("readyReplicas") or 0)

    kube.create(serving(2))
    kube.wait_until(lambda: ready() == 2, 60, "two pods are ready")
    kube.scale("deployments", "web", 4)
    kube.wait_until(lambda: ready() == 4, 60, "four pods are ready")
    kube.scale("deployments", "web", 1)
    kube.wait_until(lambda: len(kube.list("pods", labels="app=web")) == 1, 60, "one pod is left")
    old = {pod["metadata"]["name"] for pod in kube.list("pods", labels="app=web")}
    template = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    kube.patch("deployments", "web", template)

    def replaced() -> bool:
        names = {pod["metadata"]["name"] for pod in kube.list("pods", labels="app=web")}
        return len(names) == 1 and not names & old and ready() == 1

    kube.wait_until(replaced, 60, "the pod is replaced")
    kube.delete("deployments", "web")
    kube.wait_until(lambda: not kube.list("pods", labels="app=web"), 60, "its pods are collected")
    assert kube.list("replicasets", "default") == []


def test_a_pod_that_fits_nowhere_has_the_reason_that_kube_scheduler_gives(kube: Kube) -> None:
    kube.create(make_pod("large", "pass", resources={"requests": {"cpu": "5"}}))
    expected = (
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are"
        " available: 2 Preemption is not helpful for scheduling."
    )

    def message() -> str:
        conditions = kube.get("pods", "large")["status"].get("conditions") or [{}]
        return str(conditions[0].get("message", ""))

    kube.wait_until(lambda: message() == expected, 30, "the condition says why")
    kube.delete("pods", "large", grace_s=0)


def test_a_more_important_pod_takes_the_place_of_a_less_important_one(kube: Kube) -> None:
    for name, value in (("low", -10), ("high", 10)):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        kube.create({**body, "value": value})
    sleep = "import time; time.sleep(600)"
    for number in range(2):
        spec = {"priorityClassName": "low"}
        kube.create(make_pod(f"low-{number}", sleep, spec=spec, resources={"requests": {"cpu": "3"}}))
    kube.wait_until(
        lambda: all(kube.get("pods", f"low-{n}")["status"]["phase"] == "Running" for n in range(2)), 60, "both run"
    )
    spec = {"priorityClassName": "high"}
    kube.create(make_pod("high", sleep, spec=spec, resources={"requests": {"cpu": "3"}}))
    kube.wait_until(lambda: kube.get("pods", "high")["status"]["phase"] == "Running", 60, "it runs")
    left = [pod["metadata"]["name"] for pod in kube.list("pods", "default") if "low-" in pod["metadata"]["name"]]
    assert len(left) == 1
    for name in (*left, "high"):
        kube.delete("pods", name, grace_s=0)


@pytest.mark.parametrize(("seed", "delay_s"), MOMENTS)
def test_a_signal_at_any_moment_leaves_nothing(tmp_path: Path, seed: int, delay_s: float) -> None:
    process = launch(tmp_path, "--demo")
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT if seed % 2 else signal.SIGTERM)
    code = process.wait(STOP_S)
    assert code in {0, 130, -signal.SIGTERM}, (tmp_path / "err").read_text()
    assert "Traceback" not in (tmp_path / "err").read_text()
    wait_for_nothing(tmp_path)


def test_sigkill_leaves_nothing(tmp_path: Path) -> None:
    process = launch(tmp_path)
    wait_until_ready(process, tmp_path)
    process.kill()
    process.wait()
    wait_for_nothing(tmp_path)


def test_a_killed_supervisor_ends_the_sandbox_with_a_message(tmp_path: Path) -> None:
    process = launch(tmp_path)
    with Kube(wait_until_ready(process, tmp_path)) as kube:
        kube.create(make_pod("busy", "import time; time.sleep(600)", restart="Always"))
        kube.wait_until(lambda: kube.get("pods", "busy")["status"].get("phase") == "Running", 60, "it runs")
    (supervisor,) = [int(line.split()[0]) for line in children_of(process.pid) if "supervisor.py" in line]
    os.kill(supervisor, signal.SIGKILL)
    assert process.wait(STOP_S) == 1
    error = (tmp_path / "err").read_text()
    assert "supervisor of its containers was killed" in error or "edl controller ended" in error
    assert "Traceback" not in error
    wait_for_nothing(tmp_path)


def children_of(pid: int) -> list[str]:
    """The children of a process: id and command line."""
    ids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [f"{one} {Path(f'/proc/{one}/cmdline').read_bytes().decode()}" for one in ids]


def wait_for_nothing(folder: Path) -> None:
    deadline = time.monotonic() + STOP_S
    while left := leftovers(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def refused(folder: Path, *flags: str) -> str:
    """What a sandbox says that does not start."""
    process = launch(folder, *flags)
    assert process.wait(STOP_S) == 2
    assert leftovers(folder) == []
    return (folder / "err").read_text()


def test_an_occupied_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"127.0.0.1:{port}: Address already in use" in refused(tmp_path, "--port", str(port))


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config"
    for text in ("apiVersion: v1\nkind: Config\n", "a: ["):
        path.write_text(text)
        assert "is not that of a sandbox" in refused(tmp_path, "--kubeconfig", str(path))
        assert path.read_text() == text


def test_a_folder_that_does_not_take_a_kubeconfig_is_named(tmp_path: Path) -> None:
    assert "/proc/none/config: the kubeconfig cannot be written" in refused(
        tmp_path, "--kubeconfig", "/proc/none/config"
    )


def test_a_full_disk_ends_it_with_a_remedy_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fills_up(settings: StackSettings) -> NoReturn:
        settings.kubeconfig.write_text("half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(settings.folder / "key"))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("edl.sandbox.command.started", fills_up)
    with pytest.raises(ConfigError, match=r"/key: cannot be written: No space left on device; free some space"):
        asyncio.run(serve_sandbox(SandboxSettings()))
    assert not [*tmp_path.iterdir()]


def test_a_folder_as_kubeconfig_is_refused_and_stays(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"this is a folder; give the path of a file$"):
        asyncio.run(serve_sandbox(SandboxSettings(kubeconfig=tmp_path)))
    assert tmp_path.is_dir()


def test_a_kubeconfig_that_cannot_be_removed_hides_no_error_and_new_folders_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def takes_the_place(settings: StackSettings) -> NoReturn:
        settings.kubeconfig.mkdir(parents=True)
        raise ConfigError("what went wrong")

    def is_written(settings: StackSettings) -> NoReturn:
        settings.kubeconfig.parent.mkdir(parents=True)
        settings.kubeconfig.write_text("all of it")
        raise ConfigError("what went wrong")

    for starts in (takes_the_place, is_written):
        monkeypatch.setattr("edl.sandbox.command.started", starts)
        with pytest.raises(ConfigError, match="what went wrong"):
            asyncio.run(serve_sandbox(SandboxSettings(kubeconfig=tmp_path / starts.__name__ / "new" / "config")))
    assert [path.name for path in tmp_path.iterdir()] == ["takes_the_place"]


def test_flags_of_the_controller_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []

    def starts(settings: StackSettings) -> NoReturn:
        seen.append(settings.controller_flags)
        raise ConfigError("enough")

    monkeypatch.setattr("edl.sandbox.command.started", starts)
    with pytest.raises(ConfigError, match="enough"):
        asyncio.run(serve_sandbox(SandboxSettings(controller_flags="--queues 'my file' --policy utility")))
    assert seen == [("--queues", "my file", "--policy", "utility")]
    with pytest.raises(ConfigError, match="close each quote"):
        asyncio.run(serve_sandbox(SandboxSettings(controller_flags="--queues 'my file")))


def test_the_kubeconfig_of_a_sandbox_that_runs_is_not_overwritten(kube: Kube) -> None:
    before = kube.kubeconfig.read_text()
    other = subprocess.run(
        [EDL, "sandbox", "--kubeconfig", str(kube.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (other.returncode, "is still running" in other.stderr) == (2, True)
    assert kube.kubeconfig.read_text() == before


def test_the_kubeconfig_of_a_sandbox_that_has_ended_is_replaced_and_removed(tmp_path: Path, kube: Kube) -> None:
    path = tmp_path / "config"
    with socket.create_server(("127.0.0.1", 0)) as server:
        unused = f"127.0.0.1:{server.getsockname()[1]}"
    old = re.sub(r"127\.0\.0\.1:\d+", unused, kube.kubeconfig.read_text())
    path.write_text(old)
    stale = subprocess.run(
        [EDL, "kubelet", "--kubeconfig", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )
    assert stale.returncode == 1
    assert "start the cluster of this kubeconfig" in stale.stderr
    with sandbox(tmp_path, "--kubeconfig", str(path), "--nodes", "1") as replacing:
        assert replacing.kubeconfig == path
        assert path.read_text() != old
    assert not path.exists()
