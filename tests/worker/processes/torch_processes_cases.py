"""Trainers of several processes, as torchrun starts them in a pod; `make torch-test` runs these tests.

With FSDP2 each process has a shard of the model, and copies it from its twin in another trainer; else each has all.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.gpu.run import ShardRun
from benchmarks.gpu.trainer import Settings
from tests.worlds.waiting import PATIENCE

TINY = Settings("", 0.001, pace_s=0.1)
SHARD = "checkpoint-*.shard-{}.pt"


@pytest.mark.parametrize("is_sharded", [True, False])
def test_processes_of_trainers_that_come_and_go_change_no_bit(tmp_path: Path, is_sharded: bool) -> None:
    settings = TINY._replace(is_sharded=is_sharded)
    with ShardRun(tmp_path / "changes", settings, 2) as job:
        found = job.measure()
    with ShardRun(tmp_path / "fixed", settings._replace(stop_at=found.steps, pace_s=0.0), 2) as job:
        assert job.fixed(1) == found.digest
    assert found.worlds == 5, "a join or a leave needed more than one world"
    assert max(*found.joins_s, found.kill_s) < 20 * PATIENCE
    shards = sorted((tmp_path / "changes" / "models").glob(SHARD.format("*")))
    assert len(shards) == (2 if is_sharded else 0)


@pytest.mark.parametrize("kind", ["bfloat16", "float64"])
def test_shards_of_other_types_train_as_whole_models(tmp_path: Path, kind: str) -> None:
    weights = []
    for is_sharded in (True, False):
        folder = tmp_path / str(is_sharded)
        with ShardRun(folder, TINY._replace(is_sharded=is_sharded, kind=kind, stop_at=5, pace_s=0.0), 2) as job:
            job.fixed(1)
        weights.append(torch.load(folder / "models" / "model.pt", weights_only=True))
    for name, value in weights[0].items():
        assert str(value.dtype) == f"torch.{kind}"
        assert torch.allclose(value, weights[1][name], atol=0.02 if kind == "bfloat16" else 1e-12)
