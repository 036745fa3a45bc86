"""Small scenarios for the simulator: a test names what matters and leaves the rest to the defaults."""

from __future__ import annotations

from typing import Any

from edl.sim.scenario import Scenario

INSTANT = dict.fromkeys(("trainer", "pserver", "master", "serving"), (0.0, 0.0))


def make_scenario(**fields: Any) -> Scenario:
    """Four nodes of 8 cores for 60 seconds, on which pods start and end at once."""
    usual: dict[str, Any] = {
        "name": "small",
        "duration_s": 60,
        "nodes": [{"name": "n", "count": 4, "resources": {"cpu": 8, "memory": "32Gi"}}],
        "latency": {"start_s": INSTANT, "stop_s": INSTANT},
    }
    return Scenario.model_validate(usual | fields)


def make_group(name: str = "job", **fields: Any) -> dict[str, Any]:
    """A group of one job of one to eight trainers of one core."""
    return {"name": name, "min": 1, "max": 8, "trainer": {"cpu": 1, "memory": "1Gi"}} | fields


def make_deployment(*replicas: tuple[float, int], cpu: int = 4) -> dict[str, Any]:
    """A Deployment with this timeline."""
    return {"name": "web", "resources": {"cpu": cpu, "memory": "1Gi"}, "replicas": list(replicas)}
