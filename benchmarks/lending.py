"""What lending CPU does to serving and to training: the wave of 2017, and serving that flaps, in virtual time.

    python -m benchmarks.lending wave     # 400 -> 100 -> 400 replicas; an idle cluster, without lending, with it
    python -m benchmarks.lending case2    # the same wave by the two forms of lending, with the figures of 2017
    python -m benchmarks.lending frontier # the same wave with deletion, learned headroom, lending and both
    python -m benchmarks.lending flaps    # 0 <-> 20 replicas with periods of 5 s to 2 min, ten minutes each

Form 1: surplus trainers request a part of their CPU from their start. Form 2: they lower their request in place once
they run. Each line of the wave and of case 2 is the mean of two seeds. Slowed at rest counts the trainers that are
slow just before the serving changes again, at its worst of the last three times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from edl.sim.scenario import Scenario
from edl.sim.scenario_file import read_scenario
from edl.sim.simulation import Run, simulate

WAVE = Path(__file__).parents[1] / "example" / "scenarios" / "edl2017-case2.yaml"
SEEDS = (0, 1)
CHANGES_S = (468.0, 558.0, 690.0)  # the last changes of serving in the wave, and nearly its end
PERIODS_S = (5, 10, 20, 40, 60, 120)
FLAPPING_S = 600
HEADROOM_SLOS = (50, 100, 200)
CLEAR_S = (30, 60, 120, 0)
FIGURES = (
    "serving_shortfall_pod_s",
    "trainers_deleted",
    "trainers_deleted_early",
    "trainers_slowed",
    "trainer_hours",
    "samples",
    "utilisation",
    "used_utilisation",
    "serving_below_s",
    "steady_utilisation",
    "lending_price",
)


def lends(part: float, clear_s: float, *, in_place: bool = False) -> dict[str, Any]:
    """The flags of the controller."""
    return {"surplus_cpu_request": part, "clear_lending_after_s": clear_s, "lend_by_resize": in_place}


def learns(slo: float) -> dict[str, Any]:
    """The flags of the controller with headroom that learns at a cost of waiting."""
    return {"serving_headroom": "auto", "serving_slo": slo}


FORMS = {"no lending": lends(1.0, 0), "form 1": lends(0.1, 30), "form 2": lends(0.1, 30, in_place=True)}


def wave(flags: dict[str, Any], *, idle: bool = False) -> Scenario:
    """The wave of case 2; without jobs if idle."""
    fields: dict[str, Any] = read_scenario(WAVE).model_dump()
    fields["controller"] |= flags
    return Scenario.model_validate(fields | ({"jobs": ()} if idle else {}))


def flaps(period_s: float, flags: dict[str, Any]) -> Scenario:
    """Three jobs on twenty nodes beside serving that goes up and down once in a period, from second 100 on."""
    changes = [(100.0 + i * period_s / 2, 20 - 20 * (i % 2)) for i in range(int(FLAPPING_S / (period_s / 2)))]
    trainer = {"cpu": 2, "memory": "1Gi"}
    return Scenario.model_validate(
        {
            "name": "flaps",
            "duration_s": 100 + FLAPPING_S,
            "nodes": [{"name": "n", "count": 20, "resources": {"cpu": 8, "memory": "32Gi"}}],
            "jobs": [
                {"name": "job", "count": 3, "min": 2, "max": 60, "trainer": trainer, "throughput": [(1, 1), (60, 60)]}
            ],
            "serving": [{"name": "web", "resources": {"cpu": 3, "memory": "3Gi"}, "replicas": [(0.0, 0), *changes]}],
            "controller": flags,
            "latency": {
                "start_s": {"trainer": [1, 3], "serving": [1, 3]},
                "stop_s": {"trainer": [8, 8], "serving": [1, 3]},
            },
            "measure": {"from_s": 100, "ramps_s": (100, 100 + FLAPPING_S)},
        }
    )


def cases(which: str) -> Iterator[tuple[str, Scenario]]:
    """Each case with its name."""
    if which == "frontier":
        yield from frontier()
        return
    if which == "flaps":
        for period_s in PERIODS_S:
            for form, flags in FORMS.items():
                yield f"period {period_s} s, {form}", flaps(period_s, flags)
        return
    yield "idle cluster", wave(FORMS["no lending"], idle=True)
    if which == "wave":
        yield "no lending", wave(FORMS["no lending"])
        for part in (0.1, 0.5):
            for clear_s in CLEAR_S:
                yield f"part {part}, cleared after {clear_s} s", wave(lends(part, clear_s))
    else:
        for form, flags in FORMS.items():
            yield form, wave(flags)


def frontier() -> Iterator[tuple[str, Scenario]]:
    """What serving may wait less for: deletion, headroom that learns, lending, and both."""
    yield "deletion", wave(FORMS["no lending"])
    for slo in HEADROOM_SLOS:
        yield f"headroom at {slo}", wave(learns(slo))
    for clear_s in CLEAR_S:
        yield f"lending, cleared after {clear_s} s", wave(lends(0.1, clear_s))
    for slo in HEADROOM_SLOS[1:]:
        yield f"both: headroom at {slo}, cleared after 30 s", wave(lends(0.1, 30) | learns(slo))


def slowed_at_rest(runs: Sequence[Run]) -> int:
    """The most trainers that are slow just before serving changes."""
    before = (
        next((sample.slowed for sample in reversed(run.samples) if sample.at_s <= at_s - 0.5), 0)
        for run in runs
        for at_s in CHANGES_S
    )
    return max(before)


def main(which: str) -> None:
    """Print a table."""
    print(f"| | {' | '.join(FIGURES)} | slowed at rest |")
    print("|---" * (len(FIGURES) + 2) + "|")
    for name, scenario in cases(which):
        runs = [simulate(scenario, "maxmin", seed) for seed in (SEEDS[:1] if which == "flaps" else SEEDS)]
        if problems := [problem for run in runs for problem in run.problems]:
            raise SystemExit(f"{name}: {problems[0]}")
        found = [f"{mean(run.figures.get(figure, 0.0) for run in runs):,.4g}" for figure in FIGURES]
        print(f"| {name} | {' | '.join(found)} | {slowed_at_rest(runs)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
