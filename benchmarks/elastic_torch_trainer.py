"""The trainer of `benchmarks.elastic_torch`: a network on generated data; it writes down the steps it applies."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edl.worker import connect
from edl.worker.group import World
from edl.worker_torch import Elastic

_FEATURES, _CLASSES = 32, 10


def train(environment: dict[str, str], folder: str, records: int, batch: int, pace_s: float) -> None:
    """Train to the end of the job, or until SIGTERM.

    Args:
        environment: what edl sets for a pod.
        folder: for the log and the steps.
        records: of an epoch.
        batch: records of a step.
        pace_s: a step takes at least so long.
    """
    os.environ.update(environment)
    name = environment["POD_NAME"]
    sys.stdout = sys.stderr = (Path(folder) / f"{name}.log").open("a", buffering=1)
    steps = (Path(folder) / f"steps-{name}.jsonl").open("a", buffering=1)
    torch.set_num_threads(1)
    x, y = data(records)
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

    def write_down(start: int, end: int, world: World) -> None:
        line = {"start": start, "end": end, "generation": world.generation, "size": world.size, "at_s": time.time()}
        steps.write(json.dumps(line) + "\n")

    last_s = time.monotonic()
    with connect(environment=os.environ) as job:
        elastic = Elastic(job, model, optimizer, read=lambda n: (x[n], y[n]), global_batch=batch)
        elastic.loop.on_step = write_down
        for features, answers in elastic.batches():
            nn.functional.cross_entropy(model(features), answers).backward()
            time.sleep(max(0.0, last_s + pace_s - time.monotonic()))
            last_s = time.monotonic()
        if job.leaving():
            sys.exit(143)
    if elastic.is_complete:
        print(f"weights {fingerprint(model)}", flush=True)


def data(records: int) -> tuple[Any, Any]:
    """(records, features) and (records,): a teacher network labels random features."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(records, _FEATURES, generator=draw)
    teacher = torch.randn(_FEATURES, _CLASSES, generator=draw)
    return x, (x @ teacher).argmax(1)


def network() -> Any:  # noqa: ANN401 - torch is not installed where types are checked
    """A network with dropout, whose random numbers must not depend on the number of trainers."""
    return nn.Sequential(nn.Linear(_FEATURES, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, _CLASSES))


def fingerprint(model: Any) -> str:  # noqa: ANN401
    """A digest of all weights; two models with one digest are equal in every bit."""
    weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(weights).hexdigest()[:16]
