"""Known bugs, each with the test that must fail if it is there: `make planted`.

A test suite is worth what it catches. Each bug is a function that wraps one function of edl and makes it wrong.
`install` puts it into the running program, and the test that is named for it must fail. `targets` lists the functions
that bugs wrap: if one of them is renamed, change its line there.

The bugs are in modules named after the packages that they break: `lifecycle`, `controller`, `acting`, `rest`,
`histories`, `storms` and `small_scope` (also of the controller), `masters`, `planner`, `nodes` (those that
autoscalers add), `kube`, `api_answers` (what `kube` makes of the API server's answers), `ledger` (with master and
worker), `pod` and `install_and_cli`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Right = Callable[..., Any]
"""The original function."""


@dataclass(frozen=True)
class Bug:
    """One bug.

    Attributes:
        name: MODULE:FUNCTION within tests.planted.
        what: what goes wrong, as a sentence.
        target: what is replaced, as MODULE:QUALNAME of edl.
        caught_by: the test that must fail, as pytest names it, from tests/ on.
        plant: takes the original (a function, a property, a constant) and returns the wrong one.
    """

    name: str
    what: str
    target: str
    caught_by: str
    plant: Callable[[Any], Any]


def bug(what: str, *, at: str, caught_by: str) -> Callable[[Callable[[Any], Any]], Bug]:
    """Make a bug of a function that turns the right thing into a wrong one."""

    def made(plant: Callable[[Any], Any]) -> Bug:
        name = f"{plant.__module__.rpartition('.')[2]}:{plant.__name__}"
        return Bug(name, what, at, caught_by, plant)

    return made
