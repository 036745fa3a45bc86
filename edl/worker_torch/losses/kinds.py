"""How much the loss of a batch counts in a step: its mean may be one over records, over tokens or over weights.

The gradient of a step is the one that a single process would compute from all of its records. So a mean over n tokens
counts n times, and the sum over all batches is divided by the sum of all n. PyTorch keeps n beside the loss: the node
that computes the gradient of `cross_entropy` has the sum of the weights of the labels that are not ignored.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Container
from typing import Any, NamedTuple

from edl.errors import ConfigError, PermanentError
from edl.worker_torch.losses.scales import THROUGH, factors_of, is_nothing, scale_below, shape_of

try:
    import torch
    from torch.nn import Parameter
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

RECORDS, WEIGHT, SUM, DIVIDED = 1, 2, 3, 4
"""What the loss of a batch is: a mean over its records, a mean over something else, a sum, or a sum divided by the
records of the whole step. That number may be there by chance, so it is a mean if another batch has another one."""
_MEAN_OF_TORCH, _SUM_OF_TORCH = 1, 2
_CURVED = re.compile(
    r"(Sqrt|Rsqrt|Reciprocal|Pow|Exp|Expm1|Log|Log1P|Log2|Log10|Tanh|Sigmoid|Softplus|Abs|Relu|LeakyRelu|Elu|Clamp"
    r"|ClampMin|ClampMax|Maximum|Minimum|Max|Min|Amax|Amin|Logsumexp|LinalgVectorNorm|Prod)Backward"
)
_SELECTION = re.compile(r"(Index|MaskedSelect|Take)Backward")
_OF_WEIGHTS = re.compile(
    r"torch::autograd::AccumulateGrad|(Abs|Pow|Mul|Div|Sum|Mean|Norm|LinalgVectorNorm|Sqrt|View|Reshape|Add|Sub|Stack|Cat"
    r"|Rsub|Neg|Exp|Expm1|Log|Log1P|Log2|Softplus|Sigmoid|Tanh|Rsqrt|Reciprocal|Select|Slice|Unsqueeze|Squeeze|Expand|T"
    r"|Transpose|Permute|UnsafeView|Clone|Alias|ToCopy|Relu|Clamp|ClampMin|Logsumexp)Backward"
)
_MATRIX = re.compile(r"(Mm|Bmm|Mv|Dot|Softmax|LogSoftmax|LinalgSvd|LinalgEigh|LinalgQr)Backward")
_LOSS_OF_TORCH = re.compile(r"(Mse|SmoothL1|Huber)LossBackward")
_TERMS = re.compile(r"(Add|Sub|Rsub|Stack|Cat)Backward")
_LISTS = ("Stack", "Cat")
_DEEPEST, _MOST_OF_WEIGHTS, _MOST_TERMS = 64, 4096, 4096
_NEITHER, _GROWN, _OF_A_MATRIX = -1, 1, 2
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
        doubt: why no one weight is right for it; empty if one is.
        is_known: False if nobody can see how the loss was computed, so it is taken for a mean over records.
        curve: what was computed from a mean, such as its root; empty if the loss is the mean.
        constants: the numbers of Python's by which its terms were divided, of those that are sums.
        factors: tensors of one number by which it, or a sum of it, was multiplied or divided, by their values.
        numbers: the numbers of Python's by which it, or a sum of it, was multiplied or divided.
        has_penalty: it is a sum over records plus a sum over weights.
        is_part: it is a mean over rows that are not those of the batch, such as those of a part of it.
        is_odd: it was divided by a number of Python's alone that is no multiple of the records.
        has_records: it is not the loss yet, but a tensor in which a mean meets numbers of each record.
        are_rows: it is a sum of losses, one for each record.
        share: the largest one of weights of the records that add up to 1 or to the records; 0 for none.
    """

    kind: int
    weight: float = 1.0
    is_divided: bool = False
    is_constant: bool = False
    ignores: bool = False
    doubt: str = ""
    is_known: bool = True
    curve: str = ""
    constants: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    numbers: tuple[float, ...] = ()
    has_penalty: bool = False
    is_part: bool = False
    is_odd: bool = False
    has_records: bool = False
    are_rows: bool = False
    share: float = 0.0

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
    found = _Reading(records).kind(loss.grad_fn, _DEEPEST) or LossKind(RECORDS, is_known=False)
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
    if not is_divided and any(of in step_records and of != records for of in found.constants):
        raise PermanentError(
            f"Elastic: the loss is a sum of terms, of which one is divided by {max(found.constants):g}, the"
            f" records of a whole step, and another one is a mean over this batch of {records}; divide the first one"
            " by len(x)"
        )
    divisors = (found.weight, *found.numbers)
    is_odd = found.is_constant and not is_divided and not any(one and not one % records for one in divisors)
    return found._replace(kind=DIVIDED) if is_divided else found._replace(is_odd=is_odd)


class _Reading:
    """Reads the kind of a loss from the functions that have computed it, from the last one on.

    Args:
        records: the records of the batch.
    """

    def __init__(self, records: int) -> None:
        self._records = records
        self._of_weights: dict[Any, int] = {}

    def kind(self, node: Any, depth: int) -> LossKind | None:  # noqa: PLR0911 - one for each form of a loss
        """The kind of what was computed from all records; None for a tensor that still has them, and if unknown."""
        if node is None or not depth:
            return None
        name = node.name()
        if name.startswith("NllLoss"):
            return _of_labels(node, self._records)
        inner = [of for of, _ in node.next_functions if of is not None]
        if hasattr(node, "_saved_reduction"):
            return self._of_a_loss_of_torch(node, inner)
        if THROUGH.match(name):
            return self.kind(inner[0], depth - 1) if inner else None
        if _CURVED.match(name):
            of = self.kind(inner[0], depth - 1) if inner else None
            return of._replace(curve=of.curve or name.partition("Backward")[0].lower()) if of and of.is_mean else None
        if _TERMS.match(name):
            return self._of_terms(node, depth)
        if name.startswith(("MeanBackward", "SumBackward")):
            return self._of_a_reduction(node, inner, depth)
        if name.startswith(("DivBackward", "MulBackward")):
            return self._of_a_product(node, inner, depth)
        return None

    def _of_a_reduction(self, node: Any, inner: list[Any], depth: int) -> LossKind | None:
        """A mean or a sum; over other axes than that of the records it leaves the kind what it is."""
        is_mean, sizes = node.name().startswith("Mean"), tuple(node._saved_self_sym_sizes)  # noqa: SLF001
        below = self.kind(inner[0], depth - 1) if inner else None
        if below is not None and not below.has_records and not below.curve:
            is_of_rows = is_mean and below.are_rows and sizes == (self._records,)
            return LossKind(RECORDS) if is_of_rows else below
        axis = self._axis(sizes)
        places = [_signed(one) % len(sizes) for one in getattr(node, "_saved_dim", ())] or range(len(sizes))
        if (axis or 0) not in places:
            return None
        scale = scale_below(inner[0] if inner else None, self._records)
        if not is_mean:
            return self._sum_times(LossKind(SUM, share=scale.share), scale.factors, scale.numbers)
        found = _of_a_selection(inner, getattr(node, "_saved_self_sym_numel", None)) or self._mean_over(sizes)
        return found._replace(share=scale.share)

    def _mean_over(self, sizes: tuple[int, ...]) -> LossKind:
        """A mean over the records, or over rows that are others, such as those of a part of the batch."""
        if self._axis(sizes) is not None:
            return LossKind(RECORDS)
        return LossKind(WEIGHT, float(sizes[0]), is_part=True)

    def _axis(self, sizes: tuple[int, ...]) -> int | None:
        """The axis with one place, or some, for each record; time may go before it."""
        if (
            sizes
            and sizes[0]
            and not sizes[0] % self._records
            and not (self._records == 1 < sizes[0] and 1 in sizes[1:2])
        ):
            return 0
        return 1 if len(sizes) > 1 and sizes[0] > 1 and sizes[1] == self._records else None

    def _of_a_loss_of_torch(self, node: Any, inner: list[Any]) -> LossKind | None:
        """Such as `mse_loss`, whose mean is one over all numbers that it got."""
        of = getattr(node, "_saved_self", None)
        if node._saved_reduction != _MEAN_OF_TORCH:  # noqa: SLF001
            return LossKind(SUM) if node._saved_reduction == _SUM_OF_TORCH else None  # noqa: SLF001
        found = self._mean_over(tuple(of.shape)) if of is not None and of.dim() else LossKind(RECORDS)
        found = _of_a_selection(inner, of.numel() if of is not None else None) or found
        weight = getattr(node, "_saved_pos_weight", None)
        return found._replace(factors=(float(weight),)) if weight is not None and weight.numel() == 1 else found

    def _of_terms(self, node: Any, depth: int) -> LossKind | None:
        every = _terms_of(node)
        terms = [of for of in every if not is_nothing(of)] or every
        are_of_weights = [self._is_of_weights(of) for of in terms]
        is_penalty = not all(are_of_weights)  # what is of weights does not count beside other terms
        kinds = [
            None if own and is_penalty else self.kind(of, depth - 1)
            for of, own in zip(terms, are_of_weights, strict=True)
        ]
        has_records = any(of is None and not own for of, own in zip(kinds, are_of_weights, strict=True))
        found = _of_kinds(kinds, are_of_weights, self._records)
        if found is not None and found.kind == SUM:  # each term may have the factor of a record or a class of its own
            found = found._replace(factors=(), numbers=())
        return found and found._replace(has_records=has_records and _is_many(node))

    def _of_a_product(self, node: Any, inner: list[Any], depth: int) -> LossKind | None:
        kinds = [self.kind(one, depth - 1) for one in inner]
        known = [of for of in kinds if of is not None]
        has_records = any(of is None and not self._is_of_weights(one) for of, one in zip(kinds, inner, strict=True))
        if not known:
            return None
        found = next((of for of in known if of.curve), known[0])
        found = found._replace(has_records=has_records and _is_many(node))
        factors, numbers = factors_of(node)
        if found.is_mean:
            return found._replace(factors=found.factors + factors, numbers=found.numbers + numbers)
        if not node.name().startswith("Div") or not (factors or numbers):
            return self._sum_times(found, factors, numbers)
        (divisor,) = factors or numbers  # a sum that is divided by a number is a mean
        is_constant = bool(numbers)
        return LossKind(
            WEIGHT, divisor, is_divided=True, is_constant=is_constant, constants=numbers, share=found.share
        )

    def _sum_times(self, found: LossKind, factors: tuple[float, ...], numbers: tuple[float, ...]) -> LossKind:
        """A sum that is multiplied; what one record is multiplied by may be its own weight."""
        if self._records == 1:
            return found
        return found._replace(factors=found.factors + factors, numbers=found.numbers + numbers)

    def _is_of_weights(self, node: Any) -> bool:
        """True if a term is computed from parameters alone."""
        known, opened, ahead = self._of_weights, dict[Any, tuple[int, list[Any]]](), [node]
        most = len(known) + _MOST_OF_WEIGHTS
        while ahead:
            of = ahead[-1]
            if of not in known and of not in opened:
                inner = [one for one, _ in of.next_functions if one is not None]
                if (form := _form(of, inner)) != _NEITHER:
                    opened[of] = form, inner
                    ahead += [one for one in inner if one not in known]
                    continue
            ahead.pop()
            if of in opened:
                form, inner = opened.pop(of)
                forms = {form, *(known[one] for one in inner)}
                known[of] = _NEITHER if _NEITHER in forms else functools.reduce(operator.or_, forms)
            if known.setdefault(of, _NEITHER) == _NEITHER or len(known) + len(opened) > most:
                known.update(dict.fromkeys((*opened, node), _NEITHER))  # all that is computed from it
                break
        return known[node] not in {_NEITHER, _GROWN | _OF_A_MATRIX}


def _of_labels(node: Any, records: int) -> LossKind | None:
    """`cross_entropy` and `nll_loss`; torch counts the labels only for a mean."""
    labels, weights = node._saved_target, node._saved_weight  # noqa: SLF001
    if node._saved_reduction == _MEAN_OF_TORCH:  # noqa: SLF001
        ignores = bool((labels == _signed(node._saved_ignore_index)).any())  # noqa: SLF001
        factors = (
            (float(weights.double() @ torch.arange(len(weights)).cos().to(weights.double())),)
            if weights is not None
            else ()
        )
        return LossKind(
            WEIGHT,
            float(node._saved_total_weight),  # noqa: SLF001
            ignores=ignores,
            factors=factors,
            is_part=bool(labels.numel() % records),
        )
    is_sum = node._saved_reduction == _SUM_OF_TORCH  # noqa: SLF001
    return LossKind(SUM) if is_sum else None


def _signed(number: int) -> int:
    """A number of 64 bits that torch shows without its sign."""
    return number - 2**64 if number >= 2**63 else number


def _of_a_selection(inner: list[Any], count: int | None) -> LossKind | None:
    """A mean over the numbers at some places, which may be more of them in one batch than in another."""
    of = inner[0] if inner else None
    while of is not None and THROUGH.match(of.name()):
        of = of.next_functions[0][0]
    if of is None or count is None or not _SELECTION.match(of.name()):
        return None
    places = getattr(of, "_saved_indices", None)
    is_mask = places is None or any(one is not None and one.dtype in {torch.bool, torch.uint8} for one in places)
    return LossKind(WEIGHT, float(count), ignores=is_mask)


def _is_many(node: Any) -> bool:
    """True if an output has several numbers."""
    return math.prod(shape_of(node) or ()) > 1


def _form(node: Any, inner: list[Any]) -> int:
    """How a function may be a part of a term of parameters alone, by its operands without a gradient, as data are.

    None is allowed in a product of matrices, and elsewhere none that makes the output larger than the parameter.
    """
    name = node.name()
    if _is_listed(name):
        if not inner:
            return 0 if isinstance(node.variable, Parameter) else _GROWN
        is_met = len(inner) == 1 < len(node.next_functions)
        return _GROWN if is_met and shape_of(node) != shape_of(inner[0]) else 0
    if _MATRIX.match(name):
        return _OF_A_MATRIX if len(inner) == len(node.next_functions) else _NEITHER
    is_of_one = len(inner) == 1 and isinstance(getattr(inner[0], "variable", None), Parameter)
    return _OF_A_MATRIX if is_of_one and _LOSS_OF_TORCH.match(name) else _NEITHER


@functools.cache
def _is_listed(name: str) -> bool:
    return bool(_OF_WEIGHTS.match(name))


def _terms_of(node: Any) -> list[Any]:
    """The terms of a sum of sums, and of a list of losses."""
    ahead, found = [node], list[Any]()
    while ahead:
        of = ahead.pop()
        is_sum = of is node or (_TERMS.match(of.name()) and not of.name().startswith(_LISTS))
        if is_sum and len(found) + len(ahead) < _MOST_TERMS:
            ahead += [one for one, _ in of.next_functions if one is not None]
        else:
            found.append(of)
    return found


def _of_kinds(kinds: list[LossKind | None], are_of_weights: list[bool], records: int) -> LossKind | None:
    """A sum of losses; what is computed from weights alone, such as a penalty, is the same for all batches."""
    known = [of for of in kinds if of is not None]
    if first := next((of for of in known if of.curve or of.doubt), None):
        return first
    pairs = [(of, own) for of, own in zip(kinds, are_of_weights, strict=True) if of is not None]
    has_penalty = len(set(are_of_weights)) > 1 or any(of.has_penalty for of in known)
    found = [of for of, own in pairs if not own] or known
    sums, means = [of for of in found if of.kind == SUM], [of for of in found if of.kind != SUM]
    if not means:
        return sums[0]._replace(has_penalty=has_penalty) if sums else None
    whole = _of_means(means, records)
    if sums:
        whole = whole._replace(doubt="the loss is a sum of terms, of which one is a sum over records, and one a mean")
    names = ("factors", "numbers", "constants")
    factors, numbers, constants = (sum((getattr(of, name) for of in means), ()) for name in names)
    share = max(of.share for of in found)
    return whole._replace(factors=factors, numbers=numbers, constants=constants, has_penalty=has_penalty, share=share)


def _of_means(means: list[LossKind], records: int) -> LossKind:
    parts = [of for of in means if of.is_part]
    if len(parts) == len(means) == records and len({of.weight for of in parts}) == 1:
        return LossKind(SUM, are_rows=True)  # a loss of each record
    if len(means) == 1:
        return means[0]
    weights = {float(f"{of.weight:.5g}") for of in means if of.kind == WEIGHT}  # but for the order of a sum
    has_means = len(weights) > 1 or any(of.kind == RECORDS for of in means)
    are_of_records = all(not weight % records for weight in weights)
    is_clear = not parts and not (has_means and (any(of.ignores for of in means) or not are_of_records))
    if not is_clear:
        text = (
            f"the loss is a sum of terms, of which one is a mean over {max(weights):g} labels or other chosen numbers"
            " (some do not count) and another one a mean over something else"
        )
        return LossKind(WEIGHT, max(weights), doubt=text)
    if has_means:
        return LossKind(RECORDS)
    is_divided, is_constant = (all(getattr(of, name) for of in means) for name in ("is_divided", "is_constant"))
    return LossKind(WEIGHT, max(weights), is_divided, is_constant, any(of.ignores for of in means))
