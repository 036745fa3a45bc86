"""Of several processes each begins with other files of tests, so that none is compiled by all of them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collecting import no_searches, share

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests.collecting import import_share
@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    import_share(session.config)
    return (yield)
"""
FILE = """
import os
with open(os.environ["PYTEST_XDIST_WORKER"], "a") as log:
    log.write(__name__ + " ")
def test_passes():
    pass
"""
NAMES = ("a/test_1", "a/test_2", "b/test_1", "b/test_2")


def run(folder: Path, *flags: str) -> str:
    """What pytest prints for the files in two processes."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\npythonpath = .\n")
    (folder / "conftest.py").write_text(CONFTEST)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    given = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", "-n", "2", *flags]
    done = subprocess.run(
        command, cwd=folder, env=inherited | given, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr


def written(folder: Path) -> None:
    for name in NAMES:
        file = folder / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(FILE)


def imported(folder: Path) -> list[list[str]]:
    """The modules in the order in which each of the two processes has imported them."""
    return [(folder / process).read_text().split() for process in ("gw0", "gw1")]


def test_each_process_begins_with_a_share_of_its_own_and_imports_no_file_twice(tmp_path: Path) -> None:
    written(tmp_path)
    assert "4 passed" in run(tmp_path)
    assert imported(tmp_path) == [
        ["a.test_1", "a.test_2", "b.test_1", "b.test_2"],
        ["b.test_1", "b.test_2", "a.test_1", "a.test_2"],
    ]


def test_only_the_files_that_are_asked_for_are_imported(tmp_path: Path) -> None:
    written(tmp_path)
    assert "2 passed" in run(tmp_path, "--ignore=b/test_1.py", "a/test_2.py", "b")
    assert imported(tmp_path) == [["a.test_2", "b.test_2"], ["b.test_2", "a.test_2"]]


def test_a_file_that_cannot_be_imported_is_an_error_of_pytest(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "b/test_2.py").write_text("raise ValueError('not like this')\n")
    printed = run(tmp_path)
    assert "ERROR collecting b/test_2.py" in printed
    assert "ValueError: not like this" in printed


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_the_shares_are_all_files_once_and_about_equal(tmp_path: Path, count: int) -> None:
    files = [tmp_path / f"test_{number:03}.py" for number in range(100)]
    for number, file in enumerate(files):
        file.write_text("x" * (1 + number * 37 % 100))
    shares = [share(files, number, count) for number in range(count)]
    assert [file for one in shares for file in one] == files
    sizes = sorted(sum(file.stat().st_size for file in one) for one in shares)
    assert sizes[-1] - sizes[0] <= 200


def test_there_are_no_shares_of_nothing_and_of_empty_files(tmp_path: Path) -> None:
    empty = tmp_path / "test_empty.py"
    empty.touch()
    assert share([], 0, 2) == []
    assert [share([empty], number, 2) for number in range(2)] == [[empty], []]


def test_garbage_is_searched_once() -> None:
    with no_searches():
        assert not gc.isenabled()
        before = gc.get_freeze_count()
        kept: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(kept)
