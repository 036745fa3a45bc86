"""What lending CPU does to serving and to training: the wave of 2017, and serving that flaps, in virtual time.

    python -m benchmarks.lending wave     # 400 -> 100 -> 400 replicas; an idle cluster, without lending, with it
    python -m benchmarks.lending flaps    # 0 <-> 20 replicas with periods of 5 s to 2 min, five minutes each

Each line of the wave is the mean of two seeds. Slowed at rest counts the trainers that are slow just before the
serving changes again, at its worst of the last three times.
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
PERIODS_S = (20, 60, 120, 5)
FLAPPING_S = 300
FIGURES = (
    "serving_shortfall_pod_s",
    "trainers_deleted",
    "trainers_deleted_early",
    "trainers_slowed",
    "trainer_hours",
    "samples",
    "utilisation",
    "used_utilisation",
)


def wave(*, part: float, clear_s: float, idle: bool = False) -> Scenario:
    """The wave of case 2; without jobs if idle."""
    fields: dict[str, Any] = read_scenario(WAVE).model_dump()
    fields["controller"] |= {"surplus_cpu_request": part, "clear_lending_after_s": clear_s}
    return Scenario.model_validate(fields | ({"jobs": ()} if idle else {}))


def flaps(period_s: float, *, part: float, clear_s: float) -> Scenario:
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
            "controller": {"surplus_cpu_request": part, "clear_lending_after_s": clear_s},
            "latency": {
                "start_s": {"trainer": [1, 3], "serving": [1, 3]},
                "stop_s": {"trainer": [8, 8], "serving": [1, 3]},
            },
            "measure": {"from_s": 100, "ramps_s": (100, 100 + FLAPPING_S)},
        }
    )


def cases(which: str) -> Iterator[tuple[str, Scenario]]:
    """Each case with its name."""
    if which == "wave":
        yield "idle cluster", wave(part=1.0, clear_s=0, idle=True)
        yield "no lending", wave(part=1.0, clear_s=0)
        for part in (0.1, 0.5):
            for clear_s in (30, 60, 120, 0):
                yield f"part {part}, cleared after {clear_s} s", wave(part=part, clear_s=clear_s)
    else:
        for period_s in PERIODS_S:
            yield f"period {period_s} s, no lending", flaps(period_s, part=1.0, clear_s=0)
            yield f"period {period_s} s, part 0.1", flaps(period_s, part=0.1, clear_s=30)


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
        runs = [simulate(scenario, "maxmin", seed) for seed in (SEEDS if which == "wave" else SEEDS[:1])]
        found = [f"{mean(run.figures[figure] for run in runs):,.4g}" for figure in FIGURES]
        print(f"| {name} | {' | '.join(found)} | {slowed_at_rest(runs)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
