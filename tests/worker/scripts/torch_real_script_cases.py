"""Scripts as people write them, each beside what plain PyTorch does; `make torch-test` runs these tests.

A script trains to the same result as without edl, or it stops with a sentence that names the cause.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edl.errors import ConfigError, PermanentError
from edl.worker.steps import DivergedError
from tests.worker.test_worker import in_thread
from tests.worker.torch_script import BATCH, EPOCHS, RECORDS, Script, X, Y, joined, network, order_of, plain, trained
from tests.worlds.master_server import Served, serving

# Gradients that are None.


class Partly(nn.Module):
    """Has a frozen part and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.head, self.unused = nn.Linear(8, 16), nn.Linear(16, 1), nn.Linear(4, 4)
        self.backbone.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(self.backbone(x)))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
async def test_parameters_without_a_gradient_are_left_alone(tmp_path: Path, count: int, kind: Any) -> None:
    def make(model: Any) -> Any:
        return kind(model.parameters(), lr=0.01, weight_decay=0.1)

    alone = Partly()
    optimizer = make(alone)
    expected = await plain(
        tmp_path / "plain", alone, optimizer, lambda x, y: nn.functional.mse_loss(alone(x), y).backward()
    )
    scripts = await trained(
        tmp_path / "j",
        count,
        make=lambda served, name: Script(served, name, first=count, model=Partly(), optimizer=make),
    )
    for script in scripts:
        assert torch.allclose(script.weights, expected, atol=1e-6)
        assert torch.equal(script.model.unused.weight, Partly().unused.weight)
        assert torch.equal(script.model.backbone.weight, Partly().backbone.weight)


async def test_a_gradient_that_only_some_trainers_have_counts_as_zero_in_the_others_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def body(script: Script, x: Any, y: Any) -> None:
        loss = nn.functional.mse_loss(script.model[3](torch.tanh(script.model[0](x).detach())), y)
        if script is scripts[0]:
            loss = loss + script.model[0](x).square().mean()
        loss.backward()

    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        scripts = [await in_thread(functools.partial(Script, served, name, first=2)) for name in "ab"]
        await asyncio.gather(*(in_thread(functools.partial(one.run, body)) for one in scripts))
    assert torch.equal(scripts[0].weights, scripts[1].weights)
    said = [line for line in caplog.messages if "has a gradient in some trainers" in line]
    assert len(said) == 2, "once in each trainer"


# Steps without a gradient.


def ahead(batches: Any) -> Iterator[Any]:
    """Fetches one batch before the last one is used."""
    iterator = iter(batches)
    current = next(iterator)
    for following in iterator:
        yield current
        current = following
    yield current


def forgotten(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y)


def cleared(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()
    script.model.zero_grad()


def under_no_grad(script: Script, x: Any, y: Any) -> None:
    with torch.no_grad():
        nn.functional.mse_loss(script.model(x), y)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("body", [forgotten, cleared, under_no_grad])
async def test_a_loop_that_computes_no_gradient_is_stopped_at_its_first_batch(
    tmp_path: Path, body: Any, count: int
) -> None:
    with pytest.raises(
        PermanentError, match=r"no gradient in any trainer, so nothing would be trained\. Likely causes"
    ):
        await trained(tmp_path, count, body)


async def test_a_loop_that_fetches_its_batches_ahead_is_stopped_at_the_first_one(tmp_path: Path) -> None:
    def run() -> None:
        script = Script(served)
        with script.job:
            for x, y in ahead(script.elastic.batches()):
                nn.functional.mse_loss(script.model(x), y).backward()

    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(PermanentError, match="do not prefetch from elastic"):
            await in_thread(run)
        assert served.master.status()["done"] == 0


async def test_a_later_step_without_a_gradient_is_stopped(tmp_path: Path) -> None:
    def body(script: Script, x: Any, y: Any) -> None:
        if script.elastic.step < 3:
            nn.functional.mse_loss(script.model(x), y).backward()

    with pytest.raises(PermanentError, match="a step has no gradient in any trainer"):
        await trained(tmp_path, 2, body)


# Replicas that diverge.


def local_counter(script: Any, x: Any, y: Any) -> None:
    script.count = getattr(script, "count", 0) + 1
    script.optimizer.param_groups[0]["lr"] = 0.05 / script.count
    nn.functional.mse_loss(script.model(x), y).backward()


def local_weight_decay(script: Any, x: Any, y: Any) -> None:
    script.count = getattr(script, "count", 0) + 1
    script.optimizer.param_groups[0]["weight_decay"] = 0.1 / script.count
    nn.functional.mse_loss(script.model(x), y).backward()


def local_noise(script: Script, x: Any, y: Any) -> None:
    with torch.no_grad():
        script.model[0].bias += x.mean() * 1e-6
    nn.functional.mse_loss(script.model(x), y).backward()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (local_counter, r"lr in group 0 of the optimizer is \S+ in a, and it is 0\.05 in b; .*elastic\.step"),
        (local_weight_decay, "weight_decay in group 0"),
        (local_noise, r"0\.bias is a tensor .* in a, and it is a tensor .* in b"),
    ],
)
async def test_trainers_that_diverge_stop_the_job_with_the_name_of_what_differs(
    tmp_path: Path, body: Any, says: str
) -> None:
    with pytest.raises(DivergedError, match=says):
        await joined(tmp_path, body)


async def test_a_job_whose_trainers_diverged_has_failed_for_those_that_come_later(tmp_path: Path) -> None:
    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        scripts = [await in_thread(functools.partial(Script, served, name, first=2)) for name in "ab"]
        with pytest.raises(DivergedError):
            await asyncio.gather(*(in_thread(functools.partial(one.run, local_noise)) for one in scripts))
        assert served.master.status()["state"] == "failed"
        with pytest.raises(PermanentError, match=r"job: it has failed, .*0\.bias is a tensor"):
            await in_thread(lambda: Script(served, "c").run())


async def test_what_is_the_same_in_all_trainers_may_change_in_the_loop(tmp_path: Path) -> None:
    def body(script: Script, x: Any, y: Any) -> None:
        script.optimizer.param_groups[0]["lr"] = 0.05 / (1 + script.elastic.step)
        nn.functional.mse_loss(script.model(x), y).backward()

    a, b = await joined(tmp_path, body)
    assert a.elastic.is_complete
    assert b.elastic.is_complete
    assert torch.equal(a.weights, b.weights)


def second_optimizer(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()
    torch.optim.SGD(script.model[3].parameters(), lr=0.05).step()


def scheduler_in_the_loop(script: Script, x: Any, y: Any) -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(script.optimizer, 1, 0.9)
    nn.functional.mse_loss(script.model(x), y).backward()
    scheduler.step()


def unknown_scaler(script: Script, x: Any, y: Any) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(nn.functional.mse_loss(script.model(x), y)).backward()


@pytest.mark.filterwarnings("ignore:Detected call of")  # torch's, of a scheduler before its optimizer
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (second_optimizer, r"another optimizer, a SGD of parameters of the model, .*\[optimizer, other\]"),
        (scheduler_in_the_loop, r"makes a scheduler, a StepLR, while .*scheduler=scheduler"),
        (unknown_scaler, r"a GradScaler that Elastic does not know.*scaler=scaler"),
    ],
)
async def test_what_edl_would_have_to_know_is_asked_for(tmp_path: Path, body: Any, says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        await trained(tmp_path, 1, body)


async def test_several_optimizers_and_a_group_that_is_added_later_train_as_without_edl(tmp_path: Path) -> None:
    def make(model: Any) -> list[Any]:
        model[0].weight.requires_grad_(False)
        first = torch.optim.SGD([model[0].bias], lr=0.05)
        return [first, torch.optim.AdamW(model[3].parameters(), lr=0.01)]

    def thaw(script: Any) -> None:
        script.model[0].weight.requires_grad_(True)
        script.optimizer[0].add_param_group({"params": [script.model[0].weight], "lr": 0.01})

    class Thawing(Script):
        def run(self, body: Any = None) -> Script:
            self.elastic.on_step_end(lambda: thaw(self) if self.elastic.step == 4 else None)
            return super().run(body)

    a, b = await joined(
        tmp_path / "j", lambda s, x, y: nn.functional.mse_loss(s.model(x), y).backward(), optimizer=make
    )
    assert torch.equal(a.weights, b.weights)
    steps, model = await order_of(tmp_path / "o"), network()
    optimizers = make(model)
    for number, numbers in enumerate(steps, 1):
        for one in optimizers:
            one.zero_grad()
        nn.functional.mse_loss(model(X[numbers]), Y[numbers]).backward()
        for one in optimizers:
            one.step()
        if number == 4:
            model[0].weight.requires_grad_(True)
            optimizers[0].add_param_group({"params": [model[0].weight], "lr": 0.01})
    expected = torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])
    found = await trained(tmp_path / "k", 2, make=lambda served, name: Thawing(served, name, first=2, optimizer=make))
    for script in found:
        assert torch.allclose(script.weights, expected, atol=1e-5)


# Buffers.


def normalising(served: Served, name: str, **options: Any) -> Script:
    return Script(served, name, model=network(nn.BatchNorm1d(16)), **options)


@pytest.mark.parametrize("buffers", ["last", "mean"])
async def test_batch_normalisation_is_equal_in_all_trainers(tmp_path: Path, buffers: str) -> None:
    found = await trained(
        tmp_path,
        2,
        make=lambda served, name: Script(served, name, first=2, model=network(nn.BatchNorm1d(16)), buffers=buffers),
    )
    assert torch.equal(found[0].weights, found[1].weights)
    assert int(found[0].model[1].num_batches_tracked) == RECORDS * EPOCHS // BATCH


@pytest.mark.parametrize("buffers", ["last", "mean"])
async def test_with_logical_ranks_buffers_do_not_depend_on_the_number_of_trainers(
    tmp_path: Path, buffers: str
) -> None:
    weights = []
    for count in (1, 2, 3):
        scripts = await trained(
            tmp_path / str(count),
            count,
            make=functools.partial(normalising, first=count, buffers=buffers, deterministic=4),
        )
        weights += [script.weights for script in scripts]
    assert all(torch.equal(one, weights[0]) for one in weights)


async def test_an_unknown_way_to_keep_buffers_equal_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(ConfigError, match="buffers='first' is not known; give 'last' or 'mean'"):
            await in_thread(lambda: Script(served, buffers="first"))


# Half precision.


async def test_a_scaler_scales_and_is_part_of_the_state(tmp_path: Path) -> None:
    class Scaled(Script):
        def __init__(self, served: Served, name: str, **options: Any) -> None:
            self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=4)
            super().__init__(served, name, scaler=self.scaler, **options)

    def body(script: Any, x: Any, y: Any) -> None:
        script.scaler.scale(nn.functional.mse_loss(script.model(x), y)).backward()

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    expected = await plain(
        tmp_path / "plain", model, optimizer, lambda x, y: nn.functional.mse_loss(model(x), y).backward()
    )
    for count in (1, 2):
        found: list[Any] = await trained(
            tmp_path / str(count),
            count,
            body,
            make=functools.partial(Scaled, first=count),
        )
        for script in found:
            assert torch.allclose(script.weights, expected, atol=1e-5)
            assert script.scaler.get_scale() == 2.0**16 * 2 ** (18 // 4)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
async def test_parameters_of_other_types_train_as_without_edl(tmp_path: Path, kind: Any) -> None:
    def body(script: Any, x: Any, y: Any) -> None:
        nn.functional.mse_loss(script.model(x.to(kind)), y.to(kind)).backward()

    model = network().to(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    expected = await plain(
        tmp_path / "plain",
        model,
        optimizer,
        lambda x, y: nn.functional.mse_loss(model(x.to(kind)), y.to(kind)).backward(),
    )
    (alone,) = await trained(
        tmp_path / "1", 1, body, make=lambda served, name: Script(served, name, model=network().to(kind))
    )
    assert torch.equal(alone.weights, expected)
    pair = await trained(
        tmp_path / "2", 2, body, make=lambda served, name: Script(served, name, first=2, model=network().to(kind))
    )
    assert torch.equal(pair[0].weights, pair[1].weights)
    assert torch.allclose(pair[0].weights, expected, atol=0.05 if kind == torch.bfloat16 else 1e-12)


def lazy() -> Any:
    return nn.Sequential(nn.LazyLinear(1))


def on_meta() -> Any:
    return network().to("meta")


def of_complex_numbers() -> Any:
    return nn.Sequential(nn.Linear(8, 1, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (on_meta, "the parameter 0.weight has no values yet"),
        (of_complex_numbers, r"the parameter 0.weight has the type torch.complex64; .*view_as_real"),
    ],
)
async def test_parameters_that_cannot_be_summed_are_named(tmp_path: Path, model: Any, says: str) -> None:
    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(ConfigError, match=says):
            await in_thread(lambda: Script(served, model=model()))


async def test_a_sparse_gradient_is_named(tmp_path: Path) -> None:
    def run() -> None:
        embedding = nn.Sequential(nn.Embedding(RECORDS, 8, sparse=True), nn.Linear(8, 1))
        script = Script(served, model=embedding, read=lambda n: (n, Y[n]))
        script.run()

    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(PermanentError, match=r"the gradient of 0.weight is sparse, .*sparse=False"):
            await in_thread(run)


async def test_parameters_that_are_not_in_the_model_are_refused(tmp_path: Path) -> None:
    def make(model: Any) -> Any:
        return torch.optim.SGD([*model.parameters(), *nn.Linear(2, 3).parameters()], lr=0.1)

    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(
            ConfigError, match=r"the optimizer has 2 parameters, the first one of shape \(3, 2\), that"
        ):
            await in_thread(lambda: Script(served, optimizer=make))


async def test_a_scheduler_that_needs_a_metric_is_refused_with_the_way_that_works(tmp_path: Path) -> None:
    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(ConfigError, match=r"ReduceLROnPlateau needs a metric .*state=\{'scheduler': scheduler\}"):
            await in_thread(lambda: Script(served, scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau))
