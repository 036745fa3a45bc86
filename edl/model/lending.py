"""CPU that trainers lend: they request less than they declare, and may use what they declare.

Serving is scheduled by requests. So capacity that trainers only request in part is capacity for serving at once, and
the kernel gives the CPU to both in proportion to their requests. Memory and devices are never lent.

Source: cpu.weight of control groups, https://docs.kernel.org/admin-guide/cgroup-v2.html#weights
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

LEAST_CPU_MILLI = 10
"""The least that a trainer requests, in millicores: with a request of 0 the kernel would hardly ever run it."""


class Lending(StrEnum):
    """Which trainers of a job may lend CPU: none, those above its minimum, or all."""

    NEVER = "Never"
    SURPLUS = "Surplus"
    ALL = "All"


def least(one: Lending, other: Lending) -> Lending:
    """Return the `Lending` of several under which fewer trainers lend."""
    return min(one, other, key=list(Lending).index)


def may_lend(lending: Lending, *, is_surplus: bool, is_synchronous: bool) -> bool:
    """True if a trainer may lend CPU.

    A synchronous job waits for its slowest trainer in each step. Its trainers all lend, or none does.
    """
    if lending is Lending.SURPLUS:
        return is_surplus and not is_synchronous
    return lending is Lending.ALL


def requested_milli(declared_milli: int, fraction: float) -> int:
    """The CPU request of a trainer that lends, in millicores.

    Args:
        declared_milli: what it declares.
        fraction: the part of it that it requests, in (0, 1].
    """
    return min(declared_milli, max(LEAST_CPU_MILLI, ceil(declared_milli * fraction - 1e-9)))


@dataclass(frozen=True, slots=True)
class RunningRequest:
    """The CPU request of a trainer that runs, whose kubelet can change it without a restart.

    Attributes:
        declared_milli: what its container declares.
        requested_milli: what its spec requests.
        granted_milli: what its kubelet has granted.
        refusal: why its kubelet does not carry out a change, such as Deferred or Infeasible; empty if it does.
    """

    declared_milli: int
    requested_milli: int
    granted_milli: int
    refusal: str = ""

    @property
    def charged_milli(self) -> int:
        """The CPU that kube-scheduler counts: the larger of request and grant, or the grant if infeasible."""
        return self.granted_milli if self.refusal == INFEASIBLE else max(self.requested_milli, self.granted_milli)


INFEASIBLE = "Infeasible"
"""The reason of a condition PodResizePending: the node can never grant the request."""
