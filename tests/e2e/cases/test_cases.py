"""A small scenario on a cluster and in the simulator: both answer, and the same code measures both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edl.sim.scenario import Scenario
from edl.sim.scenario_file import read_scenario
from edl.sim.simulation import simulate
from tests.e2e.cases.mixes import MIXES, with_mix
from tests.e2e.cases.play import NotPlayableError, Played, Playing, flags_of, job_of, node_specs, shortened
from tests.e2e.cases.spans import as_seen
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.worlds.harness import World

SCENARIOS = Path(__file__).parents[3] / "example" / "scenarios"
POD = {"cpu": 1, "memory": "1Gi"}
WIDE = {"cpu": 2, "memory": "1Gi"}
MASTER = {"resources": {"cpu": "500m", "memory": "1Gi"}}
SMALL: dict[str, Any] = {
    "name": "small",
    "duration_s": 60,
    "nodes": [{"name": "n", "count": 4, "resources": {"cpu": 8, "memory": "32Gi"}, "system_cpu": "500m"}],
    "jobs": [
        {"name": "job", "count": 2, "arrival": {"every_s": 2}, "max": 8, "trainer": WIDE, "master": MASTER},
        {"name": "brief", "removal": {"first_s": 12}, "max": 1, "trainer": POD, "master": MASTER},
    ],
    "serving": [{"name": "web", "resources": POD, "replicas": [[0, 8], [14, 4], [20, 12]]}],
    "controller": {"interval_s": 1},
    "latency": {"start_s": {"trainer": [0.5, 0.5]}, "stop_s": {"trainer": [2, 2], "serving": [0.5, 0.5]}},
    "measure": {"until_s": 60, "ramps_s": [20, 60]},
}


def small(**fields: Any) -> Scenario:
    return Scenario.model_validate(SMALL | fields)


def case(number: int) -> Scenario:
    return read_scenario(SCENARIOS / f"edl2017-case{number}.yaml")


def test_a_scenario_is_played_and_measured_as_in_the_simulator(control_plane: Callable[..., ControlPlane]) -> None:
    scenario = small()
    plane = control_plane(nodes=node_specs(scenario), settings=Settings(pod_delete_s=2.0))
    played = Playing(scenario, World(plane, *flags_of(scenario))).play()
    simulated, seen = simulate(scenario, "maxmin", 0).figures, played.figures
    assert (seen["never_started"], simulated["never_started"]) == (0, 0)
    assert set(seen) <= set(simulated)
    assert 0 < seen["serving_shortfall_pod_s"] < 200
    assert seen["trainers_deleted"] >= 4, "twelve pods and eleven trainers of two cores do not fit into 30"
    last = played.recording.samples[-1]
    assert (last.target, last.ready) == (12, 12)
    assert last.trainers >= 7, "what serving leaves is full of trainers again"
    assert last.requested == 2 + 12 + 1 + 2 * last.trainers, "daemons, serving, masters, trainers; `brief` is gone"
    check_spans(scenario, played)


def check_spans(scenario: Scenario, played: Played) -> None:
    """What pods took is what the scenario says; the pods of second 0 do not count."""
    spans = played.spans.summary()
    count, _, half_s, *_ = spans["trainer stop"]
    assert count >= 4
    assert half_s >= 1.9
    assert spans["serving start"][0] == 8
    latency = as_seen(scenario, spans).latency
    assert latency.stop_of("trainer")[0] >= 1.9
    assert latency.start_of("pserver") == scenario.latency.start_of("pserver")


def test_the_annotations_of_pods_carry_the_latencies_of_their_role() -> None:
    body = job_of(case(2).jobs[0], "job-0", case(2))
    for role in ("trainer", "pserver", "master"):
        said = body["spec"][role]["template"]["metadata"]["annotations"]
        assert said == {"edl.test/start-s": "2", "edl.test/stop-s": "8"}
    assert body["spec"]["pserver"]["min-instance"] == 10


def test_the_mixes_have_the_nodes_and_cores_of_the_scenario() -> None:
    def total(scenario: Scenario) -> tuple[int, float, float]:
        specs = node_specs(scenario)
        free = [spec.allocatable["cpu"] for spec in specs]
        return len(specs), sum(float(spec.capacity["cpu"]) for spec in specs), sum(int(cpu[:-1]) for cpu in free)

    assert total(case(1)) == (133, 2348.0, 2348_000 - 133 * 380)
    assert {total(with_mix(case(1), name)) for name in MIXES} == {total(case(1))}
    assert with_mix(case(1), "") == case(1)


def test_a_scenario_ends_with_what_is_measured_or_earlier() -> None:
    whole = shortened(case(2), None)
    assert (whole.duration_s, whole.measure) == (680, case(2).measure)
    part = shortened(case(2), 585)
    assert (part.duration_s, part.measure.until_s, part.measure.ramps_s) == (585, 550, (378, 585))
    assert shortened(case(2), 300).measure.ramps_s is None


def test_what_no_cluster_can_play_is_refused() -> None:
    with pytest.raises(NotPlayableError, match="use auto"):
        flags_of(small(controller={"serving_headroom": "peak"}))
    with pytest.raises(NotPlayableError, match="node_events and work"):
        flags_of(small(node_events=[{"at_s": 1, "node": "n-0", "event": "lost"}]))
    with pytest.raises(NotPlayableError, match="has a master"):
        flags_of(small(jobs=[{"name": "job", "max": 1, "trainer": POD}]))
    assert flags_of(small(controller={"serving_headroom": "auto", "serving_slo": 7}))[-2:] == ["--serving-slo", "7.0"]
