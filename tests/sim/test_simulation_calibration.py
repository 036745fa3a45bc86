"""The simulator against the experiment of 2017: what its control plane did, the simulated one does within 10 %.

The figures on the right are digests of the published series (docs/simulator.md says how they are computed).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from edl.sim.campaign import run_all, summarise
from edl.sim.scenario_file import read_scenario

SCENARIOS = Path(__file__).parents[2] / "example" / "scenarios"
TOLERANCE = 0.1


def means(case: int, policy: str, seeds: int) -> Mapping[str, float]:
    scenario = read_scenario(SCENARIOS / f"edl2017-case{case}-then.yaml")
    runs = run_all(scenario, [policy], seeds, processes=1)
    return {name: one.mean for name, one in summarise(runs[policy]).items()}


def test_case_1_without_the_autoscaler() -> None:
    found = means(1, "static-2017", 1)
    assert found["steady_utilisation"] == pytest.approx(0.8866, rel=TOLERANCE)
    assert found["steady_trainers"] == pytest.approx(346.8, rel=TOLERANCE)
    assert found["pending_all_mean_s"] == pytest.approx(308.5, rel=TOLERANCE)


def test_case_1_with_the_autoscaler() -> None:
    found = means(1, "edl-2017", 1)
    assert found["steady_utilisation"] == pytest.approx(0.8635, rel=TOLERANCE)
    assert found["steady_trainers"] == pytest.approx(253.0, rel=TOLERANCE)


def test_case_2_without_the_autoscaler() -> None:
    found = means(2, "static-2017", 1)
    assert found["utilisation"] == pytest.approx(0.629, rel=TOLERANCE)
    assert found["steady_utilisation"] == pytest.approx(0.452, rel=TOLERANCE)
    assert found["serving_shortfall_pod_s"] == pytest.approx(1939, rel=TOLERANCE)
    assert found["serving_below_s"] == pytest.approx(28, rel=TOLERANCE)


def test_case_2_with_the_autoscaler() -> None:
    found = means(2, "edl-2017", 3)
    assert found["utilisation"] == pytest.approx(0.837, rel=TOLERANCE)
    assert found["steady_utilisation"] == pytest.approx(0.792, rel=TOLERANCE)
    assert found["serving_shortfall_pod_s"] == pytest.approx(20_744, rel=TOLERANCE)
