"""The demonstration ends well, and leaves nothing running when it is interrupted."""

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
from tests.e2e.harness import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder for temporary files that the demonstration gets."""
    yield tmp_path
    assert not list(tmp_path.iterdir()), "it left files behind"


def start(folder: Path) -> subprocess.Popen[str]:
    """The demonstration as `make demo` runs it."""
    return subprocess.Popen(
        [sys.executable, "-m", "example.demo"],
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
            continue  # it ended while we looked
    return found


def test_it_tells_the_story_to_its_end_and_leaves_nothing_running(folder: Path) -> None:
    story = start(folder)
    told, complaints = story.communicate(timeout=400)
    assert story.returncode == 0, f"{told}\n{complaints}"
    for line in ("TrainingJob vision", "serving is scaled to 8 pods", "Summary", "everything is stopped"):
        assert line in told
    assert not processes_in(folder)


def test_ctrl_c_in_the_middle_leaves_nothing_running(folder: Path) -> None:
    story = start(folder)
    assert story.stdout is not None
    for line in story.stdout:
        if "ScaledUp" in line:
            break
    assert processes_in(folder), "the control plane runs"
    story.send_signal(signal.SIGINT)
    _, complaints = story.communicate(timeout=60)
    assert story.returncode == 130, complaints
    assert "Traceback" not in complaints
    deadline = time.monotonic() + 10
    while processes_in(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_in(folder)
