"""Puts a bug into the running program, and notes whether the program ran into it.

A function is replaced wherever a module of edl holds it: in its own module or class, and in every module that has
imported it by name.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.planted import Bug

BUG, NOTES = "EDL_PLANTED_BUG", "EDL_PLANTED_NOTES"
"""Environment variables: the name of the bug, and the file in which its process notes what happens to it."""

REACHED, BROKEN = "reached", "broken"
_HERE = str(Path(__file__).parent)
_OWN_FAULTS = (TypeError, AttributeError, LookupError, NameError)
"""If a bug itself raises one of these, it no longer fits the function that it wraps."""


def find(name: str) -> Bug:
    """The bug of that name; only its own module is imported."""
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(f"tests.planted.{module}"), attribute)
    assert isinstance(found, Bug)
    return found


def resolve(target: str) -> tuple[Any, str, Any]:
    """(module or class, attribute, original value) of a MODULE:QUALNAME."""
    module, _, qualname = target.partition(":")
    holder: Any = importlib.import_module(module)
    *path, name = qualname.split(".")
    for part in path:
        holder = getattr(holder, part)
    return holder, name, inspect.getattr_static(holder, name)


def install(bug: Bug, notes: str = "") -> None:
    """Replace the target of a bug in this process for good.

    Args:
        bug: what to install.
        notes: the file that gets a line REACHED, and a line BROKEN if the bug itself is at fault; empty for none.
    """
    holder, name, right = resolve(bug.target)
    _put(holder, name, right, noted(bug.plant(right), notes))


@contextmanager
def swapped(target: str, plant: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a target while the block runs: for a bug that needs another function to be wrong meanwhile."""
    holder, name, right = resolve(target)
    wrong = plant(right)
    _put(holder, name, right, wrong)
    try:
        yield
    finally:
        _put(holder, name, wrong, right)


def _put(holder: Any, name: str, old: Any, new: Any) -> None:
    setattr(holder, name, new)
    if isinstance(holder, ModuleType):
        for module in [m for key, m in sys.modules.items() if key.startswith("edl.")]:
            if vars(module).get(name) is old:
                setattr(module, name, new)


def noted(wrong: Any, notes: str) -> Any:
    """A wrong function that notes when it is called, and when it is at fault itself."""
    if isinstance(wrong, property):
        return property(noted(wrong.fget, notes))
    if not callable(wrong) or not notes:
        return wrong
    printed: set[str] = set()

    def note(line: str) -> None:
        if line not in printed:
            printed.add(line)
            with Path(notes).open("a") as file:
                file.write(f"{line}\n")

    def judge(error: Exception) -> None:
        frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
        if isinstance(error, _OWN_FAULTS) and frames and frames[-1].filename.startswith(_HERE):
            note(f"{BROKEN} {error!r}")

    if inspect.iscoroutinefunction(wrong):

        @functools.wraps(wrong)
        async def awaited(*args: Any, **options: Any) -> Any:
            note(REACHED)
            try:
                return await wrong(*args, **options)
            except Exception as error:
                judge(error)
                raise

        return awaited

    @functools.wraps(wrong)
    def called(*args: Any, **options: Any) -> Any:
        note(REACHED)
        try:
            return wrong(*args, **options)
        except Exception as error:
            judge(error)
            raise

    return called


def install_named() -> None:
    """Install the bug that the environment names."""
    install(find(os.environ[BUG]), os.environ.get(NOTES, ""))
