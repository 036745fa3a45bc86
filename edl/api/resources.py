"""Requests and limits of a role: quantities, their rules, and what the API server makes of them.

Written stricter than a pod's: no exponents, at most 20 characters, no cpu below a millicore, so that every
amount that gets past admission can be planned with. It does not judge whether a cluster could ever satisfy them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from edl.api.base import MAX_INT64, Part, Rule
from edl.model.quantity import exact_quantity
from edl.model.resources import CPU, EPHEMERAL_STORAGE, GPU, MEMORY

OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
MAX_QUANTITY_LENGTH = 20

_PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i)?$"
_QUANTITY = re.compile(_PATTERN.strip("^$"))
_DEVICES = re.compile(r"[0-9]+")
_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)


def _read_quantity(value: object) -> int | str:
    # pydantic turns a ValueError, and only that, into a problem of the field.
    if isinstance(value, float):
        raise ValueError(f'{value} is a bare decimal; write it in quotes: "{value}"')  # noqa: TRY004
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("is not a quantity; write a text such as 500m or 4Gi")  # noqa: TRY004
    if isinstance(value, int):
        if not 0 <= value <= MAX_INT64:
            raise ValueError(f"is not between 0 and {MAX_INT64}; write such an amount")
        return value
    if len(value) > MAX_QUANTITY_LENGTH:
        raise ValueError(f"has {len(value)} characters; write a quantity of at most {MAX_QUANTITY_LENGTH}")
    if not _QUANTITY.fullmatch(value):
        raise ValueError(f'"{value}" is not a quantity without sign and exponent; write one such as 500m or 4Gi')
    return value


Quantity = Annotated[
    int | str,
    BeforeValidator(_read_quantity),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": MAX_QUANTITY_LENGTH,
            "pattern": _PATTERN,
        }
    ),
]
Amounts = Annotated[dict[str, Quantity], Field(max_length=16)]


def is_device(name: str) -> bool:
    """True for an extended resource: it is counted in pieces and cannot be overcommitted."""
    return "/" in name


def _check_names(part: Requirements) -> Iterator[str]:
    for field, name, _ in part.each():
        if not (name in _NATIVE or name.startswith("hugepages-") or is_device(name)):
            yield f"{field} {name[:40]} is no resource of a container; use cpu, memory or a device such as {GPU}"


def _check_devices(part: Requirements) -> Iterator[str]:
    for field, name, value in part.each():
        if is_device(name) and not _DEVICES.fullmatch(str(value)):
            yield f"{field} {name[:40]} {value} is not a whole number; devices cannot be divided, write 1 or more"


def _check_cpu(part: Requirements) -> Iterator[str]:
    for field, name, value in part.each():
        if name == CPU and exact_quantity(value, CPU) < Fraction(1, 1000):
            yield f"{field} cpu {value} is below 1m; ask for at least one millicore"


def _check_memory(part: Requirements) -> Iterator[str]:
    for field, name, value in part.each():
        if name == MEMORY and exact_quantity(value, MEMORY) < 1:
            yield f"{field} memory {value} is below one byte; ask for more, such as 256Mi (m means a thousandth)"


def _check_limits(part: Requirements) -> Iterator[str]:
    for name in sorted(part.requests.keys() & part.limits.keys()):
        request, limit = part.requests[name], part.limits[name]
        if exact_quantity(request, name) > exact_quantity(limit, name):
            yield f"requests {name[:40]} {request} exceeds limits {name[:40]} {limit}; lower the request"


def _check_device_limits(part: Requirements) -> Iterator[str]:
    for name in sorted(part.requests.keys() & part.limits.keys()):
        request, limit = part.requests[name], part.limits[name]
        if is_device(name) and exact_quantity(request, name) < exact_quantity(limit, name):
            yield f"requests {name[:40]} {request} differs from limits {limit}; devices need them equal, change one"


def _check_spellings(part: Requirements) -> Iterator[str]:
    names = part.requests.keys() | part.limits.keys()
    if {GPU, OLD_GPU} <= names:
        yield f"{OLD_GPU} and {GPU} are two names of one resource; write only {GPU}"


_MAPS = ("requests", "limits")


def _uses(name: str) -> str:
    return " || ".join(f"(has(self.{field}) && '{name}' in self.{field})" for field in _MAPS)


class Requirements(Part):
    """`resources` of a role, as it was written."""

    requests: Amounts = Field(default_factory=dict)
    """What a pod is sure to get; where an amount is absent, that of limits."""
    limits: Amounts = Field(default_factory=dict)
    """The most that it may use."""

    rules = (
        Rule(
            cel=f"self.all(k, k in {list(_NATIVE)} || k.startsWith('hugepages-') || k.contains('/'))",
            message="no resource of a container; use cpu, memory or a device such as nvidia.com/gpu",
            check=_check_names,
            fields=_MAPS,
        ),
        Rule(
            cel="self.all(k, !k.contains('/') || string(self[k]).matches('^[0-9]+$'))",
            message="devices must be a whole number without a unit; they cannot be divided",
            check=_check_devices,
            fields=_MAPS,
        ),
        Rule(
            cel="!('cpu' in self) || quantity(string(self['cpu'])).compareTo(quantity('1m')) >= 0",
            message="cpu must be at least 1m",
            check=_check_cpu,
            fields=_MAPS,
        ),
        Rule(
            cel="!('memory' in self) || quantity(string(self['memory'])).compareTo(quantity('1')) >= 0",
            message="memory must be at least one byte; m means a thousandth",
            check=_check_memory,
            fields=_MAPS,
        ),
        Rule(
            cel="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || "
            "quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
            message="requests must not exceed limits; lower the request",
            check=_check_limits,
        ),
        Rule(
            cel="!has(self.requests) || !has(self.limits) || self.requests.all(k, !k.contains('/') || "
            "!(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k])))"
            " == 0)",
            message="requests and limits of a device must be equal",
            check=_check_device_limits,
        ),
        Rule(
            cel=f"!(({_uses(OLD_GPU)}) && ({_uses(GPU)}))",
            message=f"{OLD_GPU} and {GPU} are two names of one resource; write only {GPU}",
            check=_check_spellings,
        ),
    )

    def each(self) -> Iterator[tuple[str, str, int | str]]:
        """(field, resource name, value) of every amount, requests first, sorted by name."""
        for field, amounts in (("requests", self.requests), ("limits", self.limits)):
            for name in sorted(amounts):
                yield field, name, amounts[name]

    def effective_requests(self) -> dict[str, str]:
        """What is requested once limits stand in for absent requests, by today's resource names."""
        return _modern({**self.limits, **self.requests})

    def effective_limits(self) -> dict[str, str]:
        """What is limited; a device that is only requested is limited too, because the API server demands it."""
        devices = {name: value for name, value in self.requests.items() if is_device(name)}
        return _modern({**devices, **self.limits})

    @property
    def asks_for_cpu_or_memory(self) -> bool:
        """True where a pod of it takes visible room on a node."""
        return not {CPU, MEMORY}.isdisjoint(self.effective_requests())


def _modern(amounts: Mapping[str, int | str]) -> dict[str, str]:
    modern = {GPU if name == OLD_GPU else name: str(value) for name, value in amounts.items()}
    return dict(sorted(modern.items()))
