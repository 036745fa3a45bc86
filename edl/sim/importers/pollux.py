"""Scenarios from the artifact of the Pollux paper: its workloads, with the measured profiles of six models.

A job keeps the batch size that its user chose. Its work is the samples of the whole validation run with that batch
size; its speed with n GPUs follows from the measured step times on the fewest nodes of four GPUs, with steps added up
where the local batch is too large for one GPU. Pollux itself also changes batch sizes, which is not modelled.

Source: Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, OSDI 2021; the files
of its artifact, Apache-2.0.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

from edl.errors import ConfigError

NODES, GPUS = 16, 4
RESTART_S = 30.0
"""What a change of the number of GPUs costs: the whole job stops, as measured in the paper."""

HOURS = 40
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Measured steps of one number of GPUs: (local batch size, seconds, seconds of them for the exchange), sorted."""

    points: tuple[tuple[float, float, float], ...]

    def iteration_s(self, local: float) -> float:
        """Seconds for an iteration in which each GPU has that many samples."""
        most = self.points[-1][0]
        parts = max(1, ceil(local / most))
        step_s, sync_s = self._at(local / parts)
        return (parts - 1) * (step_s - sync_s) + step_s

    def _at(self, local: float) -> tuple[float, float]:
        if local <= self.points[0][0]:
            return self.points[0][1:]
        for (low, *before), (high, *after) in pairwise(self.points):
            if local <= high:
                part = (local - low) / (high - low)
                step_s, sync_s = (a + part * (b - a) for a, b in zip(before, after, strict=True))
                return step_s, sync_s
        return self.points[-1][1:]


def scenario_of_workload(folder: Path, workload: str) -> dict[str, Any]:
    """The scenario of one workload, as a scenario file has it.

    Args:
        folder: with `workloads/` and `profiles/`.
        workload: such as `workload-1`.

    Raises:
        ConfigError: a file is missing or is not as in the artifact.
    """
    try:
        rows = _rows(folder / "workloads" / f"{workload}.csv")
        groups = list(_groups(folder / "profiles", rows))
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{folder}: {error}; give the folder with the workloads and profiles of Pollux") from error
    return {
        "name": f"pollux-{workload}",
        "description": f"{len(rows)} jobs of the Pollux paper on {NODES} nodes of {GPUS} GPUs",
        "duration_s": HOURS * 3600,
        "nodes": [
            {"name": "gpu", "count": NODES, "resources": {"cpu": 48, "memory": "192Gi", "nvidia.com/gpu": GPUS}}
        ],
        "jobs": groups,
        "controller": {"interval_s": 60},
        "latency": {"start_s": {"trainer": [1, 1]}, "stop_s": {"trainer": [1, 1]}},
        "policies": ["static-2017", "edl-2017", "fixed", "tiresias", "optimus", "afs", "sia", "maxmin", "utility"],
    }


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _groups(profiles: Path, rows: Sequence[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    """A group for each model, batch size and number of GPUs that users chose."""
    arrivals: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for row in rows:
        arrivals[row["application"], int(row["batch_size"]), int(row["num_replicas"])].append(float(row["time"]))
    for (model, batch, gpus), times in sorted(arrivals.items()):
        curve = throughput(profiles / model, batch)
        yield {
            "name": f"{model}-{batch}-{gpus}",
            "count": len(times),
            "arrival": {"times_s": sorted(times)},
            "min": 1,
            "max": curve[-1][0],
            "fixed": min(gpus, curve[-1][0]),
            "trainer": {"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": 1},
            "work": iterations(profiles / model, batch) * batch,
            "throughput": [list(point) for point in curve],
            "resize": {"cost_s": RESTART_S, "stops": "job"},
        }


def iterations(model: Path, batch: int) -> float:
    """Iterations of the validation run with a batch size; between two measured sizes, by their product with it."""
    runs = sorted((int(path.stem.partition("-")[2]), path) for path in model.glob("validation-*.csv"))
    size, path = min(runs, key=lambda run: (abs(run[0] - batch), run[0]))
    return float(_rows(path)[-1]["iteration"]) * size / batch


def throughput(model: Path, batch: int) -> list[tuple[int, float]]:
    """(GPUs, samples per second) for the numbers of GPUs that were measured and that the batch size allows."""
    steps = dict(_step_times(model))
    smallest = min(times.points[0][0] for times in steps.values())
    counts = [n for n in COUNTS if n in steps and batch / n >= smallest]
    return [(n, round(batch / steps[n].iteration_s(batch / n), 3)) for n in counts]


def _step_times(model: Path) -> Iterator[tuple[int, StepTimes]]:
    """The measurements of each number of GPUs on the fewest nodes."""
    found: dict[int, dict[str, list[tuple[float, float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(model / "placements.csv"):
        place = row["placement"]
        found[sum(map(int, place))][f"{len(place):02d} {place}"].append(_point(row))
    for row in _rows(model / "scalability.csv"):
        found[int(row["num_replicas"])][f"{int(row['num_nodes']):02d}"].append(_point(row))
    for count, places in found.items():
        nodes = min(int(place[:2]) for place in places)
        fewest = [points for place, points in sorted(places.items()) if int(place[:2]) == nodes]
        yield count, StepTimes(tuple(sorted(fewest[-1])))


def _point(row: Mapping[str, str]) -> tuple[float, float, float]:
    return float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])
