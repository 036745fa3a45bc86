"""What is wrong with a scenario file although each of its fields may be so: what its parts say of each other.

A run of such a scenario would come to figures all the same. Only files are checked: tests make scenarios with pods
that fit nowhere on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edl.errors import ConfigError
from edl.model.quantity import format_quantity
from edl.sim.policies import check_policy
from edl.sim.scenario import NodeGroup, Scenario
from edl.sim.scenario_job_checks import Finding, Loc, of_jobs, of_nodes, of_times, shown, too_late
from edl.sim.shapes import allocatable_of, resources_of

_MOST_NAMED = 5


def findings(scenario: Scenario, content: object) -> list[Finding]:
    """Everything wrong with a scenario, which was read from this content of a YAML file."""
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
    """Each true or false that was taken for the number 1 or 0."""
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
    """Which nodes there are, in words: `group gpu has gpu-0 to gpu-3`."""
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
    """Pods that no node can hold even if it is empty; they would wait for all of the run."""
    rooms = [allocatable_of(group).as_dict() for group in scenario.nodes]
    for index, group in enumerate(scenario.jobs):
        yield from _misfits(("jobs", index, "trainer"), group.trainer, rooms)
        for role, spec in (("pserver", group.pserver), ("master", group.master)):
            if spec is not None:
                yield from _misfits(("jobs", index, role, "resources"), spec.resources, rooms)
    for index, deployment in enumerate(scenario.serving):
        yield from _misfits(("serving", index, "resources"), deployment.resources, rooms)


def _misfits(loc: Loc, amounts: Mapping[str, str | float], rooms: Sequence[Mapping[str, int]]) -> Iterator[Finding]:
    wanted = resources_of(amounts).as_dict()
    most = {name: max(room.get(name, 0) for room in rooms) for name in wanted}
    for name, amount in wanted.items():
        if most[name] <= 0:
            reason = f"no node has {name} for pods; add {name} to the resources of a node group, or remove it here"
            yield Finding((*loc, name), shown(amounts[name]), reason)
        elif amount > most[name]:
            room = format_quantity(most[name], name)
            reason = f"no node has more than {room} for pods; lower it, or give a node group more {name}"
            yield Finding((*loc, name), shown(amounts[name]), reason)
    fits_alone = all(amount <= most[name] for name, amount in wanted.items())
    if fits_alone and not any(all(n <= room.get(name, 0) for name, n in wanted.items()) for room in rooms):
        asked = ", ".join(f"{name} {shown(amount)}" for name, amount in amounts.items())
        yield Finding(
            loc, asked, "no node has all of these together; lower one, or add it to the group with the others"
        )
