"""A long run shows what it is doing, each failure at once, and the slowest files at the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.progress import clock

ROOT = Path(__file__).parents[1]
PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    assert 1 == 2\n"
CONFTEST = """
from tests.progress import Progress
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))
"""


def run(folder: Path, *flags: str) -> list[str]:
    """What pytest prints for two files, of which one fails."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_a.py").write_text(PASSES)
    (folder / "test_b.py").write_text(FAILS)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    given = {"PYTHONPATH": str(ROOT), "EDL_STARTED": str(time.time() - 61), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags]
    done = subprocess.run(
        command, cwd=folder, env=inherited | given, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "flags", [(), ("-p", "xdist", "-n", "2", "--dist", "loadfile")], ids=["one process", "two processes"]
)
def test_a_run_shows_what_it_does_and_ends_with_one_summary(tmp_path: Path, flags: tuple[str, ...]) -> None:
    lines = run(tmp_path, *flags)
    assert any(re.fullmatch(r"1:\d\d  unit 0 of 2: test_[ab]\.py", line) for line in lines)
    assert any(re.fullmatch(r"1:\d\d  FAILED test_b\.py::test_fails", line) for line in lines)
    assert not any(re.match(r"[.F]+ ", line) for line in lines), "no dots"
    table = next(i for i, line in enumerate(lines) if "slowest files" in line)
    assert {line.split()[-1] for line in lines[table + 1 : table + 3]} == {"test_a.py", "test_b.py"}
    assert re.match(r"1 failed, 1 passed in ", lines[-1])


def test_times_are_minutes_and_seconds() -> None:
    assert [clock(seconds) for seconds in (0.0, 61.9, 3600.0)] == ["0:00", "1:01", "60:00"]
