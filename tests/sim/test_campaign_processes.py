"""Processes for many runs: what is left when the parent is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.waiting import wait_until

PROGRAM = """
import os, pathlib, sys, time
from edl.sim.campaign import run_in_processes

def work(folder):
    pathlib.Path(folder, str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    list(run_in_processes(2, work, [(sys.argv[1],)] * 4))
"""


@pytest.mark.parametrize(
    ("sent", "to_all", "code"), [(signal.SIGINT, True, -signal.SIGINT), (signal.SIGTERM, False, 128 + signal.SIGTERM)]
)
def test_a_signal_ends_all_processes(tmp_path: Path, sent: signal.Signals, *, to_all: bool, code: int) -> None:
    program, folder = tmp_path / "program.py", tmp_path / "workers"
    program.write_text(PROGRAM)
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, str(program), str(folder)], start_new_session=True, stderr=subprocess.PIPE, text=True
    ) as parent:
        wait_until(lambda: len(list(folder.iterdir())) == 2, "two processes work")
        (os.killpg if to_all else os.kill)(parent.pid, sent)
        _, said = parent.communicate()
        assert parent.returncode == code
    assert said.count("Traceback") <= to_all, "only the parent speaks, which the command line keeps quiet"
    wait_until(lambda: not any(_lives(int(path.name)) for path in folder.iterdir()), "no process is left")


def _lives(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()
