"""`edl controller` up to the point at which it would open a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def controller(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("edl")), "controller", *flags]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("EDL_", "KUBE"))}
    return subprocess.run(
        command, env={**clean, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def test_every_wrong_value_is_reported_at_once_and_stdout_stays_empty() -> None:
    ended = controller("--interval-s", "soon", "--max-load-desired", "1.5", EDL_LISTEN="x")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sorted(ended.stderr.splitlines()) == [
        "edl: --interval-s 'soon': it must be a number from 0.1 up to 3600; give seconds, such as 5",
        "edl: --listen 'x': it has no port from 0 to 65535; give HOST:PORT, such as 0.0.0.0:8080",
        "edl: --max-load-desired '1.5': it must be a number above 0 up to 1; give a share, such as 0.97",
    ]


def test_every_flag_is_an_environment_variable() -> None:
    wrong = {"EDL_INTERVAL_S": "soon", "EDL_LISTEN": "x", "EDL_WATCH_NAMESPACE": "A B"}
    ended = controller(**wrong)
    assert ended.returncode == 2
    for flag in ("--interval-s 'soon'", "--listen 'x'", "--watch-namespace 'A'", "--watch-namespace 'B'"):
        assert flag in ended.stderr


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--kubeconfig", "/nowhere/config", "/nowhere/config"),
        ("--policy", "guess", "guess"),
        ("--record", "/proc/edl/records", "--record"),
    ],
)
def test_what_cannot_be_used_ends_the_command_with_2(flag: str, value: str, message: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("{}")
    ended = controller(flag, value, KUBECONFIG=str(kubeconfig))
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_no_controller_runs_a_policy_that_is_only_for_comparison(run: Run) -> None:
    code, out, err = run("controller", "--once", "--policy", "edl-2017", "--interval-s", "soon")
    assert (code, out) == (2, "")
    assert "--policy 'edl-2017': only edl plan takes it, for comparison; choose maxmin, utility, goodput" in err
    assert "--interval-s 'soon'" in err


def test_a_negative_quota_is_refused(run: Run, tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    queues.write_text("default: {cpu: -2}\n")
    code, _, err = run("controller", "--queues", str(queues), "--once", "--dry-run")
    assert code == 2
    assert err.startswith(f"edl: --queues {queues}, line 1: queue default: cpu '-2' is negative")


def test_help_lists_the_policies_that_a_controller_runs(run: Run) -> None:
    listed = "".join(run("controller", "--help")[1].split())
    assert "static-max" in listed
    assert "edl-2017" not in listed


def test_one_round_without_an_api_server_ends_with_the_reason(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}],"
        f" clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]}}"
    )
    monkeypatch.setattr("edl.processes.controller.ONCE_PATIENCE_S", 0.2)
    code, out, err = run("controller", "--kubeconfig", str(kubeconfig), "--once", "--dry-run")
    assert (code, out) == (1, "")
    assert f"http://127.0.0.1:{port} cannot be reached: Connection refused" in err
    assert "check the API server" in err
