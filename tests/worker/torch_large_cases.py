"""Trainers of models of millions of parameters, as processes; `make torch-test` runs these tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.elastic_large import LargeRun
from tests.worlds.waiting import PATIENCE


@pytest.mark.parametrize("millions", [20.0, 124.0])
def test_trainers_of_a_large_model_join_leave_and_are_killed(tmp_path: Path, millions: float) -> None:
    with LargeRun(tmp_path, millions) as job:
        found = job.measure()
    assert found.worlds == 5, "a join or a leave needed more than one world"
    assert found.repeated == 0, "training went back"
    assert max(*found.joins_s, found.kill_s) < 20 * PATIENCE
    assert found.leave_s < 5 * PATIENCE
    (saved,) = (tmp_path / "models").glob("checkpoint-*.pt")
    assert saved.stat().st_size > millions * 1e6 * 12
    assert [path.name for path in saved.parent.iterdir()] == [saved.name], "no draft is left"


PEAK = """
import resource, sys, torch
from pathlib import Path
from edl.worker.model_folder import ModelFolder
from edl.worker_torch.replica import TorchReplica
from edl.worker_torch.state import TrainState

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

model = torch.nn.Linear(5000, 5000)
optimizer = torch.optim.AdamW(model.parameters())
model.weight.grad = torch.ones_like(model.weight)
optimizer.step()
model.weight.grad = None
replica = TorchReplica(TrainState(model, [optimizer], [], {}), folder=ModelFolder(Path(sys.argv[1])))
replica.save(0)
before = peak()
replica.save(1)
print((peak() - before) / (3 * 4 * 25e6))
"""


def test_a_checkpoint_is_written_without_a_copy_of_the_state(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PEAK, str(tmp_path)]
    grown = float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert grown < 0.3
