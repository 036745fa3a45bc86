"""What a step costs two trainers in step beside two processes of torch's DistributedDataParallel (DDP).

    .venv-torch/bin/python -m benchmarks.beside_ddp --parameters 2000 20000000 --turns 5

Two processes hold three copies of a model: one that DDP trains, one that `Elastic` trains, and one that it trains
with `deterministic`. Both make some steps with each by turns, so whatever else the machine does slows all of them
down. All use gloo on the loopback interface, AdamW, the same batches and one thread. Times are those on the clock.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.worker_overhead import Master
from example.fit_flights.local import ROOT, Plan
from tests.worlds.master_processes import free_port

BATCH, RECORDS = 32, 640
KINDS = ("ddp", "edl", "deterministic")
_SIZE = 2


def main() -> int:
    """Print the milliseconds of a step for each size and kind; with --child, be one of the two processes."""
    parser = argparse.ArgumentParser(description="Measure a step of edl beside one of DDP.")
    parser.add_argument("--parameters", type=int, nargs="+", default=[2_000, 20_000_000])
    parser.add_argument("--turns", type=int, default=5, help="how often each kind has its turn")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--child", type=int)
    chosen = parser.parse_args()
    if chosen.child is not None:
        print(json.dumps(_child(chosen.child, chosen.parameters[0], chosen.turns, chosen.steps)))
        return 0
    for count in chosen.parameters:
        found = _measured(count, chosen.turns, chosen.steps)
        middle = {kind: statistics.median(values) for kind, values in found.items()}
        parts = [f"{kind} {value:.1f} ms ({value / middle['ddp']:.2f})" for kind, value in middle.items()]
        print(f"{count:,} parameters: {', '.join(parts)}; load {os.getloadavg()[1]:.1f}", flush=True)
    return 0


def _measured(count: int, turns: int, steps: int) -> dict[str, list[float]]:
    """The milliseconds of a step in each turn of each kind, as the first process has them."""
    flags = ["--parameters", str(count), "--turns", str(turns), "--steps", str(steps)]
    epochs = 2 + turns * steps * BATCH // RECORDS  # so that the jobs go on until the end
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TRAINERS": str(_SIZE)}
        for kind in KINDS[1:]:
            folder = Path(name) / kind
            folder.mkdir()
            master = stack.enter_context(Master(folder, Plan(0, 1, 0, records=RECORDS, epochs=epochs)))
            environment |= {f"MASTER_{kind}": master.url, f"TOKEN_{kind}": str(folder / "token")}
        command = [sys.executable, "-m", "benchmarks.beside_ddp", *flags, "--child"]
        running = [
            subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.PIPE, text=True)
            for rank in range(_SIZE)
        ]
        outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("beside_ddp: a process has failed")
    first: dict[str, list[float]] = json.loads(outputs[0].splitlines()[-1])
    return first


def _child(rank: int, count: int, turns: int, steps: int) -> dict[str, list[float]]:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    distributed = importlib.import_module("torch.distributed")
    distributed.init_process_group("gloo", rank=rank, world_size=_SIZE)
    torch.manual_seed(0)
    data = torch.randn(RECORDS, _width(count)), torch.randn(RECORDS, 1)
    with ExitStack() as stack:
        loops = {"ddp": _ddp(torch, count, data, rank)}
        for kind in KINDS[1:]:
            place = {"EDL_MASTER": os.environ[f"MASTER_{kind}"], "EDL_TOKEN_FILE": os.environ[f"TOKEN_{kind}"]}
            names = {"POD_NAME": f"t{rank}", "POD_UID": f"uid-t{rank}", "TRAINERS": str(_SIZE)}
            job = importlib.import_module("edl.worker").connect(environment={**place, **names})
            stack.callback(job._session.close, "")  # noqa: SLF001 - the measurement ends before the job
            loops[kind] = _elastic(job, _network(torch, count), data, _SIZE if kind == "deterministic" else 0)
        for loop in loops.values():
            next(loop)  # the first step has costs of its own
        found: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(turns):
            for kind, loop in loops.items():
                distributed.barrier()
                since_s = time.monotonic()
                for _ in range(steps):
                    next(loop)
                found[kind].append((time.monotonic() - since_s) * 1000 / steps)
    distributed.barrier()
    return found


def _width(count: int) -> int:
    """Of the layers of a network of two of them with about so many parameters."""
    return max(4, round(math.sqrt(count / 2)))


def _network(torch: Any, count: int) -> Any:  # noqa: ANN401 - torch may be missing where types are checked
    torch.manual_seed(0)
    width = _width(count)
    first, second, last = torch.nn.Linear(width, width), torch.nn.Linear(width, width), torch.nn.Linear(width, 1)
    return torch.nn.Sequential(first, torch.nn.Tanh(), second, torch.nn.Tanh(), last)


def _ddp(torch: Any, count: int, data: Any, rank: int) -> Iterator[None]:  # noqa: ANN401
    """A loop without an end that stops after each step."""
    model = torch.nn.parallel.DistributedDataParallel(_network(torch, count))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    x, y = data
    half, first = BATCH // _SIZE, 0
    while True:
        numbers = range(first + rank * half, first + (rank + 1) * half)
        optimizer.zero_grad()
        features, answers = torch.stack([x[n] for n in numbers]), torch.stack([y[n] for n in numbers])
        torch.nn.functional.mse_loss(model(features), answers).backward()
        optimizer.step()
        first = (first + BATCH) % RECORDS
        yield


def _elastic(job: Any, model: Any, data: Any, parts: int) -> Iterator[None]:  # noqa: ANN401
    """The same with edl; the parts are those of a deterministic job."""
    torch, worker_torch = importlib.import_module("torch"), importlib.import_module("edl.worker_torch")
    x, y = data
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    elastic = worker_torch.Elastic(
        job, model, optimizer, read=lambda n: (x[n], y[n]), global_batch=BATCH, deterministic=parts
    )
    is_first = True
    for features, answers in elastic.batches():
        if not is_first:
            yield
        is_first = False
        torch.nn.functional.mse_loss(model(features), answers).backward()


if __name__ == "__main__":
    sys.exit(main())
