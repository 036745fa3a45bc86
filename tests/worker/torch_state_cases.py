"""The state of a script, its checkpoints, its end and its evaluations; `make torch-test` runs these tests.

A script trains to the same result as without edl, or it stops with a sentence that names the cause.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from edl.errors import ConfigError, PermanentError
from edl.worker_torch import wire
from tests.worker.test_worker import in_thread
from tests.worker.torch_script import BATCH, EPOCHS, RECORDS, Script, X, Y, network, order_of, trained
from tests.worlds.master_server import Served, serving
from tests.worlds.waiting import wait_until

# State of the script.


class Average:
    """Averaged weights: what many scripts call an EMA."""

    def __init__(self, model: Any) -> None:
        self.model = copy.deepcopy(model)

    def update(self, model: Any) -> None:
        with torch.no_grad():
            for mine, its in zip(self.model.parameters(), model.parameters(), strict=True):
                mine.lerp_(its, 0.1)

    def state_dict(self) -> Any:
        return self.model.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.model.load_state_dict(state)


class Averaging(Script):
    """A script with an average of its weights."""

    average: Average

    def __init__(self, served: Served, name: str = "a", **options: Any) -> None:
        model = network()
        self.average = Average(model)
        super().__init__(served, name, model=model, state={"average": self.average}, **options)
        self.elastic.on_step_end(lambda: self.average.update(self.model))


async def test_state_of_the_script_is_copied_to_a_trainer_that_joins_and_is_as_without_edl(tmp_path: Path) -> None:
    steps, model = await order_of(tmp_path / "o"), network()
    average, optimizer = Average(model), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for numbers in steps:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(X[numbers]), Y[numbers]).backward()
        optimizer.step()
        average.update(model)
    for count in (1, 2):
        found: list[Any] = await trained(
            tmp_path / str(count),
            count,
            make=functools.partial(Averaging, first=count, folder=tmp_path / f"m{count}"),
        )
        for script in found:
            mine = script.average.state_dict()
            for name, value in average.state_dict().items():
                assert torch.allclose(mine[name], value, atol=1e-6)
    async with serving(tmp_path / "join", f"index:{RECORDS}", epochs=30) as served:

        def late() -> Script:
            wait_until(
                lambda: (served.master.status()["group"] or {"position": 0})["position"] >= BATCH * 3, "steps", 30
            )
            return Averaging(served, "b").run()

        a, b = await asyncio.gather(in_thread(lambda: Averaging(served, "a").run(slowly)), in_thread(late))
    assert a.elastic.is_complete
    if b.elastic.is_complete:
        assert isinstance(a, Averaging)
        assert isinstance(b, Averaging)
        for one, other in zip(a.average.model.parameters(), b.average.model.parameters(), strict=True):
            assert torch.equal(one, other)


def slowly(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()
    world = script.job.world()
    if script.elastic.step == 20 and world is not None and world.size == 1:
        wait_until(lambda: script.job._group is not None and script.job._group.must_change, "b waits", 60)


async def test_state_without_state_dict_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(ConfigError, match=r"state\['seen'\] is a list, which has no state_dict"):
            await in_thread(lambda: Script(served, state={"seen": []}))


# Checkpoints.


class Odd:
    """State with what numpy makes."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> Any:
        return {"value": self.value}

    def load_state_dict(self, state: Any) -> None:
        self.value = state["value"]


def cosine(step: int) -> Any:
    return 0.5 * (1 + np.cos(np.pi * step / 400))


async def test_a_scheduler_and_state_with_numbers_of_numpy_are_saved_and_loaded(tmp_path: Path) -> None:
    models = tmp_path / "models"
    odd = {
        "scalar": Odd(np.float64(0.25)),
        "array": Odd(np.arange(4, dtype=np.float32)),
        "random": Odd(np.random.default_rng(1).bit_generator.state),
    }

    def script(served: Served, name: str, **options: Any) -> Script:
        return Script(
            served,
            name,
            scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, cosine),
            folder=models,
            save_every=2,
            **options,
        )

    class StopError(Exception):
        """Ends a trainer as a crash would."""

    def crash(script: Script, x: Any, y: Any) -> None:
        nn.functional.mse_loss(script.model(x), y).backward()
        if script.elastic.step == 5:
            raise StopError

    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        with pytest.raises(StopError):
            await in_thread(lambda: script(served, "a", state=odd).run(crash))
        (saved, *_) = sorted(models.glob("checkpoint-*.pt"), reverse=True)
        torch.load(saved, weights_only=True)
        other = {name: Odd(None) for name in odd}
        second = await in_thread(lambda: script(served, "b", state=other).run())
    assert second.elastic.is_complete
    assert second.elastic.step == RECORDS * EPOCHS // BATCH
    assert other["scalar"].value == 0.25
    assert np.array_equal(other["array"].value, np.arange(4, dtype=np.float32))
    assert other["random"].value == odd["random"].value
    assert second.optimizer.param_groups[0]["lr"] == pytest.approx(0.05 * cosine(second.elastic.step))


async def test_state_that_nobody_could_load_is_refused_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"state\['when'\]\['value'\] is a pathlib\..*Path, which could be saved but"
    ):
        await trained(tmp_path, state={"when": Odd(Path("a"))})


# The end of the loop.


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("leaves", [True, False])
async def test_a_training_that_is_stopped_early_is_complete_in_all_trainers(
    tmp_path: Path, count: int, leaves: bool
) -> None:
    def run(script: Script) -> None:
        with script.job:
            for x, y in script.elastic.batches():
                nn.functional.mse_loss(script.model(x), y).backward()
                if script.elastic.step == 4 and script is scripts[0]:
                    script.elastic.stop()
                    if leaves:
                        break

    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        make = functools.partial(Script, served, first=count, folder=tmp_path / "m")
        scripts = [await in_thread(functools.partial(make, name)) for name in "ab"[:count]]
        await asyncio.gather(*(in_thread(functools.partial(run, one)) for one in scripts))
        status = served.master.status()
        late = await in_thread(lambda: Script(served, "late").run())
    assert (status["state"], status["done"]) == ("finished", 5 * BATCH)
    assert not late.elastic.is_complete
    saved = torch.load(tmp_path / "m" / "model.pt", weights_only=True)
    for script in scripts:
        assert script.elastic.is_complete
        assert script.elastic.step == 5
        assert all(torch.equal(value, saved[name]) for name, value in script.model.state_dict().items())


async def test_a_loop_that_is_left_says_that_the_model_is_not_complete(tmp_path: Path) -> None:
    def run() -> None:
        script = Script(served, folder=tmp_path / "m")
        with script.job:
            for x, y in script.elastic.batches():
                nn.functional.mse_loss(script.model(x), y).backward()
                if script.elastic.step == 4:
                    break

    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        with pytest.raises(
            PermanentError, match=r"the loop was left at position 64 of 288, .*call elastic\.stop\(\)"
        ):
            await in_thread(run)


async def test_an_evaluation_is_shared_and_is_as_without_edl(tmp_path: Path) -> None:
    batches = [(X[at : at + 7], Y[at : at + 7]) for at in range(0, RECORDS, 7)]
    counts: dict[str, list[int]] = {}

    class Evaluating(Script):
        def run(self, body: Any = None) -> Script:
            self.found: list[Any] = []
            self.elastic.on_step_end(self.evaluate)
            return super().run(body)

        def evaluate(self) -> None:
            if self.elastic.step % 6:
                return
            here: list[int] = []

            def metrics(batch: Any) -> dict[str, float]:
                here.append(len(batch[0]))
                with torch.no_grad():
                    errors = nn.functional.mse_loss(self.model(batch[0]), batch[1], reduction="sum")
                return {"loss": float(errors), "count": len(batch[0])}

            self.found.append(self.elastic.evaluate(batches, metrics))
            counts.setdefault(str(self.job._environment["POD_NAME"]), []).append(len(here))

    found: list[Any] = await trained(tmp_path, 2, make=lambda served, name: Evaluating(served, name, first=2))
    assert found[0].found == found[1].found
    assert [one["count"] for one in found[0].found] == [RECORDS] * 3
    with torch.no_grad():
        last = nn.functional.mse_loss(found[0].model(X), Y, reduction="sum")
    assert found[0].found[-1]["loss"] == pytest.approx(float(last), rel=1e-5)
    assert sum(map(sum, counts.values())) == 3 * len(batches)
    assert all(max(its) < len(batches) for its in counts.values())


async def test_a_new_job_does_not_begin_in_the_folder_of_another_one(tmp_path: Path) -> None:
    models = tmp_path / "models"
    build = functools.partial(Script, folder=models)
    (first,) = await trained(tmp_path / "1", make=build)
    with pytest.raises(PermanentError, match=r"holds checkpoint-\d+\.pt of another job .*another folder, or move"):
        await trained(tmp_path / "2", make=build)
    saved = torch.load(models / "model.pt", weights_only=True)
    assert all(torch.equal(value, saved[name]) for name, value in first.model.state_dict().items())


async def test_an_optimizer_that_needs_a_closure_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(ConfigError, match="LBFGS computes gradients several times in a step"):
            await in_thread(lambda: Script(served, optimizer=lambda model: torch.optim.LBFGS(model.parameters())))


async def test_a_trainer_that_evaluates_for_long_is_waited_for_and_the_others_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_SAY_AFTER_S", 0.3)

    def body(script: Script, x: Any, y: Any) -> None:
        nn.functional.mse_loss(script.model(x), y).backward()
        world = script.job.world()
        if script.elastic.step == 3 and world is not None and world.rank == 0:
            time.sleep(2.0)

    scripts = await trained(tmp_path, 2, body)
    assert [script.elastic.loop.counts.worlds for script in scripts] == [1, 1]
    assert any("has waited 0 s for another one to finish its part of a step" in line for line in caplog.messages)


# Numbers of all trainers.


class Asking(Script):
    """Asks for something of all trainers after the last step."""

    ask: Any

    def run(self, body: Any = None) -> Script:
        self.found: list[Any] = []
        self.elastic.on_step_end(self.after)
        return super().run(body)

    def after(self) -> None:
        if self.elastic.step == RECORDS * EPOCHS // BATCH:
            self.found.append(type(self).ask(self))


def asking(ask: Callable[[Any], Any]) -> Any:
    return type("Asking", (Asking,), {"ask": staticmethod(ask)})


def rank_of(script: Script) -> int:
    world = script.job.world()
    return world.rank if world is not None else 0


@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
async def test_tensors_of_different_lengths_are_gathered_in_the_order_of_the_ranks(tmp_path: Path, kind: Any) -> None:
    def ask(script: Any) -> Any:
        rank = rank_of(script)
        return script.elastic.gather(torch.full((3 * rank, 2), rank, dtype=kind))

    found: list[Any] = await trained(tmp_path, 3, make=lambda served, name: asking(ask)(served, name, first=3))
    expected = torch.tensor([[1, 1]] * 3 + [[2, 2]] * 6, dtype=kind)
    for script in found:
        (gathered,) = script.found
        assert gathered.dtype == kind
        assert torch.equal(gathered, expected)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda _: torch.tensor(1.0), r"it got a tensor of float32 of shape \[\], .*value\.reshape\(1\)"),
        (lambda _: 3, "it got a int, and puts tensors"),
        (lambda rank: torch.zeros(2, 1 + rank), r"do not fit together, .*shape \[0, 1\], .*shape \[0, 2\]"),
        (lambda rank: torch.zeros(2, dtype=torch.float64 if rank else torch.float32), "float32 .* float64"),
    ],
)
async def test_what_cannot_be_gathered_is_refused_with_the_shapes(tmp_path: Path, value: Any, says: str) -> None:
    def ask(script: Any) -> Any:
        return script.elastic.gather(value(rank_of(script)))

    with pytest.raises(ConfigError, match=says):
        await trained(tmp_path, 2, make=lambda served, name: asking(ask)(served, name, first=2))


def metrics_of(batch: Any) -> dict[str, float]:
    (numbers,) = batch
    return {"sum": float(numbers.sum()), "count": len(numbers)}


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_each_trainer_loads_its_share_of_a_loader_that_is_evaluated(tmp_path: Path, count: int) -> None:
    class Numbers(Dataset):
        def __init__(self) -> None:
            self.loaded: list[int] = []

        def __len__(self) -> int:
            return 50

        def __getitem__(self, number: int) -> tuple[float]:
            self.loaded.append(number)
            return (float(number),)

    def ask(script: Any) -> Any:
        data = Numbers()
        found = script.elastic.evaluate(DataLoader(data, batch_size=7), metrics_of)
        return found, data.loaded

    found: list[Any] = await trained(
        tmp_path, count, make=lambda served, name: asking(ask)(served, name, first=count)
    )
    assert all(script.found[0][0] == {"sum": 1225.0, "count": 50.0} for script in found)
    assert sorted(n for script in found for n in script.found[0][1]) == list(range(50))


@pytest.mark.parametrize("shuffled", [True, False])
async def test_a_loader_whose_order_may_differ_between_trainers_is_not_evaluated(
    tmp_path: Path, shuffled: bool
) -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(8))

    loader = DataLoader(TensorDataset(X), batch_size=7, shuffle=True) if shuffled else DataLoader(Stream())
    with pytest.raises(ConfigError, match="records would be evaluated twice or not at all; give a loader"):
        await trained(
            tmp_path,
            2,
            make=lambda served, name: asking(lambda s: s.elastic.evaluate(loader, metrics_of))(served, name, first=2),
        )
