"""The trainer of `benchmarks.time_to_accuracy`: the digits of example/torch_elastic at a given speed of its core."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # an optimizer imports it, for 1.5 s of CPU: the process that forks trainers does so once
from torch import nn

from edl.worker import connect
from edl.worker.group import World
from edl.worker_torch import Elastic
from example.torch_elastic.train import HELD_OUT, digits, network

TEST_EVERY = 5  # steps


def train(environment: dict[str, str], folder: str, seed: int, record_s: float) -> None:
    """Train to the end of the job, or until SIGTERM; the first trainer of the world tests the model now and then.

    Args:
        environment: what edl sets for a pod.
        folder: for the log and the steps.
        seed: of the weights and of dropout.
        record_s: a gradient takes at least so long for each record, so that four trainers are four times as fast.
    """
    os.environ.update(environment)
    name, batch = environment["POD_NAME"], int(environment["EDL_GLOBAL_BATCH"])
    sys.stdout = sys.stderr = (Path(folder) / f"{name}.log").open("a", buffering=1)
    steps = (Path(folder) / f"steps-{name}.jsonl").open("a", buffering=1)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    pictures, answers = digits()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def accuracy() -> float:
        model.eval()
        with torch.no_grad():
            right = (model(pictures[-HELD_OUT:]).argmax(1) == answers[-HELD_OUT:]).float().mean().item()
        model.train()
        return float(right)

    def write_down(start: int, end: int, world: World) -> None:
        line = {"start": start, "end": end, "generation": world.generation, "size": world.size, "at_s": time.time()}
        is_tested = world.rank == 0 and end // batch % TEST_EVERY == 0
        steps.write(json.dumps({**line, "accuracy": accuracy() if is_tested else None}) + "\n")

    with connect(environment=os.environ) as job:
        elastic = Elastic(job, model, optimizer, read=lambda n: (pictures[n], answers[n]), save_every=25)
        elastic.loop.on_step = write_down
        for features, labels in elastic.batches():
            began_s = time.monotonic()
            nn.functional.cross_entropy(model(features), labels).backward()
            time.sleep(max(0.0, began_s + record_s * len(labels) - time.monotonic()))
        if job.leaving():
            sys.exit(143)
