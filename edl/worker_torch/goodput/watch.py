"""Measures the noise of gradients and the times of steps, from what a step exchanges anyway.

Each trainer adds a few numbers to its ballot: how far the gradients of its passes spread, and what the last step
took. The square of the summed gradient goes with the ballot of the next step, as the first trainer has it. So all
trainers count the same numbers. Steps are measured so often that it costs less than a hundredth of the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from edl.errors import ConfigError
from edl.worker.goodput.noise import Spread
from edl.worker.goodput.tuner import BatchTuner
from edl.worker.step_settings import StepPlan
from edl.worker_torch.ballot import Ballot, bits_float, float_bits
from edl.worker_torch.losses.kinds import UNIT, WEIGHT
from edl.worker_torch.portable import local_of

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_SHARE, _MOST_STEPS, _FIRST_STEPS = 0.005, 1000, 10
"""The part of the time that measuring and choosing may take each, the most steps between two measurements, and the
steps between them while nobody knows what a step takes."""


class GoodputWatch:
    """Measures in one trainer what the choice of the global batch needs, and learns from the ballots of all trainers.

    Args:
        scaler: the scaler of losses in half precision, or None.
        is_on: the noise can be measured; False if no process has whole gradients.

    Attributes:
        tuner: the state that all trainers share.
        plan: the step under way; None before the first one.
        factor: for the learning rate of that step.
    """

    def __init__(self, scaler: Any, *, is_on: bool) -> None:
        self.tuner = BatchTuner()
        self.plan: StepPlan | None = None
        self.factor = 1.0
        self._scaler, self._is_on = scaler, is_on
        self._spread, self._groups, self._cost_s, self._square = 0.0, 0, 0.0, math.nan
        self._left, self._due_s = 0, -math.inf
        self._pending: Spread | None = None
        self._last: StepPlan | None = None

    @property
    def schedule_steps(self) -> int:
        """How many steps a scheduler makes after the step under way."""
        return self.tuner.schedule_steps(self.plan) if self.plan is not None else 1

    def begin_world(self) -> None:
        """Forget, in all trainers, what was half measured in the last world."""
        self._pending = self._last = None
        self._square, self._left = math.nan, 0

    def begin_step(self, plan: StepPlan) -> None:
        """Begin a step, with the factor for its learning rate."""
        self.plan, self.factor = plan, self.tuner.rate_factor(plan.batch)
        self._spread, self._groups = 0.0, 0

    def add(self, gradients: Sequence[Any], factor: float, weight: float) -> None:
        """Add the squared norm of the gradients of one backward pass to the measurement.

        Args:
            gradients: of all parameters; None where there is none.
            factor: with which they count in the sum.
            weight: the part of the records, or of what the loss is a mean over, that the pass has.
        """
        if self._left > 0 or not self._is_on or not weight or all(one is None for one in gradients):
            return
        began_s = time.perf_counter()
        self._spread += factor * factor * square_of(gradients) / weight
        self._groups += 1
        self._cost_s += time.perf_counter() - began_s

    def said(self, *, proposes: bool) -> dict[str, int]:
        """What this trainer contributes to its ballot: field -> value.

        Args:
            proposes: this trainer chooses the next batch for all.
        """
        batch, now_s = self.tuner.batch or 0, time.monotonic()
        if proposes and batch and self.plan is not None and now_s >= self._due_s:
            batch = self.tuner.propose(self.plan.trainers)
            spent_s = time.monotonic() - now_s
            self._due_s = now_s + spent_s / _SHARE
        return {
            "groups": self._groups,
            "spread": float_bits(self._spread),
            "square": float_bits(self._square),
            "watch_us": int(self._cost_s * 1e6),
            "batch": batch,
        }

    def take(self, ballots: list[Ballot], gradients: Sequence[Any], divisor: float, *, is_first: bool) -> None:
        """Take the ballots of all trainers for a step that is about to be made, and update the measurements.

        Args:
            ballots: of all trainers.
            gradients: of the step, after the sum; None where there is none.
            divisor: by which the sum was divided.
            is_first: this trainer measures the summed gradient for all.
        """
        first, plan = ballots[0], self.plan
        if plan is None:
            return
        if first.step_us and self._last is not None and self._last.end - self._last.start == self._last.batch:
            self.tuner.times.add(self.tuner.kind(self._last.trainers, self._last.batch), first.step_us / 1e6)
        square = bits_float(first.square)
        if self._pending is not None and math.isfinite(square):
            self.tuner.noise.add(self._pending, square)
        self.tuner.agree(first.batch)
        self._pending, self._square = None, math.nan
        if self._left <= 0:
            self._measure(ballots, gradients, divisor, is_first=is_first)
        self._left -= 1
        self._last = plan

    def _measure(self, ballots: list[Ballot], gradients: Sequence[Any], divisor: float, *, is_first: bool) -> None:
        groups, kinds = sum(one.groups for one in ballots), {one.kind for one in ballots} - {0}
        steps = [one.step_us for one in ballots if one.step_us]
        cost_us = max(one.watch_us for one in ballots)
        self._left = min(_MOST_STEPS, int(cost_us / (_SHARE * min(steps))) + 1) if steps else _FIRST_STEPS
        self._cost_s = 0.0
        if groups < 2 or len(kinds) != 1 or self.plan is None:
            return
        whole = sum(one.weight for one in ballots) / UNIT if kinds == {WEIGHT} else 0.0
        scale = divisor * (float(self._scaler.get_scale()) if self._scaler is not None else 1.0)
        squares = (whole or 1.0) * sum(bits_float(one.spread) for one in ballots) / (scale * scale)
        self._pending = Spread(squares, groups, self.plan.end - self.plan.start)
        if is_first:
            began_s = time.perf_counter()
            self._square = square_of(gradients) / (scale / divisor) ** 2
            self._cost_s = time.perf_counter() - began_s  # of the next measurement

    @contextmanager
    def rates(self, optimizers: Sequence[Any]) -> Iterator[None]:
        """Within the block, scale the learning rates by the factor of this step.

        Around it they are those of the base batch, with which schedules compute and which the trainers compare.
        """
        groups = [group for one in optimizers for group in one.param_groups if "lr" in group]
        before = [group["lr"] for group in groups]
        try:
            if self.factor != 1.0:
                for group, rate in zip(groups, before, strict=True):
                    group["lr"] = rate * self.factor
            yield
        finally:
            if self.factor != 1.0:
                for group, rate in zip(groups, before, strict=True):
                    group["lr"] = rate


def square_of(gradients: Sequence[Any]) -> float:
    """The sum of the squares of all gradient components, added up in single precision or better."""
    places: dict[Any, list[Any]] = {}
    for one in gradients:
        if one is not None:
            local = local_of(one.detach())
            wide = local if local.dtype in {torch.float32, torch.float64} else local.float()
            places.setdefault((wide.device, wide.dtype), []).append(wide)
    found = 0.0
    for some in places.values():
        norms = torch.stack(torch._foreach_norm(some))  # noqa: SLF001 - torch has no other name for it
        found += sum(norm * norm for norm in norms.tolist())
    return found
