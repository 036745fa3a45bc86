"""Scripts as people write them, each beside what plain PyTorch does; `make torch-test` runs these tests.

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

from edl.errors import ConfigError, PermanentError
from edl.worker import connect
from edl.worker.steps import DivergedError
from edl.worker_torch import Elastic, wire
from tests.worker.test_worker import in_thread
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
        found = await asyncio.gather(*(in_thread(functools.partial(one.run, body)) for one in scripts))
    return list(found)


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


def await_steps(served: Served) -> None:
    """Wait until some steps are made."""
    wait_until(lambda: (served.master.status()["group"] or {"position": 0})["position"] >= BATCH * 3, "steps", 30)


async def joined(folder: Path, body: Any, **options: Any) -> list[Script]:
    """A second trainer joins after some steps."""
    async with serving(folder, f"index:{RECORDS}", epochs=30) as served:

        def late() -> Script:
            wait_until(
                lambda: (served.master.status()["group"] or {"position": 0})["position"] >= BATCH * 3, "steps", 30
            )
            return Script(served, "b", **options).run(body)

        def first(script: Script, x: Any, y: Any) -> None:
            body(script, x, y)
            world = script.job.world()
            if script.elastic.step == 20 and world is not None and world.size == 1:
                wait_until(lambda: script.job._group is not None and script.job._group.must_change, "b waits", 60)

        found = await asyncio.gather(in_thread(lambda: Script(served, "a", **options).run(first)), in_thread(late))
    return list(found)


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
        (second_optimizer, r"another optimizer, a SGD of parameters of the model; .*\[optimizer, other\]"),
        (scheduler_in_the_loop, r"changed a learning rate from \[0\.05\] to .*pass the scheduler as"),
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
