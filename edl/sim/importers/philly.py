"""A scenario from an arrival trace such as Microsoft's Philly trace: when jobs came, on how many GPUs, for how long.

The trace gives the GPU-seconds of a job and nothing of its speed, so a job's work is its duration at its own size,
and its speed grows as the 0.75th power of its GPUs.

Source: Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, USENIX ATC 2019.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from edl.errors import ConfigError

POWER = 0.75
LONGEST_S = 1e8
"""The longest duration of a job."""

GROWTH = 2
"""The factor by which a job may exceed the GPUs that its user asked for."""


def scenario_of_trace(path: Path, *, begin: str, hours: float, nodes: int, gpus: int) -> dict[str, Any]:
    """The jobs of a part of a trace, as a scenario file has it.

    Args:
        path: CSV with the columns timestamp, duration (seconds) and num_gpus.
        begin: the first moment, such as 2017-10-09 00:00:00.
        hours: length of the part.
        nodes: the nodes of the cluster.
        gpus: the GPUs of each node.

    Raises:
        ConfigError: the file is not such a trace, or has no job in that part.
    """
    try:
        start = datetime.fromisoformat(begin)
        with path.open(newline="") as file:
            lines = csv.DictReader(file)
            rows = [_read(row, start, lines.line_num) for row in lines]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; give a CSV with timestamp, duration and num_gpus") from error
    part = [job for job in rows if 0 <= job[0] < hours * 3600 and 0 < job[1] <= nodes * gpus]
    if not part:
        raise ConfigError(f"{path} has no job in the {hours:g} hours from {begin}; choose another part")
    groups: dict[tuple[int, float], list[float]] = defaultdict(list)
    for at_s, size, length_s in part:
        groups[size, max(1.0, length_s)].append(at_s)
    return {
        "name": "philly",
        "description": f"{len(part)} jobs of the Philly trace from {begin}",
        "duration_s": hours * 3600 * 3,
        "nodes": [
            {"name": "gpu", "count": nodes, "resources": {"cpu": 48, "memory": "192Gi", "nvidia.com/gpu": gpus}}
        ],
        "jobs": [_group(i, size, length, times) for i, ((size, length), times) in enumerate(sorted(groups.items()))],
        "controller": {"interval_s": 60},
        "policies": ["utility"],
    }


def _read(row: Mapping[str, str], start: datetime, line: int) -> tuple[float, int, float]:
    """Read the arrival in seconds, the number of GPUs and the duration of a job."""
    at_s = (datetime.fromisoformat(row["timestamp"]) - start).total_seconds()
    length_s = float(row["duration"])
    if not 0 <= length_s <= LONGEST_S:
        raise ValueError(f"line {line}: duration {length_s:g} is not from 0 to {LONGEST_S:g} seconds")
    return at_s, int(row["num_gpus"]), length_s


def _group(number: int, size: int, length_s: float, times: list[float]) -> dict[str, Any]:
    return {
        "name": f"job{number}",
        "count": len(times),
        "arrival": {"times_s": sorted(times)},
        "min": 1,
        "max": size * GROWTH,
        "fixed": size,
        "trainer": {"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": 1},
        "work": length_s * size**POWER,
        "resize": {"cost_s": 30, "stops": "job"},
    }
