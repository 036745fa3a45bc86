"""Files of tests that wait run beside files that compute, and the longest start first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.distribution import LONGEST, WAITING, is_waiting, without_most_shared

ROOT = Path(__file__).parents[1]
CONFTEST = """
from tests import distribution
distribution.WAITING, distribution.LONGEST = ("test_wait",), ("test_wait_long.py", "test_compute_long.py")
def pytest_xdist_make_scheduler(config, log):
    return distribution.ByKind(config, log)
"""
FILES = ("compute_a", "compute_long", "wait_a", "wait_b", "wait_c", "wait_long")
TESTS = "import pytest\n" + "".join(f"def test_{number}():\n    pass\n" for number in range(3))


def first_files(folder: Path) -> dict[str, str]:
    """The first file of each of two processes."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for name in FILES:
        (folder / f"test_{name}.py").write_text(TESTS)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    given = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    flags = ("-v", "-p", "no:cacheprovider", "-p", "xdist", "-n", "2", "--dist", "loadfile")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, "--no-loadscope-reorder"],
        cwd=folder,
        env=inherited | given,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert f"{3 * len(FILES)} passed" in done.stdout, done.stdout + done.stderr
    found = re.findall(r"\[gw(\d)\] \[ *\d+%\] PASSED (\S+)::test_0", done.stdout)
    return {process: next(file for other, file in found if other == process) for process, _ in found}


def test_one_process_begins_with_the_longest_file_that_waits_and_one_with_the_longest_that_computes(
    tmp_path: Path,
) -> None:
    assert first_files(tmp_path) == {"0": "test_wait_long.py", "1": "test_compute_long.py"}


class Item:
    """A test, as far as it is asked where it runs."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self.markers = nodeid, markers

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None


def test_of_the_scenes_that_the_sandbox_plays_too_a_cluster_plays_every_fifth_of_each_file() -> None:
    scenes, parts = "tests/e2e/scenarios/test_a.py", "tests/e2e/parts/test_b.py"
    both = [Item(f"{scenes}::test_{number}") for number in range(6)]
    items = [Item(f"{scenes}::test_real", "cluster"), *both, Item("tests/e2e/faults/test_c.py::test_one")]
    items += [Item(f"{parts}::test_{number}") for number in range(2)]
    left = [item.nodeid.rpartition("::")[2] for item in without_most_shared(cast("list[pytest.Item]", items))]
    assert left == ["test_real", "test_0", "test_5", "test_one", "test_0", "test_1"]


def test_the_named_files_exist() -> None:
    names = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert [name for name in LONGEST if name not in names] == []
    assert [start for start in WAITING if not any(name.startswith(start) for name in names)] == []
    assert is_waiting("tests/e2e/faults/test_server.py::test_a")
    assert not is_waiting("tests/planner/test_quota.py")
