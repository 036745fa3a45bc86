"""What each role waits for, what it adds to the environment, and its messages if something is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.worlds.launcher_processes import K8S_TOOLS, PADDLE_K8S, pod_environment, run, termination_log

PRINT = "echo $PADDLE_PSERVERS $PADDLE_PSERVER_ID $PADDLE_TRAINER_ID; pwd; echo $PYTHONPATH"


def test_a_fault_tolerant_pserver_gets_names_that_outlive_pods(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, PRINT)
    assert (code, err) == (0, "")
    variables, folder, path, _ = out.splitlines()
    assert variables == "job-pserver-0.job:7164,job-pserver-1.job:7165 3 3"
    assert folder == str(tmp_path)
    assert path.split(":")[0] == str(tmp_path)


def test_a_fault_tolerant_trainer_needs_no_pservers_and_no_master(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "echo trained", "start_new_trainer", PSERVERS="0")
    assert (code, out.splitlines()[0]) == (0, "not waiting: 0 pods are needed (selector paddle-job-pserver=job)")
    assert "trained" in out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ENTRY": ""}, "ENTRY is empty"),
        ({"PSERVERS": "two"}, "PSERVERS 'two': not a whole number"),
        ({"EDL_INDEX": ""}, "EDL_INDEX is empty"),
        ({"TRAINER_PACKAGE": "/no/such"}, "workspace /no/such: cannot be entered"),
        ({"PADDLE_JOB_NAME": ""}, "PADDLE_JOB_NAME is empty"),
    ],
)
def test_a_missing_value_is_named_in_the_log_and_in_the_termination_log(
    tmp_path: Path, wrong: dict[str, str], message: str
) -> None:
    code, _, err = run(tmp_path, "touch ran", **wrong)
    assert code == 2
    assert err.startswith(f"paddle_k8s: {message}")
    assert termination_log(tmp_path).startswith(message)
    assert not (tmp_path / "ran").exists()


def test_an_unknown_role_is_refused(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "touch ran", "start_fluid", PADDLE_TRAINING_ROLE="BOSS")
    assert (code, "PADDLE_TRAINING_ROLE 'BOSS': this role does not exist" in err) == (2, True)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([*PADDLE_K8S], "required"),
        ([*PADDLE_K8S, "start_everything"], "invalid choice: 'start_everything'"),
        ([*PADDLE_K8S, "start_trainer", "v1"], "invalid choice: 'v1'"),
        ([*K8S_TOOLS], "required"),
        ([*K8S_TOOLS, "wait_pods_running", "a=b", "many"], "'many' is not a whole number"),
        ([*K8S_TOOLS, "fetch_endpoints", "a=b", "70000"], "'70000' is not a port"),
        ([*K8S_TOOLS, "count_pods_by_phase", "a=b", "failed"], "'failed' is not a phase of a pod"),
        (
            [*K8S_TOOLS, "fetch_ips", "app=web"],
            "k8s_tools: selector 'app=web': without access to the API",
        ),
    ],
)
def test_wrong_usage_is_refused_without_a_traceback(tmp_path: Path, command: list[str], message: str) -> None:
    done = subprocess.run(
        command, env=pod_environment(tmp_path, ""), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == (1 if "app=web" in command else 2)
    assert message in done.stderr
    assert (done.stdout, "Traceback" in done.stderr) == ("", False)


def test_start_master_without_edl_names_what_to_install(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "", "start_master", PATH=str(tmp_path))
    assert (code, err) == (
        2,
        "paddle_k8s: start_master: the command edl is not on PATH; run pip install '.[controller]' in a clone of edl:"
        " the project edl of the Python package index is another program\n",
    )
