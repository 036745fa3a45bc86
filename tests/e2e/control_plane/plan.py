"""The file that tells a supervisor what to run.

Apart from the supervisor, which is a program: a module that runs as `-m` must not be imported by
the package it is in.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.e2e.control_plane.processes import Identity


@dataclass(frozen=True, slots=True)
class Command:
    """One process: started once `after_url` answers 200 (at once where that is empty)."""

    name: str
    argv: tuple[str, ...]
    after_url: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, in order, and whose death ends it."""

    commands: tuple[Command, ...]
    owner: Identity


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan for the supervisor to read."""
    path.write_text(json.dumps(asdict(plan), indent=1))


def read_plan(path: Path) -> Plan:
    """Read what `write_plan` wrote."""
    document = json.loads(path.read_text())
    commands = tuple(Command(c["name"], tuple(c["argv"]), c["after_url"]) for c in document["commands"])
    return Plan(commands, Identity(**document["owner"]))


def down_file(workdir: Path, name: str) -> Path:
    """While it exists, the supervisor takes the end of that process for meant."""
    return workdir / "run" / f"{name}.down"


def is_meant_to_be_down(workdir: Path, name: str) -> bool:
    """Whether that process is not to run now."""
    return down_file(workdir, name).is_file()
