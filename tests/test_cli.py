from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edl import __version__
from edl.cli import main

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1, creationTimestamp: "2026-01-05T10:00:00Z"}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: ctr, namespace: ads}
spec:
  fault_tolerant: true
  master: {resources: {requests: {cpu: 100m, memory: 64Mi}}}
  trainer: {entrypoint: train, min-instance: 1, max-instance: 3, resources: {requests: {cpu: "1", memory: 1Gi}}}
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process: (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edl", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return left.value.code if isinstance(left.value.code, int) else 0, told.out, told.err

    return call


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version") == (0, f"edl {__version__}\n", "")


def test_help_lists_the_commands(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(command in out for command in ("controller", "plan", "master", "audit", "crd", "manifests"))


def test_help_waits_for_no_solver_and_no_client() -> None:
    done = python(
        "import sys; sys.argv = ['edl', '--help']\n"
        "from edl.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'scipy', 'numpy', 'kubernetes', 'aiohttp', 'msgspec', 'pydantic', 'yaml'} & set(sys.modules)\n"
        "sys.exit(','.join(sorted(heavy)) or 0)"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [("typer", ["--help"]), ("typer", []), ("msgspec", ["plan", "-f", "x"]), ("scipy", ["plan", "-f", "x"])],
)
def test_without_the_extras_it_says_what_to_install(missing: str, arguments: list[str]) -> None:
    done = python(
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['edl', *{arguments!r}]\n"
        "from edl.cli import main\n"
        "main()"
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"edl: the module {missing}")
    assert "pip install '.[controller]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plan_is_printed_as_a_table(run: Run, cluster: str) -> None:
    code, out, err = run("plan", "-f", cluster)
    assert (code, err) == (0, "")
    assert "ads/ctr" in out


def test_a_plan_is_printed_as_json_and_nothing_else(run: Run, cluster: str) -> None:
    code, out, err = run("plan", "-f", cluster, "-o", "json")
    assert (code, err) == (0, "")
    (decision,) = json.loads(out)["decisions"]
    assert (decision["namespace"], decision["name"], decision["target"]) == ("ads", "ctr", 3)


def test_several_files_are_read_and_the_later_one_wins(run: Run, cluster: str, tmp_path: Path) -> None:
    cordoned = tmp_path / "cordoned.json"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"unschedulable": True}}
    cordoned.write_text(json.dumps(node))
    _, out, _ = run("plan", "-f", cluster, "-f", str(cordoned), "-o", "json")
    assert json.loads(out)["decisions"][0]["reason"] == "Unschedulable"


def test_every_flag_is_an_environment_variable(run: Run, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_FILENAME", cluster)
    monkeypatch.setenv("EDL_OUTPUT", "json")
    monkeypatch.setenv("EDL_POLICY", "static-min")
    monkeypatch.setenv("EDL_NOW", "2026-01-05T10:00:00Z")
    code, out, _ = run("plan")
    assert code == 0
    assert json.loads(out)["decisions"][0]["target"] == 1


def test_what_is_left_out_is_told_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    poison = tmp_path / "poison.yaml"
    poison.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: 3}}")
    code, out, err = run("plan", "-f", cluster, "-f", str(poison), "-o", "json")
    assert code == 0
    assert json.loads(out)
    assert err == "edl: Pod p is left out: Expected `array | null`, got `int` - at `$.spec.containers`\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan"], "Missing option"),
        (["plan", "-f", "/nowhere/x.yaml"], "edl: /nowhere/x.yaml cannot be read: No such file or directory"),
        (["plan", "-f", "CLUSTER", "-o", "xml"], "'xml' is not one of 'table', 'json'"),
        (["plan", "-f", "CLUSTER", "--policy", "best"], "edl: policy 'best' is unknown; choose one of"),
        (["plan", "-f", "CLUSTER", "--now", "noon"], "edl: --now 'noon' is no RFC 3339 time; write it like"),
        (["plan", "-f", "CLUSTER", "extra"], "unexpected extra argument"),
        (["plan", "--frobnicate"], "No such option"),
        (["frobnicate"], "No such command"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_sentence(run: Run, cluster: str, arguments: list[str], says: str) -> None:
    code, out, err = run(*(cluster if a == "CLUSTER" else a for a in arguments))
    assert (code, out) == (2, "")
    assert says in " ".join(err.split())
    assert "Traceback" not in err


def test_a_plan_that_breaks_a_rule_ends_with_1(run: Run, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.core.policy.check", lambda *_: ("node n1 is overcommitted",))
    code, out, err = run("plan", "-f", cluster)
    assert (code, out) == (1, "")
    assert "node n1 is overcommitted" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("command", "kind"), [("crd", "CustomResourceDefinition"), ("manifests", "Deployment")])
def test_generated_files_are_printed(run: Run, command: str, kind: str) -> None:
    code, out, err = run(command)
    assert (code, err) == (0, "")
    assert f"kind: {kind}" in out
    assert out.endswith("\n")
