"""What the client of edl costs a trainer: CPU time per step, memory, and start.

    python -m benchmarks.worker_overhead                  # in a Python with PyTorch: .venv-torch/bin/python

The cost of a step is measured in two processes that take turns: one makes some steps of a plain loop over the data,
then the other as many with `edl.worker_torch.Elastic` and a master, and so on: whatever else the machine does slows
both down. Two more trainers, one of each kind, show the memory, and what a whole run costs. Each trainer is alone in
its world, so nothing is sent to other trainers. All times are CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.turns import Turning, take_turns
from example.fit_flights.local import ROOT, LocalJob, Plan

BATCH, RECORDS = 64, 6400
_TURN = 25  # steps of one loop before the other's
_TRAINER = "benchmarks.elastic_torch_trainer"


class Master(LocalJob):
    """A master alone."""

    @property
    def url(self) -> str:
        """Of the master, once it answers."""
        self._wait_for_master()
        return self._url


def main() -> int:
    """Measure everything, and print a table; with --child, be one of the trainers."""
    parser = argparse.ArgumentParser(description="Measure what edl.worker costs a trainer.")
    parser.add_argument("--child", choices=["start-plain", "start-edl", "plain", "edl"])
    parser.add_argument("--by-turns", action="store_true", help="the child makes its steps when it is told to")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=100.0, help="steps per second")
    chosen = parser.parse_args()
    if chosen.child:
        _child(chosen.child, chosen.steps, 1.0 / chosen.rate, by_turns=chosen.by_turns)
        return 0
    flags = ["--steps", str(chosen.steps), "--rate", str(chosen.rate)]
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(chosen.runs):
        for kind in ("start-plain", "start-edl", "plain", "edl"):
            with _trainer(kind, flags, chosen.steps) as process:
                found.setdefault(kind, []).append(process.end())
        found.setdefault("in-turn", []).append(_in_turn([*flags, "--by-turns"], chosen.steps))
    for kind, runs in found.items():
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        print(f"{kind}: " + ", ".join(f"{name} {value:.4g}" for name, value in middle.items()))
    pairs = zip(found["plain"], found["edl"], strict=True)
    apart = [1000 * (edl["cpu_ms_of_step"] - plain["cpu_ms_of_step"]) for plain, edl in pairs]
    in_turn = [1000 * (run["extra_ms_of_step"] + run["threads_ms_of_step"]) for run in found["in-turn"]]
    for how, extra_us in (("steps in turn", in_turn), ("whole runs of two processes", apart)):
        part = statistics.median(extra_us) * chosen.rate / 1e4
        print(
            f"{how}: edl costs {statistics.median(extra_us):.0f} us of CPU a step ({min(extra_us):.0f} to"
            f" {max(extra_us):.0f}), {part:.2f} % of a core at {chosen.rate:g} steps/s"
        )
    print(f"load {os.getloadavg()[1]:.1f} over 5 minutes")
    return 0


@contextlib.contextmanager
def _trainer(kind: str, flags: list[str], steps: int) -> Iterator[Turning]:
    """One trainer in a process of its own, with a master."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        epochs = 2 + steps * BATCH // RECORDS  # so that the job goes on until the end of the run
        plan = Plan(0, 1, 0, records=RECORDS, epochs=epochs)
        with Master(folder, plan) as master:
            environment = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "EDL_MASTER": master.url,
                "EDL_TOKEN_FILE": str(folder / "token"),
                "POD_NAME": "t",
                "POD_UID": "uid-t",
                "TRAINERS": "1",
            }
            command = [sys.executable, "-m", "benchmarks.worker_overhead", "--child", kind, *flags]
            with Turning(command, environment) as process:
                yield process


def _child(kind: str, steps: int, pause_s: float, *, by_turns: bool) -> None:
    """Print what one process uses."""
    if kind.startswith("start"):
        importlib.import_module("torch")
        if kind == "start-edl":
            importlib.import_module("edl.worker_torch")
        print(json.dumps({"cpu_s": time.process_time(), "peak_mib": _peak_mib()}))
        return
    trainer = importlib.import_module(_TRAINER)
    torch = trainer.torch
    torch.set_num_threads(1)
    x, y = trainer.data(RECORDS)
    model = trainer.network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    loss = trainer.nn.functional.cross_entropy
    with contextlib.ExitStack() as stack:
        if kind == "plain":
            loop = _plain(torch, (x, y), model, optimizer, loss)
        else:
            job = stack.enter_context(trainer.connect(environment=os.environ))
            elastic = trainer.Elastic(job, model, optimizer, read=lambda n: (x[n], y[n]), global_batch=BATCH)
            loop = _elastic(elastic, model, loss)
        if by_turns:
            take_turns(lambda count: _turn(loop, count, pause_s))
        else:
            print(json.dumps({"cpu_ms_of_step": _whole_run(loop, steps, pause_s), "peak_mib": _peak_mib()}))


def _plain(torch: Any, data: Any, model: Any, optimizer: Any, loss: Any) -> Iterator[None]:  # noqa: ANN401
    """A loop over the data that has no end; it stops after each step."""
    x, y = data
    order, first = torch.randperm(RECORDS), 0
    while True:
        chosen = order[first : first + BATCH].tolist()
        features, answers = torch.stack([x[n] for n in chosen]), torch.stack([y[n] for n in chosen])
        loss(model(features), answers).backward()
        optimizer.step()
        optimizer.zero_grad()
        first = (first + BATCH) % RECORDS
        yield


def _elastic(elastic: Any, model: Any, loss: Any) -> Iterator[None]:  # noqa: ANN401
    """The same loop with edl."""
    for features, answers in elastic.batches():
        loss(model(features), answers).backward()
        yield


def _whole_run(loop: Iterator[None], steps: int, pause_s: float) -> float:
    """CPU time of a step in ms, with all threads of the process and with the beginning."""
    began_s, due_s = time.process_time(), time.monotonic()
    for _ in range(steps):
        next(loop)
        due_s = _pause(due_s, pause_s)
    return 1000 * (time.process_time() - began_s) / steps


def _turn(loop: Iterator[None], steps: int, pause_s: float) -> dict[str, float]:
    """CPU time in ms of a step in the thread of the loop, and in all others of the process."""
    due_s, process_s, thread_s = time.monotonic(), time.process_time(), time.thread_time()
    for _ in range(steps):
        next(loop)
        due_s = _pause(due_s, pause_s)
    loop_s = time.thread_time() - thread_s
    others_s = time.process_time() - process_s - loop_s
    return {"ms_of_step": 1000 * loop_s / steps, "others_ms_of_step": 1000 * others_s / steps}


def _in_turn(flags: list[str], steps: int) -> dict[str, float]:
    """CPU time in ms of a step of each loop, by turns, and of the threads that edl has beside its own."""
    used: dict[str, list[dict[str, float]]] = {"plain": [], "edl": []}
    with _trainer("plain", flags, steps) as plain, _trainer("edl", flags, steps) as edl:
        processes = {"plain": plain, "edl": edl}
        for turn in range(-2, steps // _TURN):  # the first turns only warm up
            for kind in ("plain", "edl") if turn % 2 else ("edl", "plain"):
                processes[kind].begin(_TURN)
                found = processes[kind].end()
                if turn >= 0:
                    used[kind].append(found)
    pairs = list(zip(used["plain"], used["edl"], strict=True))
    return {
        "plain_ms_of_step": statistics.median(one["ms_of_step"] for one in used["plain"]),
        "edl_ms_of_step": statistics.median(one["ms_of_step"] for one in used["edl"]),
        "extra_ms_of_step": statistics.median(edl["ms_of_step"] - plain["ms_of_step"] for plain, edl in pairs),
        "threads_ms_of_step": statistics.mean(one["others_ms_of_step"] for one in used["edl"]),
    }


def _pause(due_s: float, pause_s: float) -> float:
    """Wait until the next step is due; returns when that one is."""
    time.sleep(max(0.0, due_s + pause_s - time.monotonic()))
    return max(due_s + pause_s, time.monotonic())


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
