"""What is wrong with the nodes, the jobs and the times of a scenario; see `scenario_checks`, which asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edl.model.quantity import format_quantity, parse_quantity
from edl.model.resources import CPU, PODS
from edl.sim.scenario import JobGroup, Scenario, Series

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong.

    Attributes:
        loc: the field, as keys and indices.
        given: its value; empty if `reason` names it.
        reason: the rule and the remedy.
    """

    loc: Loc
    given: str
    reason: str


def shown(value: str | float) -> str:
    """As people write it: 8, not 8.0."""
    return value if isinstance(value, str) else f"{value:.15g}"


def too_late(scenario: Scenario) -> str:
    """Why a second after the end is refused."""
    end = shown(scenario.duration_s)
    return f"the scenario ends at second {end}, its duration_s; choose an earlier second, or raise duration_s"


def of_nodes(scenario: Scenario) -> Iterator[Finding]:
    """Nodes that can run nothing, or less than nothing."""
    for index, group in enumerate(scenario.nodes):
        loc: Loc = ("nodes", index)
        cores, system = _amount(group.resources, CPU), parse_quantity(group.system_cpu, CPU)
        if cores <= 0:
            yield Finding((*loc, "resources"), "", "the nodes have no cpu; give them cpu of more than 0")
        elif system > cores:
            reason = f"the nodes have {format_quantity(cores, CPU)} cpu; lower it, or give the nodes more cpu"
            yield Finding((*loc, "system_cpu"), shown(group.system_cpu), reason)
        if PODS in group.resources and _amount(group.resources, PODS) < 1:
            reason = "no pod could run there; raise it, or remove it for the usual 110"
            yield Finding((*loc, "resources", PODS), shown(group.resources[PODS]), reason)


def _amount(amounts: Mapping[str, str | float], name: str) -> int:
    return parse_quantity(amounts.get(name, 0), name)


def of_jobs(scenario: Scenario) -> Iterator[Finding]:
    """Counts beyond the bounds of a job, and speeds that are named twice."""
    for index, group in enumerate(scenario.jobs):
        for field, count, other in (("start", group.start, "min"), ("fixed", group.fixed, "max")):
            if count and not group.min <= count <= group.max:
                reason = (
                    f"min is {group.min} and max is {group.max}; choose a count from min to max, or 0 for {other}"
                )
                yield Finding(("jobs", index, field), str(count), reason)
        counts = [count for count, _ in group.throughput]
        if len(set(counts)) < len(counts):
            twice = max(counts, key=counts.count)
            reason = f"it has two speeds of {twice} trainers; keep one of them"
            yield Finding(("jobs", index, "throughput"), "", reason)


def of_times(scenario: Scenario) -> Iterator[Finding]:
    """What never happens, because the scenario is over by then, or because something else comes first."""
    for index, group in enumerate(scenario.jobs):
        for name, series in (("arrival", group.arrival), ("removal", group.removal)):
            if series is not None:
                yield from _of_series(("jobs", index, name), series, group.count)
        yield from _of_arrivals(("jobs", index), group, scenario)
    for index, deployment in enumerate(scenario.serving):
        for step, (at_s, replicas) in enumerate(deployment.replicas):
            if at_s > scenario.duration_s:
                yield Finding(
                    ("serving", index, "replicas", step), f"[{shown(at_s)}, {replicas}]", too_late(scenario)
                )
                break


def _of_series(loc: Loc, series: Series, count: int) -> Iterator[Finding]:
    if not series.times_s:
        return
    for field, value in (("first_s", series.first_s), ("every_s", series.every_s)):
        if value:
            yield Finding((*loc, field), shown(value), f"times_s lists each moment; remove {field}, or times_s")
    if len(series.times_s) > count:
        reason = f"it lists {len(series.times_s)} times for count {count}; remove the others, or raise count"
        yield Finding((*loc, "times_s"), "", reason)


def _of_arrivals(loc: Loc, group: JobGroup, scenario: Scenario) -> Iterator[Finding]:
    """The first job of a group that arrives too late, and the first that goes before it came."""
    arrivals = group.arrival.moments(group.count)
    late = next((at_s for at_s in arrivals if at_s > scenario.duration_s), None)
    if late is not None:
        yield Finding((*loc, "arrival"), shown(late), too_late(scenario))
    if group.removal is None:
        return
    for number, (at_s, gone_s) in enumerate(zip(arrivals, group.removal.moments(group.count), strict=True)):
        if gone_s <= at_s:
            reason = f"{group.name}-{number} arrives at second {shown(at_s)}; choose a later second for its removal"
            yield Finding((*loc, "removal"), shown(gone_s), reason)
            return
