"""`paddle_k8s` as a separate process, as it runs in a container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PADDLE_K8S = [sys.executable, "-W", "error", "-m", "edl.pod", "paddle_k8s"]
K8S_TOOLS = [sys.executable, "-W", "error", "-m", "edl.pod", "k8s_tools"]


def pod_environment(folder: Path, entry: str, **more: str) -> dict[str, str]:
    """The environment that the controller sets for pserver 3 of a job without a master; the log is a file."""
    log = folder / "termination-log"
    log.touch()
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PADDLE_JOB_NAME": "job",
        "NAMESPACE": "default",
        "POD_NAME": "job-pserver-3",
        "PSERVERS": "2",
        "TRAINERS": "2",
        "PADDLE_PORT": "7164",
        "EDL_INDEX": "3",
        "EDL_MASTER": "",
        "ENTRY": entry,
        "TRAINER_PACKAGE": str(folder),
        "EDL_TERMINATION_LOG": str(log),
        **more,
    }


def start(folder: Path, entry: str, role: str = "start_new_pserver", **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PADDLE_K8S, role],
        env=pod_environment(folder, entry, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, entry: str, role: str = "start_new_pserver", **more: str) -> tuple[int, str, str]:
    """Run a role until it ends; returns (exit code, stdout, stderr)."""
    process = start(folder, entry, role, **more)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def termination_log(folder: Path) -> str:
    return (folder / "termination-log").read_text()
