"""A training script of one trainer, and jobs of some of them: what the tests of scripts have in common."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edl.worker import connect
from edl.worker_torch import Elastic
from tests.worker.test_worker import ended_by_its_error, in_thread
from tests.worlds.master_server import TOKEN, Served, serving
from tests.worlds.waiting import wait_until

RECORDS, BATCH, EPOCHS = 96, 16, 3
DRAW = torch.Generator().manual_seed(1)
X = torch.randn(RECORDS, 8, generator=DRAW) * 2 + 1
Y = torch.sin(X.sum(1, keepdim=True))


def network(norm: nn.Module | None = None) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), norm or nn.Identity(), nn.Tanh(), nn.Linear(16, 1))


class Script:
    """A training script of one trainer.

    Args:
        served: the master.
        name: of the trainer.
        first: how many trainers the first world has.
        model: by default a small network.
        optimizer: makes the optimizers of the model.
        options: of `Elastic`.
    """

    def __init__(
        self,
        served: Served,
        name: str = "a",
        *,
        first: int = 1,
        model: Any = None,
        optimizer: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        self.model = model if model is not None else network()
        make = optimizer or (lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
        self.optimizer = make(self.model)
        environment = {"POD_NAME": name, "POD_UID": f"uid-{name}", "TRAINERS": str(first)}
        self.job = connect(served.url, token=TOKEN, environment=environment)
        options = {"read": lambda n: (X[n], Y[n]), "global_batch": BATCH, **options}
        if callable(options.get("scheduler")):
            options["scheduler"] = options["scheduler"](self.optimizer)
        with ended_by_its_error(self.job):
            self.elastic = Elastic(self.job, self.model, self.optimizer, **options)

    def run(self, body: Callable[[Script, Any, Any], object] | None = None) -> Script:
        """Train to the end."""
        torch.set_num_threads(1)  # of this thread; more of them may add up in another order
        with self.job:
            for x, y in self.elastic.batches():
                if body is None:
                    nn.functional.mse_loss(self.model(x), y).backward()
                else:
                    body(self, x, y)
        return self

    @property
    def weights(self) -> Any:
        return torch.cat([value.detach().double().flatten() for value in self.model.state_dict().values()])


async def trained(
    folder: Path,
    count: int = 1,
    body: Any = None,
    make: Callable[[Served, str], Script] | None = None,
    **more: Any,
) -> list[Script]:
    """A job of some trainers from its first step on."""
    async with serving(folder, f"index:{RECORDS}", epochs=EPOCHS) as served:
        build = make or (lambda served, name: Script(served, name, first=count, **more))
        scripts = [await in_thread(functools.partial(build, served, f"t{number}")) for number in range(count)]
        runs = (in_thread(functools.partial(one.run, body)) for one in scripts)
        found = await asyncio.gather(*runs, return_exceptions=True)  # the master stays until all have ended
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return scripts


async def order_of(folder: Path) -> list[list[int]]:
    """The numbers of the records of each step."""
    steps: list[list[int]] = []

    def note(_: Script, x: Any, y: Any) -> None:
        steps.append(y.tolist())
        nn.functional.mse_loss(_.model(X[x]), Y[x]).backward()

    await trained(folder, body=note, read=lambda n: (n, n))
    return steps


async def plain(folder: Path, model: Any, optimizer: Any, body: Callable[[Any, Any], object]) -> Any:
    """The same training in a loop without edl; returns the weights."""
    for numbers in await order_of(folder):
        optimizer.zero_grad()
        body(X[numbers], Y[numbers])
        optimizer.step()
    return torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])


async def joined(folder: Path, body: Any, make: Callable[..., Script] = Script, **options: Any) -> list[Script]:
    """A second trainer joins after some steps."""
    async with serving(folder, f"index:{RECORDS}", epochs=30) as served:

        def late() -> Script:
            wait_until(
                lambda: (served.master.status()["group"] or {"position": 0})["position"] >= BATCH * 3, "steps", 30
            )
            return make(served, "b", **options).run(body)

        def first(script: Script, x: Any, y: Any) -> None:
            body(script, x, y)
            world = script.job.world()
            if script.elastic.step == 20 and world is not None and world.size == 1:
                wait_until(lambda: script.job._group is not None and script.job._group.must_change, "b waits", 60)

        found = await asyncio.gather(in_thread(lambda: make(served, "a", **options).run(first)), in_thread(late))
    return list(found)
