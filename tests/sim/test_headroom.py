"""Headroom in the simulator, with the real controller: waves of serving, each rule, and what room costs training."""

from __future__ import annotations

from functools import cache

import pytest

from edl.headroom.advisor import COOLDOWN_S
from edl.sim.headroom import Conformal, Foresight, Peak, advisor_of
from edl.sim.scenario import Scenario
from edl.sim.simulation import Run, simulate
from tests.sim.scenarios import make_deployment, make_group, make_scenario

LATENCY = {"start_s": {"trainer": [1, 1], "serving": [1, 1]}, "stop_s": {"trainer": [8, 8], "serving": [0, 0]}}
RISES = 12


def waves(headroom: int | str, slo: float = 200.0, *, rises: int = RISES) -> Scenario:
    """Four nodes full of trainers of 2 cores; four pods of 4 cores come and go every two minutes."""
    changes = [(400.0 + 60 * i, 4 * (i % 2 == 0)) for i in range(2 * rises)]
    end_s = 400.0 + 120 * rises
    group = make_group(max=16, trainer={"cpu": 2, "memory": "1Gi"}, throughput=[[1, 1.0], [16, 16.0]])
    return make_scenario(
        duration_s=end_s,
        latency=LATENCY,
        jobs=[group],
        serving=[make_deployment((0, 1), *((at, 1 + pods) for at, pods in changes))],
        controller={"serving_headroom": headroom, "serving_slo": slo},
        measure={"ramps_s": (400, end_s)},
    )


@cache
def played(headroom: int | str, slo: float = 200.0, rises: int = RISES) -> Run:
    """A run of `waves`; several tests look at the same one."""
    return run(waves(headroom, slo, rises=rises))


def run(scenario: Scenario) -> Run:
    done = simulate(scenario, "maxmin", 0)
    assert done.problems == ()
    return done


def waiting(done: Run) -> float:
    return done.figures["serving_shortfall_pod_s"]


def test_learned_room_lets_serving_start_without_waiting_for_trainers() -> None:
    without, learned, foresight = (played(rule) for rule in (0, "auto", "foresight"))
    assert waiting(learned) < 0.5 * waiting(without)
    assert waiting(foresight) <= waiting(learned)
    assert learned.figures["trainer_hours"] < without.figures["trainer_hours"]


def test_the_first_rise_finds_no_room() -> None:
    cold, without = played("auto", rises=1), played(0, rises=1)
    assert waiting(cold) == pytest.approx(waiting(without), rel=0.1)


def test_a_wait_that_costs_little_buys_no_room() -> None:
    assert played("auto", slo=1.0).figures["trainer_hours"] == played(0).figures["trainer_hours"]


def test_trainers_that_end_for_room_are_bounded_by_the_cooldown() -> None:
    """Rises of 16 cores take at most 8 trainers each, and room for the next one as many once a cooldown."""
    done = played("auto")
    cooldowns = int(waves("auto").duration_s / COOLDOWN_S) + 1
    assert done.figures["trainers_deleted"] <= 8 * (RISES + cooldowns)
    assert done.figures["trainers_deleted"] <= 1.5 * played(0).figures["trainers_deleted"] + 16


def test_while_serving_is_steady_no_trainer_ends_for_room() -> None:
    scenario = waves("auto")
    steady = scenario.model_copy(update={"duration_s": scenario.duration_s + 1800})
    early, late = played("auto"), run(steady)
    assert late.figures["trainers_deleted"] <= early.figures["trainers_deleted"] + 8


@pytest.mark.parametrize("rule", ["peak", "conformal"])
def test_each_baseline_runs(rule: str) -> None:
    assert waiting(played(rule)) <= 1.05 * waiting(played(0))


def test_a_number_needs_no_advisor() -> None:
    assert advisor_of(waves(2), 0.0) is None


def test_the_peak_of_the_last_hour_is_forgotten_after_it() -> None:
    peak = Peak()
    counts = [1] * 20 + [6] * 20
    kept = [peak.observe(2.5 * i, count, 4).pods for i, count in enumerate(counts)]
    assert kept[-1] == 5
    assert [peak.observe(100.0 + 500 * i, 6, 4).pods for i in range(1, 9)][-1] == 0


def test_conformal_room_grows_with_misses_and_shrinks_without() -> None:
    conformal = Conformal(2.0, 50.0)
    kept = [conformal.observe(2.5 * i, 5 * (i // 8 % 2), 4).pods for i in range(400)]
    assert kept[0] == 0
    assert kept[-1] == 5
    calm = [conformal.observe(1000.0 + 2.5 * i, 0, 4).pods for i in range(3000)]
    assert calm[-1] == 0


def test_foresight_sees_one_window_ahead() -> None:
    foresight = Foresight([[(0.0, 1), (100.0, 6), (105.0, 3)]], 0.0, pays=True)
    assert [foresight.observe(at_s, 1, 4).pods for at_s in (0.0, 89.0, 90.0, 101.0)] == [0, 0, 5, 0]
    assert Foresight([[(0.0, 1), (5.0, 6)]], 0.0, pays=False).observe(1.0, 1, 4).pods == 0
