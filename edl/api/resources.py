"""Requests and limits of a role: quantities, their rules, and the defaults that the API server applies.

Stricter than the resources of a pod: no exponents, at most 20 characters, no cpu below a millicore. So the planner
can use every amount that passes admission. These rules do not ask whether any cluster has that much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from edl.api.base import MAX_INT64, Label, Part, Rule, Values, keyed_list, unique_by
from edl.model.quantity import exact_quantity
from edl.model.resources import CPU, EPHEMERAL_STORAGE, GPU, MEMORY

OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
MAX_QUANTITY_LENGTH = 20

_PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i)?$"
_QUANTITY = re.compile(_PATTERN.strip("^$"))
_DEVICES = re.compile(r"[0-9]+")
_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)


def read_quantity(value: object) -> int | str:
    """Check the form of a quantity of a spec.

    Raises:
        ValueError: it is none, or is negative.
    """
    # pydantic reports a ValueError, and no other error, as a problem of the field.
    if isinstance(value, float):
        raise ValueError(f'{value} is a decimal without quotes; write "{value}"')  # noqa: TRY004
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("is not a valid quantity; write text such as 500m or 4Gi")  # noqa: TRY004
    if isinstance(value, int):
        if not 0 <= value <= MAX_INT64:
            raise ValueError(f"is not between 0 and {MAX_INT64}; write an amount in this range")
        return value
    if len(value) > MAX_QUANTITY_LENGTH:
        raise ValueError(f"has {len(value)} characters, and a quantity has at most {MAX_QUANTITY_LENGTH}; shorten it")
    if not _QUANTITY.fullmatch(value):
        raise ValueError(
            f'"{value}" is not a valid quantity; write one without sign and exponent, such as 500m or 4Gi'
        )
    return value


QUANTITY_SCHEMA = WithJsonSchema(
    {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": MAX_QUANTITY_LENGTH,
        "pattern": _PATTERN,
    }
)
"""An integer passes the pattern, which is for text alone; a rule must refuse a negative one."""
Quantity = Annotated[int | str, BeforeValidator(read_quantity), QUANTITY_SCHEMA]
Amounts = Annotated[dict[str, Quantity], Field(max_length=16)]


def is_device(name: str) -> bool:
    """True for an extended resource, which is counted in whole pieces and cannot be overcommitted."""
    return "/" in name


def _check_names(amounts: Amounts) -> Iterator[Values]:
    for name in sorted(amounts):
        if not (name in _NATIVE or name.startswith("hugepages-") or is_device(name)):
            yield {"name": name[:40]}


def _check_devices(amounts: Amounts) -> Iterator[Values]:
    for name, value in sorted(amounts.items()):
        if is_device(name) and not _DEVICES.fullmatch(str(value)):
            yield {"amount": f"{value} of {name[:40]}"}


def _check_minimum(resource: str, least: Fraction) -> Callable[[Amounts], Iterator[Values]]:
    def check(amounts: Amounts) -> Iterator[Values]:
        if resource in amounts and exact_quantity(amounts[resource], resource) < least:
            yield {"value": amounts[resource]}

    return check


def _check_limits(part: Requirements) -> Iterator[Values]:
    for name, request, limit in part.limited_requests():
        if exact_quantity(request, name) > exact_quantity(limit, name):
            yield {"name": name[:40], "request": request, "limit": limit}


def _check_device_limits(part: Requirements) -> Iterator[Values]:
    for name, request, limit in part.limited_requests():
        if is_device(name) and exact_quantity(request, name) < exact_quantity(limit, name):
            yield {"name": name[:40], "request": request, "limit": limit}


def _check_spellings(part: Requirements) -> Iterator[Values]:
    if {GPU, OLD_GPU} <= part.requests.keys() | part.limits.keys():
        yield {}


_MAPS = ("requests", "limits")


def _uses(name: str) -> str:
    return " || ".join(f"(has(self.{field}) && '{name}' in self.{field})" for field in _MAPS)


class ClaimUse(Part):
    """A claim of the pod on devices that its container uses."""

    name: Label
    """The name of the claim in `template.spec.resourceClaims`."""
    request: Label | None = None
    """The name of one request of the claim; empty for all its requests."""


class Requirements(Part):
    """Requests and limits of one pod of a role."""

    requests: Amounts = Field(default_factory=dict)
    """Amounts that are reserved for a pod; a missing amount is that of limits."""
    limits: Amounts = Field(default_factory=dict)
    """The most that a pod may use."""
    claims: Annotated[list[ClaimUse], AfterValidator(unique_by("name"))] = keyed_list("name", limit=32)
    """The claims on devices that the container uses."""

    rules = (
        Rule(
            cel=f"self.all(k, k in {list(_NATIVE)} || k.startsWith('hugepages-') || k.contains('/'))",
            message=f"unknown resource {{name}}; use cpu, memory or a device such as {GPU}",
            check=_check_names,
            fields=_MAPS,
        ),
        Rule(
            cel="self.all(k, !k.contains('/') || string(self[k]).matches('^[0-9]+$'))",
            message="the device count {amount} is not a whole number; write a whole number without a unit",
            check=_check_devices,
            fields=_MAPS,
        ),
        Rule(
            cel="!('cpu' in self) || quantity(string(self['cpu'])).compareTo(quantity('1m')) >= 0",
            message="cpu {value} is below 1m (one millicore); raise it",
            check=_check_minimum(CPU, Fraction(1, 1000)),
            fields=_MAPS,
        ),
        Rule(
            cel="!('memory' in self) || quantity(string(self['memory'])).compareTo(quantity('1')) >= 0",
            message="memory {value} is below one byte; raise it, for example to 256Mi (the suffix m means a "
            "thousandth)",
            check=_check_minimum(MEMORY, Fraction(1)),
            fields=_MAPS,
        ),
        Rule(
            cel="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || "
            "quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
            message="{name} request {request} exceeds limit {limit}; lower the request",
            check=_check_limits,
        ),
        Rule(
            cel="!has(self.requests) || !has(self.limits) || self.requests.all(k, !k.contains('/') || "
            "!(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k])))"
            " == 0)",
            message="{name} request {request} differs from limit {limit}; make request and limit of a device equal",
            check=_check_device_limits,
        ),
        Rule(
            cel=f"!(({_uses(OLD_GPU)}) && ({_uses(GPU)}))",
            message=f"{OLD_GPU} and {GPU} are two names of one resource; write only {GPU}",
            check=_check_spellings,
        ),
    )

    def limited_requests(self) -> Iterator[tuple[str, int | str, int | str]]:
        """(resource name, request, limit) of each resource that has both, sorted by name."""
        for name in sorted(self.requests.keys() & self.limits.keys()):
            yield name, self.requests[name], self.limits[name]

    def effective_requests(self) -> dict[str, str]:
        """The requests, completed from the limits, under the current resource names."""
        return _current_names({**self.limits, **self.requests})

    def effective_limits(self) -> dict[str, str]:
        """The limits under the current resource names; the API server requires one for each requested device."""
        devices = {name: value for name, value in self.requests.items() if is_device(name)}
        return _current_names({**devices, **self.limits})

    @property
    def has_cpu_or_memory(self) -> bool:
        """True if a pod with these resources requests cpu or memory."""
        return not {CPU, MEMORY}.isdisjoint(self.effective_requests())


def _current_names(amounts: Mapping[str, int | str]) -> dict[str, str]:
    renamed = {GPU if name == OLD_GPU else name: str(value) for name, value in amounts.items()}
    return dict(sorted(renamed.items()))
