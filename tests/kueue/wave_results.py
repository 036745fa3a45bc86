"""What random waves in cohorts of Kueue showed, and the table of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean


@dataclass
class Result:
    """What the waves of one mode showed.

    Attributes:
        used: at the rest after each wave: (pods that run, pods that quota, nodes and maximums allow).
        soon: the same before the jobs that have shrunk for serving may grow again.
        owner_s: from the creation of each owner to its admission.
        never: owners that were deleted before they were admitted.
        serving_s: from each growth of serving until all of its pods had nodes; a later change ends the wait.
        stops: how often a job that was not deleted lost all of its pods.
        above: the longest time in which more pods of a job ran than it held quota for, in seconds.
        worst: which job that was, with how many pods and Workloads.
        ended: pods of jobs that were not deleted and ended.
        writes: changes of pods, Jobs and Workloads, and events of edl, in the last QUIET_S. Other programs count
            equal events of theirs some seconds later.
        legs: where the time of owners went that waited for an eviction, see `Legs`.
        waves: how many were played.
        broken: of each cohort whose waves ended early, which one and why.
        accounts: what happened around each stop, each long time above quota, and at rest.
    """

    used: list[tuple[int, int]] = field(default_factory=list)
    soon: list[tuple[int, int]] = field(default_factory=list)
    owner_s: list[float] = field(default_factory=list)
    never: int = 0
    serving_s: list[float] = field(default_factory=list)
    stops: int = 0
    above: float = 0.0
    worst: str = ""
    ended: int = 0
    writes: int = 0
    legs: list[dict[str, float]] = field(default_factory=list)
    waves: int = 0
    broken: list[str] = field(default_factory=list)
    accounts: list[str] = field(default_factory=list)

    @property
    def utilisation(self) -> float:
        """Pods that ran at rest, as a part of those that could."""
        return part(self.used)


def together(results: Sequence[Result]) -> Result:
    """What the waves of several cohorts showed."""
    found = Result()
    for one in results:
        for name in ("used", "soon", "owner_s", "serving_s", "legs", "broken", "accounts"):
            getattr(found, name).extend(getattr(one, name))
        for name in ("never", "stops", "ended", "writes", "waves"):
            setattr(found, name, getattr(found, name) + getattr(one, name))
        if one.above > found.above:
            found.above, found.worst = one.above, one.worst
    return found


def part(used: Sequence[tuple[int, int]]) -> float:
    """Pods that ran, as a part of those that could; more than could count as all of them."""
    return sum(min(one, most) for one, most in used) / max(1, sum(most for _, most in used))


def table(results: dict[str, Result]) -> str:
    """Return the figures as a table of Markdown."""
    rows = [
        "| | waves | used at rest, of what quota and nodes allow | 3 s after | owners wait, mean, longest |"
        " never admitted | serving waits, mean, longest | jobs stopped | pods ended | above quota, longest |"
        " writes at rest |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for mode, one in results.items():
        owners, serving = (f"{fmean(s):.2f} s, {max(s):.2f} s" if s else "none" for s in (one.owner_s, one.serving_s))
        rows.append(
            f"| {mode} | {one.waves} | {one.utilisation:.1%} | {part(one.soon):.1%} | {owners} |"
            f" {one.never} | {serving} | {one.stops} | {one.ended} | {one.above:.2f} s | {one.writes} |"
        )
    return "\n".join(rows)
