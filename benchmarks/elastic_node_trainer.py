"""The trainer of `benchmarks.elastic_node`: the digits of example/torch_elastic; it writes down steps and losses."""

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
from example.torch_elastic.train import HELD_OUT, digits, fingerprint, network


def train(environment: dict[str, str], folder: str, seed: int, pace_s: float) -> None:
    """Train to the end of the job, or until SIGTERM.

    Args:
        environment: what edl sets for a pod.
        folder: for the log and the steps.
        seed: of the weights and of dropout.
        pace_s: a step takes at least so long.
    """
    os.environ.update(environment)
    name = environment["POD_NAME"]
    sys.stdout = sys.stderr = (Path(folder) / f"{name}.log").open("a", buffering=1)
    steps = (Path(folder) / f"steps-{name}.jsonl").open("a", buffering=1)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    pictures, answers = digits()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses: dict[int, float] = {}  # first record of a piece of this step -> its part of the step's loss

    def write_down(start: int, end: int, world: World) -> None:
        line = {"start": start, "end": end, "generation": world.generation, "size": world.size, "at_s": time.time()}
        steps.write(json.dumps({**line, "name": name, "loss": sum(losses.values())}) + "\n")
        losses.clear()

    last_s, generation = time.monotonic(), 0
    with connect(environment=os.environ) as job:
        elastic = Elastic(job, model, optimizer, read=lambda n: (pictures[n], answers[n]), save_every=25)
        elastic.loop.on_step = write_down
        for piece, (features, labels) in elastic.pieces():
            world = job.world()
            if world is not None and world.generation != generation:
                generation = world.generation
                losses.clear()  # the last world failed in the middle of a step
            loss = nn.functional.cross_entropy(model(features), labels)
            loss.backward()
            losses[piece.start] = piece.weight * loss.item()
            time.sleep(max(0.0, last_s + pace_s - time.monotonic()))
            last_s = time.monotonic()
        if job.leaving():
            sys.exit(143)
    if elastic.is_complete:
        with torch.no_grad():
            model.eval()
            right = (model(pictures[-HELD_OUT:]).argmax(1) == answers[-HELD_OUT:]).float().mean().item()
        print(f"accuracy {right:.4f} weights {fingerprint(model)}", flush=True)
