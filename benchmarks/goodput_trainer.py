"""The trainers of `benchmarks.goodput`: digits, and characters of a text, at a given speed of their cores."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import torch
import torch._dynamo  # an optimizer imports it, for 1.5 s of CPU: the process that forks trainers does so once
from torch import nn

from benchmarks.goodput_tasks import TASKS
from edl.worker import connect
from edl.worker.group import World
from edl.worker_torch import Elastic
from example.torch_elastic.train import HELD_OUT, digits, network

TEST_EVERY = 500  # records
_LENGTH, _WIDTH, _HELD_OUT = 48, 96, 128
_LETTERS = 128


class Training(NamedTuple):
    """One task, ready to train.

    Attributes:
        model, optimizer: as a script builds them.
        read: a record.
        loss: of a batch.
        test: the accuracy, or minus the loss, of the model on what it never trains on.
    """

    model: Any
    optimizer: Any
    read: Callable[[int], Any]
    loss: Callable[[Any, Any], Any]
    test: Callable[[], float]


def of_digits() -> Training:
    """The digits of example/torch_elastic, by SGD."""
    pictures, answers = digits()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def test() -> float:
        right = model(pictures[-HELD_OUT:]).argmax(1) == answers[-HELD_OUT:]
        return float(right.float().mean())

    return Training(
        model,
        optimizer,
        lambda n: (pictures[n], answers[n]),
        lambda x, y: nn.functional.cross_entropy(model(x), y),
        test,
    )


class Characters(nn.Module):
    """Which character comes next? A recurrent network of 100,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_LETTERS, _WIDTH)
        self.inner = nn.GRU(_WIDTH, _WIDTH, batch_first=True)
        self.outer = nn.Linear(_WIDTH, _LETTERS)

    def forward(self, letters: Any) -> Any:  # noqa: ANN401 - torch is not installed where types are checked
        """The scores of the next character at each place."""
        return self.outer(self.inner(self.embedding(letters))[0])


def of_text() -> Training:
    """The characters of the topics of Python's `help()`, by Adam; each record is a stretch of them."""
    whole = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
    letters = torch.tensor(list(whole), dtype=torch.int64)
    count = TASKS["text"].records + _HELD_OUT
    stretches = letters[: count * (_LENGTH + 1)].view(count, _LENGTH + 1)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))  # one split for all seeds
    stretches = stretches[order]
    model = Characters()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)

    def loss(x: Any, y: Any) -> Any:  # noqa: ANN401 - torch is not installed where types are checked
        return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    held_out = stretches[-_HELD_OUT:]
    return Training(
        model,
        optimizer,
        lambda n: (stretches[n, :-1], stretches[n, 1:]),
        loss,
        lambda: -float(loss(held_out[:, :-1], held_out[:, 1:])),
    )


def train(environment: dict[str, str], folder: str, task: str, seed: int) -> None:
    """Train to the end of the job, or until SIGTERM; the first trainer of the world tests the model now and then.

    Args:
        environment: what edl sets for a pod.
        folder: for the log and the steps.
        task: one of `TASKS`.
        seed: of the weights and of dropout.
    """
    os.environ.update(environment)
    name, plan = environment["POD_NAME"], TASKS[task]
    sys.stdout = sys.stderr = (Path(folder) / f"{name}.log").open("a", buffering=1)
    steps = (Path(folder) / f"steps-{name}.jsonl").open("a", buffering=1)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    one = of_digits() if task == "digits" else of_text()

    def write_down(start: int, end: int, world: World) -> None:
        line: dict[str, Any] = {
            "start": start,
            "end": end,
            "generation": world.generation,
            "size": world.size,
            "at_s": time.time(),
        }
        line |= {"batch": elastic.loop.batch or plan.base, "noise": elastic.noise_scale, "accuracy": None}
        if world.rank == 0 and (end // TEST_EVERY > start // TEST_EVERY or end == elastic.loop.settings.end):
            one.model.eval()
            with torch.no_grad():
                line["accuracy"] = one.test()
            one.model.train()
        steps.write(json.dumps(line) + "\n")

    with connect(environment=os.environ) as job:
        elastic = Elastic(job, one.model, one.optimizer, read=one.read, rate_rule=plan.rule, save_every=50)
        elastic.loop.on_step = write_down
        for x, y in elastic.batches():
            began_s = time.monotonic()
            one.loss(x, y).backward()
            time.sleep(max(0.0, began_s + plan.record_s * len(x) - time.monotonic()))
        if job.leaving():
            sys.exit(143)
