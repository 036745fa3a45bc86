"""`edl explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.cli.saved import CLUSTER


def test_a_job_of_a_saved_cluster_is_explained(run: Run, cluster: str) -> None:
    code, out, err = run("explain", "ctr", "-f", cluster)
    assert (code, err) == (0, "")
    assert out.startswith("ads/ctr: 0 now, 3 planned (min 1, max 3), AtMax\n  3 of 3: at its maximum\n")
    code, out, _ = run("explain", "ads/ctr", "-n", "ads", "-f", cluster, "-o", "json")
    assert code == 0
    assert json.loads(out)["remedies"] == ["raise spec.trainer.max-instance"]


def test_without_a_time_in_the_files_none_is_printed(run: Run, cluster: str, tmp_path: Path) -> None:
    timeless = tmp_path / "timeless.yaml"
    timeless.write_text(CLUSTER.replace(', creationTimestamp: "2026-01-05T10:00:00Z"', ""))
    _, out, _ = run("explain", "ctr", "-f", str(timeless))
    assert out.endswith("Policy maxmin; the input has no time (set one with --now); nothing was changed.\n")
    assert json.loads(run("explain", "ctr", "-f", str(timeless), "-o", "json")[1])["observedAt"] is None
    _, out, _ = run("explain", "ctr", "-f", str(timeless), "--now", "2026-01-05T11:00:00+01:00")
    assert out.endswith("Policy maxmin, as of 2026-01-05T10:00:00Z; nothing was changed.\n")
    assert "as of 2026-01-05T10:00:00Z;" in run("explain", "ctr", "-f", cluster)[1]


def test_a_job_is_explained_within_the_quotas_of_the_controller(run: Run, cluster: str, tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    queues.write_text("default: {cpu: 2}\n")
    code, out, err = run("explain", "ctr", "-f", cluster, "--queues", str(queues), "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["reason"] == "QuotaReached"


def test_the_files_have_the_same_warnings_as_in_a_plan(run: Run, tmp_path: Path) -> None:
    hook = {
        "name": "pods.example.com",
        "clientConfig": {"url": "https://example.com"},
        "failurePolicy": "Fail",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    saved = tmp_path / "saved.yaml"
    whole = yaml.safe_dump({**kind, "metadata": {"name": "checks"}, "webhooks": [hook]})
    misspelt = CLUSTER.replace("true", "true\n  imagee: y", 1)
    saved.write_text(f"{misspelt}\n---\n{whole}")
    _, _, planned = run("plan", "-f", str(saved))
    code, _, explained = run("explain", "ctr", "-f", str(saved))
    assert (code, explained) == (0, planned)
    assert "checks" in explained
    assert "imagee" in explained


def test_texts_of_others_are_no_commands_for_the_terminal(run: Run, tmp_path: Path) -> None:
    hostile = r"\e[2J\e]0;owned\a"
    forged = tmp_path / "forged.yaml"
    forged.write_text(f'{CLUSTER}status: {{phase: Running, explanation: "{hostile}"}}\n')
    for arguments in (["ctr"], [f"ctr{chr(27)}[2J"]):
        _, out, err = run("explain", *arguments, "-f", str(forged))
        assert r"\u001b[2J" in out + err
        assert "\x1b" not in out + err
        assert "\x07" not in out + err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ctrr", "-f", "CLUSTER"], "edl: TrainingJob ctrr does not exist; did you mean ads/ctr?"),
        (["ctr", "-n", "vision", "-f", "CLUSTER"], "edl: TrainingJob vision/ctr does not exist; did you mean"),
        (["ctr", "-f", "CLUSTER", "--policy", "edl-2017"], "only edl plan takes it, for comparison; choose"),
        (["ctr", "--kubeconfig", "/nowhere/config"], "edl: kubeconfig /nowhere/config does not exist; give the path"),
        (["ctr", "--kubeconfig", "CLUSTER"], "edl: kubeconfig CLUSTER cannot be used"),
        (
            ["ctr", "--now", "2026-01-05T10:00:00Z"],
            "is given without -f: a live cluster is explained",
        ),
        (["ctr", "-f", "CLUSTER", "-o", "table"], "--output 'table': there is no such choice; choose text or json"),
    ],
)
def test_what_cannot_be_explained_exits_with_2_and_a_message(
    run: Run, cluster: str, arguments: list[str], message: str
) -> None:
    code, out, err = run("explain", *(cluster if a == "CLUSTER" else a for a in arguments))
    assert (code, out) == (2, "")
    assert message.replace("CLUSTER", cluster) in " ".join(err.split())
    assert "Traceback" not in err
