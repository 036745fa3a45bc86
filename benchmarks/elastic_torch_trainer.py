"""The trainer of `benchmarks.elastic_torch`: a network on generated data; it writes down the steps it applies."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from edl.errors import EdlError
from edl.worker import connect
from edl.worker.group import World
from edl.worker_torch import Elastic
from example.torch_elastic.train import fingerprint, network

BATCH = 64


def main() -> None:
    """Train to the end of the job, or until SIGTERM."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    log = (Path(os.environ["STEP_LOG"]) / f"steps-{os.environ['POD_NAME']}.jsonl").open("a", buffering=1)

    def sample(number: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(number)
        return torch.randn(1, 8, 8, generator=generator) + number % 10 / 10, number % 10

    def write_down(start: int, end: int, world: World) -> None:
        line = {"start": start, "end": end, "generation": world.generation, "size": world.size, "at_s": time.time()}
        log.write(json.dumps(line) + "\n")

    wait_in_standby(os.environ.get("STANDBY", ""))
    pace_s, last_s = float(os.environ.get("STEP_AT_LEAST_S", "0")), time.monotonic()
    with connect() as job:
        elastic = Elastic(job, model, optimizer, read=sample, global_batch=BATCH, timeout_s=10)
        elastic.loop.on_step = write_down
        for x, y in elastic.batches():
            nn.functional.cross_entropy(model(x), y).backward()
            time.sleep(max(0.0, last_s + pace_s - time.monotonic()))
            last_s = time.monotonic()
        if job.leaving():
            sys.exit(143)
    if elastic.is_complete:
        print(f"weights {fingerprint(model)}", flush=True)


def wait_in_standby(path: str) -> None:
    """Wait until a file exists; an empty path does not wait."""
    if path:
        Path(path + ".ready").touch()
        while not Path(path).exists():
            time.sleep(0.01)


if __name__ == "__main__":
    try:
        main()
    except EdlError as problem:
        sys.exit(f"trainer: {problem}")
