"""A training script as people write it for torchrun: DistributedDataParallel, and a checkpoint after each epoch.

It knows nothing of edl, nor of the operator. Usage: torchrun elastic_train.py FOLDER

Source of the form: https://pytorch.org/tutorials/beginner/ddp_series_fault_tolerance.html
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, RECORDS, BATCH, EPOCH_S = 100_000, 240, 10, 0.5


def main(folder: Path) -> None:
    """Train from the last checkpoint on."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    features = torch.randn(RECORDS, 8)
    data = TensorDataset(features, features.sum(1, keepdim=True))
    sampler: DistributedSampler[object] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    checkpoint, first = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        stored = torch.load(checkpoint, weights_only=True)
        model.module.load_state_dict(stored["model"])
        optimizer.load_state_dict(stored["optimizer"])
        first = stored["epoch"] + 1
    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)
        loss = torch.zeros(1)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, folder / "checkpoint.new")
            (folder / "checkpoint.new").replace(checkpoint)
            report(folder, epoch, loss.item() / dist.get_world_size())
        time.sleep(EPOCH_S)
    dist.destroy_process_group()


def report(folder: Path, epoch: int, loss: float) -> None:
    """Add a line to the figures of the training."""
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    line = {"epoch": epoch, "world": dist.get_world_size(), "loss": loss, "restarts": restarts}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
