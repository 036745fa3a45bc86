"""Which digit is it? A small convolutional network, trained in step by any number of trainers.

The same script runs in every trainer: `python -m torch_elastic.train`. A trainer may be killed at any line, and
trainers may come and go between any two steps. Only the lines that name `job` and `elastic` differ from a script for
one process.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn

from edl.errors import EdlError
from edl.worker import connect
from edl.worker_torch import Elastic

HELD_OUT = 297
SAVE_EVERY = 25  # steps: an epoch of 1500 records has 25 of 60
STEP_S = float(os.environ.get("STEP_S", "0"))  # for demonstrations, so that there is time for changes


def digits() -> tuple[Any, Any]:
    """The 1797 pictures of scikit-learn, (pictures, 1, 8, 8) in [0, 1], and their digits; the last 297 are a test."""
    data = load_digits()
    return torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(data.target)


def network() -> Any:  # noqa: ANN401 - torch is not installed where types are checked
    """The network; group normalisation has no state besides its parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 16, 10),
    )


def main() -> None:
    """Train until every record of every epoch is in a step, then test the model."""
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    pictures, answers = digits()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses: list[float] = []
    with connect() as job:
        elastic = Elastic(job, model, optimizer, read=lambda n: (pictures[n], answers[n]), save_every=SAVE_EVERY)
        for x, y in elastic.batches():
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            losses.append(loss.item())
            time.sleep(STEP_S)
        if job.leaving():
            sys.exit(143)
    counts = elastic.loop.counts
    if not elastic.is_complete:
        print("this trainer came after the last step", flush=True)
        return
    with torch.no_grad():
        model.eval()
        right = (model(pictures[-HELD_OUT:]).argmax(1) == answers[-HELD_OUT:]).float().mean().item()
    course = f"; its loss went from {losses[0]:.3f} to {losses[-1]:.3f}" if losses else ""
    print(
        f"accuracy {right:.4f} on {HELD_OUT} held-out digits, weights {fingerprint(model)}; this trainer was in"
        f" {counts.worlds} worlds and took part in {counts.steps} steps{course}",
        flush=True,
    )


def fingerprint(model: Any) -> str:  # noqa: ANN401
    """A digest of all weights; two models with one digest are equal in every bit."""
    data = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


if __name__ == "__main__":
    os.environ.setdefault("EDL_GLOBAL_BATCH", "60")  # what spec.elasticity.globalBatch sets
    os.environ.setdefault("EDL_CHECKPOINTS", str(Path.cwd() / "checkpoints"))
    try:
        main()
    except EdlError as problem:
        sys.exit(f"train: {problem}")
