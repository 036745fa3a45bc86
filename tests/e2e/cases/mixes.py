"""Other nodes for a scenario with the same number of nodes, cores and memory per core as the 133 of 2017.

The sizes of the nodes of 2017 are not known; results must hold on other ones, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.sim.scenario import NodeGroup, Scenario

SYSTEM_CPU = "380m"
MIXES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "even": ((87, 18), (46, 17)),
    "uneven": ((100, 8), (32, 48), (1, 12)),
}
"""By name: how many nodes of how many cores."""


def with_mix(scenario: Scenario, name: str) -> Scenario:
    """The scenario on the nodes of a mix; on its own nodes if the name is empty."""
    if not name:
        return scenario
    groups = tuple(_group(count, cores) for count, cores in MIXES[name])
    return scenario.model_copy(update={"nodes": groups})


def _group(count: int, cores: int) -> NodeGroup:
    resources: dict[str, Any] = {"cpu": cores, "memory": f"{8 * cores}Gi"}
    return NodeGroup(name=f"core{cores}", count=count, resources=resources, system_cpu=SYSTEM_CPU)
