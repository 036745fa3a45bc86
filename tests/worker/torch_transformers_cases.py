"""Hugging Face's `Trainer` beside the one of edl: another import, no more; `make torch-test` runs these tests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from edl.errors import ConfigError
from edl.ledger.permutation import BLOCK, EpochOrder
from edl.worker_torch.transformers import Trainer
from tests.worker.test_worker import ended_by_its_error, in_thread, trainer
from tests.worlds.master_server import Served, serving
from tests.worlds.waiting import wait_until

RECORDS, EPOCHS, BATCH = 48, 3, 8
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


class Texts(torch.utils.data.Dataset):
    """Texts of unequal length."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> dict[str, Any]:
        length = 3 + number % 9
        words = [(number * 5 + place) % 23 for place in range(length)]
        pad = 12 - length
        return {
            "input_ids": torch.tensor(words + [0] * pad),
            "attention_mask": torch.tensor([1] * length + [0] * pad),
            "labels": torch.tensor(words + [-100] * pad),
        }


BUILT: list[Any] = []


def model() -> Any:
    if not BUILT:
        torch.manual_seed(0)
        sizes = {"vocab_size": 23, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
        drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config = transformers.GPT2Config(**sizes, **drops, bos_token_id=0, eos_token_id=0)
        BUILT.append(transformers.GPT2LMHeadModel(config).state_dict())
        BUILT.append(config)
    found = transformers.GPT2LMHeadModel(BUILT[1])
    found.load_state_dict(BUILT[0])
    return found


def arguments(folder: Path, **more: Any) -> Any:
    options = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 0.01,
        "warmup_steps": 4,
        "weight_decay": 0.1,
        "max_grad_norm": 0.5,
        "logging_steps": 1,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return transformers.TrainingArguments(output_dir=str(folder), **{**options, **more})


class Ordered(transformers.Trainer):
    """The unmodified trainer, on the records in the order of the master."""

    def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
        return _Order()


class _Order(torch.utils.data.Sampler):
    epoch = 0

    def __len__(self) -> int:
        return RECORDS

    def __iter__(self) -> Any:
        order = EpochOrder(RECORDS, 0, self.epoch, BLOCK)
        self.epoch += 1
        return iter(list(order.records(0, RECORDS)))


def logged(found: Any, name: str) -> list[float]:
    return [row[name] for row in found.state.log_history if name in row]


def unmodified(folder: Path, **more: Any) -> Any:
    torch.set_num_threads(1)
    made = Ordered(model=model(), args=arguments(folder, **more), train_dataset=Texts(), eval_dataset=Texts())
    made.train()
    return made


def elastic(
    served: Served, folder: Path, name: str, *, first: int = 1, make: Callable[..., Trainer] = Trainer, **more: Any
) -> Any:
    torch.set_num_threads(1)
    job = trainer(served, name)
    job._environment = {**job._environment, "TRAINERS": str(first)}
    data = {"train_dataset": Texts(), "eval_dataset": Texts()}
    with ended_by_its_error(job):
        args = arguments(folder, **more)
        made = make(model=model(), args=args, job=job, elastic_options={"folder": folder}, **data)
        made.train()
    return made


async def run(folder: Path, count: int, make: Callable[..., Any] = elastic, **more: Any) -> list[Any]:
    async with serving(folder / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        build = functools.partial(make, served, folder, first=count, **more)
        found = await asyncio.gather(*(in_thread(functools.partial(build, f"t{n}"), 120) for n in range(count)))
        status = served.master.status()
    assert (status["state"], status["quarantined"]) == ("finished", 0)
    assert status["group"]["position"] == RECORDS * EPOCHS
    return list(found)


@pytest.mark.parametrize("more", [{}, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}])
async def test_one_trainer_logs_and_learns_what_the_unmodified_one_does(tmp_path: Path, more: Any) -> None:
    expected = unmodified(tmp_path / "plain", per_device_train_batch_size=BATCH)
    (found,) = await run(tmp_path, 1, **more)
    for name in ("loss", "grad_norm", "learning_rate", "eval_loss"):
        assert logged(found, name) == pytest.approx(logged(expected, name), rel=2e-3)
        assert len(logged(found, name)) > 2
    assert found.state.global_step == expected.state.global_step == RECORDS * EPOCHS // BATCH
    pairs = zip(found.model.parameters(), expected.model.parameters(), strict=True)
    assert all(torch.allclose(*pair, atol=1e-4) for pair in pairs)
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    assert torch.equal(saved["transformer.wte.weight"], found.model.transformer.wte.weight)


async def test_two_trainers_learn_what_one_does(tmp_path: Path) -> None:
    (one,) = await run(tmp_path / "1", 1)
    two = await run(tmp_path / "2", 2)
    for found in two:
        pairs = zip(found.model.parameters(), one.model.parameters(), strict=True)
        assert all(torch.allclose(*pair, atol=1e-4) for pair in pairs)
        assert logged(found, "eval_loss") == pytest.approx(logged(one, "eval_loss"), rel=1e-3)
        assert found.state.global_step == RECORDS * EPOCHS // BATCH


@pytest.mark.parametrize("count", [1, 2])
async def test_early_stopping_ends_the_job_and_the_best_model_is_that_of_the_trainer(
    tmp_path: Path, count: int
) -> None:
    # As if a greater loss were better, so that the first epoch has the best one and the second is the last one.
    options = {"save_strategy": "epoch", "load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}

    def stopping(served: Served, name: str) -> Any:
        job = trainer(served, name)
        job._environment = {**job._environment, "TRAINERS": str(count)}
        torch.set_num_threads(1)
        args = arguments(tmp_path / "hf", **options, greater_is_better=True)
        made = Trainer(
            model=model(),
            args=args,
            job=job,
            elastic_options={"folder": tmp_path},
            train_dataset=Texts(),
            eval_dataset=Texts(),
            callbacks=[transformers.EarlyStoppingCallback(1)],
        )
        with ended_by_its_error(job):
            made.train()
        assert made.elastic is not None
        assert made.elastic.is_complete
        return made

    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        names = [f"t{n}" for n in range(count)]
        found = await asyncio.gather(*(in_thread(functools.partial(stopping, served, name), 120) for name in names))
        status = served.master.status()
    assert (status["state"], status["group"]["position"]) == ("finished", 2 * RECORDS)
    losses = logged(found[0], "eval_loss")
    assert losses[0] > losses[1]
    (saving,) = [one for one in found if one.state.best_model_checkpoint is not None]
    saved = torch.load(tmp_path / "model.pt", weights_only=True)["transformer.wte.weight"]
    for one in found:
        assert torch.equal(saved, one.model.transformer.wte.weight) == (one is not saving)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"num_train_epochs": 5}, "num_train_epochs=5 .* the job has 3 epochs; set num_train_epochs=3"),
        ({"max_steps": 5}, "max_steps=5"),
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy='group_by_length' cannot be used"),
        (
            {"resume_from_checkpoint": "old"},
            "resume_from_checkpoint='old' is not offered: a job goes on from",
        ),
        ({"dataloader_drop_last": True}, "dataloader_drop_last=True cannot be used with trainers that come and go"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "reduce_lr_on_plateau' is not offered: its step needs a met"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_before_the_first_step(
    tmp_path: Path, more: Any, says: str
) -> None:
    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        with pytest.raises(ConfigError, match=says):
            await in_thread(lambda: elastic(served, tmp_path, "a", **more), 60)
        assert served.master.status()["done"] == 0


@pytest.mark.parametrize("name", ["_get_train_sampler", "get_train_dataloader"])
async def test_an_order_of_the_script_is_refused_before_the_first_step(tmp_path: Path, name: str) -> None:
    sampled = type("Sampled", (Trainer,), {name: lambda *_: None})
    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        says = f"Sampled has a {name} of its own, and the master decides the order"
        with pytest.raises(ConfigError, match=says):
            await in_thread(lambda: elastic(served, tmp_path, "a", make=sampled), 60)


class Scaling(transformers.TrainerCallback):
    """Changes gradients before the step of a trainer that is alone."""

    def on_pre_optimizer_step(self, *_: Any, **options: Any) -> None:
        for parameter in options["model"].parameters():
            parameter.grad.mul_(0.1)


class Own(Trainer):
    """Computes gradients itself."""

    def training_step(self, model: Any, inputs: Any, _: Any = None) -> Any:
        loss = self.compute_loss(model, self._prepare_inputs(inputs))
        loss.backward()
        return loss.detach()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Own, "Own has a training_step of its own, whose gradients would be neither weighed nor clipped"),
        (functools.partial(Trainer, callbacks=[Scaling()]), "the callback Scaling has on_pre_optimizer_step"),
    ],
)
async def test_gradients_past_the_step_are_refused_before_the_first_one(tmp_path: Path, make: Any, says: str) -> None:
    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        with pytest.raises(ConfigError, match=says):
            await in_thread(lambda: elastic(served, tmp_path, "a", make=make), 60)
        assert served.master.status()["done"] == 0


class Changing(transformers.TrainerCallback):
    """Waits after some step until another trainer waits to join, and leaves after another one."""

    def __init__(self, job: Any, joins_after: int, leaves_after: int) -> None:
        self._job, self._joins_after, self._leaves_after = job, joins_after, leaves_after

    def on_step_end(self, _: Any, state: Any, __: Any, **___: Any) -> None:
        if state.global_step == self._joins_after:
            wait_until(lambda: self._job._group.must_change, "another trainer waits", 60)
        if state.global_step == self._leaves_after:
            self._job.leave()


async def test_a_trainer_that_joins_stops_as_early_as_the_one_that_it_took_over_from(tmp_path: Path) -> None:
    # As if a greater loss were better: the first epoch is the best one, and the third one after it is the last.
    options = {"metric_for_best_model": "eval_loss", "greater_is_better": True, "num_train_epochs": 7}
    steps = RECORDS // BATCH

    def stopping(served: Served, name: str) -> Any:
        torch.set_num_threads(1)
        job = trainer(served, name)
        if name == "b":
            wait_until(
                lambda: (served.master.status()["group"] or {"position": 0})["position"] > RECORDS, "steps", 60
            )
        callbacks = [transformers.EarlyStoppingCallback(3)]
        callbacks += [Changing(job, steps + 2, 2 * steps + 3)] if name == "a" else []
        data = {"train_dataset": Texts(), "eval_dataset": Texts(), "callbacks": callbacks}
        args = arguments(tmp_path / "hf", **options)
        made = Trainer(model=model(), args=args, job=job, elastic_options={"folder": tmp_path}, **data)
        with contextlib.suppress(SystemExit), ended_by_its_error(job):
            made.train()
        return made

    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=7) as served:
        found = await asyncio.gather(*(in_thread(functools.partial(stopping, served, name), 120) for name in "ab"))
        status = served.master.status()
    left, stopped = found
    assert 2 * steps < left.state.global_step < 3 * steps
    assert (status["state"], status["group"]["position"]) == ("finished", 4 * RECORDS)
    assert stopped.state.best_metric == logged(left, "eval_loss")[0]
    assert stopped.state.global_step == 4 * steps


class LostError(Exception):
    """Ends a trainer in the middle of a step."""


class Losing(transformers.TrainerCallback):
    """Ends its trainer before it has the gradients of a step."""

    def __init__(self, after: int) -> None:
        self._after = after
        self.trainer: Any = None

    def on_step_begin(self, _: Any, state: Any, __: Any, **___: Any) -> None:
        if self.trainer is not None and state.global_step == self._after:
            self.trainer.elastic.replica.disconnect()  # as the sockets of a process that is killed
            raise LostError


@pytest.mark.parametrize("after", [8, 11])
async def test_a_step_that_is_lost_with_a_trainer_is_none_of_the_script(tmp_path: Path, after: int) -> None:
    assert 2 * RECORDS // BATCH == 11 + 1, "the last step of an epoch"
    (expected,) = await run(tmp_path / "1", 1)

    def losing(served: Served, folder: Path, name: str, *, first: int) -> Any:
        def build(**options: Any) -> Any:
            losing = Losing(after)
            made = Trainer(**options, callbacks=[losing])
            losing.trainer = made if name == "t1" else None
            return made

        with contextlib.suppress(LostError):
            return elastic(served, folder, name, first=first, make=build)

    found, nobody = await run(tmp_path / "2", 2, make=losing)
    assert nobody is None
    assert logged(found, "eval_loss") == pytest.approx(logged(expected, "eval_loss"), rel=1e-3)
    assert logged(found, "epoch") == logged(expected, "epoch")
    pairs = zip(found.model.parameters(), expected.model.parameters(), strict=True)
    assert all(torch.allclose(*pair, atol=1e-4) for pair in pairs)
