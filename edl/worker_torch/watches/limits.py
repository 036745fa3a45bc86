"""Rejects changes that a loop makes to the gradients of one batch, but that only suit the gradients of a whole step.

Factors and masks that do not depend on the gradients are left alone: with them the sum of the parts is that of the
whole. A limit, a choice of the largest, noise, or other weights in between make another step for each number of
trainers. Of what the loop does after `backward` only the first numbers of each gradient are seen, in some batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from edl.errors import ConfigError, PermanentError
from edl.worker_torch.portable import bits_of, local_of, version_of
from edl.worker_torch.state import TrainState

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_SAMPLE, _ENOUGH, _EVERY = 65_536, 8, 64
_SHARE = 0.01  # of the time, for looking at weights
_CHOSEN, _SAME_NORM, _OTHER_NORM, _NORMS = 16, 1e-4, 0.02, 3
_REMEDY = (
    "The gradient in hand is a part of that of the step, so the step would depend on the number of trainers; do it to"
    " the sum: optimizer.register_step_pre_hook(function) calls function(optimizer, *_) in every trainer before each"
    " step, when parameter.grad is the gradient of the step"
)


class _Norms(NamedTuple):
    """The norm of all gradients of a batch together, and the norm of the first one."""

    every: float
    first: float


class _Seen(NamedTuple):
    """The gradients, their norms and the random state as they were when the loop had computed them for a batch."""

    gradients: list[tuple[Any, Any]]  # parameter, the first numbers of its gradient
    norms: _Norms
    random: Any


class LimitWatch:
    """Watches what a loop, and hooks of parameters, do to gradients.

    Args:
        state: whose parameters have gradients.
    """

    def __init__(self, state: TrainState) -> None:
        self._state, self._pieces = state, 0
        self._before: _Seen | None = None
        self._versions: list[int] = []
        self._bits: list[int] = []  # of the weights, as the loop had them when it computed gradients
        self._since_s, self._spent_s = time.monotonic(), 0.0
        self._limited: list[tuple[_Norms, _Norms]] = []  # before and after the loop changed them
        self._is_due = False

    def begin_piece(self, parameters: list[Any], is_computing: Callable[[], bool]) -> None:
        """Begin a batch, and check the hooks of parameters from now on.

        Args:
            parameters: those that the optimizers have.
            is_computing: True while the loop computes gradients.
        """
        self._pieces, self._before, self._versions, self._bits = self._pieces + 1, None, [], []
        self._is_due = not self._pieces & (self._pieces - 1) or not self._pieces % _EVERY
        for parameter in parameters if self._state.shards < 2 else ():
            hooks = parameter._backward_hooks or {}  # noqa: SLF001 - torch has no other name for them
            late = parameter._post_accumulate_grad_hooks or {}  # noqa: SLF001
            for key, hook in hooks.items():
                if not isinstance(hook, _CheckedHook):
                    hooks[key] = _CheckedHook(hook, self._state.name_of(parameter), is_computing)
            for key, hook in late.items():
                if not isinstance(hook, _CheckedLateHook):
                    late[key] = _CheckedLateHook(hook, self._state.name_of(parameter), is_computing)

    def note(self, parameters: list[Any]) -> None:
        """Save the gradients that the loop has just computed, to see later what it changes in them.

        Raises:
            PermanentError: it has changed weights since it computed others of the same batch.
        """
        self._check_weights(parameters)
        self._versions = [version_of(one) for one in parameters]
        self._bits = self._looked_at(parameters)
        if self._is_due:
            found = [(one, _sample(one.grad).clone()) for one in _with_gradient(parameters)]
            self._before = _Seen(found, self._norms(parameters), torch.get_rng_state())

    def end_piece(self, parameters: list[Any]) -> None:
        """Check at the end of a batch what the loop has changed in its gradients and weights.

        Raises:
            PermanentError: it has done to a gradient, or to weights, what depends on the batch.
        """
        self._check_weights(parameters)
        if self._before is None:
            return
        is_random = not torch.equal(torch.get_rng_state(), self._before.random)
        has_changed = False
        for parameter, before in self._before.gradients:
            after = _sample(parameter.grad) if parameter.grad is not None else before
            if not torch.equal(after, before) and bool(torch.isfinite(before).all()):
                has_changed = True
                self._check(self._state.name_of(parameter), before, after, is_random=is_random)
        if has_changed and self._state.shards < 2:
            self._check_norms(self._before.norms, self._norms(parameters))
        self._before = None

    def _check(self, name: str, before: Any, after: Any, *, is_random: bool) -> None:
        changed = after != before
        if int(changed.sum()) >= _ENOUGH and torch.equal(after, before.clamp(after.min(), after.max())):
            raise PermanentError(
                f"Elastic: the loop limits the gradient of {name} to values from {float(after.min()):g} to"
                f" {float(after.max()):g}. The gradient in hand is a part of that of the step, which has other"
                " values; pass Elastic(..., max_grad_norm=1.0), and delete what limits gradients in the loop"
            )
        size, is_kept, is_dropped = before.abs(), after != 0, (after == 0) & (before != 0)
        has_both = min(int(is_kept.sum()), int(is_dropped.sum())) >= _CHOSEN
        if has_both and float(size[is_kept].min()) >= float(size[is_dropped].max()):
            raise PermanentError(
                f"Elastic: the loop keeps the largest numbers of the gradient of {name} and drops the others."
                f" {_REMEDY}"
            )
        if int(is_kept.sum()) >= _CHOSEN and float(after.abs().max()) == float(after[is_kept].abs().min()):
            raise PermanentError(f"Elastic: the loop keeps of the gradient of {name} the signs only. {_REMEDY}")
        factors = after[is_kept] / before[is_kept]
        if is_random and len(factors) >= _ENOUGH and not torch.allclose(factors, factors[0], rtol=1e-3):
            raise PermanentError(
                f"Elastic: the loop adds to the gradient of {name} or multiplies it with random numbers. {_REMEDY},"
                " and draw from torch.Generator().manual_seed(elastic.step), so that all trainers draw the same"
            )

    def _check_norms(self, before: _Norms, after: _Norms) -> None:
        """Reject a loop that brings the gradients of several batches to one norm, which they did not have before."""
        self._limited = [*self._limited, (before, after)][-_NORMS:]
        for place in range(len(after)):
            was, now = ([pair[side][place] for pair in self._limited] for side in (0, 1))
            is_same = max(now) - min(now) <= _SAME_NORM * max(now)
            if len(now) == _NORMS and is_same and max(was) - min(was) > _OTHER_NORM * max(was):
                raise PermanentError(
                    f"Elastic: the loop limits gradients: in {_NORMS} batches they had norms from {min(was):g} to"
                    f" {max(was):g}, and {max(now):.3g} when the loop was done with them. The gradient in hand is a"
                    " part of that of the step, which has another norm; pass Elastic(..., max_grad_norm="
                    f"{max(now):.3g}), and delete what limits gradients in the loop"
                )

    def _check_weights(self, parameters: list[Any]) -> None:
        """Reject a loop that changes weights after it has computed a gradient from them."""
        if not self._versions or self._state.shards > 1:
            return
        bits = self._looked_at(parameters) if self._bits else []  # writing to parameter.data changes no version
        for index, (parameter, version) in enumerate(zip(parameters, self._versions, strict=True)):
            if version_of(parameter) != version or (bits and bits[index] != self._bits[index]):
                raise PermanentError(
                    f"Elastic: the loop changes {self._state.name_of(parameter)} after it computed a gradient, and"
                    " the step is made only when the loop asks for the next batch. What limits weights after a step"
                    " belongs into a hook of on_step_end. A script that moves the weights by a gradient before it"
                    " computes another one, such as SAM, has the gradient of a part of the step only, so the step"
                    " would depend on the number of trainers; that is not offered"
                )

    def _looked_at(self, parameters: list[Any]) -> list[int]:
        """The bits of all weights; empty if that would take too much of the time, or if the model is in shards."""
        began_s = time.monotonic()
        is_in_time = self._spent_s <= _SHARE * (began_s - self._since_s)
        if self._state.shards > 1 or not (is_in_time or self._is_due or self._bits):
            return []
        local = [local_of(parameter.detach()) for parameter in parameters]
        have_bits = [type(one) is torch.Tensor and one.layout == torch.strided for one in local]  # not all kinds have
        found = [bits_of(one) if has_bits else 0 for one, has_bits in zip(local, have_bits, strict=True)]
        self._spent_s += time.monotonic() - began_s
        return found

    def _norms(self, parameters: list[Any]) -> _Norms:
        if self._state.shards > 1:
            return _Norms(0.0, 0.0)
        found = [float(one.grad.detach().norm()) for one in _with_gradient(parameters)]
        return _Norms(sum(one * one for one in found) ** 0.5, found[0] if found else 0.0)


class _CheckedHook:
    """A hook of a parameter that may scale or mask its gradient, and nothing else."""

    def __init__(self, hook: Callable[[Any], Any], name: str, is_computing: Callable[[], bool]) -> None:
        self._hook, self._name, self._is_computing = hook, name, is_computing

    def __call__(self, gradient: Any) -> Any:
        if not self._is_computing() or not torch.isfinite(gradient).all():
            return self._hook(gradient)
        whole = gradient.detach().clone()
        found = self._hook(gradient)
        if (found is not None or not torch.equal(gradient, whole)) and not self._adds_up(
            whole, gradient if found is None else found
        ):
            raise self._refused()
        return found

    def _refused(self) -> PermanentError:
        return PermanentError(
            f"Elastic: a hook of the parameter {self._name} (register_hook) does more to its gradient than to"
            f" scale or mask it. {_REMEDY}. To limit gradients pass Elastic(..., max_grad_norm=1.0), and add a"
            " penalty to the loss"
        )

    def _adds_up(self, whole: Any, found: Any) -> bool:
        """Test if the hook is linear: the results for two parts of a gradient add up to that for the whole."""
        if not whole.numel():
            return True
        share = torch.arange(whole.numel(), device=whole.device).view(whole.shape).cos().to(whole.dtype)
        first = whole * (share / 4 + 0.5)
        near = 64 * torch.finfo(whole.dtype).eps
        both = self._of(first) + self._of(whole - first)
        return bool(torch.allclose(both, found, near, near * float(whole.abs().max())))

    def _of(self, part: Any) -> Any:
        mine = part.clone()
        found = self._hook(mine)
        return mine if found is None else found


class _CheckedLateHook(_CheckedHook):
    """The same for a hook that is called with the parameter, once it has its gradient."""

    def __call__(self, parameter: Any) -> Any:
        gradient = parameter.grad
        if gradient is None or not self._is_computing() or not torch.isfinite(gradient).all():
            return self._hook(parameter)
        whole = gradient.detach().clone()
        self._hook(parameter)
        found = parameter.grad
        if found is None or torch.equal(found, whole):
            return None
        self._parameter = parameter
        adds_up = self._adds_up(whole, found)
        parameter.grad = found
        if not adds_up:
            raise self._refused()
        return None

    def _of(self, part: Any) -> Any:
        self._parameter.grad = part.clone()
        self._hook(self._parameter)
        return self._parameter.grad


def _with_gradient(parameters: list[Any]) -> list[Any]:
    return [one for one in parameters if one.grad is not None and one.grad.layout == torch.strided]


def _sample(gradient: Any) -> Any:
    return local_of(gradient.detach()).reshape(-1)[:_SAMPLE]
