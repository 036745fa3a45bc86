"""The layout of the repository: every module has its place, and the walls between packages are complete."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
EDL, TESTS = ROOT / "edl", ROOT / "tests"
PACKAGES = sorted(path.parent for path in EDL.rglob("__init__.py"))
MOST_MODULES = 25
MOST_WITHOUT_CONTRACT = 8

# A library that is not named here may be used nowhere in edl.
ALLOWED = {
    "aiohttp": {"dashboard", "kube", "master", "observability", "sandbox"},
    "cel_expr_python": {"kube"},
    "highspy": {"planner"},
    "kubernetes": {"kube", "sandbox"},
    "lightning": {"worker_torch"},
    "msgspec": {"kube", "master", "observability", "sandbox"},
    "matplotlib": {"sim"},
    "numpy": {"kube", "explain", "planner", "sim"},
    "prometheus_client": {"master", "observability", "install"},
    "pydantic": {"api", "settings", "shadow", "sim"},
    "pydantic_core": {"api", "settings", "sim"},
    "rich": {"explain", "observability", "sandbox", "sim"},
    "scipy": {"planner", "sim"},
    "torch": {"worker_torch"},
    "transformers": {"worker_torch"},
    "typer": {"cli"},
    "yaml": {"install", "kube", "sandbox", "sim"},
}

# What a trainer's image, a journal's audit or a simulator imports must not need more than Python itself.
STANDARD_LIBRARY_ONLY = (
    "edl.worker",
    "edl.pod.roles",
    "edl.ledger.ledger",
    "edl.lifecycle.desired_state",
    "edl.model.limits",
    "edl.model.plan",
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def modules_in(folder: Path) -> list[str]:
    """The names of the modules directly in a folder, without `__init__`."""
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def children_of(package: Path) -> set[str]:
    """The names of the modules and packages directly in a package; `__main__` only starts what the others do."""
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    return {*modules_in(package), *packages} - {"__main__"}


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def contracts() -> list[dict[str, Any]]:
    """The layers contracts of import-linter that name every module of their container."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found: list[dict[str, Any]] = configuration["contracts"]
    return [c for c in found if c["type"] == "layers" and c.get("exhaustive") and not c.get("exhaustive_ignores")]


def layered(package: str) -> set[str]:
    """The names that a contract puts into layers below a package; empty if there is no such contract."""
    mine = [contract for contract in contracts() if package in contract.get("containers", ())]
    return {name for contract in mine for layer in contract["layers"] for name in re.findall(r"\w+", layer)}


@pytest.mark.parametrize(
    "package",
    [p for p in PACKAGES if p == EDL or len(modules_in(p)) > MOST_WITHOUT_CONTRACT],
    ids=module_name,
)
def test_every_module_of_a_large_package_is_in_a_layers_contract(package: Path) -> None:
    name = module_name(package)
    layers = layered(name)
    assert layers, f"pyproject.toml: {name} needs a layers contract with exhaustive = true"
    assert children_of(package) - layers == set(), f"pyproject.toml: name these in the contract of {name}"


@pytest.mark.parametrize("root", [EDL, TESTS], ids=name_of)
def test_no_folder_holds_too_many_modules(root: Path) -> None:
    folders = {path.parent for path in root.rglob("*.py")}
    counts = {name_of(folder): len(modules_in(folder)) for folder in folders}
    assert {name: count for name, count in counts.items() if count > MOST_MODULES} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_a_package_says_what_it_is_and_holds_nothing_else(package: Path) -> None:
    first, *rest = ast.parse((package / "__init__.py").read_text()).body
    assert isinstance(first, ast.Expr)
    assert isinstance(first.value, ast.Constant)
    assert str(first.value.value).strip()
    if package == EDL:
        assert [ast.unparse(node).partition(" =")[0] for node in rest] == ["__version__"]
    elif package not in {EDL / "worker", EDL / "worker_torch"}:  # doors: they name what trainers use
        assert rest == []


def test_every_folder_with_modules_is_a_package() -> None:
    assert {path.parent for path in EDL.rglob("*.py")} == set(PACKAGES)


def test_the_examples_do_not_need_the_tests() -> None:
    users = {
        name_of(path)
        for path in (ROOT / "example").rglob("*.py")
        if any(module.partition(".")[0] == "tests" for module in imports_of(path))
    }
    assert users == set()


def test_each_library_is_used_only_by_the_packages_that_may() -> None:
    used: dict[str, set[str]] = {}
    for path in EDL.rglob("*.py"):
        package = path.relative_to(EDL).with_suffix("").parts[0]
        for library in {module.partition(".")[0] for module in imports_of(path)} - {"edl"}:
            if library not in sys.stdlib_module_names:
                used.setdefault(library, set()).add(package)
    wrong = {library: packages - ALLOWED.get(library, set()) for library, packages in used.items()}
    assert {library: packages for library, packages in wrong.items() if packages} == {}
    assert ALLOWED.keys() - used.keys() == set(), "remove what is not used"


LOADED = """
import json, sys
before = set(sys.modules)
__import__(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


@pytest.mark.parametrize("module", STANDARD_LIBRARY_ONLY)
def test_it_is_imported_without_any_library(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, module], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert set(json.loads(done.stdout)) - sys.stdlib_module_names == {"edl"}


def test_tests_are_found_where_their_modules_are() -> None:
    """tests/planner/test_packing*.py tests edl/planner/packing.py; test_planner*.py would test the whole package.

    A module with many test files may have a folder of its own: tests/planner/decide/test_decide_*.py.
    """
    lost = []
    for path in TESTS.rglob("test_*.py"):
        folder = path.relative_to(TESTS).parent
        package = EDL / folder
        if folder.parts and (EDL / folder.parts[0]).is_dir():
            top = EDL / folder.parts[0]
            known = {top.name, package.name, *(module.stem for module in top.rglob("*.py"))}
            subject = path.stem.removeprefix("test_")
            has_capacity = package.is_dir() or package.with_suffix(".py").is_file()
            if not has_capacity or not any(subject == name or subject.startswith(f"{name}_") for name in known):
                lost.append(name_of(path))
    assert sorted(lost) == []
