"""While a loop is under way, only edl makes steps: with a call left in the loop the models would differ.

A step of the loop itself would use the gradient of one batch of one trainer, and `zero_grad` would forget gradients
that edl has not added up yet. Each refusal names the option that does the same in all trainers.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from edl.errors import ConfigError, PermanentError

try:
    import torch
    from torch.nn.utils import clip_grad
    from torch.optim.optimizer import register_optimizer_step_pre_hook
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_SCALER_CALLS = ("scale", "unscale_", "step", "update")

_CLIP = "clip_grad_norm_"
_ACCUMULATED = (
    "global_batch is the batch of a step, in however many pieces it comes, so a loop that divides its loss by the"
    " number of batches that it accumulates must not do that any more"
)
_ALTERNATING = (
    "all optimizers step at the end of the step, with the gradients of all losses of the batch. Losses that train"
    " parts of the model by turns, as those of a GAN do, take turns by the step: if elastic.step % 2 == 0, compute"
    " loss.backward(inputs=list(first.parameters())), else that of the other part; an optimizer without gradients"
    " waits"
)


class StepGuard:
    """Refuses the calls of a loop that belong to edl, and sees each loss of which it computes the gradient.

    Args:
        optimizers: the optimizers of the model.
        schedulers: the schedulers of their learning rates.
        scaler: the scaler of losses in half precision, or None.
        owns: whether a parameter belongs to the model.
        on_loss: gets each loss before its gradient is computed; it may return a factor for the loss.
    """

    def __init__(
        self,
        optimizers: Sequence[Any],
        schedulers: Sequence[Any],
        scaler: Any,
        owns: Callable[[Any], bool],
        on_loss: Callable[[Any], float | None],
    ) -> None:
        self._optimizers, self._schedulers, self._scaler = optimizers, schedulers, scaler
        self._owns, self._on_loss, self._is_on = owns, on_loss, False
        self._made: list[int] = []
        self._rates: list[Any] | None = None
        for optimizer in optimizers:
            optimizer.zero_grad = self._guarded(optimizer.zero_grad, "optimizer.zero_grad()")
        self._advice = _ACCUMULATED if len(optimizers) < 2 else _ALTERNATING

    @contextlib.contextmanager
    def during_loop(self) -> Iterator[None]:
        """The block is a loop over batches, in this thread."""
        before = getattr(_local, "guard", None)
        with _watching(), self._set(is_on=True):
            _local.guard = self
            try:
                yield
            finally:
                _local.guard = before

    def begin_step(self) -> None:
        """The loop now computes the gradients of a step."""
        self._made, self._rates = self._scheduler_steps, None

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        """In the block edl makes a step.

        Raises:
            PermanentError: a scheduler has made one since `begin_step`, or the loop has changed a learning rate after
                it computed a gradient.
        """
        if self._made != self._scheduler_steps:  # its `step` cannot be replaced: it is saved with its attributes
            self._refuse("scheduler.step()", "a scheduler goes to Elastic(..., scheduler=scheduler)")
        if self._rates is not None and self._rates != self._current_rates[: len(self._rates)]:
            raise PermanentError(
                f"Elastic: the loop changed a learning rate from {self._rates} to {self._current_rates} after it"
                " computed a gradient. The step is made when the loop asks for the next batch, so it would have the"
                " rate of the next step, and a trainer that joins would have another one; pass the scheduler as"
                " Elastic(..., scheduler=scheduler), or set the rate from elastic.step before the gradient"
            )
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
    def _scheduler_steps(self) -> list[int]:
        return [getattr(one, "last_epoch", 0) for one in self._schedulers]

    @property
    def _current_rates(self) -> list[Any]:
        return [float(group["lr"]) for one in self._optimizers for group in one.param_groups if "lr" in group]

    def before_backward(self, loss: Any) -> float | None:
        """The loop computes the gradient of a loss; returns a factor for it, or None."""
        if not self._is_on:
            return None
        self._rates = self._current_rates
        return self._on_loss(loss)

    def before_scaler(self, scaler: Any, name: str) -> None:
        """The loop calls a method of a scaler."""
        if name != "scale":
            self._refuse(f"scaler.{name}()", "a scaler goes to Elastic(..., scaler=scaler), which calls it")
        elif self._is_on and scaler is not self._scaler and scaler.is_enabled():
            raise PermanentError(
                "Elastic: the loop scales its loss with a GradScaler that Elastic does not know, so the gradients"
                " would stay scaled; pass Elastic(..., scaler=scaler), and let the loop call nothing of it but"
                " scaler.scale(loss).backward()"
            )

    def before_step(self, optimizer: Any) -> None:
        """An optimizer makes a step."""
        if optimizer in self._optimizers:
            self._refuse("optimizer.step()", self._advice)
        elif self._is_on and any(self._owns(p) for group in optimizer.param_groups for p in group["params"]):
            raise PermanentError(
                f"Elastic: the loop makes a step with another optimizer, a {type(optimizer).__name__} of parameters"
                " of the model; its gradients would be those of one trainer alone. Pass all of them:"
                " Elastic(job, model, [optimizer, other]), and delete their calls of step() and zero_grad()"
            )

    def _guarded(self, inner: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._refuse(name, self._advice)
            return inner(*args, **options)

        return call

    def _refuse(self, name: str, advice: str) -> None:
        if self._is_on:
            raise PermanentError(
                f"Elastic: the loop calls {name}, but edl makes each step itself, once the gradients of all trainers"
                f" are summed; delete that call: the loop computes gradients only{'; ' + advice if advice else ''}"
            )

    def before_clip(self, name: str) -> None:
        """The loop limits gradients."""
        self._refuse(
            f"{name}()",
            "the gradient in hand is a part of that of the step, which has another norm; pass"
            " Elastic(..., max_grad_norm=1.0), or call clip_grad_norm_ of the Accelerator",
        )


_local = threading.local()
_lock = threading.Lock()
_loops = 0
_undo: list[Callable[[], object]] = []


@contextlib.contextmanager
def _watching() -> Iterator[None]:
    """Within the block the guard of a thread hears of what its loop calls; the last block to end undoes it."""
    global _loops  # noqa: PLW0603 - torch's classes are global, too
    with _lock:
        _loops += 1
        if _loops == 1:
            _watch()
    try:
        yield
    finally:
        with _lock:
            _loops -= 1
            while not _loops and _undo:
                _undo.pop()()


def _watch() -> None:
    """Let torch's methods tell the guard of their thread before they do what they do."""
    _replace(torch.Tensor, "backward", lambda guard, loss: guard.before_backward(loss))
    for name in _SCALER_CALLS:
        tell = functools.partial(_tell_scaler, name)
        _replace(torch.amp.GradScaler, name, tell)
    # What clip_grad_norm_ itself calls: a script may have imported that function before.
    _replace_function(clip_grad, "_clip_grads_with_norm_" if hasattr(clip_grad, "_clip_grads_with_norm_") else _CLIP)
    _replace_function(torch.nn.utils, "clip_grad_value_")
    _undo.append(register_optimizer_step_pre_hook(_tell_step).remove)


def _tell_scaler(name: str, guard: StepGuard, scaler: Any) -> None:
    guard.before_scaler(scaler, name)


def _tell_step(optimizer: Any, *_: object) -> None:
    guard = getattr(_local, "guard", None)
    if guard is not None:
        guard.before_step(optimizer)


def _replace(owner: Any, name: str, tell: Callable[[StepGuard, Any], float | None]) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        guard = getattr(_local, "guard", None)
        factor = tell(guard, self) if guard is not None else None
        return inner(self if factor is None else self * factor, *args, **options)

    _undo.append(functools.partial(setattr, owner, name, inner))
    setattr(owner, name, call)


def _replace_function(owner: Any, name: str) -> None:
    """The same for a function that limits the gradients of some parameters; a limit that is infinite is none."""
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def call(parameters: Any, limit: Any, *args: Any, **options: Any) -> Any:
        guard = getattr(_local, "guard", None)
        if guard is not None and float(limit) != float("inf"):
            guard.before_clip(
                "torch.nn.utils.clip_grad_value_" if "value" in name else "torch.nn.utils.clip_grad_norm_"
            )
        return inner(parameters, limit, *args, **options)

    _undo.append(functools.partial(setattr, owner, name, inner))
    setattr(owner, name, call)
