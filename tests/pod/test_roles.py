"""What each role waits for, what it adds to the environment, and what it says when something is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.worlds.launcher_processes import K8S_TOOLS, PADDLE_K8S, last_words, pod_environment, run

TELL = "echo $PADDLE_PSERVERS $PADDLE_PSERVER_ID $PADDLE_TRAINER_ID; pwd; echo $PYTHONPATH"


def test_a_fault_tolerant_pserver_knows_names_that_outlive_pods(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, TELL)
    assert (code, err) == (0, "")
    told, folder, path, _ = out.splitlines()
    assert told == "job-pserver-0.job:7164,job-pserver-1.job:7165 3 3"
    assert folder == str(tmp_path)
    assert path.split(":")[0] == str(tmp_path)


def test_a_fault_tolerant_trainer_needs_no_pservers_and_no_master(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "echo trained", "start_new_trainer", PSERVERS="0")
    assert (code, out.splitlines()[0]) == (0, "label selector: paddle-job-pserver=job, desired: 0")
    assert "trained" in out


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ENTRY": ""}, "ENTRY is empty"),
        ({"PSERVERS": "two"}, "PSERVERS 'two': not a number"),
        ({"EDL_INDEX": ""}, "EDL_INDEX is empty"),
        ({"TRAINER_PACKAGE": "/no/such"}, "workspace /no/such: cannot be entered"),
        ({"PADDLE_JOB_NAME": ""}, "PADDLE_JOB_NAME is empty"),
    ],
)
def test_what_is_missing_is_named_in_the_log_and_in_the_last_words(
    tmp_path: Path, wrong: dict[str, str], said: str
) -> None:
    code, _, err = run(tmp_path, "touch ran", **wrong)
    assert code == 2
    assert err.startswith(f"paddle_k8s: {said}")
    assert last_words(tmp_path).startswith(said)
    assert not (tmp_path / "ran").exists()


def test_a_role_that_is_none_is_refused(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "touch ran", "start_fluid", PADDLE_TRAINING_ROLE="BOSS")
    assert (code, "PADDLE_TRAINING_ROLE 'BOSS': no such role" in err) == (2, True)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([*PADDLE_K8S], "required"),
        ([*PADDLE_K8S, "start_everything"], "invalid choice: 'start_everything'"),
        ([*PADDLE_K8S, "start_trainer", "v1"], "invalid choice: 'v1'"),
        ([*K8S_TOOLS], "required"),
        ([*K8S_TOOLS, "wait_pods_running", "a=b", "many"], "'many' is not a whole number"),
        ([*K8S_TOOLS, "fetch_endpoints", "a=b", "70000"], "'70000' is no port"),
        ([*K8S_TOOLS, "count_pods_by_phase", "a=b", "failed"], "'failed' is no phase of a pod"),
        ([*K8S_TOOLS, "fetch_ips", "app=web"], "k8s_tools: selector 'app=web': by DNS"),
    ],
)
def test_wrong_usage_is_told_without_a_traceback(tmp_path: Path, command: list[str], said: str) -> None:
    done = subprocess.run(
        command, env=pod_environment(tmp_path, ""), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == (1 if "app=web" in command else 2)
    assert said in done.stderr
    assert (done.stdout, "Traceback" in done.stderr) == ("", False)


def test_start_master_without_edl_says_what_to_install(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "", "start_master", PATH=str(tmp_path))
    assert (code, err) == (
        2,
        "paddle_k8s: start_master: there is no command edl on PATH; install edl with its extra `controller`\n",
    )
