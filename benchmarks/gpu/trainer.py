"""One process of a trainer of `benchmarks.gpu`: a model in shards, or whole, with AdamW; it writes down its steps."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from edl.worker import connect
from edl.worker.group import World
from edl.worker_torch import Elastic

_LAYERS, _ROWS = 4, 64


class Settings(NamedTuple):
    """How a trainer trains.

    Attributes:
        folder: for the log, the steps, and the file `end`, which ends the training.
        millions: of parameters.
        device: cpu or cuda.
        is_sharded: FSDP2 spreads the model over the processes of a trainer.
        kind: of the parameters, such as bfloat16.
        stop_at: end after so many steps; 0 for no limit.
        pace_s: a step takes at least so long.
        batch: records of a step.
    """

    folder: str
    millions: float
    device: str = "cpu"
    is_sharded: bool = True
    kind: str = "float32"
    stop_at: int = 0
    pace_s: float = 0.0
    batch: int = 8


def train(environment: dict[str, str], settings: Settings) -> None:
    """Train until the training ends, or until SIGTERM; `environment` is what edl and torchrun set."""
    os.environ.update(environment)
    name, rank = environment["POD_NAME"], int(environment["RANK"])
    folder = Path(settings.folder)
    sys.stdout = sys.stderr = (folder / f"{name}-{rank}.log").open("a", buffering=1)
    torch.set_num_threads(1)
    model, width = _model(settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(1)
    data = torch.randn(_ROWS, width, generator=draw).to(settings.device, getattr(torch, settings.kind))
    steps = (folder / f"steps-{name}.jsonl").open("a", buffering=1)

    def write_down(start: int, _: int, world: World) -> None:
        if rank == 0:
            found = {"start": start, "size": world.size, "generation": world.generation, "at_s": time.time()}
            steps.write(json.dumps(found) + "\n")

    with connect(environment=os.environ) as job:
        elastic = Elastic(job, model, optimizer, read=lambda n: data[n % _ROWS], global_batch=settings.batch)
        elastic.loop.on_step = write_down

        @elastic.on_step_end
        def end() -> None:
            if elastic.step + 1 == settings.stop_at or (folder / "end").exists():
                elastic.stop()

        for x in elastic.batches():
            until_s = time.monotonic() + settings.pace_s
            model(x).float().square().mean().backward()
            time.sleep(max(0.0, until_s - time.monotonic()))
        if job.leaving():
            sys.stdout.flush()
            os._exit(143)
        if rank == 0:
            (folder / f"{name}.steps").write_text(str(elastic.step))
    distributed.destroy_process_group()


def _model(settings: Settings) -> tuple[nn.Module, int]:
    width = round((settings.millions * 1e6 / _LAYERS) ** 0.5)
    if settings.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    backend = "gloo" if settings.device == "cpu" else "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend, timeout=timedelta(seconds=120))
    torch.manual_seed(0)
    layers = (layer for _ in range(_LAYERS) for layer in (nn.Linear(width, width), nn.Tanh()))
    model = nn.Sequential(*layers).to(settings.device, getattr(torch, settings.kind))
    if settings.is_sharded:
        mesh = init_device_mesh(settings.device, (distributed.get_world_size(),))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, width
