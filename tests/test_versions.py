"""Each version that edl promises to work with is one that `make oldest`, `make lint` or `make release` runs with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.pythons import LOCKED, LOWEST, dotted, promised

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(PYPROJECT)
EXTRAS = PROJECT["project"]["optional-dependencies"]
OLDEST = dotted(promised(PYPROJECT).oldest)
# make torch-test runs with it; it is too large for an environment that each change is tested in.
ELSEWHERE = {"torch"}
WANTED = [
    Requirement(line)
    for line in [*PROJECT["build-system"]["requires"], *(line for extra in EXTRAS.values() for line in extra)]
    if not line.startswith("edl[")
]


def pinned(file: str, name: str) -> list[str]:
    """The versions of a library that a file names for the oldest Python."""
    here = {"python_full_version": OLDEST, "python_version": "3.11"}
    pins = [Requirement(line) for line in (ROOT / file).read_text().splitlines()]
    return [
        str(pin.specifier).removeprefix("==")
        for pin in pins
        if canonicalize_name(pin.name) == canonicalize_name(name)
        and (pin.marker is None or Marker(str(pin.marker)).evaluate(here))
    ]


@pytest.mark.parametrize("wanted", [one for one in WANTED if one.name not in ELSEWHERE], ids=lambda one: one.name)
def test_the_lowest_version_of_each_library_is_the_one_that_is_tested(wanted: Requirement) -> None:
    (bound,) = [one.version for one in wanted.specifier if one.operator in {">=", "=="}]
    (tested,) = pinned(LOWEST, wanted.name)
    assert Version(tested) == Version(bound), (
        f"pyproject.toml allows {wanted}, but the tests run with {tested}: run make lock; if it stays so, another"
        f" library needs {tested}, so allow no less"
    )


def test_the_tools_of_make_lint_and_make_release_are_not_older_than_the_locked_ones() -> None:
    bounds = {one.name: one.specifier for one in WANTED}
    for name in ("build", "mypy", "ruff", "scipy-stubs", "types-PyYAML"):
        assert pinned(LOCKED, name) == [str(bounds[name]).removeprefix(">=")], (
            f"only make lint or make release runs {name}, with the locked version; write it into pyproject.toml"
        )


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_a_reader_is_told_the_oldest_python(page: str) -> None:
    assert re.findall(r"Python (3[\d.]*\d) or newer", (ROOT / page).read_text()) == [OLDEST]
