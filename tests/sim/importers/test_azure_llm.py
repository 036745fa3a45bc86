"""Days and nights of serving from a trace of requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.headroom_load import REQUESTS_A_MINUTE
from edl.errors import ConfigError
from edl.sim.importers.azure_llm import CHANGE_DAY, DAY_S, STEP_S, TOLERANCE, replicas, requests_a_minute
from edl.sim.importers.azure_llm import scenario_of_service as scenario_of
from edl.sim.scenario import Scenario
from edl.sim.scenario_file import read_scenario

STORED = Path(__file__).parents[3] / "example" / "scenarios" / "day-and-night.yaml"


def trace(path: Path, minutes: tuple[int, ...] = (6, 12, 3)) -> Path:
    rows = [f"{60 * minute},{count}" for minute, count in enumerate(minutes)]
    path.write_text("\n".join(["second,requests", *rows, f"{60 * len(minutes) - 1},0", f"{60 * len(minutes)},9"]))
    return path


def at(timeline: tuple[tuple[float, int], ...], second: float) -> int:
    return next(count for at_s, count in reversed(timeline) if at_s <= second)


def test_requests_are_counted_in_whole_minutes(tmp_path: Path) -> None:
    assert requests_a_minute(trace(tmp_path / "trace.csv")) == (6, 12, 3)


def test_the_published_form_has_a_row_for_each_request(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    times = ("18:15:46.6805900", "18:16:46.5", "18:16:46.7", "18:17:46.7")
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *(f"2023-11-16 {t},1,1" for t in times)]))
    assert requests_a_minute(path) == (2, 1)


@pytest.mark.parametrize(
    ("text", "reason"), [("a,b\n1,2\n", "give a CSV"), ("second,requests\n3,1\n", "no whole minute")]
)
def test_another_file_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        requests_a_minute(path)


def test_nights_are_quiet_and_the_regime_changes() -> None:
    timeline = replicas([10], CHANGE_DAY + 1, pods=1000)
    before, after = DAY_S, CHANGE_DAY * DAY_S
    assert at(timeline, before) == pytest.approx(250, rel=TOLERANCE + 0.01)
    assert at(timeline, before + 12 * 3600) == pytest.approx(1000, rel=TOLERANCE + 0.01)
    assert at(timeline, after + 6 * 3600) == pytest.approx(1500, rel=TOLERANCE + 0.01), "noon is six hours earlier"
    assert at(timeline, before + 9 * 3600 + STEP_S) > 1.2 * at(timeline, before + 9 * 3600 - STEP_S), "the batch at 9"


def test_the_same_seed_gives_the_same_load() -> None:
    first, again, other = (replicas(REQUESTS_A_MINUTE, 1, pods=24, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_a_trace_becomes_a_scenario(tmp_path: Path) -> None:
    scenario = Scenario.model_validate(scenario_of(trace(tmp_path / "trace.csv"), days=1, nodes=12))
    assert (scenario.duration_s, scenario.jobs[0].count, scenario.nodes[0].count) == (DAY_S, 2, 12)
    assert scenario.serving[0].replicas == replicas((6, 12, 3), 1, pods=24)


def test_the_stored_scenario_is_what_the_importer_writes() -> None:
    stored = read_scenario(STORED)
    assert stored.serving[0].replicas == replicas(REQUESTS_A_MINUTE, 14, pods=2 * stored.nodes[0].count)
    assert stored.duration_s == 14 * DAY_S
