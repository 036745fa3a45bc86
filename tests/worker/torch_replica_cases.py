"""The connections of PyTorch trainers in step, in one process; `make torch-test` runs these tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
import torch

from edl.worker.group import World
from edl.worker.steps import PeerLostError
from edl.worker_torch.replica import TorchReplica
from example.fit_flights.local import free_ports

LONG_S = 600.0


def replica() -> TorchReplica:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TorchReplica(model, optimizer, scheduler=None, folder=None, host="", timeout_s=LONG_S)


def world(generation: int, rank: int, *endpoints: str) -> World:
    return World(
        generation, rank, len(endpoints), 0, 0, must_copy=True, checkpoint=None, endpoints=endpoints, has_state=True
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_trainer_that_is_lost_while_a_world_forms_costs_no_timeout(rank: int) -> None:
    mine, looks = replica(), count()
    (port,) = free_ports(1)
    endpoints = [mine.endpoint, f"127.0.0.1:{port}"] if rank == 0 else [f"127.0.0.1:{port}", mine.endpoint]
    with pytest.raises(PeerLostError):
        mine.connect(world(1, rank, *endpoints), lambda: next(looks) > 3)
    mine.disconnect()
    other = replica()
    both = [mine.endpoint, other.endpoint]
    with ThreadPoolExecutor() as pool:
        pairs = enumerate((mine, other))
        for done in [pool.submit(one.connect, world(2, place, *both), lambda: False) for place, one in pairs]:
            done.result()
        for done in [pool.submit(one.copy_state, 0) for one in (mine, other)]:
            done.result()
