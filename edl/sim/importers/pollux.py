"""Scenarios from the artifact of the Pollux paper: its workloads, with the measured profiles of six models.

A job keeps the batch size that its user chose. Its work is the samples of the whole validation run with that batch
size; its speed with n GPUs follows from the measured step times on the fewest nodes of four GPUs, with steps added up
where the local batch is too large for one GPU. With batches, jobs choose their batch themselves, as under Pollux: its
work is the samples of the base batch that bring the model as far as that run, and the noise scale with each batch
follows from the iterations that its validation run needed for each part of the progress.

Source: Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, OSDI 2021; the files
of its artifact, Apache-2.0.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, prod
from pathlib import Path
from typing import Any

from edl.errors import ConfigError

NODES, GPUS = 16, 4
RESTART_S = 30.0
"""The time that a change of the number of GPUs costs: the whole job stops, as measured in the paper."""

HOURS = 40
GPU = {"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": 1}
RESIZE = {"cost_s": RESTART_S, "stops": "job"}
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64)


FIXED = ("static-2017", "edl-2017", "fixed", "tiresias")
ELASTIC = ("optimus", "afs", "sia", "pollux", "maxmin", "utility", "goodput")


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


MOST_EFFICIENT = 0.999
"""A batch with a higher measured efficiency gets the noise scale of this efficiency."""

PHASES = 10
"""The parts of a training; in each one, every batch has one noise scale."""

BETWEEN = (1.0, 2**0.25, 2**0.5, 2**0.75)
"""A job may choose these multiples of each measured batch."""


def scenario_of_workload(folder: Path, workload: str, *, batches: bool = False) -> dict[str, Any]:
    """The scenario of one workload, as a scenario file has it.

    Args:
        folder: with `workloads/` and `profiles/`.
        workload: such as `workload-1`.
        batches: jobs may change their global batch; else each keeps the one that its user chose.

    Raises:
        ConfigError: a file is missing or is not as in the artifact.
    """
    try:
        rows = _rows(folder / "workloads" / f"{workload}.csv")
        groups = list((_groups_with_batches if batches else _groups)(folder / "profiles", rows))
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{folder}: {error}; give the folder with the workloads and profiles of Pollux") from error
    return {
        "name": f"pollux-batches-{workload}" if batches else f"pollux-{workload}",
        "description": f"{len(rows)} jobs of the Pollux paper on {NODES} nodes of {GPUS} GPUs"
        + (", which may change their batches" if batches else ""),
        "duration_s": HOURS * 3600,
        "nodes": [
            {"name": "gpu", "count": NODES, "resources": {"cpu": 48, "memory": "192Gi", "nvidia.com/gpu": GPUS}}
        ],
        "jobs": groups,
        "controller": {"interval_s": 60},
        "latency": {"start_s": {"trainer": [1, 1]}, "stop_s": {"trainer": [1, 1]}},
        "policies": [*(() if batches else FIXED), *ELASTIC],
    }


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _groups(profiles: Path, rows: Sequence[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    """Make a group of jobs for each model, batch size and number of GPUs that users chose."""
    arrivals: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for row in rows:
        arrivals[row["application"], int(row["batch_size"]), int(row["num_replicas"])].append(float(row["time"]))
    for (model, batch, gpus), times in sorted(arrivals.items()):
        curve = throughput(profiles / model, batch)
        yield {
            "name": f"{model}-{batch}-{gpus}",
            **_arriving(times, curve[-1][0]),
            "fixed": min(gpus, curve[-1][0]),
            "trainer": dict(GPU),
            "work": iterations(profiles / model, batch) * batch,
            "throughput": [list(point) for point in curve],
            "resize": dict(RESIZE),
        }


def _arriving(times: Sequence[float], most: int) -> dict[str, Any]:
    """The fields of jobs that arrive at these times, each with 1 to `most` GPUs."""
    return {"count": len(times), "arrival": {"times_s": sorted(times)}, "min": 1, "max": most}


def _groups_with_batches(profiles: Path, rows: Sequence[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    """Make a group of jobs for each model."""
    arrivals: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        arrivals[row["application"]].append(float(row["time"]))
    for model, times in sorted(arrivals.items()):
        runs = _runs(profiles / model)
        base, largest = min(runs), max(runs)
        sizes = sorted({round(size * part) for size in runs for part in BETWEEN if size * part <= largest})
        speeds = {size: throughput(profiles / model, size) for size in sizes}
        yield {
            "name": model,
            **_arriving(times, max(points[-1][0] for points in speeds.values())),
            "trainer": dict(GPU),
            "work": runs[base][-1][0] * base,
            "batch": {
                "base": base,
                "speeds": [[size, [list(point) for point in points]] for size, points in speeds.items()],
                "noise": [[k / PHASES, [round(_noise(runs, size, k), 1) for size in sizes]] for k in range(PHASES)],
            },
            "resize": dict(RESIZE),
        }


def _runs(model: Path) -> dict[int, list[tuple[float, float]]]:
    """By batch, the (progress, iterations) of its validation run, from 0.

    Progress counts iterations of the base batch.
    """
    return {
        int(path.stem.partition("-")[2]): [
            (0.0, 0.0),
            *((float(row["progress"]), float(row["iteration"])) for row in _rows(path)),
        ]
        for path in sorted(model.glob("validation-*.csv"))
    }


def _noise(runs: Mapping[int, Sequence[tuple[float, float]]], size: int, phase: int) -> float:
    """The noise scale with a batch in one phase; between two measured batches, the geometric mean of theirs.

    A run with batch m that needs i iterations for the progress of p iterations of the base batch b has the efficiency
    e = p b / (i m). The noise scale is what e = (noise + b) / (noise + m) gives.
    """
    base = min(runs)
    near = {max(b for b in runs if b <= size), min(b for b in runs if b >= size)} - {base}
    found = [1.0]
    for batch in sorted(near):
        end = runs[batch][-1][0]
        first, last = (_iterations_at(runs[batch], end * part / PHASES) for part in (phase, phase + 1))
        useful = min(end / PHASES * base / ((last - first) * batch), MOST_EFFICIENT)
        found.append(max(0.0, (useful * batch - base) / (1.0 - useful)))
    return float(prod(found) ** (1.0 / max(1, len(near))))


def _iterations_at(run: Sequence[tuple[float, float]], progress: float) -> float:
    """How many iterations a run needed for so much progress."""
    for (before, first), (after, last) in pairwise(run):
        if progress <= after:
            return first + (last - first) * (progress - before) / (after - before)
    return run[-1][1]


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
