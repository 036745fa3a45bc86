"""The global batch of a job: what all trainers know of it, and the next one.

Everything here follows from numbers that the trainers have exchanged with a step, so it is the same in all of them.
It is copied to trainers that join, and is in each checkpoint. The first trainer alone proposes the next batch, since
a choice depends on rounding; with the flags of a step all others learn it.
"""

from __future__ import annotations

from typing import Any

from edl.errors import PermanentError
from edl.worker.goodput.choice import Choice
from edl.worker.goodput.noise import NoiseScale
from edl.worker.goodput.rates import rate_factor
from edl.worker.goodput.step_times import StepKind, StepTimes
from edl.worker.step_settings import StepPlan, StepSettings


class BatchTuner:
    """Chooses the global batch of a job, and the factor of its learning rate.

    Attributes:
        noise: the noise scale of the gradients.
        times: of steps, by number of trainers and batch.
    """

    def __init__(self) -> None:
        self.noise, self.times = NoiseScale(), StepTimes()
        self._settings: StepSettings | None = None
        self._choice: Choice | None = None
        self._batch: int | None = None

    def begin(self, settings: StepSettings) -> None:
        """Take the settings of the job; called once, before the first step."""
        self._settings = settings
        base, largest = settings.global_batch, settings.largest_batch
        if settings.is_ranged and base is not None and largest is not None:
            self._choice = Choice(base, largest, settings.passes)

    @property
    def batch(self) -> int | None:
        """The records of the next step; None if the job has one batch only."""
        if self._choice is None:
            return None
        low, high = self._choice.batches[0], self._choice.batches[-1]
        return max(low, min(high, self._batch or low))  # the job may have begun again with another range

    def agree(self, batch: int) -> None:
        """Set the global batch for the next step, once all trainers have agreed on it."""
        if self._choice is not None:
            self._batch = batch

    def kind(self, trainers: int, batch: int) -> StepKind:
        """The kind of a step, by number of trainers and batch, under which its duration is counted."""
        return StepKind(trainers, batch, self._known_settings.passes(trainers, batch))

    def propose(self, trainers: int) -> int:
        """The batch that the next step should have; 0 if the job has one batch only.

        It stays while its own time and the noise are not known.
        """
        batch, noise = self.batch, self.noise.value
        if batch is None or self._choice is None:
            return 0
        model = self.times.model()
        if noise is None or model is None or self.kind(trainers, batch) not in self.times.known():
            return batch
        return self._choice.best(model, noise, trainers, batch)

    def rate_factor(self, batch: int) -> float:
        """The factor for the learning rate of a step.

        Args:
            batch: records of a step that is not the last one of its epoch.
        """
        settings = self._known_settings
        return rate_factor(settings.rate_rule, self.noise.value, settings.base_batch(1), batch)

    def schedule_steps(self, plan: StepPlan) -> int:
        """How many steps a scheduler of learning rates makes after a step.

        In a job that chooses its batch, as many as steps of the base batch would end within it. So a schedule ends
        with the job, and at each record it is as far as in a job of the base batch.
        """
        return self._known_settings.base_steps(plan.start, plan.end) if self._choice is not None else 1

    def report(self) -> dict[str, Any] | None:
        """The batch, the noise scale and the goodput by number of trainers, as the master takes them.

        Returns:
            None for a job of one batch, whose speeds are in its progress.
        """
        batch, noise, model = self.batch, self.noise.value, self.times.model()
        if batch is None or self._choice is None:
            return None
        speeds = []
        if noise is not None and model is not None:
            seen = {kind.trainers for kind in self.times.known()}
            speeds = [speed._asdict() for speed in self._choice.curve(model, noise, seen)]
        return {"batch": batch, "noise_scale": noise, "speeds": speeds}

    def state_dict(self) -> dict[str, Any]:
        """The state as plain numbers."""
        return {"noise": self.noise.state_dict(), "times": self.times.state_dict(), "batch": self._batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state of `state_dict`."""
        self.noise.load_state_dict(state["noise"])
        self.times.load_state_dict(state["times"])
        self._batch = state["batch"]

    @property
    def _known_settings(self) -> StepSettings:
        if self._settings is None:
            raise PermanentError("steps: the settings of the job are not known yet; call begin first")
        return self._settings
