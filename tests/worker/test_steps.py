"""Trainers that train in step, with a real master; their collectives are those of threads in one process."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import pytest

from edl.errors import ConfigError, PermanentError
from edl.master.journal_audit import audit, audit_json
from edl.worker import connect
from edl.worker.group import World
from edl.worker.job import Job
from edl.worker.model_folder import ModelFolder
from edl.worker.step_settings import Division, StepSettings, parts_of
from edl.worker.steps import StepDone
from tests.worker.test_worker import in_thread, trainer
from tests.worlds.in_step.lists import ListReplica, Wire
from tests.worlds.master_server import TOKEN, Served, serving
from tests.worlds.waiting import wait_until


class Crash(BaseException):
    """The end of a trainer without any call."""


def train(
    served: Served,
    name: str,
    replica: ListReplica,
    at: dict[int, str] | None = None,
    *,
    first: int = 1,
    save_every: int | None = 0,
    most: int | None = None,
) -> list[int]:
    """A loop of one trainer.

    Args:
        served: the master.
        name: of the trainer.
        replica: its model.
        at: what happens once the model has that many records.
        first: how many trainers the first world has.
        save_every: see `Job.steps`.
        most: the largest batch, if the job chooses it.
    """
    plan = dict(at or {})
    environment = {"POD_NAME": name, "POD_UID": f"uid-{name}", "TRAINERS": str(first), "EDL_GLOBAL_BATCH": "16"}
    environment |= {"EDL_GLOBAL_BATCH_MAX": str(most)} if most else {}
    with connect(served.url, token=TOKEN, environment=environment) as job:
        loop = job.steps(replica, f"at-{name}", save_every=save_every, rate_rule="linear" if most else "")
        for piece in loop.pieces():
            assert len(job.piece(piece)) == piece.end - piece.start
            due = next((least for least in plan if len(replica.model) >= least), None)
            what, _, whom = plan.pop(due).partition(" ") if due is not None else ("", "", "")
            if what == "leave":
                job.leave()
            elif what == "crash":
                raise Crash
            elif what == "fail":
                raise ZeroDivisionError("a bug of the user")
            elif what == "await":
                wait_until(functools.partial(changes_for, served, job, whom), f"the world changes for {whom}", 15)
    return replica.model if loop.is_complete else []


def changes_for(served: Served, job: Job, name: str) -> bool:
    """The next step ends the world, or the trainer is already in it."""
    assert job._group is not None
    return job._group.must_change or name in served.master.status()["group"]["members"]


async def test_every_record_is_in_one_step_while_trainers_join_leave_and_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire()
    replicas = {name: ListReplica(wire, tmp_path) for name in "abc"}

    def run(name: str, at: dict[int, str], first: int = 1) -> list[int]:
        return train(served, name, replicas[name], at, first=first)

    def crash() -> list[int]:
        with pytest.raises(Crash):
            run("c", {320: "await b", 1500: "crash"}, 2)
        return []

    def late() -> list[int]:
        wait_until(lambda: replicas["a"].model, "a trains")  # else b would be one of the first two
        return run("b", {2000: "leave"})

    async with serving(tmp_path / "j", "index:1000", epochs=3, seed=5) as served:
        tasks = [in_thread(lambda: run("a", {320: "await b"}, 2)), in_thread(crash), in_thread(late)]
        model, _, left = await asyncio.gather(*tasks)
    assert model == [epoch * 1000 + position for epoch in range(3) for position in range(1000)]
    assert left == []
    assert any(line.startswith("a trainer was lost; the step is repeated") for line in caplog.messages)
    assert set(replicas["a"].sizes) == {1, 2, 3}
    report = json.loads(audit_json(audit(tmp_path / "j")))
    assert report["ok"]
    assert [epoch["done"] for epoch in report["epochs"]] == [1000] * 3


async def test_the_model_is_saved_and_the_next_trainer_continues_from_it(tmp_path: Path) -> None:
    wire = Wire()
    alone, next_one = ListReplica(wire, tmp_path), ListReplica(wire, tmp_path)
    async with serving(tmp_path / "j", "index:1000", epochs=1) as served:
        assert await in_thread(lambda: train(served, "a", alone, {300: "leave"})) == []
        assert len(alone.model) == 320  # nobody is left to copy the state from, so the last one saves
        assert served.master.status()["checkpoint"]["step"] == 320
        assert await in_thread(lambda: train(served, "b", next_one)) == list(range(1000))


async def test_the_last_trainer_saves_the_model_if_it_is_told_to_leave_a_step_after_the_others(
    tmp_path: Path,
) -> None:
    wire = Wire()
    replicas = {name: ListReplica(wire, tmp_path) for name in "abc"}

    def late() -> None:
        environment = {"POD_NAME": "b", "POD_UID": "uid-b", "TRAINERS": "2", "EDL_GLOBAL_BATCH": "16"}
        with connect(served.url, token=TOKEN, environment=environment) as job:
            loop = job.steps(replicas["b"], "at-b")

            def leave(_start: int, end: int, _world: World) -> None:
                if end == 320:  # the other one has announced that it leaves after this step
                    job.leave()

            loop.on_step = leave
            for piece in loop.pieces():
                job.piece(piece)

    async with serving(tmp_path / "j", "index:1000", epochs=1) as served:
        await asyncio.gather(
            in_thread(lambda: train(served, "a", replicas["a"], {300: "leave"}, first=2)), in_thread(late)
        )
        assert replicas["b"].sizes[-2:] == [2, 1], "it does not leave between two worlds"
        assert served.master.status()["checkpoint"]["step"] == 336
        assert await in_thread(lambda: train(served, "c", replicas["c"])) == list(range(1000))
        assert served.master.status()["redispatched"] == 0


async def test_saving_at_intervals_bounds_what_a_crash_of_everybody_costs(tmp_path: Path) -> None:
    wire = Wire()
    first, second = ListReplica(wire, tmp_path), ListReplica(wire, tmp_path)

    def crash() -> None:
        with pytest.raises(Crash):
            train(served, "a", first, {200: "crash"}, save_every=5)

    async with serving(tmp_path / "j", "index:1000", epochs=1) as served:
        await in_thread(crash)
        assert await in_thread(lambda: train(served, "b", second, save_every=5)) == list(range(1000))
        assert served.master.status()["redispatched"] < 200
    assert json.loads(audit_json(audit(tmp_path / "j")))["ok"]


async def test_a_model_that_is_lost_with_every_trainer_is_trained_again_from_the_first_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire()
    first, second = ListReplica(wire, tmp_path), ListReplica(wire, tmp_path)

    def crash() -> None:
        with pytest.raises(Crash):
            train(served, "a", first, {1500: "crash"})

    async with serving(tmp_path / "j", "index:1000", epochs=2) as served:
        await in_thread(crash)
        assert not caplog.records, "a first model is no loss"
        assert await in_thread(lambda: train(served, "b", second)) == list(range(2000))
    (warning,) = [line for line in caplog.messages if "no checkpoint" in line]
    assert "begins at the first record with a new model" in warning
    assert "set EDL_CHECKPOINTS to a folder" in warning
    report = json.loads(audit_json(audit(tmp_path / "j")))
    assert report["ok"]
    assert [(epoch["done"], epoch["by"]) for epoch in report["epochs"]] == [(1000, {"b": 1000})] * 2


async def test_a_model_that_is_saved_after_each_epoch_costs_a_crash_of_everybody_one_epoch(tmp_path: Path) -> None:
    wire = Wire()
    first, second = ListReplica(wire, tmp_path), ListReplica(wire, tmp_path)

    def crash() -> None:
        with pytest.raises(Crash):
            train(served, "a", first, {2500: "crash"}, save_every=None)

    async with serving(tmp_path / "j", "index:1000", epochs=3) as served:
        await in_thread(crash)
        saved = served.master.status()["checkpoint"]
        assert (saved["step"], saved["epoch"]) == (2000, 2)
        assert await in_thread(lambda: train(served, "b", second, save_every=None)) == list(range(3000))
    assert second.sizes == [1] * 63, "it trained more than the last epoch"


async def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    folder, replica = ModelFolder(tmp_path / "file"), ListReplica(Wire(), tmp_path)

    async with serving(tmp_path / "j", "index:1000") as served:
        with patch.object(
            replica, "save", lambda number: folder.write(number, lambda path: path.write_bytes(b"model"))
        ):
            assert await in_thread(lambda: train(served, "a", replica, save_every=None)) == list(range(1000))
    (warning,) = [line for line in caplog.messages if "is not saved" in line]
    assert "the file" in warning
    assert "cannot be written" in warning
    assert "free space or repair the folder" in warning


@pytest.mark.parametrize("count", [1, 2])
async def test_a_training_that_all_trainers_end_after_a_step_is_complete_with_that_step(
    tmp_path: Path, count: int
) -> None:
    wire = Wire()

    def run(name: str) -> tuple[list[int], bool]:
        replica = ListReplica(wire, tmp_path)
        environment = {"POD_NAME": name, "POD_UID": f"uid-{name}", "TRAINERS": str(count), "EDL_GLOBAL_BATCH": "16"}
        with connect(served.url, token=TOKEN, environment=environment) as job:
            loop = job.steps(replica, f"at-{name}")
            for event in loop.events():
                if isinstance(event, StepDone) and event.end == 160:
                    loop.must_end = True
        return replica.model, loop.is_complete

    async with serving(tmp_path / "j", "index:1000", epochs=3) as served:
        found = await asyncio.gather(*(in_thread(functools.partial(run, name)) for name in "ab"[:count]))
        status = served.master.status()
    assert found == [(list(range(160)), True)] * count
    assert (status["state"], status["done"]) == ("finished", 160)


async def test_an_error_of_the_loop_ends_its_trainer_and_not_the_others(tmp_path: Path) -> None:
    wire = Wire()
    good, bad = ListReplica(wire, tmp_path), ListReplica(wire, tmp_path)

    def fail() -> None:
        with pytest.raises(ZeroDivisionError):
            train(served, "b", bad, {200: "fail"}, first=2)

    async with serving(tmp_path / "j", "index:1000", epochs=1) as served:
        failing = asyncio.create_task(in_thread(fail))
        assert await in_thread(lambda: train(served, "a", good, first=2)) == list(range(1000))
        await failing


async def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    def loop() -> None:
        with trainer(served) as job:
            loop = job.steps(ListReplica(Wire(), tmp_path), "here", global_batch=16)
            for piece in loop.pieces():
                job.piece(piece, lambda record: record // (record != 42))

    async with serving(tmp_path / "j", "index:100") as served:
        with pytest.raises(PermanentError, match=r"steps: record 42: ZeroDivisionError.*repair it"):
            await in_thread(loop)


def test_the_parts_of_a_step_are_the_same_for_any_number_of_trainers() -> None:
    settings = StepSettings(1000, 2, global_batch=64, micro_batch=5, logical_ranks=6)
    alone = settings.pieces(64, 0, 1)
    for size in range(2, 9):
        together = [piece for rank in range(size) for piece in settings.pieces(64, rank, size)]
        assert together == alone
    assert sum(piece.weight for piece in alone) == pytest.approx(1)


@pytest.mark.parametrize("records", [100, 64, 7, 1])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_processes_of_a_trainer_with_shards_compute_as_many_pieces(records: int, micro_batch: int | None) -> None:
    ranks, processes = 3, 4
    for rank in range(ranks):
        each = [
            StepSettings(records, 1, records, micro_batch, within=Division(process, processes, is_sharded=True))
            for process in range(processes)
        ]
        found = [settings.pieces(0, rank, ranks) for settings in each]
        assert len({tuple(piece.slot for piece in mine) for mine in found}) == 1, "one would wait for ever"
        counted = [n for mine in found for piece in mine if piece.weight for n in range(piece.start, piece.end)]
        assert counted == list(range(rank * records // ranks, (rank + 1) * records // ranks))
        assert all(piece.start < piece.end <= records for mine in found for piece in mine)


def test_processes_of_a_trainer_with_whole_models_are_as_trainers_of_one_process() -> None:
    alone = [StepSettings(100, 1, 64, 5).pieces(0, rank, 6) for rank in range(6)]
    shared = [
        StepSettings(100, 1, 64, 5, within=Division(process, 2)).pieces(0, rank, 3)
        for rank in range(3)
        for process in range(2)
    ]
    assert shared == alone
    assert StepSettings(100, 1, micro_batch=10, within=Division(0, 2)).plan(0, 3).end == 60


def test_every_part_has_one_trainer() -> None:
    for parts in range(12):
        for size in range(1, 15):
            assert [part for rank in range(size) for part in parts_of(parts, rank, size)] == list(range(parts))


def test_no_step_crosses_an_epoch_and_the_batch_may_grow_with_the_trainers() -> None:
    fixed = StepSettings(100, 2, global_batch=64)
    assert [fixed.plan(position, 3).end for position in (0, 64, 100, 164)] == [64, 100, 164, 200]
    assert StepSettings(100, 1, micro_batch=10).plan(0, 3).end == 30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"set spec\.elasticity\.globalBatch in the job.*, or pass micro_batch="),
        ({"global_batch": 0}, "steps: global_batch=0 cannot be used; give a whole number of at least 1"),
        ({"global_batch": 64.0}, "steps: global_batch=64.0 cannot be used; give a whole number of at least 1"),
        ({"global_batch": 64, "micro_batch": -1}, "micro_batch=-1 cannot be used; give a whole number of at least 1"),
        ({"global_batch": 64, "logical_ranks": -2}, "logical_ranks=-2 cannot be used; give .* at least 0"),
        ({"global_batch": 64, "save_every": -1}, "save_every=-1 cannot be used; give .* at least 0"),
        (
            {"micro_batch": 4, "logical_ranks": 4},
            r"have 4 parts \(deterministic\) needs global_batch; set spec",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StepSettings(100, 1, **settings)


def test_numbers_of_numpy_are_whole_numbers_that_go_to_the_master() -> None:
    sizes: dict[str, Any] = {"global_batch": numpy.int64(64), "micro_batch": numpy.int32(8)}
    settings = StepSettings(100, 1, **sizes)
    assert json.loads(json.dumps([settings.plan(0, 2).end, settings.pieces(0, 1, 2)])) == [
        64,
        [[0, at, at + 8, 1, 0.125] for at in range(32, 64, 8)],
    ]
