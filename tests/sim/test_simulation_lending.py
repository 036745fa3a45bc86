"""A wave of serving over trainers that lend CPU, beside the same wave over trainers that do not."""

from __future__ import annotations

from typing import Any

import pytest

from edl.sim.scenario import Scenario
from edl.sim.simulation import Run, simulate
from tests.sim.scenarios import make_deployment, make_group, make_scenario

LATENCY = {"start_s": {"trainer": [1, 1], "serving": [1, 1]}, "stop_s": {"trainer": [8, 8], "serving": [0, 0]}}
LENDER: dict[str, Any] = {"lending": "All", "master": {"resources": {"memory": "1Gi"}}}
"""A job whose trainers all lend, with a data master that takes no CPU from them."""


def wave(
    surplus_cpu_request: float, clear_lending_after_s: float = 30.0, *, serving: int = 4, **group: Any
) -> Scenario:
    """Four nodes of 8 cores that trainers of 2 cores fill; serving takes half of so many from second 60 on."""
    fields: dict[str, Any] = {"max": 16, "trainer": {"cpu": 2, "memory": "1Gi"}, "throughput": [[1, 1.0], [16, 16.0]]}
    return make_scenario(
        duration_s=180,
        latency=LATENCY,
        jobs=[make_group(**(fields | group))],
        serving=[make_deployment((0, 0), (60, serving))],
        controller={
            "surplus_cpu_request": surplus_cpu_request,
            "clear_lending_after_s": clear_lending_after_s,
            "interval_s": 1,
        },
        measure={"ramps_s": (60, 180)},
    )


def run(scenario: Scenario) -> Run:
    done = simulate(scenario, "maxmin", 0)
    assert done.problems == ()
    return done


def slowed_at(done: Run, at_s: float) -> int:
    return next(sample.slowed for sample in reversed(done.samples) if sample.at_s <= at_s)


def trainers_at(done: Run, at_s: float) -> int:
    return next(sample.trainers for sample in reversed(done.samples) if sample.at_s <= at_s)


def test_serving_does_not_wait_for_trainers_that_lend() -> None:
    asks_all, lends = run(wave(1.0)), run(wave(0.1))
    assert lends.figures["serving_shortfall_pod_s"] < asks_all.figures["serving_shortfall_pod_s"] / 4
    assert asks_all.figures["trainers_deleted_early"] == 8
    assert lends.figures["trainers_deleted_early"] == 0


def test_lending_slows_trainers_until_the_node_is_cleared() -> None:
    done = run(wave(0.1))
    assert trainers_at(done, 59) == 16
    assert slowed_at(done, 59) == 0
    assert slowed_at(done, 80) > 0
    assert slowed_at(done, 175) == 0
    assert trainers_at(done, 175) == 8


def test_without_clearing_every_trainer_stays_and_is_slow() -> None:
    done = run(wave(0.1, 0.0))
    assert trainers_at(done, 175) == 16
    assert slowed_at(done, 175) > 0


def test_used_cpu_stays_full_and_requested_cpu_shows_room() -> None:
    figures = run(wave(0.1)).figures
    assert figures["used_utilisation"] > 0.9
    assert figures["utilisation"] < figures["used_utilisation"] - 0.2


@pytest.mark.parametrize("stops", ["job", "trainer"])
def test_slowed_trainers_slow_their_job(stops: str) -> None:
    """Half of the CPU is left; a job whose trainers wait for each other is as slow as its slowest trainer."""
    work: dict[str, Any] = {"work": 16.0 * 60 + 8.0 * 60, "resize": {"stops": stops}, "min": 4, "lending": "All"}
    done = run(wave(0.1, 0.0, **work))
    free = run(wave(0.1, 0.0, **work).model_copy(update={"serving": ()}))
    assert done.figures["jct_mean_s"] > free.figures["jct_mean_s"] + 20


def test_a_job_that_lends_never_gives_way_as_before() -> None:
    figures = run(wave(0.1, lending="Never")).figures
    assert figures["trainers_deleted_early"] == 8
    assert figures["trainers_slowed"] == 0


def in_place(scenario: Scenario) -> Scenario:
    """The scenario with trainers that request all from their start and lend once they run."""
    controller = scenario.controller.model_copy(update={"lend_by_resize": True})
    return scenario.model_copy(update={"controller": controller})


def test_trainers_that_run_lend_by_a_resize_in_place() -> None:
    asks_all, lends = run(in_place(wave(1.0))), run(in_place(wave(0.1)))
    assert asks_all.figures["trainers_deleted_early"] == 8
    assert lends.figures["trainers_deleted_early"] == 0
    assert lends.figures["serving_shortfall_pod_s"] < asks_all.figures["serving_shortfall_pod_s"] / 4
    assert trainers_at(lends, 59) == 16
    requested = next(sample.requested for sample in reversed(lends.samples) if sample.at_s <= 59)
    assert requested == pytest.approx(2 + 15 * 0.2), "one trainer of the minimum"


def learned(part: float, *, serving: int = 4, **group: Any) -> dict[str, float]:
    """The prices that are learned of trainers of two cores that lend the rest of that part; nobody clears nodes."""
    return run(wave(part, 0.0, serving=serving, **(LENDER | group))).prices


@pytest.mark.parametrize(("stops", "price"), [("trainer", 0.5 / 0.9), ("job", 2 * 0.5 / 0.9)], ids=["own", "all"])
def test_the_controller_learns_what_lending_costs(stops: str, price: float) -> None:
    """Half of the trainers have half of their CPU: each works by itself, or all wait for the slow ones."""
    found = learned(0.1, serving=2, resize={"stops": stops})
    assert found["job-0"] == pytest.approx(price, abs=0.02)


def test_a_job_without_a_data_master_teaches_no_price() -> None:
    assert learned(0.1, master=None) == {}


def test_without_lending_no_price_is_learned() -> None:
    assert learned(1.0) == {}


def test_equal_seeds_learn_equal_prices() -> None:
    assert learned(0.1) == learned(0.1) != {}


def test_the_mean_price_is_a_figure() -> None:
    done = run(wave(0.1, 0.0, **LENDER))
    assert done.figures["lending_price"] == pytest.approx(done.prices["job-0"])
    assert "lending_price" not in run(wave(1.0)).figures
