"""Another version of edl beside this one in the same process, and values of the one as values of the other.

The package of a revision is read from git under another name. A value is translated by the names of its class and its
fields: a field that the other version does not know must have its default, else the value cannot be translated.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import io
import pkgutil
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BEFORE = "edl_before"


class UnknownThereError(Exception):
    """The other version has nothing for this value."""


def load(revision: str) -> None:
    """Make the package of a revision importable as `edl_before`.

    Args:
        revision: anything that git understands.
    """
    archive = subprocess.run(["git", "archive", revision, "edl"], check=True, capture_output=True).stdout  # noqa: S607
    folder = Path(tempfile.mkdtemp())
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    package = (folder / "edl").rename(folder / BEFORE)
    for module in package.rglob("*.py"):
        text = module.read_text(encoding="utf-8")
        module.write_text(re.sub(r"(?m)^(\s*(?:from|import) )edl\b", rf"\1{BEFORE}", text), encoding="utf-8")
    sys.path.insert(0, str(folder))


class Translation:
    """Turns values into those of another version.

    Args:
        package: the name of the package of the other version.
    """

    def __init__(self, package: str) -> None:
        self._classes: dict[str, type] = {}
        model = importlib.import_module(f"{package}.model")
        for found in pkgutil.iter_modules(model.__path__):
            module = importlib.import_module(f"{package}.model.{found.name}")
            self._classes |= {n: c for n, c in vars(module).items() if isinstance(c, type) and _is_of(c, package)}

    def __call__(self, value: object) -> object:
        """The value of the other version.

        Raises:
            UnknownThereError: it has no such class, or no such field and the field has not its default.
        """
        if isinstance(value, enum.Enum):
            return self._member(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._object(value)
        if isinstance(value, Mapping):
            return {self(key): self(each) for key, each in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._class(value)(*map(self, value))
        if isinstance(value, (tuple, frozenset, list)):
            return type(value)(self(each) for each in value)
        return value

    def _class(self, value: object) -> Callable[..., object]:
        if (found := self._classes.get(type(value).__name__)) is None:
            raise UnknownThereError(type(value).__name__)
        return found

    def _member(self, value: enum.Enum) -> object:
        try:
            return self._class(value)(value.value)
        except ValueError as error:
            raise UnknownThereError(str(error)) from error

    def _object(self, value: DataclassInstance) -> object:
        kind: Any = self._class(value)
        there, known = {f.name for f in dataclasses.fields(kind) if f.init}, dict[str, object]()
        for name, (each, default) in _fields(value, there).items():
            if name in there:
                known[name] = self(each)
            elif each != default:
                raise UnknownThereError(f"{type(value).__name__}.{name}")
        made: object = kind(**known)
        return made


def _is_of(kind: type, package: str) -> bool:
    return kind.__module__.startswith(f"{package}.")


def _fields(value: DataclassInstance, there: set[str]) -> dict[str, tuple[object, object]]:
    """Fields with their values and defaults; in place of a group that is not there, the fields of the group."""
    found = dict[str, tuple[object, object]]()
    for field in dataclasses.fields(value):
        if not field.init:
            continue
        each = getattr(value, field.name)
        if field.name not in there and type(each).__name__.endswith("Limits"):
            found |= _fields(each, there)
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = (each, field.default_factory())
        else:
            found[field.name] = (each, field.default)
    return found
