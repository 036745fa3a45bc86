"""Trainers in step that measure the noise of their gradients and the times of their steps, without a framework.

A record has a gradient of 32 numbers: the same signal in each, and noise of its own. Nothing is learned, so the noise
scale stays what it is. A record takes a time, and a step of several trainers another one for the exchange.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from edl.worker.goodput.noise import Spread
from edl.worker.goodput.tuner import BatchTuner
from edl.worker.group import World
from edl.worker.step_settings import Piece, StepPlan
from edl.worker.steps import Flags
from tests.worlds.in_step.lists import ListReplica

WIDTH, NOISE_SCALE = 32, 300.0
RECORD_S, EXCHANGE_S = 0.002, 0.01

Gradient = tuple[float, ...]


@cache
def gradient_of(position: int) -> Gradient:
    """The gradient of a record: its expectation has the square 1, and its noise the variance of the noise scale."""
    draw = random.Random(position)  # noqa: S311 - repeatable
    each, spread = (1 / WIDTH) ** 0.5, (NOISE_SCALE / WIDTH) ** 0.5
    return tuple(each + draw.gauss(0.0, spread) for _ in range(WIDTH))


@dataclass
class LearningReplica(ListReplica):
    """A replica that chooses its batch as one with PyTorch does."""

    tuner: BatchTuner = field(default_factory=BatchTuner)
    parts: list[tuple[float, Gradient]] = field(default_factory=list)
    began_s: float = 0.0

    def copy_state(self, world: World) -> None:
        found = cast(list[dict[str, Any]], self.exchange(self.tuner.state_dict()))
        self.tuner.load_state_dict(found[world.source])

    def next_batch(self) -> int | None:
        return self.tuner.batch

    def goodput(self) -> dict[str, Any] | None:
        return self.tuner.report()

    def begin_step(self, plan: StepPlan) -> None:
        self.plans.append(plan)
        self.parts, self.began_s = [], time.monotonic()

    def end_piece(self, piece: Piece) -> None:
        records = range(piece.start, piece.end)
        time.sleep(RECORD_S * len(records))
        columns = zip(*map(gradient_of, records), strict=True)
        self.parts.append((piece.weight, tuple(sum(column) / len(records) for column in columns)))

    def end_step(self, flags: Flags) -> Flags:
        world, plan = self.world, self.plans[-1]
        assert world is not None
        time.sleep(EXCHANGE_S * (world.size > 1))
        given = (self.parts, flags, self.tuner.propose(world.size), time.monotonic() - self.began_s)
        found = cast(Sequence[tuple[list[tuple[float, Gradient]], Flags, int, float]], self.exchange(given))
        parts = [part for ballot in found for part in ballot[0]]
        whole = [sum(weight * gradient[k] for weight, gradient in parts) for k in range(WIDTH)]
        squares = sum(weight * sum(one * one for one in gradient) for weight, gradient in parts)
        if plan.end - plan.start == plan.batch:
            self.tuner.times.add(self.tuner.kind(world.size, plan.batch), found[0][3])
        if len(parts) > 1:
            self.tuner.noise.add(Spread(squares, len(parts), plan.end - plan.start), sum(one * one for one in whole))
        self.tuner.agree(found[0][2])
        self.sizes.append(len(found))
        return Flags(*map(sum, zip(*(ballot[1] for ballot in found), strict=True)))
