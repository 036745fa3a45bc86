"""Faults on purpose: requests that fail, are slow, arrive twice, are answered with old data, or get no reply.

A test adds faults to a running server; each has a rule for the requests that it meets and an effect. The first fault
whose rule holds is used. With the same seed and the same requests the same faults happen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from edl.sandbox.apiserver.errors import ApiError
from edl.sandbox.apiserver.http.request import Request

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Moment(StrEnum):
    """When a request goes wrong: before it changes anything, or after."""

    BEFORE = "before"
    AFTER = "after"


class Loss(StrEnum):
    """How a reply gets lost: the connection is reset, or nothing ever comes."""

    RESET = "reset"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an error Status; with `AFTER`, although the request was executed."""

    code: int
    message: str = "injected fault"
    retry_after_s: int = 0
    moment: Moment = Moment.BEFORE

    def error(self) -> ApiError:
        """The error to answer with."""
        details = {"retryAfterSeconds": self.retry_after_s} if self.retry_after_s else {}
        return ApiError(self.code, _REASONS.get(self.code, "Unknown"), self.message, details)


@dataclass(frozen=True, slots=True)
class Delay:
    """Execute the request later, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Execute the request twice, and answer with the second result."""


@dataclass(frozen=True, slots=True)
class Stale:
    """Answer a get or list with the state of some versions ago; a write is executed as it is."""

    versions: int = 10


@dataclass(frozen=True, slots=True)
class Lose:
    """Send no reply."""

    how: Loss = Loss.RESET
    moment: Moment = Moment.AFTER


@dataclass(frozen=True, slots=True)
class Cut:
    """Reset a watch after this many chunks of events."""

    chunks: int = 1


Effect = Fail | Delay | Duplicate | Stale | Lose | Cut


@dataclass(frozen=True, slots=True)
class Rule:
    """Which requests a fault meets; an empty field matches all.

    Attributes:
        verb: get, list, watch, create, update, patch, delete or deletecollection.
        resource: the plural, without the group.
        subresource: such as `status`; `-` for none.
        namespace: the namespace of the request.
        name: the name of the object in the path.
        user: who sends it.
        first: the number of the first matching request that is met, from 1.
        times: how many matching requests are met from then on; None for all.
        probability: the probability that the fault meets a matching request, in 0..1.
        where: any further condition.
    """

    verb: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    first: int = 1
    times: int | None = 1
    probability: float = 1.0
    where: Callable[[Request], bool] | None = None

    def holds(self, request: Request) -> bool:
        """Return whether the rule is about a request, however often it was before."""
        target = request.target
        if target is None:
            return False
        subresource = target.subresource or "-"
        pairs = (
            (self.verb, request.verb),
            (self.resource, target.plural),
            (self.subresource, subresource),
            (self.namespace, target.namespace),
            (self.name, target.name),
            (self.user, request.user),
        )
        return all(wanted in {"", found} for wanted, found in pairs) and (self.where is None or self.where(request))


@dataclass(slots=True)
class Fault:
    """A rule with an effect, and how often it matched and was used."""

    rule: Rule
    effect: Effect
    matched: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class Happened:
    """One request that met a fault."""

    verb: str
    path: str
    effect: Effect


@dataclass(slots=True)
class Faults:
    """The faults that one server has to produce, and those that it has produced.

    Attributes:
        chance: decides where a rule has a probability; seeded by the test.
        happened: every use, in order.
    """

    chance: random.Random = field(default_factory=partial(random.Random, 0))
    happened: list[Happened] = field(default_factory=list)
    _faults: list[Fault] = field(default_factory=list)

    def add(self, rule: Rule, effect: Effect) -> Fault:
        """Add a fault; returns it, with its counts."""
        fault = Fault(rule, effect)
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults; the record of those that happened stays."""
        self._faults.clear()

    def next(self, request: Request) -> Effect | None:
        """Return the effect of the first fault that matches a request and is due, None without one.

        Other faults only count it.
        """
        found: Fault | None = None
        for fault in self._faults:
            if fault.rule.holds(request) and self._is_due(fault) and found is None:
                found = fault
        if found is None:
            return None
        found.used += 1
        self.happened.append(Happened(request.verb, request.path, found.effect))
        return found.effect

    def _is_due(self, fault: Fault) -> bool:
        fault.matched += 1
        rule = fault.rule
        if fault.matched < rule.first or (rule.times is not None and fault.used >= rule.times):
            return False
        return rule.probability >= 1 or self.chance.random() < rule.probability
