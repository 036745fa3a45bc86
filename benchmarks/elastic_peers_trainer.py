"""A trainer of `benchmarks.elastic_peers`: the digits of `benchmarks.elastic_node_trainer`, without edl.

Each step has the next 60 records of the epoch's order, divided by the number of trainers. The environment says where
to write (FOLDER, NAME), how long (STEPS, PACE_S) and with which SEED; the argument names the framework.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from example.torch_elastic.train import HELD_OUT, digits, network

RECORDS, BATCH, SAVE_EVERY = 1500, 60, 25
_FOLDER, _NAME, _SEED = Path(os.environ["FOLDER"]), os.environ["NAME"], int(os.environ["SEED"])
# gloo's own limit is half an hour, and torchrun itself does not end the processes that wait for a lost node.
_LOST_AFTER = timedelta(seconds=10)
_STEPS, _PACE_S = int(os.environ["STEPS"]), float(os.environ["PACE_S"])
_PICTURES, _ANSWERS = digits()


def batch(step: int, rank: int, size: int) -> tuple[Any, Any]:
    """The share of a trainer in a step."""
    epoch, number = divmod(step, RECORDS // BATCH)
    order = torch.randperm(RECORDS, generator=torch.Generator().manual_seed(1000 * _SEED + epoch))
    chosen = order[number * BATCH : (number + 1) * BATCH][rank * BATCH // size : (rank + 1) * BATCH // size]
    return _PICTURES[chosen], _ANSWERS[chosen]


def writer() -> Callable[[int, int], None]:
    """A function that writes down a step that was applied, and how many trainers made it; it keeps the pace."""
    file, last_s = (_FOLDER / f"steps-{_NAME}.jsonl").open("a", buffering=1), [time.monotonic()]

    def write_down(step: int, size: int) -> None:
        file.write(json.dumps({"step": step, "size": size, "at_s": time.time()}) + "\n")
        time.sleep(max(0.0, last_s[0] + _PACE_S - time.monotonic()))
        last_s[0] = time.monotonic()

    return write_down


def finish(model: Any) -> None:  # noqa: ANN401
    """Test the model."""
    with torch.no_grad():
        model.eval()
        right = (model(_PICTURES[-HELD_OUT:]).argmax(1) == _ANSWERS[-HELD_OUT:]).float().mean().item()
    (_FOLDER / f"end-{_NAME}").write_text(f"{right:.4f}")


def with_torchrun() -> None:
    """As PyTorch's examples of elastic training do: a snapshot, which all processes load after a restart."""
    dist.init_process_group("gloo", timeout=_LOST_AFTER)
    plain = network()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)
    snapshot, first = _FOLDER / "snapshot.pt", 0
    if snapshot.exists():
        state = torch.load(snapshot, weights_only=True)
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    model = nn.parallel.DistributedDataParallel(plain)
    rank, size, write_down = dist.get_rank(), dist.get_world_size(), writer()
    for step in range(first, _STEPS):
        features, answers = batch(step, rank, size)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), answers).backward()
        optimizer.step()
        write_down(step, size)
        if rank == 0 and (step + 1) % SAVE_EVERY == 0:
            state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, snapshot.with_suffix(".draft"))
            snapshot.with_suffix(".draft").replace(snapshot)
    finish(plain)
    dist.destroy_process_group()


def with_torchft() -> None:
    """As torchft's train_ddp.py does: each trainer is a group of its own, and steps that fail are not committed."""
    torchft = importlib.import_module("torchft")
    is_leaving: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: is_leaving.append(True))
    plain = network()
    inner = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)

    def load(state: Any) -> None:  # noqa: ANN401
        plain.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=5)),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"model": plain.state_dict(), "optimizer": inner.state_dict()},
        replica_id=f"trainer_{int(_NAME.rpartition('-')[2])}",
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        timeout=timedelta(seconds=30),
    )
    optimizer, write_down = torchft.Optimizer(manager, inner), writer()
    while (step := manager.current_step()) < _STEPS and not is_leaving:
        optimizer.zero_grad()
        size, rank = manager.num_participants(), manager.participating_rank()
        features, answers = batch(step, rank or 0, max(size, 1))
        nn.functional.cross_entropy(plain(features), answers).backward()
        # Its DistributedDataParallel (0.2.0) ends with an AssertionError in every trainer if one of them is killed.
        gradients = [p.grad for p in plain.parameters() if p.grad is not None]
        total = torch.cat([gradient.flatten() for gradient in gradients])
        manager.allreduce(total).wait()
        for gradient, part in zip(gradients, total.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))
        optimizer.step()
        if manager.current_step() == step + 1:
            write_down(step, size)
    if not is_leaving:
        finish(plain)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(_SEED)
    {"torchrun": with_torchrun, "torchft": with_torchft}[sys.argv[1]]()
