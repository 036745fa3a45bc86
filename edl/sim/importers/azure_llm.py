"""Days and nights of serving from the requests of a real service: the Azure LLM inference trace of 2023.

The bursts are real. The trace is under an hour, so the hour is repeated from random starts, and day and night are put
on it: a sine between `NIGHT` and 1, and a batch of requests from 9:00 to 9:20 of each day. After 8 days the regime
changes: the load grows by half, and all moves by six hours.

Source: Patel et al., Splitwise: Efficient Generative LLM Inference Using Phase Splitting, ISCA 2024; CC BY 4.0.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil, cos, pi
from pathlib import Path
from typing import Any

from edl.errors import ConfigError

DAY_S, STEP_S = 86_400, 180
NIGHT, BATCH, GROWTH, SHIFT_S = 0.25, 0.4, 1.5, 6 * 3600
CHANGE_DAY = 8
"""The day on which the load of the service changes to its second regime."""

TOLERANCE = 0.1
"""The relative error up to which a HorizontalPodAutoscaler leaves the number of pods as it is."""

NODE_CORES, POD_CORES, TRAINER_CORES = 16, 2, 4
NODES_PER_JOB, PODS_PER_NODE = 6, 2
"""Nodes for each job; and pods of serving for each node, in the mean of an hour by day."""


def requests_a_minute(path: Path) -> tuple[int, ...]:
    """Count the requests in each whole minute of a trace.

    Args:
        path: CSV with a row for each request (column TIMESTAMP, as published), or with columns second and requests.

    Raises:
        ConfigError: the file is not such a trace, or is shorter than a minute.
    """
    try:
        with path.open(newline="") as file:
            requests = _seconds(list(csv.DictReader(file)))
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; give a CSV with TIMESTAMP, or with second and requests") from error
    whole = (max(requests, default=-1) + 1) // 60
    if whole < 1:
        raise ConfigError(f"{path} has no whole minute of requests; give a longer trace")
    minutes: Counter[int] = Counter()
    for second, count in requests.items():
        minutes[second // 60] += count
    return tuple(minutes[minute] for minute in range(whole))


def _seconds(rows: Sequence[Mapping[str, str]]) -> dict[int, int]:
    """Count the requests by second since the first row."""
    found: Counter[int] = Counter()
    if rows and "TIMESTAMP" in rows[0]:
        times = [datetime.fromisoformat(row["TIMESTAMP"]) for row in rows]
        for time in times:
            found[int((time - times[0]).total_seconds())] += 1
    else:
        for row in rows:
            found[int(row["second"])] += int(row["requests"])
    return found


def replicas(minutes: Sequence[int], days: int, *, pods: float, seed: int = 0) -> tuple[tuple[float, int], ...]:
    """The pod counts of an autoscaler that acts every three minutes: pairs of (start in seconds, pods).

    Args:
        minutes: requests in each minute of the trace.
        days: the number of days.
        pods: the pods that serve the mean of `minutes` by day.
        seed: the seed that chooses where in the trace each hour starts.
    """
    rng = random.Random(f"headroom {seed}")  # noqa: S311 - a simulation, no secret
    mean = sum(minutes) / len(minutes)
    found: list[tuple[float, int]] = []
    start = 0
    for at_s in range(0, days * DAY_S, STEP_S):
        if at_s % 3600 == 0:
            start = rng.randrange(len(minutes))
        minute = start + at_s % 3600 // 60
        now = [minutes[(minute + i) % len(minutes)] for i in range(STEP_S // 60)]
        load = sum(now) / len(now) / mean * of_day(at_s)
        wanted = max(1, ceil(pods * load))
        if not found or abs(wanted - found[-1][1]) > TOLERANCE * found[-1][1]:
            found.append((float(at_s), wanted))
    return tuple(found)


def of_day(at_s: int) -> float:
    """The load at a time, as a part of the highest load of any day of the first week (without batch requests)."""
    is_changed = at_s >= CHANGE_DAY * DAY_S
    clock_s = (at_s + (SHIFT_S if is_changed else 0)) % DAY_S
    sine = NIGHT + (1.0 - NIGHT) * (1.0 - cos(2 * pi * clock_s / DAY_S)) / 2
    batch = BATCH if 9 * 3600 <= clock_s < 9 * 3600 + 1200 else 0.0
    return (sine + batch) * (GROWTH if is_changed else 1.0)


def scenario_of_service(path: Path, *, days: int, nodes: int, seed: int = 0) -> dict[str, Any]:
    """Make a scenario file: jobs without end beside the serving pods of the traced service.

    Args:
        path: the trace; see `requests_a_minute`.
        days: the number of days.
        nodes: the number of nodes, each of `NODE_CORES` cores.
        seed: the seed that chooses where in the trace each hour starts.

    Raises:
        ConfigError: the file is not such a trace.
    """
    timeline = replicas(requests_a_minute(path), days, pods=PODS_PER_NODE * nodes, seed=seed)
    trainers = nodes * NODE_CORES // TRAINER_CORES
    return {
        "name": "day-and-night",
        "description": f"{days} days and nights of an Azure LLM service beside training on {nodes} nodes",
        "duration_s": days * DAY_S,
        "nodes": [{"name": "n", "count": nodes, "resources": {"cpu": NODE_CORES, "memory": "64Gi"}}],
        "jobs": [
            {
                "name": "job",
                "count": max(1, nodes // NODES_PER_JOB),
                "min": 2,
                "max": trainers,
                "trainer": {"cpu": TRAINER_CORES, "memory": "4Gi"},
                "throughput": [[1, 1.0], [trainers, float(trainers)]],
            }
        ],
        "serving": [
            {
                "name": "web",
                "resources": {"cpu": POD_CORES, "memory": "2Gi"},
                "replicas": [[int(at_s), count] for at_s, count in timeline],
            }
        ],
        "controller": {"interval_s": 30, "serving_headroom": "auto", "serving_slo": 200},
        "latency": {
            "start_s": {"trainer": [1, 3], "serving": [1, 3]},
            "stop_s": {"trainer": [8, 8], "serving": [1, 3]},
        },
    }
