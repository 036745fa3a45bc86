from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edl import __version__
from edl.cli.main import main
from edl.kube.snapshot_files import read_snapshot_files
from edl.model.plan import Limits
from edl.observability.decision_records import DecisionRecord, RecordFolder
from edl.planner.decide import decide, policy_named

DOCS = Path(__file__).parents[2] / "docs" / "plan.md"

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
    commands = ("controller", "plan", "explain", "replay", "master", "audit", "crd", "manifests")
    assert all(command in out for command in commands)


def test_help_waits_for_no_solver_and_no_client() -> None:
    done = python(
        "import sys; sys.argv = ['edl', '--help']\n"
        "from edl.cli.main import main\n"
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
        "from edl.cli.main import main\n"
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


def test_a_plan_keeps_to_the_quotas_of_a_file(run: Run, cluster: str, tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    queues.write_text("default: {cpu: 2100m}\n")
    code, out, err = run("plan", "-f", cluster, "--queues", str(queues), "-o", "json")
    assert (code, err) == (0, "")
    (decision,) = json.loads(out)["decisions"]
    assert (decision["target"], decision["reason"]) == (2, "QuotaReached")
    queues.write_text("default: {cpu: -2}\n")
    code, out, err = run("plan", "-f", cluster, "--queues", str(queues))
    assert (code, out) == (2, "")
    assert err.startswith(f"edl: --queues {queues}, line 1: queue default: cpu '-2' is negative")
    code, _, err = run("controller", "--queues", str(queues), "--once", "--dry-run")
    assert code == 2
    assert err.startswith(f"edl: --queues {queues}, line 1: queue default: cpu '-2' is negative")


SERVED = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: "1", memory: 1Gi}}}]}
"""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "2 of 3: cpu is full on node n1"),
        (["--max-load-desired", "0.6"], "1 of 3: --max-load-desired 0.6 is reached"),
        (["--serving-headroom", "1"], "1 of 3: cpu is full on node n1"),
    ],
)
def test_plan_and_explain_keep_to_the_limits_of_the_controller(
    run: Run, cluster: str, tmp_path: Path, flags: list[str], says: str
) -> None:
    serving = tmp_path / "serving.yaml"
    serving.write_text(SERVED)
    files = ("-f", cluster, "-f", str(serving), "-o", "json")
    code, out, err = run("plan", *files, *flags)
    assert (code, err) == (0, "")
    (decision,) = json.loads(out)["decisions"]
    assert decision["message"].startswith(says)
    code, out, err = run("explain", "ctr", *files, *flags)
    assert (code, err) == (0, "")
    assert json.loads(out)["message"] == decision["message"]


@pytest.mark.parametrize("command", [["plan"], ["explain", "ctr"]])
def test_limits_that_make_no_sense_are_refused_as_the_controller_refuses_them(
    run: Run, cluster: str, command: list[str]
) -> None:
    wrong = ("--max-load-desired", "1.5", "--serving-headroom", "2.5")
    code, out, err = run(*command, "-f", cluster, *wrong)
    assert (code, out) == (2, "")
    assert "--max-load-desired '1.5': " in err
    assert "give a number above 0 and at most 1, such as 0.97" in err
    assert "--serving-headroom '2.5': " in err
    assert run("controller", "--once", "--dry-run", *wrong) == (2, "", err)


OLD, NOW = "2026-01-05T08:00:00Z", "2026-01-05T10:00:00Z"


def a_node(name: str, cpu: int) -> str:
    return f"""
---
apiVersion: v1
kind: Node
metadata: {{name: {name}}}
status: {{allocatable: {{cpu: "{cpu}", memory: 64Gi, pods: "110"}}, conditions: [{{type: Ready, status: "True"}}]}}"""


def a_pod(role: str, cpu: str) -> str:
    labels = f'{{paddlepaddle.org/job: ctr, paddlepaddle.org/role: {role}, paddlepaddle.org/index: "0"}}'
    return f"""
---
apiVersion: v1
kind: Pod
metadata: {{name: ctr-{role}-0, namespace: ads, uid: {role}, labels: {labels}, creationTimestamp: {OLD}}}
spec: {{nodeName: n0, containers: [{{name: c, resources: {{requests: {{cpu: "{cpu}"}}}}}}]}}
status: {{phase: Running}}"""


PIECES = f"""
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {{name: ctr, namespace: ads, uid: u, creationTimestamp: {OLD}}}
spec:
  fault_tolerant: true
  trainer: {{entrypoint: train, min-instance: 1, max-instance: 4, resources: {{requests: {{cpu: "4"}}}}}}
  pserver: {{min-instance: 1, resources: {{requests: {{cpu: "3"}}}}}}"""
PIECES += a_node("n0", 9) + a_node("n1", 3) + a_pod("pserver", "3") + a_pod("trainer", "4") + a_pod("master", "250m")


def test_what_would_move_is_told_or_why_nothing_does(run: Run, tmp_path: Path) -> None:
    saved, new = tmp_path / "pieces.yaml", tmp_path / "new.yaml"
    saved.write_text(PIECES)
    new.write_text(NEW)
    at = ("plan", "-f", str(saved), "--now", NOW)
    code, out, err = run(*at, "--consolidate-after-s", "7200")
    assert (code, err) == (0, "")
    assert "ctr-pserver-0 moves to n1" in out
    _, out, err = run(*at, "--consolidate-after-s", "7201")
    assert "moves" not in out
    assert err.startswith("edl: no pserver moves: pod ads/ctr-")
    assert err.endswith(" started 7200 s ago, and nothing may change for 7201 s\n")
    assert run(*at)[2] == "", "it was not asked for"
    _, out, err = run(*at, "-f", str(new), "--consolidate-after-s", "60")
    assert "ads/ctr" not in out.partition("What changes")[2].partition("Jobs that were there")[0], out


def test_several_files_are_read_and_the_later_one_wins(run: Run, cluster: str, tmp_path: Path) -> None:
    cordoned = tmp_path / "cordoned.json"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"unschedulable": True}}
    cordoned.write_text(json.dumps(node))
    _, out, _ = run("plan", "-f", cluster, "-f", str(cordoned), "-o", "json")
    assert json.loads(out)["decisions"][0]["reason"] == "Unschedulable"


NEW = """
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: new, namespace: ads}
spec: {trainer: {entrypoint: train, min-instance: 2, max-instance: 2, resources: {requests: {cpu: "1", memory: 1Gi}}}}
"""


def test_a_later_file_is_told_by_what_it_changes(run: Run, cluster: str, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(NEW)
    code, out, _ = run("plan", "-f", cluster, "-f", str(new))
    assert code == 0
    assert f"What changes, against {cluster} alone:" in out
    assert "ads/ctr       3      1  2 trainers fewer (fulfilment -1)" in out
    _, out, _ = run("plan", "-f", cluster, "-f", str(new), "-o", "json")
    changed = {job["name"]: job["trainers"] for job in json.loads(out)["changes"]["jobs"]}
    assert changed == {"ctr": -2, "new": 2}


def test_one_file_is_compared_with_nothing(run: Run, cluster: str) -> None:
    assert "What changes" not in run("plan", "-f", cluster)[1]
    assert "changes" not in json.loads(run("plan", "-f", cluster, "-o", "json")[1])


def test_the_old_controller_is_told_as_a_comparison(run: Run, cluster: str) -> None:
    code, out, err = run("plan", "-f", cluster, "--policy", "edl-2017")
    assert (code, err) == (0, "")
    assert "Policy edl-2017 is only to compare with" in out
    _, out, _ = run("plan", "-f", cluster, "--policy", "edl-2017", "-o", "json")
    assert json.loads(out)["comparison"] == {"policy": "edl-2017", "pending": 0}


def test_no_controller_runs_a_policy_that_is_only_to_compare_with(run: Run) -> None:
    code, out, err = run("controller", "--once", "--policy", "edl-2017")
    assert (code, out) == (2, "")
    assert "--policy edl-2017 is only to compare with, by edl plan" in err
    assert "choose one of maxmin" in err


def test_help_names_every_policy(run: Run) -> None:
    offered = "".join(run("plan", "--help")[1].split())
    assert all(name in offered for name in ("maxmin", "static-min", "static-max", "edl-2017"))
    run_by = "".join(run("controller", "--help")[1].split())
    assert "static-max" in run_by
    assert "edl-2017" not in run_by


def test_a_job_of_a_saved_cluster_is_explained(run: Run, cluster: str) -> None:
    code, out, err = run("explain", "ctr", "-f", cluster)
    assert (code, err) == (0, "")
    assert out.startswith("ads/ctr: 0 now, 3 planned (min 1, max 3), AtMax\n  3 of 3: at its maximum\n")
    code, out, _ = run("explain", "ads/ctr", "-n", "ads", "-f", cluster, "-o", "json")
    assert code == 0
    assert json.loads(out)["remedies"] == ["raise spec.trainer.max-instance"]


def test_a_time_that_the_files_do_not_hold_is_not_made_up(run: Run, cluster: str, tmp_path: Path) -> None:
    timeless = tmp_path / "timeless.yaml"
    timeless.write_text(CLUSTER.replace(', creationTimestamp: "2026-01-05T10:00:00Z"', ""))
    _, out, _ = run("explain", "ctr", "-f", str(timeless))
    assert out.endswith("Policy maxmin; the input holds no time, and --now sets one; nothing was changed.\n")
    assert json.loads(run("explain", "ctr", "-f", str(timeless), "-o", "json")[1])["observedAt"] is None
    _, out, _ = run("explain", "ctr", "-f", str(timeless), "--now", "2026-01-05T11:00:00+01:00")
    assert out.endswith("Policy maxmin, as of 2026-01-05T10:00:00Z; nothing was changed.\n")
    assert "as of 2026-01-05T10:00:00Z;" in run("explain", "ctr", "-f", cluster)[1]


def test_a_job_where_none_may_run_is_not_planned(run: Run, cluster: str, tmp_path: Path) -> None:
    there = tmp_path / "there.yaml"
    there.write_text(NEW.replace("namespace: ads", "namespace: paddlecloud"))
    files = ("-f", cluster, "-f", str(there), "-o", "json")
    code, out, _ = run("plan", *files)
    assert code == 0
    decision = next(d for d in json.loads(out)["decisions"] if d["name"] == "new")
    assert (decision["reason"], decision["target"]) == ("InvalidSpec", 0)
    assert "namespace paddlecloud is reserved for the controller" in decision["message"]
    assert json.loads(run("explain", "new", *files)[1])["message"] == decision["message"]


def test_a_misspelled_field_is_named_beside_the_missing_one(run: Run, cluster: str, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"

    def message(text: str) -> str:
        new.write_text(text)
        decisions = json.loads(run("plan", "-f", cluster, "-f", str(new), "-o", "json")[1])["decisions"]
        return str(next(d for d in decisions if d["name"] == "new")["message"])

    assert message(NEW.replace("min-instance:", "min-instances:")) == (
        "spec.trainer.min-instance is missing; add it; the unknown field min-instances may be a misspelling of it"
    )
    assert message(NEW.replace("min-instance: 2, ", "")) == "spec.trainer.min-instance is missing; add it", (
        "max-instance is a field of its own"
    )
    assert message(NEW.replace("trainer:", "trainers:")) == (
        "spec.trainer is missing; add it; the unknown field trainers may be a misspelling of it"
    )


PODS_OF_A_JOB = re.search(r"```yaml\n(apiVersion: v1\nkind: List\n.*?)```", DOCS.read_text(), re.DOTALL)


def test_the_pods_of_the_example_belong_to_their_job(run: Run, tmp_path: Path) -> None:
    assert PODS_OF_A_JOB is not None
    pods = tmp_path / "pods.yaml"
    pods.write_text(PODS_OF_A_JOB[1])
    two = tmp_path / "two.yaml"  # a master, its trainer, and nothing else
    two.write_text(
        CLUSTER.replace('cpu: "4"', "cpu: 1250m").replace(
            "  master: {resources: {requests: {cpu: 100m, memory: 64Mi}}}\n", ""
        )
    )
    code, out, err = run("plan", "-f", str(two), "-f", str(pods), "-o", "json")
    assert (code, err) == (0, "")
    (decision,) = json.loads(out)["decisions"]
    assert (decision["current"], decision["target"], decision["victims"]) == (1, 1, [])
    pods.write_text(PODS_OF_A_JOB[1].replace("paddlepaddle.org/job: ctr", "app: ctr"))
    (decision,) = json.loads(run("plan", "-f", str(two), "-f", str(pods), "-o", "json")[1])["decisions"]
    assert (decision["current"], decision["admitted"]) == (0, False)


def test_flags_are_also_short_environment_variables(run: Run, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_F", cluster)
    monkeypatch.setenv("EDL_O", "json")
    monkeypatch.setenv("EDL_N", "ads")
    assert json.loads(run("plan")[1])["decisions"][0]["name"] == "ctr"
    assert json.loads(run("explain", "ctr")[1])["namespace"] == "ads"


def test_a_queue_without_a_quota_is_told_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    new, queues = tmp_path / "new.yaml", tmp_path / "queues.yaml"
    new.write_text(NEW.replace("spec: {", "spec: {queue: blue, "))
    queues.write_text("blu: {cpu: 1}\n")
    code, out, err = run("plan", "-f", cluster, "-f", str(new), "--queues", str(queues), "-o", "json")
    assert (code, len(json.loads(out)["decisions"])) == (0, 2)
    assert err == (
        f"edl: queue blue (job ads/new) is not in --queues {queues}, so it has no limit\n"
        f"edl: no job is in queue blu of --queues {queues}, so its quota limits nothing; jobs that name no queue are"
        " in default, which has no limit\n"
    )


def test_a_job_is_explained_within_the_quotas_of_the_controller(run: Run, cluster: str, tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    queues.write_text("default: {cpu: 2}\n")
    code, out, err = run("explain", "ctr", "-f", cluster, "--queues", str(queues), "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["reason"] == "QuotaReached"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ctrr", "-f", "CLUSTER"], "edl: there is no TrainingJob ctrr; is it ads/ctr?"),
        (["ctr", "-n", "vision", "-f", "CLUSTER"], "edl: there is no TrainingJob vision/ctr; is it ads/ctr?"),
        (["ctr", "-f", "CLUSTER", "--policy", "edl-2017"], "is only to compare with, by edl plan"),
        (["ctr", "--kubeconfig", "/nowhere/config"], "edl: kubeconfig /nowhere/config does not exist; give the path"),
        (["ctr", "--kubeconfig", "CLUSTER"], "edl: kubeconfig CLUSTER cannot be used"),
        (["ctr", "--now", "2026-01-05T10:00:00Z"], "is given without -f"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_explained_ends_with_2_and_a_sentence(
    run: Run, cluster: str, arguments: list[str], says: str
) -> None:
    code, out, err = run("explain", *(cluster if a == "CLUSTER" else a for a in arguments))
    assert (code, out) == (2, "")
    assert says.replace("CLUSTER", cluster) in " ".join(err.split())
    assert "Traceback" not in err


@pytest.fixture
def record(cluster: str, tmp_path: Path) -> Path:
    """The record of a decision on the cluster."""
    snapshot, _ = read_snapshot_files([cluster]).snapshot()
    made = DecisionRecord("maxmin", Limits(), snapshot, decide(snapshot, policy_named("maxmin"), Limits()))
    return RecordFolder(tmp_path / "records").write(made)


def test_a_record_is_replayed(run: Run, record: Path) -> None:
    code, out, err = run("replay", str(record))
    assert (code, err) == (0, "")
    assert out == f"{record}: the same decision (2026-01-05T10:00:00Z, 1 job, policy maxmin)\n"
    code, out, _ = run("replay", str(record), "-o", "json")
    assert code == 0
    assert json.loads(out)["records"][0]["result"] == "same"


def test_a_record_that_comes_out_different_ends_with_1_and_the_difference(run: Run, record: Path) -> None:
    body = json.loads(record.read_bytes())
    body["plan"]["decisions"][0]["target"] = 1
    record.write_text(json.dumps(body))
    code, out, err = run("replay", str(record))
    assert (code, err) == (1, "")
    assert "a different decision" in out
    assert "ads/ctr  target  1         3" in out
    code, out, _ = run("replay", str(record), "-o", "json")
    assert code == 1
    (found,) = json.loads(out)["records"][0]["differences"]
    assert found == {"job": "ads/ctr", "field": "target", "recorded": 1, "now": 3}


def test_a_folder_of_records_is_summed_up(run: Run, record: Path) -> None:
    record.with_name("decision-2.json").write_bytes(record.read_bytes())
    code, out, _ = run("replay", str(record.parent))
    assert code == 0
    assert out.splitlines()[-1] == "2 records: 2 same"


def test_a_record_of_a_moment_that_no_calendar_has_is_replayed(run: Run, record: Path) -> None:
    record.write_text(re.sub(r'"observed_at_s":[0-9.e+]+', '"observed_at_s":1e300', record.read_text()))
    code, out, _ = run("replay", str(record))
    assert code == 0
    assert "1e+300 s" in out


def test_what_is_no_record_ends_with_2(run: Run, cluster: str, tmp_path: Path) -> None:
    for path in (cluster, str(tmp_path / "nowhere.json"), str(tmp_path)):
        code, out, err = run("replay", path)
        assert (code, out) == (2, "")
        assert err.startswith(f"edl: {path}")
        assert err.count(path) == 1
        assert "give a" in err
        assert "Traceback" not in err


def test_every_flag_is_an_environment_variable(run: Run, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_FILENAME", cluster)
    monkeypatch.setenv("EDL_OUTPUT", "json")
    monkeypatch.setenv("EDL_POLICY", "static-min")
    monkeypatch.setenv("EDL_NOW", "2026-01-05T10:00:00Z")
    code, out, _ = run("plan")
    assert code == 0
    assert json.loads(out)["decisions"][0]["target"] == 1


def test_a_field_that_a_job_does_not_have_is_told_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(NEW.replace("entrypoint", "max_instance: 9, entrypoint"))
    code, out, err = run("plan", "-f", cluster, "-f", str(new), "-o", "json")
    assert (code, bool(json.loads(out))) == (0, True)
    assert err == (
        "edl: job ads/new: spec.trainer.max_instance is not a field of a TrainingJob, and edl ignores it; "
        "did you mean max-instance?\n"
    )


def test_what_is_left_out_is_told_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    poison = tmp_path / "poison.yaml"
    poison.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: 3}}")
    code, out, err = run("plan", "-f", cluster, "-f", str(poison), "-o", "json")
    assert code == 0
    assert json.loads(out)
    assert err == f"edl: {poison}: Pod p is left out: Expected `array | null`, got `int` - at `$.spec.containers`\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan"], "Missing option"),
        (["plan", "CLUSTER"], "Missing option '-f' / '--filename'"),
        (["plan", "CLUSTER"], "Put -f before each file: edl plan -f now.yaml"),
        (["plan", "-f", "/nowhere/x.yaml"], "edl: /nowhere/x.yaml cannot be read: No such file or directory"),
        (["plan", "-f", "CLUSTER", "-o", "xml"], "'xml' is not one of 'table', 'json'"),
        (["plan", "-f", "CLUSTER", "--policy", "best"], "edl: policy 'best' is unknown; choose one of"),
        (["plan", "-f", "CLUSTER", "--now", "noon"], "edl: --now 'noon' is not an RFC 3339 time; write it like"),
        (
            ["plan", "-f", "CLUSTER", "--now", "2026-01-05T10:00:00"],
            "edl: --now '2026-01-05T10:00:00' has no offset from UTC; write it like"
            " 2026-01-05T10:00:00Z or 2026-01-05T10:00:00+01:00",
        ),
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
    monkeypatch.setattr("edl.planner.decide.check", lambda *_: ("node n1 is overcommitted",))
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
