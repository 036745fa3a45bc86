"""A PyTorch job that chooses its global batch, and what it measures for that; `make torch-test` runs these tests."""

from __future__ import annotations

import asyncio
import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.goodput import Course
from edl.errors import ConfigError
from edl.worker.step_settings import StepPlan, StepSettings
from edl.worker_torch.ballot import Ballot
from edl.worker_torch.goodput.watch import GoodputWatch, square_of
from edl.worker_torch.losses.kinds import RECORDS as A_MEAN
from edl.worker_torch.stepper import Stepper
from tests.worker.test_worker import ended_by_its_error, in_thread
from tests.worker.torch_script import BATCH, EPOCHS, RECORDS, Script, X, Y, joined, network, order_of, trained
from tests.worlds.master_server import serving

RANGE = (BATCH, 3 * BATCH)


def noise_of(script: Script) -> Any:
    return script.elastic.replica.watch.tuner.noise


def true_variance() -> float:
    """Of the gradient of one record of the untrained network, summed over its components."""
    model, found = network(), []
    for x, y in zip(X, Y, strict=True):
        model.zero_grad()
        nn.functional.mse_loss(model(x[None]), y[None]).backward()
        found.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    return float(torch.stack(found).double().var(0).sum())


def standing(model: Any) -> Any:
    """An optimizer that moves nothing, so that every step measures the same gradients."""
    return torch.optim.SGD(model.parameters(), lr=0.0)


def summed(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y, reduction="sum").backward()


def weighted(script: Script, x: Any, y: Any) -> None:
    script.elastic.backward(nn.functional.mse_loss(script.model(x), y), weight=3.0 * len(x))


@pytest.mark.parametrize("body", [None, weighted, summed], ids=["mean", "weight", "sum"])
@pytest.mark.parametrize(
    ("count", "more"),
    [(1, {"micro_batch": 4}), (2, {}), (3, {"micro_batch": 3}), (2, {"deterministic": 4})],
    ids=["passes", "trainers", "both", "parts"],
)
async def test_the_measured_variance_is_that_of_the_records(
    tmp_path: Path, count: int, more: dict[str, Any], body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl.worker_torch.goodput.watch._SHARE", 1e9)  # each step is measured
    monkeypatch.setattr("tests.worker.torch_script.EPOCHS", 60)
    found = await trained(tmp_path, count, body, optimizer=standing, **more)
    scale = BATCH**2 if body is summed else 1  # the gradient of a sum is larger by the records of the step
    assert noise_of(found[0]).variance == pytest.approx(scale * true_variance(), rel=0.3)
    states = [noise_of(script).state_dict() for script in found]
    assert all(state == states[0] for state in states), "the trainers have counted different numbers"
    assert states[0]["count"] > 300


async def test_a_loss_scale_does_not_change_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.worker_torch.goodput.watch._SHARE", 1e9)
    plain = await trained(tmp_path / "plain", 2, optimizer=standing)

    def scaled(script: Script, x: Any, y: Any) -> None:
        script.elastic.replica._scaler.scale(nn.functional.mse_loss(script.model(x), y)).backward()

    def build(served: Any, name: str) -> Script:
        return Script(served, name, first=2, optimizer=standing, scaler=torch.amp.GradScaler("cpu", init_scale=256.0))

    found = await trained(tmp_path / "scaled", 2, scaled, build)
    assert noise_of(found[0]).variance == pytest.approx(noise_of(plain[0]).variance, rel=1e-3)


def test_the_square_of_gradients_of_any_type() -> None:
    found = [torch.full((3,), 2.0), None, torch.full((2, 2), 1.0, dtype=torch.float64), torch.ones(5).bfloat16()]
    assert square_of(found) == pytest.approx(12 + 4 + 5)
    assert square_of([]) == 0.0


class Turning(Script):
    """The batch of the next step is another one of three in turn."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"global_batch": RANGE, "rate_rule": "linear", **options})
        tuner = self.elastic.replica.watch.tuner
        turns: dict[int | None, int] = {BATCH: 40, 40: 2 * BATCH, 2 * BATCH: BATCH}
        vars(tuner)["propose"] = lambda _trainers: turns[tuner.batch]
        self.steps: list[tuple[int, int, int]] = []
        self.elastic.loop.on_step = lambda start, end, _: self.steps.append(
            (start, end, self.elastic.loop.batch or 0)
        )


async def plain_weights(folder: Path, steps: list[tuple[int, int, int]], make: Any, power: float = 1.0) -> Any:
    """The same steps in a loop without edl, with the rate of each."""
    numbers = list(itertools.chain.from_iterable(await order_of(folder)))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = make(optimizer)
    for start, end, batch in steps:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(X[numbers[start:end]]), Y[numbers[start:end]]).backward()
        rate = optimizer.param_groups[0]["lr"]
        optimizer.param_groups[0]["lr"] = rate * (batch / BATCH) ** power
        optimizer.step()
        optimizer.param_groups[0]["lr"] = rate
        before, after = (at // RECORDS * 6 + -(-(at % RECORDS) // BATCH) for at in (start, end))
        for _ in range(after - before):
            scheduler.step()
    return torch.cat([value.detach().double().flatten() for value in model.state_dict().values()]), scheduler


def schedule(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("rule", "power"), [("linear", 1.0), ("sqrt", 0.5), ("none", 0.0)])
async def test_rate_and_schedule_follow_the_batch_as_in_a_loop_by_hand(
    tmp_path: Path, count: int, rule: str, power: float
) -> None:
    make = functools.partial(Turning, first=count, scheduler=schedule, rate_rule=rule)
    found: list[Any] = [*await trained(tmp_path / "j", count, make=make)]
    steps = found[0].steps
    assert {batch for *_, batch in steps} == {BATCH, 2 * BATCH, 40}
    assert [start for start, *_ in steps] == [0, *(end for _, end, _ in steps[:-1])]
    assert steps[-1][1] == RECORDS * EPOCHS
    expected, scheduler = await plain_weights(tmp_path / "plain", steps, schedule, power)
    for script in found:
        assert script.steps == steps
        assert torch.allclose(script.weights, expected, rtol=1e-4, atol=1e-5)
        rate = script.optimizer.param_groups[0]["lr"]
        assert rate == scheduler.get_last_lr()[0] == pytest.approx(0.05 * 0.95 ** (6 * EPOCHS)), "that of the base"


async def test_a_trainer_that_joins_has_the_batch_the_noise_and_the_times_of_the_others(tmp_path: Path) -> None:
    found: list[Any] = [*await joined(tmp_path, compute, Turning, rate_rule="adascale", scheduler=schedule)]
    first, second = found
    assert second.steps
    assert first.steps[-len(second.steps) :] == second.steps
    assert torch.equal(first.weights, second.weights)
    tuners = [script.elastic.replica.watch.tuner.state_dict() for script in found]
    assert tuners[0] == tuners[1]
    assert first.elastic.noise_scale == second.elastic.noise_scale is not None


def compute(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()


async def test_training_goes_on_from_a_checkpoint_with_the_batch_the_noise_and_the_rate(tmp_path: Path) -> None:
    def leave(script: Script, x: Any, y: Any) -> None:
        compute(script, x, y)
        if script.elastic.step == 15:
            script.job.leave()

    def run(served: Any, name: str, body: Any) -> Any:
        return Turning(
            served, name, folder=tmp_path / "m", save_every=0, scheduler=schedule, rate_rule="adascale"
        ).run(body)

    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=6) as served:
        one = await in_thread(lambda: run(served, "a", leave))
        state = one.elastic.replica.watch.tuner.state_dict()
        assert state["batch"] is not None
        two: Any = await in_thread(
            lambda: Turning(served, "b", folder=tmp_path / "m", rate_rule="adascale", scheduler=schedule)
        )
        seen: list[Any] = []

        def note(script: Script, x: Any, y: Any) -> None:
            if not seen:
                seen.append(script.elastic.replica.watch.tuner.state_dict())
            compute(script, x, y)

        await in_thread(lambda: two.run(note))
    assert seen == [state]
    assert one.steps + two.steps == sorted(one.steps + two.steps)
    assert two.steps[0][0] == one.steps[-1][1]
    assert two.steps[0][2] == state["batch"]
    assert two.elastic.is_complete


async def test_without_a_global_batch_the_linear_rule_multiplies_the_rate_by_the_trainers(tmp_path: Path) -> None:
    more: dict[str, Any] = {"global_batch": None, "micro_batch": BATCH // 2}
    two = await trained(tmp_path / "two", 2, rate_rule="linear", **more)
    steps = [(at, at + BATCH, 2 * BATCH) for at in range(0, RECORDS * EPOCHS, BATCH)]
    expected, _ = await plain_weights(tmp_path / "plain", steps, lambda _: Still())
    for script in two:
        assert torch.allclose(script.weights, expected, rtol=1e-4, atol=1e-5)


class Still:
    """A scheduler that changes nothing."""

    def step(self) -> None:
        """Do nothing."""


async def test_a_real_job_chooses_a_batch_and_all_trainers_take_it(tmp_path: Path) -> None:
    batches: dict[str, list[int]] = {"a": [], "b": []}
    async with serving(tmp_path, f"index:{RECORDS}", epochs=40) as served:

        def run(name: str) -> Script:
            script = Script(served, name, first=2, global_batch=(4, 48), rate_rule="adascale")
            script.elastic.loop.on_step = lambda *_: batches[name].append(script.elastic.loop.batch or 0)
            return script.run()

        one, two = await asyncio.gather(*(in_thread(functools.partial(run, name), 120) for name in "ab"))
        goodput = served.master.status()["group"]["goodput"]
        assert served.master.status()["state"] == "finished"
    assert batches["a"] == batches["b"]
    assert len(set(batches["a"])) > 1, "the batch never changed"
    assert torch.equal(one.weights, two.weights)
    assert goodput is None or 4 <= goodput["batch"] <= 48


def test_measuring_costs_less_than_a_hundredth_of_the_time() -> None:
    watch, measured = GoodputWatch(None, is_on=True), 0
    watch.tuner.begin(StepSettings(10**6, 1, 8))
    watch.begin_world()
    for turn in range(2000):
        watch.begin_step(StepPlan(8 * turn, 8 * turn + 8, 8, 2))
        watch.add([torch.ones(4)], 0.5, 0.5)
        said = {**dict.fromkeys(Ballot._fields, 0), **watch.said(proposes=True)}
        measured += said["groups"]
        ballot = Ballot(**{**said, "step_us": 10_000, "kind": A_MEAN, "watch_us": 500})
        watch.take([ballot] * 2, [torch.ones(4)], 1.0, is_first=True)
    assert 100 < measured <= 2000 * 0.01 * 10_000 / 500 + 1, "of 500 us each in steps of 10 ms"


def test_processes_that_come_one_after_the_other_train_each_record_in_one_step_of_a_growing_batch(
    tmp_path: Path,
) -> None:
    with Course(tmp_path, "digits", "growing", seed=1, epochs=14) as job:
        found = job.measure()
    assert found.problems == []
    assert {step["size"] for step in found.steps} >= {1, 2}
    assert len({step["batch"] for step in found.steps}) > 1, "the batch never changed"
    assert found.tests[-1][1] > 0.9


async def test_scripts_that_call_step_themselves_refuse_a_range(tmp_path: Path) -> None:
    async with serving(tmp_path, f"index:{RECORDS}") as served:

        def run() -> None:
            script = Script(served, global_batch=RANGE, rate_rule="none")
            with ended_by_its_error(script.job):
                Stepper(script.job, script.elastic, script.optimizer)

        with pytest.raises(ConfigError, match=r"scripts that call optimizer.step\(\) count steps"):
            await in_thread(run)
