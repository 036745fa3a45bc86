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
from weakref import WeakKeyDictionary, WeakSet

from edl.errors import ConfigError, EdlError, PermanentError

try:
    import torch
    from torch.nn.utils import clip_grad
    from torch.optim import lr_scheduler
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    from torch.optim.swa_utils import AveragedModel
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
        keeps: whether a module belongs to the state that is copied and saved.
        on_loss: gets each loss before its gradient is computed; it may return a factor for the loss.

    Attributes:
        is_computing: gradients are computed now.
        refused: what the loop was told by an error, which it may have caught; None if nothing.
        is_within_step: the loop has gradients of a step that is not made yet, or computes them.
        on_computed: called after each time that the loop has computed gradients.
    """

    def __init__(
        self,
        optimizers: Sequence[Any],
        schedulers: Sequence[Any],
        scaler: Any,
        *,
        owns: Callable[[Any], bool],
        keeps: Callable[[Any], bool],
        on_loss: Callable[..., float | None],
    ) -> None:
        self._optimizers, self._schedulers, self._scaler = optimizers, schedulers, scaler
        self._owns, self._keeps, self._on_loss, self._is_on = owns, keeps, on_loss, False
        self.is_within_step, self._has_own_steps, self._steps = False, False, 0
        self.is_computing = False
        self.refused: EdlError | None = None
        self.on_computed: Callable[[], object] = lambda: None
        self._others: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # other optimizers -> their first step here
        self._kept: WeakSet[Any] = WeakSet()
        self._made: list[int] = []
        self._rates: list[Any] | None = None
        for optimizer in optimizers:
            optimizer.zero_grad = self._guarded(optimizer.zero_grad, "optimizer.zero_grad()")
        self._advice = _ACCUMULATED if len(optimizers) < 2 else _ALTERNATING

    @contextlib.contextmanager
    def during_loop(self, *, has_own_steps: bool = False) -> Iterator[None]:
        """Within the block, watch what this thread calls: the block is a training loop over batches.

        Args:
            has_own_steps: the loop calls `optimizer.step()`, which a `Stepper` has replaced.
        """
        before, self._has_own_steps = getattr(_local, "guard", None), has_own_steps
        with _watching(), self._set(is_on=True):
            _local.guard = self
            try:
                yield
            finally:
                _local.guard = before

    def begin_step(self) -> None:
        """Note that the loop begins to compute the gradients of a step."""
        self._made, self._rates = self._scheduler_steps, None
        self.is_within_step, self._steps = True, self._steps + 1

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        """Within the block, allow the calls that the guard otherwise rejects: edl itself makes a step.

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
        self.is_within_step = False

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
        rates = (group.get("lr") for one in self._optimizers for group in one.param_groups)
        return [float(rate) for rate in rates if rate is not None]

    def before_backward(self, loss: Any, *, has_gradient: bool) -> float | None:
        """The loop computes the gradient of a loss, or goes on with one; returns a factor for it, or None."""
        if not self._is_on:
            return None
        self._rates = self._current_rates
        return self._on_loss(loss, has_gradient=has_gradient)

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """Within the block, note that gradients are computed."""
        self.is_computing = True
        try:
            with self.hearing():
                yield
                self.on_computed()
        finally:
            self.is_computing = False

    @contextlib.contextmanager
    def hearing(self) -> Iterator[None]:
        """Keep the error of the block: a loop that catches it may not go on."""
        try:
            yield
        except (PermanentError, ConfigError) as error:  # another kind, such as a lost peer, is over with the step
            self.refused = error
            raise

    def before_scaler(self, scaler: Any, name: str) -> None:
        """Called before the loop calls a method of a GradScaler: reject all but `scale` of the known scaler."""
        if name != "scale":
            self._refuse(f"scaler.{name}()", "a scaler goes to Elastic(..., scaler=scaler), which calls it")
        elif self._is_on and scaler is not self._scaler and scaler.is_enabled():
            raise PermanentError(
                "Elastic: the loop scales its loss with a GradScaler that Elastic does not know, so the gradients"
                " would stay scaled; pass Elastic(..., scaler=scaler), and let the loop call nothing of it but"
                " scaler.scale(loss).backward()"
            )

    def before_step(self, optimizer: Any) -> None:
        """Called before an optimizer makes a step: reject it if the optimizer has parameters of the model."""
        if optimizer in self._optimizers:
            self._refuse("optimizer.step()", self._advice)
        elif self._is_on and any(self._owns(p) for group in optimizer.param_groups for p in group["params"]):
            raise PermanentError(
                f"Elastic: the loop makes a step with another optimizer, a {type(optimizer).__name__} of parameters"
                " of the model; its gradients would be those of one trainer alone. Pass all of them:"
                " Elastic(job, model, [optimizer, other]), and delete their calls of step() and zero_grad()"
            )
        elif self._is_on and self._others.setdefault(optimizer, self._steps) != self._steps:
            count = sum(len(group["params"]) for group in optimizer.param_groups)
            raise PermanentError(
                f"Elastic: the loop makes steps with another optimizer, a {type(optimizer).__name__} of {count}"
                " parameters that the model of Elastic has not. Each trainer would train its own ones, on its records"
                " alone, and none would be copied or saved. Put all modules into one and pass all optimizers:"
                " Elastic(job, nn.ModuleList([model, other]), [optimizer, other_optimizer]), and delete their calls"
                " of step() and zero_grad(). For values that live for one batch, make the optimizer in each batch"
            )

    def after_group(self, optimizer: Any) -> None:
        """Called after an optimizer got a group of parameters: reject a new optimizer of the model's parameters."""
        group = optimizer.param_groups[-1]["params"]
        if self._is_on and optimizer not in self._optimizers and any(map(self._owns, group)):
            raise PermanentError(
                f"Elastic: the loop or a hook makes another optimizer, a {type(optimizer).__name__} of parameters of"
                " the model, and edl would go on with the one that Elastic was given. Make optimizers of other"
                " parameters before the loop, and pass all: Elastic(job, model, [optimizer, other]). Change an"
                " optimizer by elastic.step: the settings in optimizer.param_groups, or optimizer.state.clear(). For"
                " another kind of optimizer train the rest as a second job that begins with the model.pt of this one"
            )

    def after_schedule(self, scheduler: Any) -> None:
        """Called after a scheduler of learning rates was made: reject one that is made within the loop."""
        if self._is_on and getattr(scheduler, "optimizer", None) in self._optimizers:
            raise PermanentError(
                f"Elastic: the loop or a hook makes a scheduler, a {type(scheduler).__name__}, while the training is"
                " under way. A trainer that joins would not have it, and a scheduler that Elastic was given would go"
                " on beside it. Make all schedulers before the loop: one SequentialLR as Elastic(...,"
                " scheduler=scheduler), or state={'next': scheduler}, and elastic.step decides in a hook of"
                " on_step_end which of them steps"
            )

    def before_average(self, average: Any) -> None:
        """Called before an `AveragedModel` is updated: reject that within a step, or if edl would not save it."""
        if not self._is_on:
            return
        if self.is_within_step and not self._has_own_steps:
            raise PermanentError(
                "Elastic: the loop calls update_parameters() of an AveragedModel, but the step is made only when the"
                " loop asks for the next batch, so the average would lack the last step, and trainers with other"
                " numbers of batches would have other averages; call it in a hook of on_step_end, and pass"
                " Elastic(..., state={'average': average})"
            )
        if average not in self._kept and not self._keeps(average):
            raise PermanentError(
                "Elastic: an AveragedModel is updated that Elastic does not know, so a trainer that joins would begin"
                " another average, and none would be saved; pass Elastic(..., state={'average': average}), or call"
                " accelerator.register_for_checkpointing(average) before prepare()"
            )
        self._kept.add(average)

    def _guarded(self, inner: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            with self.hearing():
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
        """Called before the loop clips gradients: reject it, because they are only a part of the step's gradient."""
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
    """Within the block, let torch's methods call the guard of their thread; the last block to end restores them."""
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
    """Replace methods of torch by ones that call the guard of their thread first."""
    _replace_backward()
    _replace(AveragedModel, "update_parameters", lambda guard, average: guard.before_average(average))
    _replace(torch.optim.Optimizer, "add_param_group", tell_after=lambda guard, one: guard.after_group(one))
    for kind in (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau):
        _replace(kind, "__init__", tell_after=lambda guard, one: guard.after_schedule(one))
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
        with guard.hearing():
            guard.before_step(optimizer)


def _untold(_: StepGuard, __: Any) -> None:
    """Do nothing: the guard need not know of a call."""


def _replace(
    owner: Any,
    name: str,
    tell: Callable[[StepGuard, Any], object] = _untold,
    *,
    tell_after: Callable[[StepGuard, Any], object] = _untold,
) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        guard = getattr(_local, "guard", None)
        if guard is None:
            return inner(self, *args, **options)
        with guard.hearing():
            tell(guard, self)
            found = inner(self, *args, **options)
            tell_after(guard, self)
        return found

    _undo.append(functools.partial(setattr, owner, name, inner))
    setattr(owner, name, call)


def _replace_backward() -> None:
    """Let the function that computes gradients call the guard; `backward` of a tensor calls it, too."""
    inner = torch.autograd.backward

    @functools.wraps(inner)
    def call(tensors: Any, *args: Any, **options: Any) -> Any:
        guard = getattr(_local, "guard", None)
        if guard is None or guard.is_computing:  # a checkpoint computes its part again, and calls this from within
            return inner(tensors, *args, **options)
        losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = args[0] if args else options.get("grad_tensors")
        have = [given] * len(losses) if given is None or isinstance(given, torch.Tensor) else list(given)
        pairs = [(loss, one is not None and not _is_one(one)) for loss, one in zip(losses, have, strict=True)]
        with guard.hearing():
            factors = [guard.before_backward(loss, has_gradient=has_gradient) for loss, has_gradient in pairs]
        weighed = [loss if factor is None else loss * factor for loss, factor in zip(losses, factors, strict=True)]
        with guard.computing():
            return inner(weighed, *args, **options)

    _undo.append(functools.partial(setattr, torch.autograd, "backward", inner))
    torch.autograd.backward = call


def _is_one(gradient: Any) -> bool:
    return gradient.numel() == 1 and float(gradient) == 1.0


def _replace_function(owner: Any, name: str) -> None:
    """Replace a function that clips the gradients of some parameters; an infinite limit does not clip."""
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def call(parameters: Any, limit: Any, *args: Any, **options: Any) -> Any:
        guard = getattr(_local, "guard", None)
        if guard is not None and float(limit) != float("inf"):
            with guard.hearing():
                guard.before_clip(f"torch.nn.utils.{'clip_grad_value_' if 'value' in name else 'clip_grad_norm_'}")
        return inner(parameters, limit, *args, **options)

    _undo.append(functools.partial(setattr, owner, name, inner))
    setattr(owner, name, call)
