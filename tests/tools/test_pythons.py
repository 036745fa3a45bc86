"""The oldest and the newest Python of a machine are found, and what stays untested is said."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.pythons import LOCKED, LOWEST, NoPythonError, Promise, Python, candidates, choose, main, promised, usable

PROMISE = Promise((3, 11, 2), (3, 13))


def program(folder: Path, name: str, prints: str) -> Path:
    """A program that answers as a Python of that version does."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{prints}\n")
    file.chmod(0o755)
    return file


def version(*numbers: int, level: str = "final") -> str:
    """What such a program does."""
    return f"echo '{json.dumps([*numbers, level])}'"


def pythons(*versions: tuple[int, int, int]) -> list[Python]:
    return [Python(one, Path("/bin") / f"python{one[0]}.{one[1]}") for one in versions]


def test_the_oldest_that_edl_promises_is_taken_with_the_lowest_libraries() -> None:
    choice = choose("oldest", pythons((3, 10, 13), (3, 11, 1), (3, 13, 0), (3, 11, 2)), PROMISE)
    assert (choice.python.version, choice.constraints) == ((3, 11, 2), LOWEST)
    assert (
        choice.sentence == "make oldest: Python 3.11.2 (/bin/python3.11) with the lowest libraries of pyproject.toml"
    )
    assert choice.variables() == f"PYTHON=/bin/python3.11 VENV=.venv-3.11.2-lowest CONSTRAINTS={LOWEST}"


@pytest.mark.parametrize("found", [(3, 11, 7), (3, 12, 1), (3, 13, 0)])
def test_another_python_than_the_oldest_is_said_to_be_another(found: tuple[int, int, int]) -> None:
    choice = choose("oldest", pythons(found), PROMISE)
    assert (choice.python.version, choice.constraints) == (found, LOWEST)
    assert "NOT TESTED here: Python 3.11.2, the oldest that edl promises, is not on this machine" in choice.sentence


def test_the_lowest_libraries_are_not_built_for_a_python_that_has_no_wheels_of_them() -> None:
    choice = choose("oldest", pythons((3, 14, 0)), PROMISE)
    assert choice.constraints == LOCKED
    assert "is not on this machine; the lowest libraries have no wheels for Python newer than 3.13" in choice.sentence


def test_the_newest_is_compared_as_a_number() -> None:
    choice = choose("newest", pythons((3, 9, 18), (3, 13, 0), (3, 11, 2)), PROMISE)
    assert (choice.python.version, choice.constraints) == ((3, 13, 0), LOCKED)
    assert choice.sentence == "make newest: Python 3.13.0 (/bin/python3.13) with the locked libraries"


def test_an_only_python_is_the_newest_and_that_is_said() -> None:
    sentence = choose("newest", pythons((3, 11, 2)), PROMISE).sentence
    assert sentence.endswith("NOT TESTED here: Python 3.13, the newest that edl names, is not on this machine")


def test_without_a_python_that_edl_promises_nothing_is_chosen() -> None:
    with pytest.raises(NoPythonError, match=r"no Python 3\.11\.2 or newer .* apt-get install python3-venv"):
        choose("oldest", pythons((3, 10, 13), (3, 11, 1)), PROMISE)


def test_programs_that_are_no_python_to_test_with_are_left_out(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    taken = program(first, "python3", version(3, 11, 2))
    program(second, "python3.11", version(3, 11, 2))  # the same version, later in PATH
    program(first, "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    program(first, "python3.14", version(3, 14, 0, level="candidate"))
    program(first, "python3.13", "echo no JSON")
    program(first, "python3-config", version(3, 13, 0))
    (second / "python3").touch(mode=0o644)  # cannot be run
    own = program(tmp_path / "pyenv" / "versions" / "3.10.13" / "bin", "python3.10", version(3, 10, 13))
    path = f"{first}:{tmp_path / 'missing'}::{second}"
    assert usable(candidates(path, tmp_path / "pyenv")) == [Python((3, 10, 13), own), Python((3, 11, 2), taken)]


def test_the_python_that_runs_the_tests_is_usable() -> None:
    assert [one.version for one in usable([Path(sys.executable)])] == [sys.version_info[:3]]


def test_the_promise_is_read_from_the_project() -> None:
    names = ["Python :: 3.9", "Python :: 3.13", "Python :: 3.11", "Python :: 3 :: Only"]
    classifiers = [f"Programming Language :: {name}" for name in names]
    text = f'[project]\nrequires-python = ">=3.11.2"\nclassifiers = {json.dumps(classifiers)}\n'
    assert promised(text) == PROMISE


@pytest.mark.parametrize(("which", "found"), [("oldest", (3, 11, 9)), ("newest", (3, 12, 4))])
def test_make_gets_variables_and_the_reader_a_sentence(
    which: str,
    found: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for one in ((3, 11, 9), (3, 12, 4)):
        program(tmp_path, f"python{one[0]}.{one[1]}", version(*one))
    monkeypatch.setenv("PATH", f"{tmp_path}:/nothing")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    assert main([which]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"PYTHON={tmp_path}/python{found[0]}.{found[1]} VENV=.venv-")
    assert printed.err.count("NOT TESTED here") == 1


def test_a_machine_without_any_stops_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert main(["oldest"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("no Python")) == ("", 1)
