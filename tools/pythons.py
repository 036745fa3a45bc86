"""Finds the oldest and the newest Python of this machine: `make oldest` and `make newest` test edl with them.

Looked at are `python3` and `python3.N` in the folders of PATH and in the versions of pyenv. One counts if it is a
release, is not older than `requires-python` of pyproject.toml, and has what it needs to make a virtual environment.
What is printed to stdout are variables for make. A sentence on stderr says which Python was chosen, and what is not
tested because a Python is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKED, LOWEST = "requirements/constraints.txt", "requirements/lowest.txt"
PROGRAM = re.compile(r"python3(\.\d+)?")
# An environment cannot be made without ensurepip, which Debian has in a package of its own (python3-venv).
QUESTION = "import ensurepip, json, sys, venv; print(json.dumps(sys.version_info[:4]))"

Version = tuple[int, ...]


class NoPythonError(Exception):
    """No Python of this machine can test edl; the message says which one to install."""


@dataclass(frozen=True, order=True)
class Python:
    """One Python of this machine: its version, as (3, 11, 2), and its program."""

    version: Version
    program: Path


@dataclass(frozen=True)
class Promise:
    """What pyproject.toml says about Python.

    Attributes:
        oldest: `requires-python`, as (3, 11, 2).
        newest: the newest one that a classifier names, as (3, 13).
    """

    oldest: Version
    newest: Version


@dataclass(frozen=True)
class Choice:
    """The Python to test with.

    Attributes:
        python: the chosen one.
        constraints: the file with the versions of the libraries.
        sentence: says what was chosen, and what stays untested.
    """

    python: Python
    constraints: str
    sentence: str

    def variables(self) -> str:
        """The variables for make; each Python and each set of libraries has an environment of its own."""
        folder = f".venv-{dotted(self.python.version)}-{Path(self.constraints).stem}"
        return f"PYTHON={self.python.program} VENV={folder} CONSTRAINTS={self.constraints}"


def dotted(version: Version) -> str:
    """A version as it is written."""
    return ".".join(map(str, version))


def promised(pyproject: str) -> Promise:
    """Read the promise from the text of pyproject.toml."""
    project = tomllib.loads(pyproject)["project"]
    oldest = project["requires-python"].removeprefix(">=")
    newest = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r"Python :: 3\.\d+$", one)]
    return Promise(_parsed(oldest), max(map(_parsed, newest)))


def candidates(path: str, pyenv: Path) -> Iterator[Path]:
    """The programs that may be a Python, in the order of PATH; those of pyenv last, whichever it has selected."""
    for folder in [*map(Path, filter(None, path.split(os.pathsep))), *sorted(pyenv.glob("versions/*/bin"))]:
        if folder.is_dir():
            yield from sorted(file.absolute() for file in folder.iterdir() if PROGRAM.fullmatch(file.name))


def usable(programs: Iterable[Path]) -> list[Python]:
    """The releases that can make an environment, oldest first; of each version the first program."""
    found: dict[Version, Python] = {}
    for program in programs:
        try:
            done = subprocess.run([program, "-I", "-c", QUESTION], capture_output=True, timeout=60, check=True)
            *version, level = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            continue  # a shim of pyenv for a version that is not selected, or a Python without ensurepip
        if level == "final":
            found.setdefault(tuple(version), Python(tuple(version), program))
    return sorted(found.values())


def choose(which: str, pythons: Iterable[Python], promise: Promise) -> Choice:
    """The `oldest` or the `newest` of the Pythons that edl promises to run on.

    Raises:
        NoPythonError: there is none.
    """
    fit = sorted(one for one in pythons if one.version >= promise.oldest)
    if not fit:
        raise NoPythonError(
            f"no Python {dotted(promise.oldest)} or newer that can make a virtual environment is in PATH or in pyenv;"
            " install one, on Debian: apt-get install python3-venv"
        )
    return _oldest(fit[0], promise) if which == "oldest" else _newest(fit[-1], promise)


def _oldest(python: Python, promise: Promise) -> Choice:
    lowest = python.version[:2] <= promise.newest
    words = [
        f"Python {dotted(python.version)} ({python.program})",
        "with the lowest libraries of pyproject.toml" if lowest else "with the locked libraries",
    ]
    untested = []
    if python.version != promise.oldest:
        untested.append(f"Python {dotted(promise.oldest)}, the oldest that edl promises, is not on this machine")
    if not lowest:
        untested.append(f"the lowest libraries have no wheels for Python newer than {dotted(promise.newest)}")
    return Choice(python, LOWEST if lowest else LOCKED, _sentence("oldest", words, untested))


def _newest(python: Python, promise: Promise) -> Choice:
    words = [f"Python {dotted(python.version)} ({python.program})", "with the locked libraries"]
    untested = []
    if python.version[:2] < promise.newest:
        untested.append(f"Python {dotted(promise.newest)}, the newest that edl names, is not on this machine")
    return Choice(python, LOCKED, _sentence("newest", words, untested))


def _sentence(which: str, words: list[str], untested: list[str]) -> str:
    end = f"; NOT TESTED here: {'; '.join(untested)}" if untested else ""
    return f"make {which}: {' '.join(words)}{end}"


def _parsed(version: str) -> Version:
    return tuple(map(int, version.split(".")))


def main(words: list[str] | None = None) -> int:
    """Print the variables for make; 0, or 2 if no Python fits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("which", choices=("oldest", "newest"))
    which = parser.parse_args(words).which
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    try:
        found = usable(candidates(os.environ.get("PATH", ""), pyenv))
        choice = choose(which, found, promised((ROOT / "pyproject.toml").read_text()))
    except NoPythonError as error:
        print(error, file=sys.stderr)
        return 2
    print(choice.sentence, file=sys.stderr)
    print(choice.variables())
    return 0


if __name__ == "__main__":
    sys.exit(main())
