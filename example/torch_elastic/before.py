"""The same training for a fixed number of processes: DistributedDataParallel, started by torchrun.

    torchrun --nproc-per-node 2 -m example.torch_elastic.before

docs/tutorial-torch.md makes it elastic; `train.py` is the result. If a process is killed, torchrun ends the others.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from .train import HELD_OUT, digits, network

EPOCHS, BATCH = 12, 60


def main() -> None:
    """Train in a fixed group of processes, then test the model in the first one."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pictures, answers = digits()
    data = TensorDataset(pictures[:-HELD_OUT], answers[:-HELD_OUT])
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH // dist.get_world_size(), sampler=sampler)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    if dist.get_rank() == 0:
        with torch.no_grad():
            model.eval()
            right = (model(pictures[-HELD_OUT:]).argmax(1) == answers[-HELD_OUT:]).float().mean().item()
        print(f"accuracy {right:.4f} on {HELD_OUT} held-out digits", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
