"""Processes of the fork server behave as if they had been started in the usual way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.processes import identify, wait_gone
from tests.e2e.worlds.forked import Forked

END_S = 60.0
OWNER = """
import os, sys, time
from pathlib import Path
from tests.e2e.worlds.forked import Forked
reading, _ = os.pipe()
with Path(sys.argv[1]).open("wb") as out:
    sandbox = Forked("sandbox", *sys.argv[2:], environment=os.environ, files=(reading, out.fileno(), out.fileno()))
print(sandbox.pid, flush=True)
time.sleep(600)
"""


def run(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run `edl`; returns its exit code, its output and its errors."""
    paths = folder / "out", folder / "err"
    with Path(os.devnull).open("rb") as nothing, paths[0].open("wb") as out, paths[1].open("wb") as errors:
        files = nothing.fileno(), out.fileno(), errors.fileno()
        started = Forked("edl", *arguments, environment=environment or dict(os.environ), files=files, folder=folder)
    return started.wait(END_S), paths[0].read_text(), paths[1].read_text()


def sandbox_of(folder: Path) -> tuple[str, str]:
    """The arguments of a sandbox below a folder."""
    (folder / "logs").mkdir(parents=True)
    return str(folder), json.dumps(asdict(Settings()))


def test_it_prints_and_exits_as_the_program_does(tmp_path: Path) -> None:
    usual = subprocess.run(
        [Path(sys.executable).with_name("edl"), "--version"], capture_output=True, text=True, check=True
    )
    assert run(tmp_path, "--version") == (0, usual.stdout, "")
    code, _, errors = run(tmp_path, "controller", "--interval-s", "soon")
    assert code == 2
    assert "--interval-s" in errors


def test_it_has_the_environment_and_the_folder_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "here.yaml").write_text("nothing: of edl")
    assert "here.yaml" in run(tmp_path, "plan", "-f", "here.yaml")[2]
    code, _, errors = run(tmp_path, "controller", environment={"HOME": str(tmp_path), "KUBECONFIG": "nowhere.yaml"})
    assert code
    assert "nowhere.yaml" in errors


def test_it_is_waited_for_and_ended_by_a_signal(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with (tmp_path / "out").open("wb") as out:
        files = reading, out.fileno(), out.fileno()
        sandbox = Forked("sandbox", *sandbox_of(tmp_path / "box"), environment=os.environ, files=files)
    os.close(reading)
    assert sandbox.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        sandbox.wait(0.01)
    sandbox.kill()
    assert sandbox.wait(END_S) == sandbox.poll() == -signal.SIGKILL
    sandbox.send_signal(signal.SIGTERM)  # as with `Popen`, nothing happens to a process that has ended
    os.close(writing)


def test_it_ends_with_its_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "out"), *sandbox_of(tmp_path / "box")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    sandbox = identify(int(owner.stdout.readline()))
    assert sandbox is not None
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert wait_gone(sandbox, END_S)
