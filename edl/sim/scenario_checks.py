"""Finds contradictions between the parts of a scenario file whose fields are each valid.

A run of such a scenario would come to figures all the same. Only files are checked: tests make scenarios with pods
that fit nowhere on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edl.errors import ConfigError
from edl.model.quantity import format_quantity, parse_quantity
from edl.model.resources import CPU, PODS
from edl.sim.policies import check_policy
from edl.sim.scenario import JobGroup, NodeGroup, Scenario, Series
from edl.sim.shapes import allocatable_of, resources_of

_MOST_NAMED = 5


Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction in a scenario file.

    Attributes:
        loc: the field, as keys and indices.
        given: its value; empty if `reason` names it.
        reason: the rule and the remedy.
    """

    loc: Loc
    given: str
    reason: str


def shown(value: str | float) -> str:
    """Format a number as people write it: 8, not 8.0."""
    return value if isinstance(value, str) else f"{value:.15g}"


def too_late(scenario: Scenario) -> str:
    """Say why a moment after the end of the scenario is rejected."""
    end = shown(scenario.duration_s)
    return f"the scenario ends at second {end}, its duration_s; choose an earlier second, or raise duration_s"


def of_nodes(scenario: Scenario) -> Iterator[Finding]:
    """Find nodes without cpu, with less cpu than their system pods use, or without a place for any pod."""
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
    """Find counts beyond the bounds of a job, and speeds that are given twice."""
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
    """Find events that never happen: the scenario is over by then, or another event comes first."""
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
    """Find the first job of a group that arrives too late, and the first that leaves before it came."""
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


def findings(scenario: Scenario, content: object) -> list[Finding]:
    """Find every contradiction in a scenario, which was read from this content of a YAML file."""
    return [
        *_bools(content, scenario, ()),
        *_policies(scenario),
        *_events(scenario),
        *_windows(scenario),
        *of_nodes(scenario),
        *of_jobs(scenario),
        *of_times(scenario),
        *_pods(scenario),
    ]


def _bools(raw: object, read: object, loc: Loc) -> Iterator[Finding]:
    """Find each true or false that stands where a number is expected."""
    if isinstance(raw, bool):
        if not isinstance(read, bool):
            yield Finding(loc, str(raw).lower(), "true and false are no numbers; give a number")
    elif isinstance(raw, dict):
        for key, value in raw.items():
            inner = read[key] if isinstance(read, Mapping) else getattr(read, key)
            yield from _bools(value, inner, (*loc, key))
    elif isinstance(raw, list) and isinstance(read, Sequence):
        for index, (value, inner) in enumerate(zip(raw, read, strict=True)):
            yield from _bools(value, inner, (*loc, index))


def _policies(scenario: Scenario) -> Iterator[Finding]:
    if not scenario.policies:
        yield Finding(("policies",), "[]", "nothing would run; name a policy, or remove the field for maxmin")
    for index, policy in enumerate(scenario.policies):
        try:
            check_policy(policy)
        except ConfigError as error:
            yield Finding(("policies", index), "", str(error))


def _events(scenario: Scenario) -> Iterator[Finding]:
    known = {f"{group.name}-{i}" for group in scenario.nodes for i in range(group.count)}
    for index, event in enumerate(scenario.node_events):
        if event.node not in known:
            reason = f"no group has such a node; nodes are named <group>-<number> from 0: {_names(scenario.nodes)}"
            yield Finding(("node_events", index, "node"), event.node, reason)
        if event.at_s > scenario.duration_s:
            yield Finding(("node_events", index, "at_s"), shown(event.at_s), too_late(scenario))


def _names(groups: Sequence[NodeGroup]) -> str:
    """Name the nodes that exist: `group gpu has gpu-0 to gpu-3`."""
    spans = [
        f"group {group.name} has {group.name}-0" + (f" to {group.name}-{group.count - 1}" if group.count > 1 else "")
        for group in groups[:_MOST_NAMED]
    ]
    return ", ".join(spans) + (", ..." if len(groups) > _MOST_NAMED else "")


def _windows(scenario: Scenario) -> Iterator[Finding]:
    spec = scenario.measure
    for name, span in (("steady_s", spec.steady_s), ("ramps_s", spec.ramps_s)):
        if span is None:
            continue
        low, high = map(shown, span)
        if span[0] >= span[1]:
            reason = f"until {high} is not after from {low}; write [from, until], in seconds"
            yield Finding(("measure", name), f"[{low}, {high}]", reason)
        elif span[1] > scenario.duration_s:
            yield Finding(("measure", name), f"[{low}, {high}]", too_late(scenario))
    if spec.until_s is not None and spec.until_s > scenario.duration_s:
        yield Finding(("measure", "until_s"), shown(spec.until_s), too_late(scenario))
    end_s = scenario.duration_s if spec.until_s is None else spec.until_s
    if spec.from_s >= end_s:
        reason = f"what is measured ends at second {shown(end_s)}; choose an earlier second"
        yield Finding(("measure", "from_s"), shown(spec.from_s), reason)


def _pods(scenario: Scenario) -> Iterator[Finding]:
    """Find pods that no node can hold even if it is empty: they would wait during the whole run."""
    capacities = [allocatable_of(group).as_dict() for group in scenario.nodes]
    for index, group in enumerate(scenario.jobs):
        yield from _misfits(("jobs", index, "trainer"), group.trainer, capacities)
        for role, spec in (("pserver", group.pserver), ("master", group.master)):
            if spec is not None:
                yield from _misfits(("jobs", index, role, "resources"), spec.resources, capacities)
    for index, deployment in enumerate(scenario.serving):
        yield from _misfits(("serving", index, "resources"), deployment.resources, capacities)


def _misfits(
    loc: Loc, amounts: Mapping[str, str | float], capacities: Sequence[Mapping[str, int]]
) -> Iterator[Finding]:
    wanted = resources_of(amounts).as_dict()
    most = {name: max(capacity.get(name, 0) for capacity in capacities) for name in wanted}
    for name, amount in wanted.items():
        if most[name] <= 0:
            reason = f"no node has {name} for pods; add {name} to the resources of a node group, or remove it here"
            yield Finding((*loc, name), shown(amounts[name]), reason)
        elif amount > most[name]:
            capacity = format_quantity(most[name], name)
            reason = f"no node has more than {capacity} for pods; lower it, or give a node group more {name}"
            yield Finding((*loc, name), shown(amounts[name]), reason)
    fits_alone = all(amount <= most[name] for name, amount in wanted.items())
    if fits_alone and not any(
        all(n <= capacity.get(name, 0) for name, n in wanted.items()) for capacity in capacities
    ):
        asked = ", ".join(f"{name} {shown(amount)}" for name, amount in amounts.items())
        yield Finding(
            loc, asked, "no node has all of these together; lower one, or add it to the group with the others"
        )
