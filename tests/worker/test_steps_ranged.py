"""A job that changes its global batch between steps: every record is in one step, the same in all trainers."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
from edl.master.journal_audit import audit, audit_json
from edl.worker.step_settings import Division, StepSettings
from tests.worker.test_steps import Crash, train
from tests.worker.test_worker import in_thread
from tests.worlds.in_step.lists import ListReplica, Wire
from tests.worlds.master_server import serving
from tests.worlds.waiting import wait_until

MOST = 60


def any_batch(seed: int) -> Any:
    """Proposes another batch after each step; the trainers do not agree on it by themselves."""
    draw = random.Random(seed)  # noqa: S311 - repeatable
    return lambda _position: draw.randint(16, MOST)


async def test_every_record_is_in_one_step_while_the_batch_changes_and_trainers_come_and_go(tmp_path: Path) -> None:
    wire = Wire()
    replicas = {name: ListReplica(wire, tmp_path, propose=any_batch(seed)) for seed, name in enumerate("abc")}

    def run(name: str, at: dict[int, str], first: int = 1) -> list[int]:
        return train(served, name, replicas[name], at, first=first, most=MOST)

    def crash() -> list[int]:
        with pytest.raises(Crash):
            run("c", {320: "await b", 1500: "crash"}, 2)
        return []

    def late() -> list[int]:
        wait_until(lambda: replicas["a"].model, "a trains")
        return run("b", {2000: "leave"})

    async with serving(tmp_path / "j", "index:1000", epochs=3, seed=5) as served:
        tasks = [in_thread(lambda: run("a", {320: "await b"}, 2)), in_thread(crash), in_thread(late)]
        model, _, left = await asyncio.gather(*tasks)
    assert model == [epoch * 1000 + position for epoch in range(3) for position in range(1000)]
    assert left == []
    assert set(replicas["a"].sizes) == {1, 2, 3}
    assert len({plan.batch for plan in replicas["a"].plans}) > 10, "the batch changes"
    plans = {plan.start: plan.end for plan in replicas["a"].plans}
    for other in (replicas["b"], replicas["c"]):
        assert all(plans[plan.start] == plan.end for plan in other.plans), "they make other steps"
    assert all(end == start for (_, end), (start, _) in pairwise(sorted(plans.items())))
    report = json.loads(audit_json(audit(tmp_path / "j")))
    assert report["ok"]
    assert [epoch["done"] for epoch in report["epochs"]] == [1000] * 3


async def test_the_next_trainer_continues_with_the_batch_of_the_checkpoint(tmp_path: Path) -> None:
    wire = Wire()
    alone, next_one = (ListReplica(wire, tmp_path, propose=lambda _: 40) for _ in range(2))
    async with serving(tmp_path / "j", "index:1000", epochs=1) as served:
        assert await in_thread(lambda: train(served, "a", alone, {300: "leave"}, most=MOST)) == []
        assert await in_thread(lambda: train(served, "b", next_one, most=MOST)) == list(range(1000))
    assert (alone.plans[0].batch, next_one.plans[0].batch) == (16, 40)


async def test_the_first_trainer_tells_the_master_what_the_trainers_achieve(tmp_path: Path) -> None:
    replica = ListReplica(Wire(), tmp_path, propose=lambda _: 40)

    def told() -> Any:
        return (served.master.status()["group"] or {}).get("goodput")

    def wait(_: int) -> int:
        if len(replica.plans) > 2:
            wait_until(told, "the master knows the batch")
        return 40

    replica.propose = wait
    async with serving(tmp_path / "j", "index:1000", epochs=1) as served:
        assert await in_thread(lambda: train(served, "a", replica, most=MOST)) == list(range(1000))
        speed = {"trainers": 1, "per_s": 2.5, "is_measured": True, "batch": 40, "efficiency": 0.5}
        assert told() == {"batch": 40, "noise_scale": None, "speeds": [speed]}


def test_a_model_is_saved_after_as_many_records_with_any_batch() -> None:
    settings = StepSettings(1000, 2, 10, None, save_every=5, largest_batch=64, rate_rule="none")

    def saved(batch: int | None) -> list[int]:
        position, found = 0, []
        while position < settings.end:
            plan = settings.plan(position, 1, batch)
            position = plan.end
            if settings.is_saved_after(plan):
                found.append(position)
        return found

    assert saved(None) == list(range(50, 2001, 50))
    assert saved(64)[:4] == [64, 128, 192, 256]
    assert len(saved(20)) == 40


def test_a_single_trainer_computes_two_passes_whose_gradients_it_compares() -> None:
    settings = StepSettings(1000, 1, 10, None, largest_batch=64, rate_rule="none")
    assert [(piece.start, piece.end) for piece in settings.pieces(0, 0, 1, 25)] == [(0, 13), (13, 25)]
    assert [(piece.start, piece.end) for piece in settings.pieces(0, 1, 2, 25)] == [(12, 25)]
    small = StepSettings(1000, 1, 10, 4, largest_batch=64, rate_rule="none")
    assert [piece.end - piece.start for piece in small.pieces(0, 0, 1, 10)] == [4, 4, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"largest_batch": 8}, "the largest global batch is 8, and the smallest one 16; give the smaller one first"),
        ({"global_batch": None, "micro_batch": 4}, "is 64, and the smallest one None; give the smaller one first"),
        ({"largest_batch": 64.5}, "largest_batch=64.5 cannot be used; give a whole number"),
        (
            {"logical_ranks": 4},
            r"may be 16 to 64, so the weights depend .* and deterministic=4 says that they do not",
        ),
        ({"within": Division(0, 2, is_sharded=True)}, r"spread over processes \(FSDP2\); give one global batch"),
        ({"rate_rule": ""}, "nobody says how the learning rate follows; pass rate_rule='adascale'"),
        ({"rate_rule": "cubic"}, "rate_rule='cubic' is not known; give one of none, linear, sqrt, adascale"),
    ],
)
def test_a_range_that_cannot_be_used_is_refused(settings: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"global_batch": 16, "largest_batch": 64, "rate_rule": "none", **settings}
    with pytest.raises(ConfigError, match=message):
        StepSettings(100, 1, **whole)


def test_all_trainers_must_have_the_same_range_and_rule() -> None:
    found = {
        StepSettings(100, 1, 16, None, largest_batch=largest, rate_rule=rule).agreement
        for largest in (None, 32, 64)
        for rule in ("none", "linear")
    }
    assert len(found) == 6
    assert StepSettings(100, 1, 16).agreement == "global_batch=16 micro_batch=None logical_ranks=0"
