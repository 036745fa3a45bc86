"""The demonstration succeeds, and stops all its processes when it is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.control_plane.processes import heed_interrupts
from tests.e2e.worlds.harness import ROOT

pytestmark = pytest.mark.cluster("the programs of the control plane")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder for the temporary files of the demonstration."""
    yield tmp_path
    assert not list(tmp_path.iterdir()), "the demonstration left files behind"


def start(folder: Path) -> subprocess.Popen[str]:
    """The demonstration as `make demo-cluster` runs it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def processes_in(folder: Path) -> list[int]:
    """Processes whose command line names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # the process has ended meanwhile
    return found


def test_the_demonstration_succeeds_and_leaves_nothing_running(folder: Path) -> None:
    demo = start(folder)
    printed, errors = demo.communicate(timeout=400)
    assert demo.returncode == 0, f"{printed}\n{errors}"
    for line in ("TrainingJob vision", "serving is scaled to 8 pods", "Summary", "all processes are stopped"):
        assert line in printed
    assert not processes_in(folder)


def test_ctrl_c_leaves_nothing_running(folder: Path) -> None:
    demo = start(folder)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "ScaledUp" in line:
            break
    assert processes_in(folder), "the control plane is running"
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=60)
    assert demo.returncode == 130, errors
    assert "Traceback" not in errors
    deadline = time.monotonic() + 10
    while processes_in(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_in(folder)
