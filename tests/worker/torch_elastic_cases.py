"""A PyTorch loop in step, of one trainer or a few in one process; `make torch-test` runs these tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edl.errors import PermanentError
from edl.worker_torch import Elastic
from tests.worker.test_worker import ended_by_its_error, in_thread, trainer
from tests.worlds.master_server import Served, serving

RECORDS, BATCH = 96, 8
DRAW = torch.Generator().manual_seed(1)
X = torch.randn(RECORDS, 4, generator=DRAW)
Y = X.sum(1, keepdim=True)


class Trained:
    """A model, and what trains it.

    Args:
        served: the master.
        name: of the trainer.
        options: of `Elastic`.
    """

    def __init__(self, served: Served, name: str = "a", **options: Any) -> None:
        torch.manual_seed(0)
        self.model: Any = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=RECORDS // BATCH)
        self._job = trainer(served, name)
        options = {"read": lambda n: (X[n], Y[n]), "global_batch": BATCH, "scheduler": self.scheduler, **options}
        with ended_by_its_error(self._job):
            self.elastic = Elastic(self._job, self.model, self.optimizer, **options)

    def train(self) -> Any:
        """Train to the end; returns the model."""
        with self._job:
            for x, y in self.elastic.batches():
                self.compute(x, y)
        return self.model

    def compute(self, x: Any, y: Any) -> None:
        """The body of the loop."""
        nn.functional.mse_loss(self.model(x), y).backward()


async def test_a_checkpoint_is_saved_after_each_epoch_and_the_last_ones_stay(tmp_path: Path) -> None:
    models = tmp_path / "models"
    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=5) as served:
        await in_thread(lambda: Trained(served, folder=models, keep=2).train())
        latest = served.master.status()["checkpoint"]
    assert latest["step"] == 5 * RECORDS
    found = [int(path.stem.removeprefix("checkpoint-")) for path in models.glob("checkpoint-*.pt")]
    assert (len(found), max(found)) == (2, latest["id"])
    assert (models / "model.pt").exists()


async def test_without_a_folder_and_with_zero_nothing_is_saved(tmp_path: Path) -> None:
    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=2) as served:
        await in_thread(lambda: Trained(served).train())
        assert served.master.status()["checkpoint"] is None
    async with serving(tmp_path / "k", f"index:{RECORDS}", epochs=2) as served:
        await in_thread(lambda: Trained(served, folder=tmp_path / "models", save_every=0).train())
        assert served.master.status()["checkpoint"] is None
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["model.pt"]


@pytest.mark.filterwarnings("ignore:Detected call of")  # torch's, of a scheduler before its optimizer
@pytest.mark.parametrize("name", ["optimizer.step", "optimizer.zero_grad", "scheduler.step"])
async def test_a_step_that_is_left_in_the_loop_is_refused(tmp_path: Path, name: str) -> None:
    class Left(Trained):
        def compute(self, x: Any, y: Any) -> None:
            super().compute(x, y)
            owner, _, method = name.partition(".")
            getattr({"optimizer": self.optimizer, "scheduler": self.scheduler}[owner], method)()

    async with serving(tmp_path / "j", f"index:{RECORDS}") as served:
        with pytest.raises(PermanentError, match=rf"the loop calls {name}\(\), but edl makes .* delete that call"):
            await in_thread(lambda: Left(served).train())
        assert served.master.status()["done"] == 0


async def test_steps_before_and_after_the_loop_are_the_business_of_the_script(tmp_path: Path) -> None:
    def run() -> None:
        trained = Trained(served)
        trained.optimizer.step()
        trained.train()
        trained.optimizer.zero_grad()
        trained.optimizer.step()

    async with serving(tmp_path / "j", f"index:{RECORDS}") as served:
        await in_thread(run)
