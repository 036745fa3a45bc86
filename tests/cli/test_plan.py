"""`edl plan`: its formats, its files, its limits and its messages."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from edl.controller.planning import JudgedPlan, judge_snapshot
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from tests.cli.conftest import Run
from tests.cli.saved import CLUSTER, NEW_JOB, SERVING_POD
from tests.tools.verifier import faults

DOCS = Path(__file__).parents[2] / "docs" / "plan.md"


def test_a_plan_is_printed_as_a_table(run: Run, cluster: str) -> None:
    code, out, err = run("plan", "-f", cluster)
    assert (code, err) == (0, "")
    assert "ads/ctr" in out


def test_a_plan_is_printed_as_json_and_nothing_else(run: Run, cluster: str) -> None:
    code, out, err = run("plan", "-f", cluster, "-o", "json")
    assert (code, err) == (0, "")
    (decision,) = json.loads(out)["decisions"]
    assert (decision["namespace"], decision["name"], decision["target"]) == ("ads", "ctr", 3)


def test_wide_adds_the_prices_and_the_full_account_of_each_job(
    run: Run, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_details(snapshot: ClusterSnapshot, policy: str, limits: Limits, *, proves: bool) -> JudgedPlan:
        judged = judge_snapshot(snapshot, policy, limits, proves=proves)
        said = tuple(replace(d, message="short", details="long") for d in judged.plan.decisions)
        return replace(judged, plan=replace(judged.plan, decisions=said))

    monkeypatch.setattr("edl.cli.plan.judge_snapshot", with_details)
    new = tmp_path / "new.yaml"
    new.write_text(NEW_JOB)
    printed = {}
    for output in ("table", "wide"):
        code, out, err = run("plan", "-f", cluster, "-f", str(new), "-o", output)
        assert (code, err) == (0, "")
        printed[output] = out
    assert "ads/ctr: short\n" in printed["table"]
    assert "PRICE" not in printed["table"]
    assert "ads/ctr: long\n" in printed["wide"]
    assert re.search(r"PRICE +RESOURCE +OF +\n +0.5 +cpu", printed["wide"])


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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "2 of 3: cpu is full on node n1"),
        (["--max-load-desired", "0.6"], "1 of 3: --max-load-desired 0.6 is reached"),
        (["--serving-headroom", "1"], "1 of 3: cpu is full on node n1"),
    ],
)
def test_plan_and_explain_keep_to_the_limits_of_the_controller(
    run: Run, cluster: str, tmp_path: Path, flags: list[str], message: str
) -> None:
    serving = tmp_path / "serving.yaml"
    serving.write_text(SERVING_POD)
    files = ("-f", cluster, "-f", str(serving), "-o", "json")
    code, out, err = run("plan", *files, *flags)
    assert (code, err) == (0, "")
    (decision,) = json.loads(out)["decisions"]
    assert decision["message"].startswith(message)
    code, out, err = run("explain", "ctr", *files, *flags)
    assert (code, err) == (0, "")
    assert json.loads(out)["message"] == decision["message"]


def test_learned_headroom_of_a_saved_cluster_is_cold_and_says_so(run: Run, cluster: str, tmp_path: Path) -> None:
    serving = tmp_path / "serving.yaml"
    serving.write_text(SERVING_POD)
    files = ("-f", cluster, "-f", str(serving), "--serving-headroom", "auto")
    code, out, err = run("plan", *files)
    assert (code, err) == (0, "")
    assert "Headroom: no capacity is kept for pods of" in out
    assert "cold start: no history yet, so no capacity is kept" in out
    code, out, err = run("plan", *files, "-o", "json")
    assert (code, err) == (0, "")
    (headroom,) = json.loads(out)["headroom"]
    assert (headroom["wanted"], headroom["held"], headroom["deleted"]) == (0, 0, 0)


@pytest.mark.parametrize("command", [["plan"], ["explain", "ctr"]])
def test_wrong_limits_are_refused_with_the_message_of_the_controller(
    run: Run, cluster: str, command: list[str]
) -> None:
    wrong = ("--max-load-desired", "1.5", "--serving-headroom", "2.5")
    code, out, err = run(*command, "-f", cluster, *wrong)
    assert (code, out) == (2, "")
    assert "--max-load-desired '1.5': it must be a number above 0 up to 1; give a share, such as 0.97" in err
    assert "--serving-headroom '2.5': it must be a whole number from 0 up to 100000" in err
    assert run("controller", "--once", "--dry-run", *wrong) == (2, "", err)


OLD, NOW = "2026-01-05T08:00:00Z", "2026-01-05T10:00:00Z"


def a_node(name: str, cpu: int, *, labels: str = "") -> str:
    return f"""
---
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{{labels}}}}}
status: {{allocatable: {{cpu: "{cpu}", memory: 64Gi, pods: "110"}}, conditions: [{{type: Ready, status: "True"}}]}}"""


def a_pod(role: str, cpu: str, index: int = 0, node: str = "n0") -> str:
    labels = f'{{paddlepaddle.org/job: ctr, paddlepaddle.org/role: {role}, paddlepaddle.org/index: "{index}"}}'
    return f"""
---
apiVersion: v1
kind: Pod
metadata: {{name: ctr-{role}-{index}, namespace: ads, uid: {role}{index}, labels: {labels}, creationTimestamp: {OLD},
  ownerReferences: [{{apiVersion: paddlepaddle.org/v1, kind: TrainingJob, name: ctr, uid: u, controller: true}}]}}
spec: {{nodeName: {node}, containers: [{{name: c, resources: {{requests: {{cpu: "{cpu}"}}}}}}]}}
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


def test_a_plan_prints_which_pserver_moves_or_why_none_does(run: Run, tmp_path: Path) -> None:
    saved, new = tmp_path / "pieces.yaml", tmp_path / "new.yaml"
    saved.write_text(PIECES)
    new.write_text(NEW_JOB)
    at = ("plan", "-f", str(saved), "--now", NOW)
    code, out, err = run(*at, "--consolidate-after-s", "7200")
    assert (code, err) == (0, "")
    assert "ctr-pserver-0 moves to n1" in out
    _, out, err = run(*at, "--consolidate-after-s", "7201")
    assert "moves" not in out
    assert err.startswith("edl: no pserver moves: pod ads/ctr-")
    assert err.endswith(" started 7200 s ago; pservers move only after 7201 s without a change\n")
    assert run(*at)[2] == "", "without the flag nothing is said"
    _, out, err = run(*at, "-f", str(new), "--consolidate-after-s", "60")
    assert "ads/ctr" not in out.partition("Changes against")[2].partition("Jobs that were there")[0], out


def test_a_plan_prints_which_trainers_come_together(run: Run, tmp_path: Path) -> None:
    """One of three trainers is in another rack than the others."""
    job = f"""
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {{name: ctr, namespace: ads, uid: u, creationTimestamp: {OLD}}}
spec:
  fault_tolerant: true
  topology: {{key: rack}}
  trainer: {{entrypoint: train, min-instance: 1, max-instance: 3, resources: {{requests: {{cpu: "1"}}}}}}"""
    nodes = a_node("n0", 4, labels="rack: a") + a_node("n1", 4, labels="rack: b")
    trainers = "".join(a_pod("trainer", "1", index, node) for index, node in enumerate(("n0", "n0", "n1")))
    saved = tmp_path / "split.yaml"
    saved.write_text(job + nodes + trainers + a_pod("master", "250m"))
    code, out, err = run("plan", "-f", str(saved), "--now", NOW, "--consolidate-after-s", "7200")
    assert (code, err) == (0, "")
    assert "+1 on n0, -ctr-trainer-2" in out


def test_several_files_are_read_and_the_later_one_wins(run: Run, cluster: str, tmp_path: Path) -> None:
    cordoned = tmp_path / "cordoned.json"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"unschedulable": True}}
    cordoned.write_text(json.dumps(node))
    _, out, _ = run("plan", "-f", cluster, "-f", str(cordoned), "-o", "json")
    assert json.loads(out)["decisions"][0]["reason"] == "Unschedulable"


def test_a_file_name_with_commas_and_brackets_is_one_name(run: Run, tmp_path: Path) -> None:
    odd = [tmp_path / name for name in ("a,b.yaml", "[1, 2].yaml", '{"a": 1}.yaml', "with space.yaml")]
    for path in odd:
        path.write_text(CLUSTER)
    flags = [word for path in odd for word in ("-f", str(path))]
    code, out, err = run("plan", *flags, "-o", "json")
    assert (code, err) == (0, "")
    assert len(json.loads(out)["decisions"]) == 1


def test_a_hyphen_reads_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CLUSTER.encode())))
    code, out, err = run("plan", "-f", "-", "-o", "json")
    assert (code, err) == (0, "")
    assert len(json.loads(out)["decisions"]) == 1


def test_the_changes_of_a_later_file_are_printed(run: Run, cluster: str, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(NEW_JOB)
    code, out, _ = run("plan", "-f", cluster, "-f", str(new))
    assert code == 0
    assert f"Changes against {cluster} alone:" in out
    assert "ads/ctr       3      1  2 trainers fewer (fulfilment -1)" in out
    _, out, _ = run("plan", "-f", cluster, "-f", str(new), "-o", "json")
    changed = {job["name"]: job["trainers"] for job in json.loads(out)["changes"]["jobs"]}
    assert changed == {"ctr": -2, "new": 2}


def test_a_job_that_a_later_file_replaces_is_reported_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(CLUSTER.replace("max-instance: ", "max-instance: 1"))
    code, _, err = run("plan", "-f", cluster, "-f", str(tmp_path / "new.yaml"))
    assert code == 0
    assert re.search(r"^edl: job ads/ctr of \S+ is replaced by \S+, document 2; to plan for both", err, re.MULTILINE)


def test_one_file_is_compared_with_nothing(run: Run, cluster: str) -> None:
    assert "Changes against" not in run("plan", "-f", cluster)[1]
    assert "changes" not in json.loads(run("plan", "-f", cluster, "-o", "json")[1])


def test_the_plan_of_the_original_controller_is_marked_as_a_comparison(run: Run, cluster: str) -> None:
    code, out, err = run("plan", "-f", cluster, "--policy", "edl-2017")
    assert (code, err) == (0, "")
    assert "Policy edl-2017 is only to compare with" in out
    _, out, _ = run("plan", "-f", cluster, "--policy", "edl-2017", "-o", "json")
    assert json.loads(out)["comparison"] == {"policy": "edl-2017", "pending": 0}


def test_help_lists_every_policy(run: Run) -> None:
    listed = "".join(run("plan", "--help")[1].split())
    assert all(name in listed for name in ("maxmin", "static-min", "static-max", "edl-2017"))


def test_a_job_in_the_namespace_of_the_controller_is_not_planned(run: Run, cluster: str, tmp_path: Path) -> None:
    there = tmp_path / "there.yaml"
    there.write_text(NEW_JOB.replace("namespace: ads", "namespace: paddlecloud"))
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

    assert message(NEW_JOB.replace("min-instance:", "min-instances:")) == (
        "spec.trainer.min-instance is missing; add it; the unknown field min-instances may be a misspelling of it"
    )
    assert message(NEW_JOB.replace("min-instance: 2, ", "")) == "spec.trainer.min-instance is missing; add it", (
        "max-instance is a field of its own"
    )
    assert message(NEW_JOB.replace("trainer:", "trainers:")) == (
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


def test_a_webhook_and_a_policy_that_may_change_pods_are_named_because_a_plan_from_files_cannot_ask_them(
    run: Run, cluster: str, tmp_path: Path
) -> None:
    seen = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    unseen = {**seen, "resources": ["pods/log"]}
    of_pods, of_services = (
        {"name": name, "rules": [rule]}
        for name, rule in (
            ("inject.example.com", seen),
            ("services.example.com", {**seen, "resources": ["services"]}),
        )
    )
    objects: list[tuple[str, str, dict[str, Any]]] = [
        ("MutatingWebhookConfiguration", "inject", {"webhooks": [of_services, of_pods]}),
        ("ValidatingWebhookConfiguration", "services", {"webhooks": [of_services]}),
        ("ValidatingAdmissionPolicy", "sizes", {"spec": {"matchConstraints": {"resourceRules": [seen]}}}),
        ("MutatingAdmissionPolicy", "logs", {"spec": {"matchConstraints": {"resourceRules": [unseen]}}}),
        ("ValidatingAdmissionPolicy", "bare", {}),
    ]
    extra = tmp_path / "admission.yaml"
    extra.write_text(
        yaml.safe_dump_all(
            {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **body}
            for kind, name, body in objects
        )
    )
    code, _, err = run("plan", "-f", cluster, "-f", str(extra))
    assert code == 0
    first, second = err.splitlines()
    assert first.startswith(
        "edl: MutatingWebhookConfiguration inject (webhook inject.example.com) may change the pods of job"
        " ads/ctr, and a plan from files cannot ask it"
    )
    assert second.startswith("edl: ValidatingAdmissionPolicy sizes may refuse the pods of job ads/ctr")


def test_a_field_that_a_job_does_not_have_is_reported_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(NEW_JOB.replace("entrypoint", "max_instance: 9, entrypoint"))
    code, out, err = run("plan", "-f", cluster, "-f", str(new), "-o", "json")
    assert (code, bool(json.loads(out))) == (0, True)
    assert err == (
        "edl: job ads/new: spec.trainer.max_instance is not a field of a TrainingJob, and edl ignores it; "
        "did you mean max-instance?\n"
    )


def test_checkpoints_that_nothing_keeps_are_reported_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    template = "template: {spec: {env: [{name: EDL_CHECKPOINTS, value: /ckpt}]}}"
    new.write_text(NEW_JOB.replace("entrypoint", f"{template}, entrypoint"))
    code, _, err = run("plan", "-f", cluster, "-f", str(new), "-o", "json")
    assert code == 0
    assert err.startswith("edl: job ads/new: EDL_CHECKPOINTS of the trainer is /ckpt, but no volume is mounted there")


def test_an_object_that_is_left_out_is_reported_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    poison = tmp_path / "poison.yaml"
    poison.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: 3}}")
    code, out, err = run("plan", "-f", cluster, "-f", str(poison), "-o", "json")
    assert code == 0
    assert json.loads(out)
    assert err == f"edl: {poison}: Pod p is left out: Expected `array | null`, got `int` - at `$.spec.containers`\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-f", "/nowhere/x.yaml"], "edl: /nowhere/x.yaml cannot be read: No such file or directory"),
        (["-o", "xml"], "edl: --output 'xml': there is no such choice; choose table, wide or json"),
        (["--policy", "best"], "edl: --policy 'best': there is no such policy; choose maxmin"),
        (["--now", "noon"], "edl: --now 'noon' is not an RFC 3339 time; write it like"),
        (
            ["--now", "2026-01-05T10:00:00"],
            "edl: --now '2026-01-05T10:00:00' has no offset from UTC; write it like"
            " 2026-01-05T10:00:00Z or 2026-01-05T10:00:00+01:00",
        ),
        (
            ["--now", "noon", "-o", "xml"],
            "2026-01-05T10:00:00Z edl: --output 'xml': there is no such choice",
        ),
    ],
)
def test_a_wrong_value_exits_with_2_and_a_message(run: Run, cluster: str, flags: list[str], message: str) -> None:
    code, out, err = run("plan", "-f", cluster, *flags)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_a_plan_that_breaks_a_rule_exits_with_1(run: Run, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.planner.decide.check", lambda *_: ("node n1 is overcommitted",))
    code, out, err = run("plan", "-f", cluster)
    assert (code, out) == (1, "")
    assert "node n1 is overcommitted" in err
    assert "Traceback" not in err


def test_a_certificate_is_written_and_the_check_accepts_it(run: Run, tmp_path: Path) -> None:
    objects = [json.loads(json.dumps(one)) for one in yaml.safe_load_all(CLUSTER)]
    snapshot, proof = tmp_path / "now.json", tmp_path / "proof.json"
    snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, default=str))
    code, out, err = run("plan", "-f", str(snapshot), "-o", "json", "--certificate", str(proof))
    assert (code, err) == (0, "")
    assert faults(json.loads(snapshot.read_text()), json.loads(out), json.loads(proof.read_text())) == []


def test_a_certificate_that_cannot_be_written_is_an_error_of_usage(run: Run, cluster: str, tmp_path: Path) -> None:
    code, out, err = run("plan", "-f", cluster, "--certificate", str(tmp_path / "none" / "proof.json"))
    assert (code, out) == (2, "")
    assert err.startswith(f"edl: --certificate {tmp_path}/none/proof.json: No such file or directory; ")


def test_a_policy_for_comparison_has_no_certificate(run: Run, cluster: str, tmp_path: Path) -> None:
    code, _, err = run("plan", "-f", cluster, "--policy", "edl-2017", "--certificate", str(tmp_path / "proof.json"))
    assert (code, err) == (2, "edl: --certificate: policy edl-2017 is only for comparison; choose --policy maxmin\n")
