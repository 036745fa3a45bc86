"""`make kueue-scope`: the histories of jobs beside models of Kueue, with figures.

Each scene is searched breadth first up to EDL_STATES states; from each of them everybody acts in turn until nothing
changes any more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from tests.worlds.kueue.loops import loops
from tests.worlds.kueue.owned_histories import Histories
from tests.worlds.kueue.owned_histories import Sized as OwnedJob
from tests.worlds.kueue.owned_histories import State as OwnedState
from tests.worlds.kueue.sized_histories import Sized, SizedHistories, State

MOST = int(os.environ.get("EDL_STATES", "2000"))
EVENTS = (
    {"owner comes", "owner goes"},
    {"urgent comes", "urgent goes"},
    {"load rises", "load falls"},
    {"owner comes", "load rises"},
)
"""What may happen once in a scene, in any order."""
HEADS = (
    "mode",
    "Kueue evicts",
    "events",
    "states",
    "broken",
    "circles of edl",
    "circles without",
    "never at rest",
    "s",
)
PAUSES = ("goes on", "waits")
"""Steps that take their time: a circle through one of them is none."""


S = TypeVar("S")


class Searched(Protocol[S]):
    """What both kinds of histories have."""

    broken: list[Any]

    def search(self, start: S, most: int) -> dict[S, tuple[str, ...]]: ...

    def steps(self, state: S) -> Iterator[tuple[str, S]]: ...

    def rest(self, state: S) -> S | None: ...


def main() -> int:
    """Search all scenes; 1 if a rule is broken."""
    _row(*HEADS)
    bad = 0
    for reclaims in (True, False):
        for events in EVENTS:
            named, left = ", ".join(sorted(events)), frozenset(events)
            bad += _scene(("sizer", reclaims, named), SizedHistories(reclaims), State(TWO_SIZED, left=left))
            bad += _scene(("owner", reclaims, named), Histories(reclaims), OwnedState(TWO_OWNED, left=left))
    return int(bad > 0)


def _scene(title: tuple[object, ...], histories: Searched[S], start: S) -> int:
    """Search one scene and print its figures; return how many rules are broken."""
    began = time.process_time()
    found = histories.search(start, MOST)
    circles = [name for name, _ in loops(found, histories.steps, PAUSES)]
    of_edl = sum(" acts" in name for name in circles)
    restless = sum(histories.rest(state) is None for state in found)
    counts = (len(found), len(histories.broken), of_edl, len(circles) - of_edl, restless)
    _row(*title, *counts, f"{time.process_time() - began:.0f}")
    return len(histories.broken) + of_edl + restless


TWO_SIZED = (Sized("a", "blue"), Sized("b", "green"))
TWO_OWNED = (OwnedJob("train"), OwnedJob("next"))


def _row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
