"""The trainer of `benchmarks.elastic_large`: a model of so many parameters with AdamW; it writes down its steps."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from edl.worker import connect
from edl.worker.group import World
from edl.worker_torch import Elastic

_LAYERS = 4


def train(environment: dict[str, str], folder: str, millions: float, pace_s: float) -> None:
    """Train to the end of the job, or until SIGTERM.

    Args:
        environment: what edl sets for a pod.
        folder: for the log and the steps.
        millions: of parameters; the state of a trainer has 12 bytes for each.
        pace_s: a step takes at least so long.
    """
    os.environ.update(environment)
    name = environment["POD_NAME"]
    sys.stdout = sys.stderr = (Path(folder) / f"{name}.log").open("a", buffering=1)
    steps = (Path(folder) / f"steps-{name}.jsonl").open("a", buffering=1)
    torch.set_num_threads(1)
    width = round((millions * 1e6 / _LAYERS) ** 0.5)
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(_LAYERS) for layer in (nn.Linear(width, width), nn.Tanh())))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    draw = torch.Generator().manual_seed(1)
    data = torch.randn(64, width, generator=draw)

    def write_down(start: int, _: int, world: World) -> None:
        found = {"start": start, "size": world.size, "generation": world.generation, "at_s": time.time()}
        steps.write(json.dumps(found) + "\n")

    with connect(environment=os.environ) as job:
        elastic = Elastic(job, model, optimizer, read=lambda n: data[n % 64])
        elastic.loop.on_step = write_down
        for x in elastic.batches():
            begin_s = time.monotonic()
            model(x).square().mean().backward()
            time.sleep(max(0.0, begin_s + pace_s - time.monotonic()))
        if job.leaving():
            sys.exit(143)
