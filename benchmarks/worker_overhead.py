"""What the client of edl costs a trainer: CPU time per step, memory, and start.

    python -m benchmarks.worker_overhead                  # in a Python with PyTorch: .venv-torch/bin/python

Two trainers do the same steps, one with a plain loop over the data and one with `edl.worker_torch.Elastic` and a
master. Each is a process of its own, alone in its world, so nothing is sent to other trainers. CPU seconds are those
of the whole process with all of its threads; they depend little on what else the machine does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from example.fit_flights.local import ROOT, LocalJob, Plan

BATCH, RECORDS = 64, 6400
_TRAINER = "benchmarks.elastic_torch_trainer"


class _Master(LocalJob):
    """A master alone."""

    @property
    def url(self) -> str:
        """Of the master, once it answers."""
        self._wait_for_master()
        return self._url


def main() -> int:
    """Measure everything, and print a table; with --child, be one of the trainers."""
    parser = argparse.ArgumentParser(description="Measure what edl.worker costs a trainer.")
    parser.add_argument("--child", choices=["plain", "edl", "start-plain", "start-edl"])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=100.0, help="steps per second")
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(_child(chosen.child, chosen.steps, 1.0 / chosen.rate)))
        return 0
    flags = ["--steps", str(chosen.steps), "--rate", str(chosen.rate)]
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(chosen.runs):
        for kind in ("start-plain", "start-edl", "plain", "edl"):
            found.setdefault(kind, []).append(_run(kind, flags, chosen.steps))
    middle = {
        kind: {name: statistics.median(run[name] for run in runs) for name in runs[0]} for kind, runs in found.items()
    }
    for kind, values in middle.items():
        print(f"{kind}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))
    extra_ms = 1000 * (middle["edl"]["cpu_s_per_step"] - middle["plain"]["cpu_s_per_step"])
    percent = extra_ms * chosen.rate / 10
    print(f"edl costs {extra_ms:.3f} CPU ms a step, {percent:.2f} % of a core at {chosen.rate:g} steps/s")
    return 0


def _run(kind: str, flags: list[str], steps: int) -> dict[str, float]:
    """One trainer in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = Plan(0, 1, 0, records=RECORDS, epochs=steps * BATCH // RECORDS)
        with _Master(folder, plan) as master:
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
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    last: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return last


def _child(kind: str, steps: int, pause_s: float) -> dict[str, float]:
    """What one process uses."""
    if kind.startswith("start"):
        importlib.import_module("torch")
        if kind == "start-edl":
            importlib.import_module("edl.worker_torch")
        return {"cpu_s": time.process_time(), "peak_mib": _peak_mib()}
    trainer = importlib.import_module(_TRAINER)
    torch = trainer.torch
    torch.set_num_threads(1)
    x, y = trainer.data(RECORDS)
    model = trainer.network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    loop = _plain if kind == "plain" else _elastic
    used_s = loop(trainer, (x, y), model, optimizer, (steps, pause_s))
    return {"cpu_s_per_step": used_s / steps, "peak_mib": _peak_mib()}


def _plain(trainer: Any, data: Any, model: Any, optimizer: Any, course: tuple[int, float]) -> float:  # noqa: ANN401
    """A loop over the data; returns its CPU seconds."""
    (x, y), (steps, pause_s) = data, course
    loss = trainer.nn.functional.cross_entropy
    order = trainer.torch.randperm(RECORDS)
    began_s, due_s = time.process_time(), time.monotonic()
    for step in range(steps):
        first = step * BATCH % RECORDS
        chosen = order[first : first + BATCH].tolist()
        features, answers = trainer.torch.stack([x[n] for n in chosen]), trainer.torch.stack([y[n] for n in chosen])
        loss(model(features), answers).backward()
        optimizer.step()
        optimizer.zero_grad()
        due_s = _pause(due_s, pause_s)
    return time.process_time() - began_s


def _elastic(trainer: Any, data: Any, model: Any, optimizer: Any, course: tuple[int, float]) -> float:  # noqa: ANN401
    """The same loop with edl; returns its CPU seconds."""
    (x, y), (_, pause_s) = data, course
    loss = trainer.nn.functional.cross_entropy
    with trainer.connect(environment=os.environ) as job:
        elastic = trainer.Elastic(job, model, optimizer, read=lambda n: (x[n], y[n]), global_batch=BATCH)
        began_s, due_s = time.process_time(), time.monotonic()
        for features, answers in elastic.batches():
            loss(model(features), answers).backward()
            due_s = _pause(due_s, pause_s)
        return time.process_time() - began_s


def _pause(due_s: float, pause_s: float) -> float:
    """Wait until the next step is due; returns when that one is."""
    time.sleep(max(0.0, due_s + pause_s - time.monotonic()))
    return max(due_s + pause_s, time.monotonic())


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
