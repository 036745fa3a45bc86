"""While a loop is under way, only edl makes steps: with a call left in the loop the models would differ.

A step of the loop itself would use the gradient of one batch of one trainer, and `zero_grad` would forget gradients
that edl has not added up yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from edl.errors import PermanentError


class StepGuard:
    """Refuses the calls of a loop that belong to edl.

    Args:
        optimizer: of the model.
        scheduler: a learning-rate scheduler, or None.
    """

    def __init__(self, optimizer: Any, scheduler: Any) -> None:  # noqa: ANN401 - torch's
        self._is_on, self._scheduler, self._made = False, scheduler, 0
        optimizer.register_step_pre_hook(lambda *_: self._refuse("optimizer.step()"))
        optimizer.zero_grad = self._guarded(optimizer.zero_grad, "optimizer.zero_grad()")

    @contextlib.contextmanager
    def during_loop(self) -> Iterator[None]:
        """The block is a loop over batches."""
        with self._set(is_on=True):
            yield

    def begin_step(self) -> None:
        """The loop now computes the gradients of a step."""
        self._made = self._scheduler_steps

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        """In the block edl makes a step.

        Raises:
            PermanentError: the scheduler has made one since `begin_step`.
        """
        if self._made != self._scheduler_steps:  # its `step` cannot be replaced: it is saved with its attributes
            self._refuse("scheduler.step()")
        with self._set(is_on=False):
            yield

    @contextlib.contextmanager
    def _set(self, *, is_on: bool) -> Iterator[None]:
        before, self._is_on = self._is_on, is_on
        try:
            yield
        finally:
            self._is_on = before

    @property
    def _scheduler_steps(self) -> int:
        return getattr(self._scheduler, "last_epoch", 0)

    def _guarded(self, inner: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - of any such method
            self._refuse(name)
            return inner(*args, **options)

        return call

    def _refuse(self, name: str) -> None:
        if self._is_on:
            raise PermanentError(
                f"Elastic: the loop calls {name}, but edl makes each step itself, once the gradients of all trainers"
                " are summed; delete that call: the loop computes gradients only"
            )
