"""What the first process of a cluster is to run, as a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """One process.

    Attributes:
        name: of its log and for `stop` and `start`.
        argv: its command line.
        after: it starts once this URL responds with 200 or this file exists; at once if empty.
    """

    name: str
    argv: tuple[str, ...]
    after: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to prepare (commands that must succeed, in order), which control groups to make, and what to run."""

    prepare: tuple[tuple[str, ...], ...]
    cgroups: tuple[str, ...]
    processes: tuple[Process, ...]


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan for `init` to read."""
    path.write_text(json.dumps(asdict(plan), indent=1))


def read_plan(path: Path) -> Plan:
    """Read what `write_plan` wrote."""
    document = json.loads(path.read_text())
    return Plan(
        prepare=tuple(tuple(argv) for argv in document["prepare"]),
        cgroups=tuple(document["cgroups"]),
        processes=tuple(Process(p["name"], tuple(p["argv"]), p["after"]) for p in document["processes"]),
    )
