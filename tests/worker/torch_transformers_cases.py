"""Hugging Face's `Trainer` beside the one of edl: another import, no more; `make torch-test` runs these tests."""

from __future__ import annotations

import asyncio
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
    served: Served, folder: Path, name: str, *, first: int = 1, make: type[Trainer] = Trainer, **more: Any
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
