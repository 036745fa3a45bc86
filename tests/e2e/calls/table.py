"""The calls of the controller, the ways in which a call goes wrong, and the cases that they make together."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.e2e.sandbox.effects import EFFECTS

READS = ("get", "list", "watch")
ONLY_READS = {"stale read"}
ONLY_WRITES = {"504 after commit", "reset after commit"}


@dataclass(frozen=True, slots=True)
class Call:
    """One kind of request; `at_start` if the controller makes it only when it starts."""

    verb: str
    resource: str
    subresource: str = "-"
    at_start: bool = False

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + ("" if self.subresource == "-" else f"/{self.subresource}")


@dataclass(frozen=True, slots=True)
class Case:
    """A call and what happens to it."""

    call: Call
    effect: str

    def __str__(self) -> str:
        return f"{self.call}, {self.effect}".replace(" ", "-")


WATCHED = ("daemonsets", "nodes", "pods", "priorityclasses", "resourcequotas", "trainingjobs")
CALLS = (
    *(Call("create", plural) for plural in ("events", "pods", "secrets", "services")),
    Call("delete", "pods"),
    Call("patch", "pods"),
    Call("patch", "trainingjobs", "status"),
    Call("update", "leases"),
    Call("get", "leases", at_start=True),
    Call("create", "leases", at_start=True),
    *(Call(verb, plural, at_start=True) for plural in WATCHED for verb in ("list", "watch")),
)


def cases() -> list[Case]:
    """Every call with every way that can happen to it."""
    return [
        Case(call, effect)
        for call in CALLS
        for effect in EFFECTS
        if not (effect in ONLY_READS and call.verb not in ("get", "list"))
        and not (effect in ONLY_WRITES and call.verb in READS)
    ]


def sample(count: int, seed: int) -> list[Case]:
    """Some of the cases, the same for the same seed; those that need no new controller first."""
    chosen = random.Random(seed).sample(cases(), count)  # noqa: S311 - not a secret
    return sorted(chosen, key=lambda case: case.call.at_start)


def markdown(seconds: Mapping[Case, float]) -> str:
    """A table of results: the seconds from the job's creation to its end, for each case that was tried."""
    return "\n".join(_lines(seconds, list(EFFECTS)))


def _lines(seconds: Mapping[Case, float], effects: list[str]) -> Iterable[str]:
    yield "| call | " + " | ".join(effects) + " |"
    yield "|---" * (len(effects) + 1) + "|"
    for call in CALLS:
        found = [seconds.get(Case(call, effect)) for effect in effects]
        if any(one is not None for one in found):
            yield f"| {call} | " + " | ".join("" if one is None else f"{one:.0f} s" for one in found) + " |"
