"""Amounts, counts and times as text for people; this module decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

from edl.model.quantity import format_quantity
from edl.model.resources import (
    CPU,
    DEVICE_PREFIX,
    EPHEMERAL_STORAGE,
    HOST_PORT_PREFIX,
    MEMORY,
    POD_OBJECTS,
    PODS,
    RULE_PREFIX,
    Resources,
)

_DEVICE = DEVICE_PREFIX.partition(" ")[0]
GIB = 1024**3
MINUTE_S, HOUR_S = 60, 3600


def rank_of(resource: str) -> tuple[int, str]:
    """Sort key of resources in a text: rules between pods, cpu, memory, devices, pods."""
    return (-1 if resource.startswith(RULE_PREFIX) else {CPU: 0, MEMORY: 1, PODS: 3}.get(resource, 2), resource)


def plain(resource: str) -> str:
    """The name of a resource in a sentence: `cpu`, `the number of pods`, `host port TCP/80`."""
    if resource.startswith(HOST_PORT_PREFIX):
        return f"host port {resource.removeprefix(HOST_PORT_PREFIX)}"
    return "the number of pods" if resource == PODS else resource


def amounts(request: Resources) -> str:
    """Format every amount of a request: `1.5 cores, 2 GiB of memory`."""
    names = sorted((n for n in request if n != PODS and not n.startswith(RULE_PREFIX)), key=rank_of)
    return ", ".join(amount(name, request[name]) for name in names) or amount(PODS, request[PODS])


def amount(name: str, number: int) -> str:
    """Format one amount in its usual unit: `1.5 cores`."""
    if name == CPU:
        return f"{number / 1000:g} {'core' if number == 1000 else 'cores'}"
    if name in {MEMORY, EPHEMERAL_STORAGE}:
        kind = "memory" if name == MEMORY else "ephemeral storage"
        return f"{_binary(number)} of {kind}"
    if name in {PODS, POD_OBJECTS}:
        return count(number, "pod") + (f" by {name}" if name == POD_OBJECTS else "")
    return _other_amount(name, number)


def _other_amount(name: str, number: int) -> str:
    """Format an amount of a rule between pods, a port, devices, huge pages, or another resource."""
    if name.startswith(RULE_PREFIX):
        return name
    if name.startswith(HOST_PORT_PREFIX):
        return plain(name)
    if name.startswith(DEVICE_PREFIX):
        return f"{count(number, _DEVICE)}{name.removeprefix(_DEVICE)}"
    return f"{format_quantity(number, name)} of {name}" if name.startswith("hugepages-") else f"{number} {name}"


def count(number: int, noun: str) -> str:
    """Format a number with its noun: `1 trainer`, `2 trainers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seconds(duration_s: float) -> str:
    """Format a short time in whole seconds, at least `1 s`."""
    return f"{max(1, round(duration_s))} s"


def minutes(duration_s: float) -> str:
    """Format a longer time in coarse steps, so that a message with it seldom changes."""
    if duration_s < MINUTE_S:
        return "less than 1 min"
    if duration_s < 2 * HOUR_S:
        return f"{int(duration_s // MINUTE_S)} min"
    return f"{int(duration_s // HOUR_S)} h"


def listed(parts: Iterable[str]) -> str:
    """Join texts: `a`, `a and b`, `a, b and c`."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _binary(number: int) -> str:
    """Format bytes in the largest unit from GiB to EiB in which the number is at least 1."""
    power = max((p for p in range(4) if number >= GIB * 1024**p), default=0)
    return f"{number / (GIB * 1024**power):.4g} {('GiB', 'TiB', 'PiB', 'EiB')[power]}"
