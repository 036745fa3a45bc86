"""Queue `paddlepaddle.org/v1` as pydantic models: what a team's jobs may request, what it lends, what it borrows.

The CRD and the controller validate with these models, as with those of a TrainingJob. They do not ask whether a
cluster has what its queues promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from edl.api.base import MAX_INT32, MAX_INT64, MAX_SAFE, Part, Rule, Text, Values, WholeNumber, find_problems
from edl.api.problems import describe
from edl.api.resources import OLD_GPU, QUANTITY_SCHEMA, is_device, read_quantity
from edl.api.v1 import API_VERSION
from edl.errors import ConfigError
from edl.model.quantity import exact_quantity
from edl.model.resources import CPU, EPHEMERAL_STORAGE, GPU, MEMORY, PODS

QUEUE_KIND = "Queue"
QUEUE_PLURAL = "queues"
MAX_QUEUE_NAME = 63
QUEUE_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""The pattern of `spec.queue` of a job."""

_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
_MAPS = ("nominal_quota", "borrowing_limit")


def _read_amount(value: object) -> int | str:
    # A negative number passes to the rule about it, so that it has the words of the API server.
    if isinstance(value, int) and not isinstance(value, bool) and -MAX_INT64 <= value < 0:
        return value
    return read_quantity(value)


_Amount = Annotated[int | str, BeforeValidator(_read_amount), QUANTITY_SCHEMA]
_Amounts = Annotated[dict[str, _Amount], Field(max_length=16)]
_Shown = Annotated[dict[str, Annotated[str, Field(max_length=32)]], Field(max_length=16)]
_Count = Annotated[WholeNumber, Field(ge=0, le=MAX_INT32)]


def _check_names(amounts: Mapping[str, int | str]) -> Iterator[Values]:
    for name in sorted(amounts):
        if not (name in _NATIVE or name.startswith("hugepages-") or is_device(name)):
            yield {"name": name[:40]}


def _check_signs(amounts: Mapping[str, int | str]) -> Iterator[Values]:
    for name, value in sorted(amounts.items()):
        if _is_negative(value):
            yield {"amount": f"{value} of {name[:40]}"}


def _is_negative(value: int | str) -> bool:
    return isinstance(value, int) and value < 0


def _check_pieces(amounts: Mapping[str, int | str]) -> Iterator[Values]:
    for name, value in sorted(amounts.items()):
        if _is_negative(value):
            continue
        if (is_device(name) or name == PODS) and exact_quantity(value, name).denominator != 1:
            yield {"amount": f"{value} of {name[:40]}"}


def _check_spellings(amounts: Mapping[str, int | str]) -> Iterator[Values]:
    if {GPU, OLD_GPU} <= amounts.keys():
        yield {}


def _check_limits(part: QueueSpec) -> Iterator[Values]:
    for name in sorted(part.borrowing_limit.keys() - part.nominal_quota.keys()):
        yield {"name": name[:40]}


class QueueSpec(Part):
    """The resources of a queue, and the conditions on which the queue lends them and borrows others."""

    nominal_quota: Annotated[_Amounts, Field(min_length=1)]
    """Amounts that belong to the queue; a resource that is not listed has no limit."""
    borrowing_limit: _Amounts = Field(default_factory=dict)
    """The most that the queue may borrow of a resource; without it, all that its cohort leaves."""
    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    """Part of what others leave, beside the weights of the other queues that borrow."""
    reclaim: Literal["Any", "LowerPriority", "Never"] = "Any"
    """Queues from which it takes back what it lent, as soon as its own jobs need it."""
    cohort: Annotated[str, Field(max_length=MAX_QUEUE_NAME)] = ""
    """Queues of one cohort lend to each other; the queues without a name of a cohort are one cohort too."""
    best_effort: Literal["Allowed", "Refused"] = "Refused"
    """Whether its jobs may have trainers that request neither cpu nor memory; each counts as one pod."""

    rules = (
        Rule(
            cel=f"self.all(k, k in {list(_NATIVE)} || k.startsWith('hugepages-') || k.contains('/'))",
            message=f"unknown resource {{name}}; use cpu, memory, pods or a device such as {GPU}",
            check=_check_names,
            fields=_MAPS,
        ),
        Rule(
            cel="self.all(k, !string(self[k]).startsWith('-'))",
            message="the amount {amount} is negative; write 0 or more",
            check=_check_signs,
            fields=_MAPS,
        ),
        Rule(
            cel="self.all(k, !(k.contains('/') || k == 'pods') || string(self[k]).matches('^[0-9]+$'))",
            message="the amount {amount} is not a whole number; write a whole number without a unit",
            check=_check_pieces,
            fields=_MAPS,
        ),
        Rule(
            cel=f"!('{GPU}' in self && '{OLD_GPU}' in self)",
            message=f"{OLD_GPU} and {GPU} are two names of one resource; write only {GPU}",
            check=_check_spellings,
            fields=_MAPS,
        ),
        Rule(
            cel="!has(self.borrowingLimit) || self.borrowingLimit.all(k, k in self.nominalQuota)",
            message="borrowingLimit names {name}, and nominalQuota does not; add it there, if only with 0",
            check=_check_limits,
            general={"name": "a resource"},
        ),
    )


class QueueSummary(Part):
    """The status of a queue in lines for people: each field is one line."""

    used: Text | None = None
    """Amounts in use."""
    borrowed: Text | None = None
    """Amounts in use beyond the nominal quota."""
    share: Text | None = None
    """Amounts that the queue may use now."""


class QueueStatusPart(Part):
    """The use and the share of the jobs of a queue; the controller computes both."""

    observed_generation: Annotated[WholeNumber, Field(ge=0, le=MAX_SAFE)] | None = None
    """Generation of the spec that this status describes."""
    used: _Shown = Field(default_factory=dict)
    """Amounts that the pods of its jobs request by the last plan."""
    borrowed: _Shown = Field(default_factory=dict)
    """Part of it beyond the nominal quota."""
    share: _Shown = Field(default_factory=dict)
    """Amounts that it may use now: its own, less what it lends, and what it may borrow."""
    running: _Count | None = None
    """Jobs of the queue that run."""
    pending: _Count | None = None
    """Jobs of the queue that wait."""
    message: Text | None = None
    """Who uses what the queue lacks, in one line."""
    summary: QueueSummary | None = None


class _Metadata(Part):
    name: Annotated[str, Field(min_length=1, max_length=MAX_QUEUE_NAME, pattern=QUEUE_NAME)]


class QueueResource(Part):
    """A Queue as its owner wrote it."""

    metadata: _Metadata
    spec: QueueSpec


def parse_queue(obj: Mapping[str, Any]) -> QueueSpec:
    """Parse a Queue and apply every rule.

    Args:
        obj: the object from JSON or YAML.

    Raises:
        ConfigError: a rule is broken; the message names each problem.
    """
    try:
        queue = QueueResource.model_validate(obj)
    except ValidationError as error:
        raise ConfigError(". Also: ".join(describe(error, QueueResource))) from None
    problems = list(find_problems(queue))
    if obj.get("apiVersion", API_VERSION) != API_VERSION:
        problems.append(f"apiVersion {str(obj['apiVersion'])[:60]!r} is not supported; write {API_VERSION}")
    if problems:
        raise ConfigError(". Also: ".join(dict.fromkeys(problems)))
    return queue.spec
