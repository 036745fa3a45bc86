"""Records the protobuf field numbers of the built-in types from the Go modules that the control plane is built from.

kubectl's typed commands (`create deployment`, `cordon`, `auth can-i`) send protobuf. A number says nothing of whether
Go has a pointer there, so that is recorded too: only a pointer's zero is a value, any other zero means absent.

Run it as `python -m tests.contract.record_numbers` after the control plane was built.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.contract.record_types import ROOTS, TYPES_FILE
from tests.e2e.control_plane.versions import ControlPlaneError

NUMBERS_FILE = TYPES_FILE.with_name("builtin_numbers.json")
MODULES = ("k8s.io/api@v0.36.3", "k8s.io/apimachinery@v0.36.3", "k8s.io/apiextensions-apiserver@v0.36.3")
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^\s+(optional|repeated|map<(\w+), *([.\w]+)>) *([.\w]*) +(\w+) = (\d+);", re.MULTILINE)
_POINTER = re.compile(r'^\s+\w*\s*\*\S+\s+`json:"(\w+)', re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.DOTALL | re.MULTILINE)
_SCALARS = {"string": "s", "bytes": "y", "bool": "b", "int32": "i", "int64": "i", "uint32": "i", "double": "d"}
_ROOT_PACKAGES = {
    "k8s.io.apimachinery.pkg.apis.meta.v1": "io.k8s.apimachinery.pkg.apis.meta.v1",
    "k8s.io.apimachinery.pkg.api.resource": "io.k8s.apimachinery.pkg.api.resource",
    "k8s.io.apimachinery.pkg.runtime": "io.k8s.apimachinery.pkg.runtime",
    "k8s.io.apimachinery.pkg.util.intstr": "io.k8s.apimachinery.pkg.util.intstr",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1": (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
    ),
}


def render_numbers(cache: Path) -> str:
    """The text of the file of numbers.

    Args:
        cache: the Go module cache.
    """
    known: dict[str, dict[str, str]] = {}
    for module in MODULES:
        for path in sorted((cache / module).rglob("generated.proto")):
            known.update(_messages(path))
    numbers: dict[str, dict[str, str]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in known and name not in numbers:
            numbers[name] = known[name]
            waiting += [kind.rpartition("@")[2] for kind in known[name].values() if "@" in kind]
    lines = (f"{json.dumps(name)}:{json.dumps(numbers[name], separators=(',', ':'))}" for name in sorted(numbers))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _messages(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    text = re.sub(r"//[^\n]*", "", path.read_text())
    package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
    if package is None:
        return
    go = "\n".join(one.read_text() for one in path.parent.glob("*.go") if not one.name.startswith("zz_"))
    pointers = {name: set(_POINTER.findall(body)) for name, body in _STRUCT.findall(go)}
    for name, body in _MESSAGE.findall(text):
        full = _full_name(f"{package[1]}.{name}")
        yield full, dict(_fields(body, package[1], pointers.get(name, set())))


def _fields(body: str, package: str, pointers: set[str]) -> Iterator[tuple[str, str]]:
    """Number to `NAME KIND`; the kind is a letter or `@TYPE`, after `*` a list, `{` a map, `?` a pointer."""
    for label, _, map_value, kind, name, number in _FIELD.findall(body):
        mark = "*" if label == "repeated" else "{" if map_value else "?" if name in pointers else ""
        yield number, f"{name} {mark}{_kind(map_value or kind, package)}"


def _kind(kind: str, package: str) -> str:
    if kind in _SCALARS:
        return _SCALARS[kind]
    return "@" + _full_name(kind.lstrip(".") if "." in kind else f"{package}.{kind}")


def _full_name(name: str) -> str:
    package, _, short = name.rpartition(".")
    if package in _ROOT_PACKAGES:
        return f"{_ROOT_PACKAGES[package]}.{short}"
    return f"io.k8s.{package.removeprefix('k8s.io.')}.{short}"


def module_cache() -> Path:
    """The folder of the Go modules.

    Raises:
        ControlPlaneError: the modules are not there.
    """
    cache = Path(os.environ.get("GOMODCACHE") or Path.home() / "go" / "pkg" / "mod")
    if not all((cache / module).is_dir() for module in MODULES):
        raise ControlPlaneError(f"{cache}: the Go modules are missing; run python -m tests.e2e.control_plane build")
    return cache


if __name__ == "__main__":
    NUMBERS_FILE.write_text(render_numbers(module_cache()), encoding="utf-8")
