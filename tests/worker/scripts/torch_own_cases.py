"""Optimizers and modules that scripts write themselves; `make torch-test` runs these tests."""

from __future__ import annotations

import copy
import functools
import io
import math
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edl.errors import ConfigError, PermanentError
from edl.worker_torch.modes import Settings
from edl.worker_torch.portable import bits_of
from edl.worker_torch.state import TrainState
from tests.worker.torch_script import BATCH, EPOCHS, RECORDS, Script, X, Y, network, plain, trained
from tests.worlds.master_server import Served


def mse(model: Any, x: Any, y: Any) -> None:
    nn.functional.mse_loss(model(x), y).backward()


class Extrapolating(torch.optim.Optimizer):
    """Keeps the gradient of the last step itself, and no copy."""

    def __init__(self, parameters: Any, lr: float = 0.05) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, _: Any = None) -> None:
        with torch.no_grad():
            self.extrapolate()

    def extrapolate(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                before = self.state[parameter].get("before", parameter.grad)
                parameter.add_(parameter.grad + 0.5 * (parameter.grad - before), alpha=-group["lr"])
                self.state[parameter]["before"] = parameter.grad


@pytest.mark.parametrize(("count", "deterministic"), [(1, 0), (2, 0), (2, 4)])
async def test_an_optimizer_may_keep_the_gradient_of_a_step(tmp_path: Path, count: int, deterministic: int) -> None:
    model = network()
    expected = await plain(
        tmp_path / "plain", model, Extrapolating(model.parameters()), lambda x, y: mse(model, x, y)
    )
    make = functools.partial(
        Script,
        first=count,
        optimizer=lambda model: Extrapolating(model.parameters()),
        deterministic=deterministic,
    )
    for script in await trained(tmp_path / "j", count, lambda script, x, y: mse(script.model, x, y), make=make):
        assert torch.allclose(script.weights, expected, atol=1e-5)


class Counting(torch.optim.Optimizer):
    """Has a counter, a queue of gradients, and for each parameter a copy of it in single precision."""

    def __init__(self, parameters: Any, lr: float = 0.05) -> None:
        super().__init__(parameters, {"lr": lr})
        self.count = 0

    def step(self, _: Any = None) -> None:
        self.count += 1
        with torch.no_grad():
            self.change()

    def change(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                values = self.state[parameter]
                exact = values.setdefault("exact", parameter.float().clone())
                last = values.setdefault("last", deque(maxlen=3))
                last.append(parameter.grad.float().clone())
                exact.sub_(sum(last) * group["lr"] / self.count)
                parameter.copy_(exact)


class Keeping(nn.Module):
    """Keeps what it has seen in attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network().bfloat16()
        self._calls, self.level = 0, np.zeros(2)
        self.scale: Any = None
        self.later: Any
        self.seen: deque[int] = deque(maxlen=4)
        self.counts: dict[str, list[int]] = {"calls": []}
        self.kinds: set[int] = set()

    def forward(self, x: Any) -> Any:
        self._calls += 1
        self.scale = 1 / (x.std() + 1) if self.scale is None else self.scale
        if not self.__dict__.get("later"):
            self.later = float(x[0, 0])
        self.level += 0.1
        self.seen.append(self._calls)
        self.counts["calls"].append(1)
        self.kinds.add(self._calls % 3)
        factor = len(self.seen) + len(self.counts["calls"]) + len(self.kinds) + self.level[0] + self.later
        return self.inner((x * self.scale * factor / self._calls).bfloat16())


def three_steps(state: TrainState, first: int) -> None:
    for numbers in torch.arange(first, first + 24).split(8):
        nn.functional.mse_loss(state.model(X[numbers]).float(), Y[numbers]).backward()
        state.optimizers[0].step()
        state.optimizers[0].zero_grad()


def test_what_a_script_keeps_in_its_own_optimizer_and_modules_is_copied_and_saved() -> None:
    def built() -> TrainState:
        model = Keeping()
        return TrainState(model, [Counting(model.parameters())], [], {})

    one, other = built(), built()
    three_steps(one, 0)
    file = io.BytesIO()
    torch.save(one.collected(), file)
    file.seek(0)
    other.load(torch.load(file, weights_only=True), is_owned=True)
    for state in (one, other):
        three_steps(state, 24)
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name])
    assert vars(one.optimizers[0])["count"] == vars(other.optimizers[0])["count"] == 6
    assert other.model.seen.maxlen == 4


@pytest.mark.parametrize("part", ["model", "optimizer"])
def test_what_is_no_model_or_optimizer_is_named(part: str) -> None:
    model: Any = network()
    parts = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), part: object()}
    with pytest.raises(ConfigError, match=f"the {part} is a object; give a torch"):
        TrainState(parts["model"], [parts["optimizer"]], [], {})


class Tabled(nn.Module):
    """Has buffers of kinds that a double cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.register_buffer("angles", torch.polar(torch.ones(8), torch.arange(8.0)))
        self.register_buffer("hashes", torch.arange(8) + 2**62 + 1)
        self.count: Any
        self.register_buffer("count", torch.zeros((), dtype=torch.bfloat16))

    def forward(self, x: Any) -> Any:
        self.count = self.count + 1  # another tensor in its place
        rest = ((x * 4).long() * self.hashes) % 7
        return self.inner((x * self.angles).real + (x * self.angles).imag + rest / (1 + self.count.float()))


@pytest.mark.parametrize("options", [{}, {"buffers": "mean"}, {"deterministic": 2, "buffers": "mean"}])
@pytest.mark.parametrize("count", [1, 2])
async def test_buffers_of_any_type_stay_what_they_are(tmp_path: Path, count: int, options: Any) -> None:
    found = await trained(
        tmp_path / "j",
        count,
        lambda script, x, y: mse(script.model, x, y),
        make=lambda served, name: Script(served, name, first=count, model=Tabled(), **options),
    )
    for script in found:
        assert torch.allclose(script.model.angles, Tabled().angles)
        assert torch.equal(script.model.hashes, Tabled().hashes)
        assert script.model.count == EPOCHS * RECORDS // BATCH


class Averaging(nn.Module):
    def __init__(self, is_saved: bool) -> None:
        super().__init__()
        self.inner = network()
        self.register_buffer("mean", torch.zeros(8), persistent=is_saved)

    def forward(self, x: Any) -> Any:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.inner(x - self.mean)


async def test_a_buffer_that_depends_on_the_batch_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def make(is_saved: bool) -> Any:
        return lambda served, name: Script(served, name, first=2, model=Averaging(is_saved))

    body = lambda script, x, y: mse(script.model, x, y)  # noqa: E731 - of one line
    await trained(tmp_path / "a", 2, body, make=make(True))
    assert sum("the buffer mean had other values" in one for one in caplog.messages) == 1
    caplog.clear()
    await trained(tmp_path / "b", 2, body, make=make(False))
    said = [one for one in caplog.messages if "writes to the buffer mean, which is not saved (persistent" in one]
    assert len(said) == 2  # once in each trainer


class Inferred(nn.Module):
    """Has tables that are made in inference mode."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        with torch.inference_mode():
            self.register_buffer("table", torch.arange(8.0))
            self.register_buffer("large", torch.zeros(70_000))
            self.register_buffer("cache", torch.ones(8), persistent=False)
            self.offset = torch.ones(8)

    def forward(self, x: Any) -> Any:
        return self.inner(x + self.table / 8 + self.cache + self.offset)


@pytest.mark.parametrize("options", [{}, {"buffers": "mean"}, {"deterministic": 2}])
@pytest.mark.parametrize("count", [1, 2])
async def test_tensors_of_inference_mode_stay_what_they_are(tmp_path: Path, count: int, options: Any) -> None:
    found = await trained(
        tmp_path,
        count,
        lambda script, x, y: mse(script.model, x, y),
        make=lambda served, name: Script(served, name, first=count, model=Inferred(), **options),
    )
    assert all(torch.equal(script.model.table, torch.arange(8.0)) for script in found)


def test_an_attribute_of_inference_mode_is_copied() -> None:
    one, other = network(), network()
    one.table = other.table = None
    with torch.inference_mode():
        one.first, other.first = torch.ones(3), torch.ones(3)
    mine, its = Settings(one), Settings(other)
    with torch.inference_mode():
        one.table = torch.ones(3)
    its.load(mine.changed())
    assert list(mine.changed()) == [".table"]
    assert torch.equal(other.table, torch.ones(3))


class Odd(nn.Module):
    """Has a buffer of a kind that is not plain numbers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner = network()
        whole = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8) if kind == "int8" else torch.eye(4)
        self.register_buffer("odd", whole.to_sparse() if kind == "sparse" else whole)

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def odd_script(served: Served, name: str, *, kind: str, **options: Any) -> Script:
    return Script(served, name, model=Odd(kind), **options)


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("kind", ["int8", "sparse"])
async def test_a_buffer_that_cannot_be_exchanged_is_named(tmp_path: Path, kind: str) -> None:
    body = lambda script, x, y: mse(script.model, x, y)  # noqa: E731 - of one line
    await trained(tmp_path / "a", 1, body, make=functools.partial(odd_script, kind=kind))
    cases: dict[str, Any] = {
        r"state\['model'\]\['odd'\]": {"first": 2},
        "the buffer odd": {"deterministic": 2, "buffers": "mean"},
    }
    for place, options in cases.items():
        with pytest.raises(PermanentError, match=rf"{place} is torch\..*{kind}.* cannot be copied to other trainers"):
            await trained(
                tmp_path / place[-4:],
                options.get("first", 1),
                body,
                make=functools.partial(odd_script, kind=kind, **options),
            )


class Turned(Tabled):
    def __init__(self) -> None:
        super().__init__()
        angles: Any = Tabled().angles.conj()
        self.angles: Any = angles
        self.register_buffer("parts", angles.imag)  # a negative view

    def forward(self, x: Any) -> Any:
        return super().forward(x) + self.parts.sum()


@pytest.mark.parametrize("options", [{}, {"buffers": "mean"}])
async def test_conjugate_and_negative_buffers_stay_what_they_are(tmp_path: Path, options: Any) -> None:
    found = await trained(
        tmp_path,
        2,
        lambda script, x, y: mse(script.model, x, y),
        make=lambda served, name: Script(served, name, first=2, model=Turned(), **options),
    )
    for script in found:
        assert torch.allclose(script.model.angles, Tabled().angles.conj())
        assert torch.allclose(script.model.parts, Turned().parts)
        assert bits_of(script.model.angles) == bits_of(script.model.angles.clone())


def settings_of(device: str = "cpu", **attributes: Any) -> tuple[Any, Settings]:
    """A module with some attributes."""
    module = nn.Linear(2, 2, device=device)
    for key, value in attributes.items():
        setattr(module, key, copy.deepcopy(value))
    return module, Settings(module)


def test_tensors_of_attributes_stay_on_their_devices() -> None:
    start: dict[str, Any] = {"calls": torch.zeros(()), "last": [torch.zeros(2)], "queue": deque(maxlen=3)}
    (one, mine), (other, its) = (settings_of("meta", first=None, **start) for _ in range(2))
    one.calls, one.first = torch.ones(()), torch.ones(3)
    one.last.append({"deep": torch.ones(2)})
    one.queue.extend((torch.zeros(1), torch.ones(1)))
    its.load(mine.changed())
    assert {str(one.device) for one in (other.calls, other.first, other.last[1]["deep"], *other.queue)} == {"cpu"}
    assert other.queue.maxlen == 3
    one.queue.append(torch.ones(1))
    one.last[1]["deep"].add_(1)
    assert len(other.queue) == 2
    assert other.last[1]["deep"].sum() == 2


def test_a_value_that_is_no_number_equals_itself() -> None:
    start: dict[str, Any] = {"best": math.nan, "all": [math.nan, torch.full((2,), math.nan)]}
    (one, mine), (other, its) = settings_of(**start), settings_of(**start)
    assert not mine.changed()
    one.best = 0.5
    its.load(mine.changed())
    assert other.best == 0.5


def test_private_attributes_are_copied_if_all_of_a_module_can_be() -> None:
    start: dict[str, Any] = {"_calls": 0, "_seen": [], "_mean": torch.zeros(2)}
    one, mine = settings_of(**start)
    one._calls, one._mean = 3, torch.ones(2)
    one._seen.append(1)
    other, its = settings_of(**start)
    its.load(mine.changed())
    assert (other._calls, other._seen, other._mean.tolist()) == (3, [1], [1.0, 1.0])
    later: dict[str, Any] = {"_cache": torch.ones(3), "_pid": 7, "_host": "a", "_output": one(torch.ones(1, 2))}
    for key, value in later.items():
        none: dict[str, Any] = {} if key == "_pid" else {"_cache": None, "_host": "", "_output": None}
        one, mine = settings_of(**start, **none)
        one._calls = 3  # how much of the cache is filled, so it may not come without the cache
        setattr(one, key, value)
        assert not mine.changed()


def test_a_list_that_grows_large_is_named_once_and_not_copied(caplog: pytest.LogCaptureFixture) -> None:
    one, mine = settings_of(history=[], other=0)
    one.history, one.other = list(range(70_000)), 1
    assert [list(mine.changed()) for _ in range(2)] == [[".other"]] * 2
    assert (
        sum("the attribute history of the model has more than 65536 numbers" in one for one in caplog.messages) == 1
    )
