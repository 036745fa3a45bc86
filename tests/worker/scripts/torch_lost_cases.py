"""What a step leaves behind that is not made, because a trainer was lost in it."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.worker.test_worker import in_thread
from tests.worker.torch_script import RECORDS, Script, network
from tests.worlds.master_server import serving


class LostError(Exception):
    """Ends a trainer in the middle of a step."""


@pytest.mark.parametrize("deterministic", [0, 3])
async def test_averages_of_a_step_that_is_not_made_are_forgotten(tmp_path: Path, deterministic: int) -> None:
    def body(script: Script, x: Any, y: Any) -> None:
        nn.functional.mse_loss(script.model(x), y).backward()
        world = script.job.world()
        if world is not None and world.names[world.rank] == "c" and script.elastic.step == 4:
            raise LostError

    async with serving(tmp_path, f"index:{RECORDS}", epochs=2) as served:
        make = functools.partial(Script, first=3, deterministic=deterministic)
        models = {name: network(nn.BatchNorm1d(16)) for name in "abc"}
        scripts = [await in_thread(functools.partial(make, served, name, model=m)) for name, m in models.items()]
        runs = (in_thread(functools.partial(one.run, body)) for one in scripts)
        found = await asyncio.gather(*runs, return_exceptions=True)
    assert isinstance(found[2], LostError)
    for one in found[:2]:
        if isinstance(one, BaseException):
            raise one
    assert all(one.elastic.is_complete for one in scripts[:2])
    assert torch.equal(scripts[0].weights, scripts[1].weights)


async def test_a_trainer_that_is_lost_in_a_hook_does_not_end_those_that_wait_for_its_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Summing(Script):
        def run(self, body: Any = None) -> Script:
            self.elastic.on_step_end(self.after)
            return super().run(body)

        def after(self) -> None:
            world = self.job.world()
            if world is not None and world.names[world.rank] == "b" and self.elastic.step == 4:
                raise LostError
            self.elastic.sum({"count": 1.0})

    async with serving(tmp_path, f"index:{RECORDS}", epochs=2) as served:
        scripts = [await in_thread(functools.partial(Summing, served, name, first=2)) for name in "ab"]
        found = await asyncio.gather(*(in_thread(one.run) for one in scripts), return_exceptions=True)
    assert isinstance(found[1], LostError)
    assert found[0] is scripts[0]
    assert scripts[0].elastic.is_complete
    assert any("a trainer was lost while a hook of on_step_end waited" in line for line in caplog.messages)
