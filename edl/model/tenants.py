"""Which namespaces may use which priorities and queues: the operator's file of `--tenants` as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edl.model.lending import Lending

ANY_NAMESPACE = "*"
"""The name of the rule for the namespaces that have none of their own."""


class UnknownQueues(StrEnum):
    """The treatment of a job whose queue has no quota."""

    ALLOW = "allow"  # it has no limit
    DEFAULT = "default"  # it counts in the default queue
    REFUSE = "refuse"  # it gets no pods


@dataclass(frozen=True, slots=True)
class TenantRule:
    """What the jobs of a namespace may use.

    Attributes:
        namespace: its name, or `ANY_NAMESPACE`.
        max_priority: the highest `spec.priority`; None for no limit.
        queues: the queues, sorted; None for all.
        lending: the most that `spec.elasticity.lending` may say; None for no limit.
    """

    namespace: str
    max_priority: int | None = None
    queues: tuple[str, ...] | None = None
    lending: Lending | None = None


@dataclass(frozen=True, slots=True)
class Tenants:
    """The rules, sorted by namespace."""

    rules: tuple[TenantRule, ...] = ()
    unknown_queues: UnknownQueues = UnknownQueues.ALLOW

    def rule_of(self, namespace: str) -> TenantRule:
        """The rule of a namespace; without one nothing is limited."""
        found = {rule.namespace: rule for rule in self.rules}
        return found.get(namespace) or found.get(ANY_NAMESPACE) or TenantRule(namespace)
