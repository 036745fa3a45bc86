"""How much the loss of a batch counts in a step: its mean may be one over records, over tokens or over weights.

The gradient of a step is the one that a single process would compute from all of its records. So a mean over n tokens
counts n times, and the sum over all batches is divided by the sum of all n. PyTorch keeps n beside the loss: the node
that computes the gradient of `cross_entropy` has the sum of the weights of the labels that are not ignored.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any, NamedTuple

from edl.errors import ConfigError, PermanentError

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

RECORDS, WEIGHT, SUM, DIVIDED = 1, 2, 3, 4
"""What the loss of a batch is: a mean over its records, a mean over something else, a sum, or a sum divided by the
records of the whole step. That number may be there by chance, so it is a mean if another batch has another one."""
_MEAN_OF_TORCH, _SUM_OF_TORCH = 1, 2
_THROUGH = re.compile(r"(ToCopy|Neg|View|UnsafeView|Reshape|Squeeze|Unsqueeze|Alias|Clone|Select|Expand)Backward")
_CURVED = re.compile(
    r"(Sqrt|Rsqrt|Reciprocal|Pow|Exp|Expm1|Log|Log1P|Log2|Log10|Tanh|Sigmoid|Softplus|Abs|Relu|LeakyRelu|Elu|Clamp"
    r"|ClampMin|ClampMax|Maximum|Minimum|Max|Min|Amax|Amin|Logsumexp|LinalgVectorNorm|Prod)Backward"
)
_SELECTION = re.compile(r"(Index|MaskedSelect)Backward")
_OF_WEIGHTS = re.compile(
    r"torch::autograd::AccumulateGrad|(Abs|Pow|Mul|Div|Sum|Mean|Norm|LinalgVectorNorm|Sqrt|View|Reshape|Add|Sub|Stack|Cat)"
    r"Backward"
)
_TERMS = re.compile(r"(Add|Sub|Rsub|Stack|Cat)Backward")
_DEEPEST, _MOST_OF_WEIGHTS = 64, 4096
UNIT = 2.0**20
"""Weights are summed as whole numbers of 1/UNIT, in any order with the same result."""


class LossKind(NamedTuple):
    """The kind of a loss: how it depends on the number of records.

    Attributes:
        kind: RECORDS, WEIGHT, SUM or DIVIDED.
        weight: over how much a loss of the kind WEIGHT or DIVIDED is a mean; else 1.
        is_divided: it is a sum that was divided, and no loss that torch knows as a mean.
        is_constant: it was divided by a number of Python's, not by a tensor such as the sum of a mask.
        ignores: some labels do not count.
        is_certain: False if the loss has terms that need different weights.
        is_known: False if nobody can see how the loss was computed, so it is taken for a mean over records.
        curve: what was computed from a mean, such as its root; empty if the loss is the mean.
        constants: the numbers of Python's by which its terms were divided, of those that are sums.
        factors: tensors of one number by which means were multiplied or divided, by their values.
        numbers: the numbers of Python's by which means were multiplied or divided.
        has_penalty: it is a sum over records plus a sum over weights.
    """

    kind: int
    weight: float = 1.0
    is_divided: bool = False
    is_constant: bool = False
    ignores: bool = False
    is_certain: bool = True
    is_known: bool = True
    curve: str = ""
    constants: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    numbers: tuple[float, ...] = ()
    has_penalty: bool = False

    @property
    def is_mean(self) -> bool:
        """True if the loss is known to be a mean.

        A sum, such as a penalty on the weights, can be added to any mean.
        """
        return self.is_known and self.kind != SUM


def kind_of(loss: Any, records: int, step_records: Container[int]) -> LossKind:
    """Recognise the kind of a loss from how it was computed; an unknown one counts as a mean over records.

    Args:
        loss: before its gradient is computed.
        records: the records of its batch.
        step_records: of the step over all trainers, and of a step that is not the last one of its epoch.

    Raises:
        PermanentError: the loss is a sum of terms that need different weights, or another function of a mean.
    """
    found = _kind(loss.grad_fn, _DEEPEST) or LossKind(RECORDS, is_known=False)
    is_divided = found.is_constant and found.weight in step_records and found.weight != records
    if found.has_penalty and (is_divided or found.kind == SUM):
        raise PermanentError(
            "Elastic: the loss is a sum over the records of the batch plus a penalty on the weights, which each part"
            " of a step would add again; train on a mean, use weight_decay= of the optimizer, or say"
            " elastic.backward(loss + penalty * len(x) / global_batch, reduction='sum')"
        )
    if found.curve:
        raise PermanentError(
            f"Elastic: the loss is computed from a mean over the batch ({found.curve} of it), so its gradient is not"
            " the mean of those of the parts of the batch, and would depend on the number of trainers; train on the"
            " mean itself, such as the mean squared error and not its root, or on a mean of what is computed for"
            " each record; elastic.backward(loss, weight=len(x)) takes the mean over the batches"
        )
    if not found.is_certain:
        raise PermanentError(
            f"Elastic: the loss is a sum of terms, of which one is a mean over {found.weight:g} labels or other"
            " chosen numbers (some do not count) and another one a mean over something else; no one weight is right"
            " for both: compute them separately, or say what counts with elastic.backward(loss, weight=...)"
        )
    if not is_divided and any(of in step_records and of != records for of in found.constants):
        raise PermanentError(
            f"Elastic: the loss is a sum of terms, of which one is divided by {max(found.constants):g}, the"
            f" records of a whole step, and another one is a mean over this batch of {records}; divide the first one"
            " by len(x)"
        )
    return found._replace(kind=DIVIDED) if is_divided else found


def _kind(node: Any, depth: int) -> LossKind | None:  # noqa: PLR0911 - one for each form of a loss
    if node is None or not depth:
        return None
    name = node.name()
    if name.startswith("NllLoss"):
        return _of_labels(node)
    inner = [of for of, _ in node.next_functions if of is not None]
    if hasattr(node, "_saved_reduction"):
        return _of_a_loss_of_torch(node, inner)
    if _THROUGH.match(name):
        return _kind(inner[0], depth - 1) if inner else None
    if _CURVED.match(name):
        of = _kind(inner[0], depth - 1) if inner else None
        return of._replace(curve=of.curve or name.partition("Backward")[0].lower()) if of and of.is_mean else None
    if _TERMS.match(name):
        return _of_terms([_kind(of, depth - 1) for of in inner], [_is_of_weights(of) for of in inner])
    if name.startswith("MeanBackward"):
        count = getattr(node, "_saved_self_sym_numel", None)
        return _of_a_selection(inner, count) or _stacked(inner, depth) or LossKind(RECORDS)
    if name.startswith("SumBackward"):
        return _stacked(inner, depth) or LossKind(SUM)
    if name.startswith(("DivBackward", "MulBackward")):
        kinds = [of for of in (_kind(one, depth - 1) for one in inner) if of is not None]
        found = next((of for of in kinds if of.curve), kinds[0] if kinds else None)
        return _scaled(node, found, is_division=name.startswith("Div"))
    return None


def _of_labels(node: Any) -> LossKind | None:
    """`cross_entropy` and `nll_loss`; torch counts the labels only for a mean."""
    if node._saved_reduction == _MEAN_OF_TORCH:  # noqa: SLF001
        ignores = bool((node._saved_target == _signed(node._saved_ignore_index)).any())  # noqa: SLF001
        return LossKind(WEIGHT, float(node._saved_total_weight), ignores=ignores)  # noqa: SLF001
    return LossKind(SUM) if node._saved_reduction == _SUM_OF_TORCH else None  # noqa: SLF001


def _signed(number: int) -> int:
    """A number of 64 bits that torch shows without its sign."""
    return number - 2**64 if number >= 2**63 else number


def _stacked(inner: list[Any], depth: int) -> LossKind | None:
    """Return the kind of the losses in a list of which the sum or mean was taken; None for any other node."""
    is_list = len(inner) == 1 and inner[0].name().startswith("StackBackward")
    return _kind(inner[0], depth - 1) if is_list else None


def _of_a_loss_of_torch(node: Any, inner: list[Any]) -> LossKind | None:
    """Return the kind of a loss function of torch such as `mse_loss`, whose mean is over all numbers of its input."""
    if node._saved_reduction != _MEAN_OF_TORCH:  # noqa: SLF001
        return LossKind(SUM) if node._saved_reduction == _SUM_OF_TORCH else None  # noqa: SLF001
    of = getattr(node, "_saved_self", None)
    found = _of_a_selection(inner, of.numel() if of is not None else None) or LossKind(RECORDS)
    weight = getattr(node, "_saved_pos_weight", None)
    return found._replace(factors=(float(weight),)) if weight is not None and weight.numel() == 1 else found


def _of_a_selection(inner: list[Any], count: int | None) -> LossKind | None:
    """A mean over the numbers at some places, which may be more of them in one batch than in another."""
    of = inner[0] if inner else None
    while of is not None and _THROUGH.match(of.name()):
        of = of.next_functions[0][0]
    if of is None or count is None or not _SELECTION.match(of.name()):
        return None
    places = getattr(of, "_saved_indices", None)
    is_mask = places is None or any(one is not None and one.dtype in {torch.bool, torch.uint8} for one in places)
    return LossKind(WEIGHT, float(count), ignores=is_mask)


def _is_of_weights(node: Any) -> bool:
    """True if a term is computed from parameters alone, number by number."""
    ahead, seen = [node], set[Any]()
    while ahead and len(seen) < _MOST_OF_WEIGHTS:
        of = ahead.pop()
        if of in seen:
            continue
        seen.add(of)
        if not _OF_WEIGHTS.match(of.name()):
            return False
        ahead += [one for one, _ in of.next_functions if one is not None]
    return not ahead


def _of_terms(found: list[LossKind | None], are_of_weights: list[bool]) -> LossKind | None:
    """A sum of losses; a sum without a mean, such as a penalty on the weights, is the same for all batches."""
    known = [of for of in found if of is not None]
    if curved := next((of for of in known if of.curve), None):
        return curved
    has_penalty = len(set(are_of_weights)) > 1 or any(of.has_penalty for of in known)
    means = [of for of in known if of.kind != SUM and not of.is_divided] or [of for of in known if of.kind != SUM]
    weights = {of.weight for of in means if of.kind == WEIGHT}
    if not means:
        return known[0]._replace(has_penalty=has_penalty) if known else None
    names = ("factors", "numbers", "constants")
    factors, numbers, constants = (sum((getattr(of, name) for of in known), ()) for name in names)
    if not weights:
        return means[0]._replace(factors=factors, numbers=numbers, constants=constants)
    ignores = any(of.ignores for of in means)
    is_clear = len(weights) == 1 and not (ignores and any(of.kind == RECORDS for of in means))
    is_clear = is_clear and all(of.is_certain for of in means)
    is_divided, is_constant = (all(getattr(of, name) for of in means) for name in ("is_divided", "is_constant"))
    whole = LossKind(WEIGHT, max(weights), is_divided, is_constant, ignores, is_clear)
    return whole._replace(factors=factors, numbers=numbers, constants=constants, has_penalty=has_penalty)


def _scaled(node: Any, found: LossKind | None, *, is_division: bool) -> LossKind | None:
    """Return the kind of a loss after it is multiplied or divided: a divided sum becomes a mean, a mean stays one."""
    other = getattr(node, "_saved_other", None)
    if found is not None and found.is_mean:
        factors, numbers = _factors_of(node)
        return found._replace(factors=found.factors + factors, numbers=found.numbers + numbers)
    if found is None or found.kind != SUM or not is_division or other is None:
        return found
    if isinstance(other, torch.Tensor) and other.numel() != 1:
        return found
    value, is_number = float(other.detach() if isinstance(other, torch.Tensor) else other), _is_number(other)
    constants = (value,) if is_number else ()
    return LossKind(WEIGHT, value, is_divided=True, is_constant=is_number, constants=constants)


def _factors_of(node: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Tensors of one number, and Python's numbers, by which a mean is multiplied or divided; none has a gradient."""
    if sum(of is not None for of, _ in node.next_functions) != 1:
        return (), ()
    every = [getattr(node, f"_saved_{side}", None) for side in ("self", "other")]
    found = [one for one in every if one is not None and (not isinstance(one, torch.Tensor) or one.numel() == 1)]
    tensors, numbers = ([float(one) for one in found if _is_number(one) is is_number] for is_number in (False, True))
    return tuple(tensors), tuple(numbers)


def _is_number(other: Any) -> bool:
    """True for a number of Python's, which yields to the type of any tensor."""
    if not isinstance(other, torch.Tensor):
        return True
    small = torch.ones((), dtype=torch.float16 if other.is_floating_point() else torch.int8)
    return bool(torch.result_type(small, other) == small.dtype)
