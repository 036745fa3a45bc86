"""Loops that end in unusual ways, and what comes after them; `make torch-test` runs these tests."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from edl.errors import EdlError, PermanentError
from edl.worker.endings import Endings
from edl.worker_torch import Elastic
from tests.worker.test_worker import in_thread
from tests.worker.torch_script import BATCH, EPOCHS, RECORDS, Script, X, Y
from tests.worlds.master_server import Served, serving


def train(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()


def by_next(script: Script) -> Any:
    kept = iter(script.elastic.batches())
    for _ in range(5):
        train(script, *next(kept))
    return kept


def by_exit(script: Script) -> None:
    for number, (x, y) in enumerate(script.elastic.batches()):
        train(script, x, y)
        if number == 4:
            sys.exit(0)


class Unclosed(Script):
    """A script with a loop of its own."""

    def run(self, body: Any = None) -> Unclosed:
        with self.job:
            self.kept = body(self)  # a variable of the script keeps the loop open
        return self


@pytest.mark.parametrize("body", [by_next, by_exit])
async def test_a_loop_that_nobody_closes_is_no_success(tmp_path: Path, body: Any) -> None:
    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        script = await in_thread(lambda: Unclosed(served))
        with pytest.raises(PermanentError, match=rf"the loop was left at position {4 * BATCH} of"):
            await in_thread(lambda: script.run(body))


async def test_a_loop_that_was_stopped_makes_its_last_step_though_a_variable_keeps_it(tmp_path: Path) -> None:
    def stopped(script: Script) -> Any:
        kept = script.elastic.batches()
        for x, y in kept:
            train(script, x, y)
            if script.elastic.step == 4:
                script.elastic.stop()
                break
        return kept

    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        script = await in_thread(lambda: Unclosed(served, folder=tmp_path / "models"))
        await in_thread(lambda: script.run(stopped))
    assert script.elastic.is_complete
    assert script.elastic.step == 5
    saved = torch.load(tmp_path / "models" / "model.pt")
    assert all(torch.equal(saved[name], value) for name, value in script.model.state_dict().items())


async def test_a_loop_that_stops_within_a_step_is_told_to_go_on(tmp_path: Path) -> None:
    def stopped(script: Script) -> None:
        for x, y in script.elastic.batches():
            train(script, x, y)
            script.elastic.stop()
            break

    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        script = await in_thread(lambda: Unclosed(served, micro_batch=5))
        with pytest.raises(
            PermanentError, match=r"called elastic.stop\(\) and was left .* before it had all batches"
        ):
            await in_thread(lambda: script.run(stopped))


async def test_a_loop_that_fails_at_the_end_still_closes_the_connection(tmp_path: Path) -> None:
    def failing() -> Any:
        try:
            yield
        finally:
            raise OSError("the disk is full")

    def stopped(script: Script) -> Any:
        kept = script.job.endings.opened(failing())
        next(kept)
        for x, y in script.elastic.batches():
            train(script, x, y)
            script.elastic.stop()
            break
        return kept

    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        script = await in_thread(lambda: Unclosed(served))
        with pytest.raises(OSError, match="the disk is full"):
            await in_thread(lambda: script.run(stopped))
    assert script.job.is_closed


def test_a_connection_that_ends_within_its_loop_leaves_the_loop_alone() -> None:
    endings, stopped = Endings("a job"), SimpleNamespace(must_stop=True)

    def loop() -> Any:
        yield endings.close(stopped, None)  # type: ignore[arg-type] # of a loop it asks for that alone

    kept = endings.opened(loop())
    assert next(kept) is None


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_second_training_in_one_process_is_refused(tmp_path: Path, is_new: bool) -> None:
    def phases(served: Served) -> None:
        script = Script(served)
        with script.job:
            for x, y in script.elastic.batches():
                train(script, x, y)
            if not is_new:
                Elastic(script.job, script.model, script.optimizer, read=lambda n: (X[n], Y[n]), global_batch=BATCH)
        Script(served).run()

    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        with pytest.raises(EdlError, match=rf"has trained the {EPOCHS} epochs of the job, and begins another"):
            await in_thread(lambda: phases(served))


class Changing:
    """Data that a script changes at the end of an epoch."""

    stage = 0

    def __getitem__(self, number: int) -> tuple[Any, Any, int]:
        return X[number], Y[number], self.stage


@pytest.mark.parametrize(
    ("options", "stages"),
    [({"num_workers": 2}, [0, 1, 2]), ({"num_workers": 2, "reading": {"persistent_workers": True}}, [0, 0, 0])],
)
async def test_processes_that_read_see_what_the_script_has_changed_for_an_epoch(
    tmp_path: Path, options: Any, stages: list[int]
) -> None:
    data, seen = Changing(), []
    async with serving(tmp_path, f"index:{RECORDS}", epochs=EPOCHS) as served:
        script = await in_thread(lambda: Unclosed(served, read=data.__getitem__, **options))

        @script.elastic.on_step_end
        def at_the_end_of_an_epoch() -> None:
            data.stage += script.elastic.is_epoch_end

        def loop(one: Script) -> None:
            for x, y, stage in one.elastic.batches():
                seen.append(set(stage.tolist()))
                train(one, x, y)

        await in_thread(lambda: script.run(loop))
    steps = RECORDS // BATCH
    assert [set(itertools.chain(*seen[at : at + steps])) for at in range(0, len(seen), steps)] == [
        {n} for n in stages
    ]
