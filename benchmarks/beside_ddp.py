"""What a step costs two trainers in step beside two processes of torch's DistributedDataParallel (DDP).

    .venv-torch/bin/python -m benchmarks.beside_ddp --parameters 2000 20000000 --turns 5

Each kind of training has two processes of its own: DDP, `Elastic`, and `Elastic` with `deterministic`. The kinds make
some steps by turns, so whatever else the machine does slows all of them down. All use gloo on the loopback interface,
AdamW, the same batches and one thread. Beside the times on the clock is the CPU time of the first process: on a busy
machine the others are times of waiting for a core.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.turns import Turning, take_turns
from benchmarks.worker_overhead import Master
from example.fit_flights.local import ROOT, Plan
from tests.worlds.master_processes import free_port

BATCH, RECORDS = 32, 640
KINDS = ("ddp", "edl", "deterministic")
TIMES = ("clock", "CPU")
_SIZE = 2


def main() -> int:
    """Print the milliseconds of a step for each size and kind; with --child, be one process of a kind."""
    parser = argparse.ArgumentParser(description="Measure a step of edl beside one of DDP.")
    parser.add_argument("--parameters", type=int, nargs="+", default=[2_000, 20_000_000])
    parser.add_argument("--turns", type=int, default=5, help="how often each kind has its turn")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--child", choices=KINDS)
    parser.add_argument("--rank", type=int, default=0, help="of the child")
    chosen = parser.parse_args()
    if chosen.child is not None:
        _child(chosen.child, chosen.rank, chosen.parameters[0])
        return 0
    for count in chosen.parameters:
        found = _measured(count, chosen.turns, chosen.steps)
        parts = [
            _described(name, {kind: [one[name] for one in turns] for kind, turns in found.items()}) for name in TIMES
        ]
        print(f"{count:,} parameters: {'; '.join(parts)}; load {os.getloadavg()[1]:.1f}", flush=True)
    return 0


def _described(name: str, found: dict[str, list[float]]) -> str:
    """The middle of each kind, and its ratio to DDP in the same round: the middle, and the range."""
    parts = []
    for kind, values in found.items():
        each = sorted(its / ddp for its, ddp in zip(values, found[KINDS[0]], strict=True))
        ratio = "" if kind == KINDS[0] else f" ({statistics.median(each):.3f}, {each[0]:.2f} to {each[-1]:.2f})"
        parts.append(f"{kind} {statistics.median(values):.1f} ms{ratio}")
    return f"{name} {', '.join(parts)}"


def _measured(count: int, turns: int, steps: int) -> dict[str, list[dict[str, float]]]:
    """The milliseconds of a step in each turn of each kind, as the first process of it has them."""
    epochs = 2 + turns * steps * BATCH // RECORDS  # so that the jobs go on until the end
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        pairs = {kind: _pair(stack, Path(name) / kind, kind, count, epochs) for kind in KINDS}
        for turn in range(turns + 1):
            for kind, pair in pairs.items():
                for one in pair:
                    one.begin(steps if turn else 1)  # the first step has costs of its own
                first, *_ = [one.end() for one in pair]
                if turn:
                    found[kind].append(first)
    return found


def _pair(stack: ExitStack, folder: Path, kind: str, count: int, epochs: int) -> list[Turning]:
    """The processes of a kind, and its master."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TRAINERS": str(_SIZE)}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    if kind != KINDS[0]:
        master = stack.enter_context(Master(folder, Plan(0, 1, 0, records=RECORDS, epochs=epochs)))
        environment |= {"EDL_MASTER": master.url, "EDL_TOKEN_FILE": str(folder / "token")}
    command = [sys.executable, "-m", "benchmarks.beside_ddp", "--parameters", str(count), "--child", kind, "--rank"]
    return [stack.enter_context(Turning([*command, str(rank)], environment)) for rank in range(_SIZE)]


def _child(kind: str, rank: int, count: int) -> None:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    distributed = importlib.import_module("torch.distributed")
    distributed.init_process_group("gloo", rank=rank, world_size=_SIZE)
    torch.manual_seed(0)
    data = torch.randn(RECORDS, _width(count)), torch.randn(RECORDS, 1)
    with ExitStack() as stack:
        stack.callback(distributed.destroy_process_group)
        if kind == KINDS[0]:
            loop = _ddp(torch, count, data, rank)
        else:
            names = {"POD_NAME": f"t{rank}", "POD_UID": f"uid-t{rank}"}
            job = importlib.import_module("edl.worker").connect(environment={**os.environ, **names})
            stack.callback(job._session.close, "")  # noqa: SLF001 - the measurement ends before the job
            loop = _elastic(job, _network(torch, count), data, _SIZE if kind == "deterministic" else 0)

        def turn(steps: int) -> dict[str, float]:
            distributed.barrier()
            before_s = time.monotonic(), time.process_time()
            for _ in range(steps):
                next(loop)
            took_s = time.monotonic() - before_s[0], time.process_time() - before_s[1]
            return {name: each * 1000 / steps for name, each in zip(TIMES, took_s, strict=True)}

        take_turns(turn)


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
