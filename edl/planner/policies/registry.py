"""Every policy by its name: the one list that a new policy is added to."""

from __future__ import annotations

from collections.abc import Mapping

from edl.errors import ConfigError
from edl.planner.policies.base import Comparison, Policy
from edl.planner.policies.edl_2017 import Edl2017
from edl.planner.policies.goodput import Goodput
from edl.planner.policies.maxmin import MaxMin
from edl.planner.policies.static import StaticMax, StaticMin
from edl.planner.policies.utility import Utility

POLICIES: Mapping[str, Policy] = {p.name: p for p in (MaxMin(), Utility(), Goodput(), StaticMin(), StaticMax())}
COMPARISONS: Mapping[str, Comparison] = {p.name: p for p in (Edl2017(),)}
DEFAULT = "maxmin"
"""The policy without `--policy`, whatever jobs declare: no tenant changes how others share."""


def policy_named(name: str) -> Policy:
    """The policy of that name, for a controller; an empty name is the default.

    Raises:
        ConfigError: no such policy exists (the message lists those that do), or it is only to compare with.
    """
    if not name:
        return POLICIES[DEFAULT]
    if name in COMPARISONS:
        raise ConfigError(
            f"policy {name} is for comparison in edl plan only: its plans ignore nodes and may not fit;"
            f" choose one of {', '.join(sorted(POLICIES))}"
        )
    if name not in POLICIES:
        raise ConfigError(f"policy {name!r} does not exist; choose one of {', '.join(sorted(POLICIES))}")
    return POLICIES[name]


def policy_names(*, comparisons: bool = True) -> tuple[str, ...]:
    """What `--policy` accepts: every policy, and those for comparison if wanted."""
    return (*POLICIES, *(COMPARISONS if comparisons else ()))
