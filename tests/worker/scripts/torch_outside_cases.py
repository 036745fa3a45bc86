"""State of a script that Elastic may not know: it is kept equal, or it stops; `make torch-test` runs these tests."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from edl.errors import ConfigError, PermanentError
from edl.worker.steps import DivergedError
from edl.worker_torch.state import TrainState
from tests.worker.torch_script import Script, X, Y, joined, network, order_of, trained
from tests.worlds.master_server import Served


def mse(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()


# Averages of torch.


def averaged(model: Any) -> Any:
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


class Averaging(Script):
    """A script with averaged weights, which it updates in a hook.

    Args:
        is_state: Elastic is told of them.
        options: as `Script` takes them.
    """

    def __init__(self, served: Served, name: str = "a", *, is_state: bool = True, **options: Any) -> None:
        model = network()
        self.average = averaged(model)
        super().__init__(served, name, model=model, state={"average": self.average} if is_state else None, **options)
        self.elastic.on_step_end(lambda: self.average.update_parameters(self.model))


@pytest.mark.parametrize("count", [1, 2])
async def test_an_average_of_torch_in_a_hook_is_as_without_edl(tmp_path: Path, count: int) -> None:
    model = network()
    average, optimizer = averaged(model), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for numbers in await order_of(tmp_path / "order"):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(X[numbers]), Y[numbers]).backward()
        optimizer.step()
        average.update_parameters(model)
    found: list[Any] = await trained(tmp_path / "j", count, make=functools.partial(Averaging, first=count))
    for script in found:
        for name, value in average.state_dict().items():
            assert torch.allclose(script.average.state_dict()[name], value, atol=1e-6), name


async def test_an_average_of_torch_that_elastic_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"an AveragedModel is updated that Elastic does not know.*state=\{"):
        await trained(tmp_path, make=functools.partial(Averaging, is_state=False))


async def test_an_average_of_torch_that_is_updated_before_the_step_is_refused(tmp_path: Path) -> None:
    averages: dict[Script, Any] = {}

    def body(script: Script, x: Any, y: Any) -> None:
        mse(script, x, y)
        averages.setdefault(script, averaged(script.model)).update_parameters(script.model)

    with pytest.raises(PermanentError, match=r"the loop calls update_parameters\(\).*in a hook of on_step_end"):
        await trained(tmp_path, body=body)


# Buffers that are not saved.


class Projecting(nn.Module):
    """Projects its input by random numbers that are drawn without a seed and not saved."""

    draws = torch.Generator().manual_seed(7)
    random: Any

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.register_buffer("random", torch.randn(8, 8, generator=self.draws), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.inner(x @ self.random)


async def test_buffers_that_are_not_saved_are_copied_to_trainers_that_join(tmp_path: Path) -> None:
    class Drawn(Script):
        def __init__(self, served: Served, name: str, **options: Any) -> None:
            super().__init__(served, name, model=Projecting(), **options)

    pair = await trained(tmp_path / "j", 2, make=functools.partial(Drawn, first=2))
    other = await joined(tmp_path / "k", mse, make=Drawn)
    for a, b in (pair, other):
        assert a.elastic.is_complete
        assert b.elastic.is_complete
        assert torch.equal(a.model(X), b.model(X))
    assert not torch.equal(pair[0].model.random, other[0].model.random)


# Other optimizers and modules.


@pytest.mark.parametrize("count", [1, 2])
async def test_another_module_with_an_optimizer_of_its_own_is_refused_at_its_second_step(
    tmp_path: Path, count: int
) -> None:
    class Judged(Script):
        def __init__(self, served: Served, name: str, **options: Any) -> None:
            super().__init__(served, name, **options)
            self.judge = nn.Linear(1, 1)
            self.own = torch.optim.Adam(self.judge.parameters())

    def body(script: Any, x: Any, y: Any) -> None:
        guessed = script.model(x)
        script.own.zero_grad()
        nn.functional.mse_loss(script.judge(guessed.detach()), y).backward()
        script.own.step()
        nn.functional.mse_loss(guessed, y).backward()

    with pytest.raises(
        PermanentError, match=r"another optimizer, a Adam of 2 parameters that the model of Elastic has not"
    ):
        await trained(tmp_path, count, body, make=functools.partial(Judged, first=count))


async def test_a_layer_that_is_added_later_is_refused_with_what_to_write(tmp_path: Path) -> None:
    class Growing(Script):
        def run(self, body: Any = None) -> Script:
            self.elastic.on_step_end(lambda: self.grow() if self.elastic.step == 4 else None)
            return super().run(body)

        def grow(self) -> None:
            self.model.append(nn.Linear(1, 1))
            self.optimizer.add_param_group({"params": self.model[4].parameters()})

    with pytest.raises(ConfigError, match=r"4\.weight was added to the model after Elastic was made.*requires_grad_"):
        await trained(tmp_path, make=Growing)


async def test_a_rate_of_a_global_number_stops_trainers_in_which_it_differs(tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    class Counting(Script):
        def __init__(self, served: Served, name: str, **options: Any) -> None:
            def rate(_: int) -> float:
                return 1 / (1 + seen.get(name, 0))

            def schedule(optimizer: Any) -> Any:
                return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

            super().__init__(served, name, scheduler=schedule, **options)
            self.name = name

    def body(script: Any, x: Any, y: Any) -> None:
        seen[script.name] = seen.get(script.name, 0) + 1
        mse(script, x, y)

    with pytest.raises(DivergedError, match=r"lr in group 0 of the optimizer is \S+ in a, and it is \S+ in b"):
        await joined(tmp_path, body, make=Counting)


def test_a_module_that_the_script_replaces_is_compared_as_it_is_now() -> None:
    model = network()
    state = TrainState(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [], {})
    model[2], model[3] = nn.PReLU(), nn.Linear(16, 1)
    watched = state.watched()
    assert torch.equal(watched["2.weight"], model[2].weight)
    assert watched["3.weight"].data_ptr() == model[3].weight.data_ptr()


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda elastic: elastic.sum({"count": 1.0}), "sum"),
        (lambda elastic: elastic.gather(torch.zeros(1)), "gather"),
        (lambda elastic: elastic.evaluate([1, 2], lambda batch: {"count": batch}), "evaluate"),
    ],
)
async def test_a_message_to_all_trainers_from_within_a_step_is_refused(tmp_path: Path, ask: Any, name: str) -> None:
    def body(script: Script, x: Any, y: Any) -> None:
        mse(script, x, y)
        ask(script.elastic)

    with pytest.raises(PermanentError, match=rf"Elastic\.{name}: the loop calls it between.*a hook of on_step_end"):
        await trained(tmp_path, 2, body)


async def test_a_number_of_parts_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"deterministic=True does not say into how many parts.*spec\.elasticity"):
        await trained(tmp_path, deterministic=True)
