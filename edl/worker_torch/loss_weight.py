"""How much the loss of a batch counts in a step: its mean may be one over records, over tokens or over weights.

The gradient of a step is the one that a single process would compute from all of its records. So a mean over n tokens
counts n times, and the sum over all batches is divided by the sum of all n. PyTorch keeps n beside the loss: the node
that computes the gradient of `cross_entropy` has the sum of the weights of the labels that are not ignored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container
from typing import Any, NamedTuple

from edl.errors import ConfigError, PermanentError
from edl.worker.step_settings import Piece

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
_CURVED = re.compile(r"(Sqrt|Rsqrt|Reciprocal|Pow|Exp|Expm1|Log|Log1P|Log2|Log10|Tanh|Sigmoid|Softplus)Backward")
_TERMS = re.compile(r"(Add|Sub|Rsub|Stack|Cat)Backward")
_DEEPEST = 64
UNIT = 2.0**20
"""Weights are summed as whole numbers of 1/UNIT, in any order with the same result."""
_log = logging.getLogger(__name__)


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
    """

    kind: int
    weight: float = 1.0
    is_divided: bool = False
    is_constant: bool = False
    ignores: bool = False
    is_certain: bool = True
    is_known: bool = True
    curve: str = ""

    @property
    def is_mean(self) -> bool:
        """True if it is known to be a mean; a sum, such as a penalty on the weights, goes along with any mean."""
        return self.is_known and self.kind != SUM


class LossBook:
    """How much the batches of a step count, by their losses.

    Args:
        shards: over how many processes each parameter is spread; 0 if each process has all of them.

    Attributes:
        kind: the kind of the losses of this step; 0 if there was none.
        weight: over how much they are means, in units of 1/UNIT.
        varies: sums of this job were divided by numbers other than the records of a step.
        global_batch: records of a step that is not the last one of its epoch; 0 if that is not known.
    """

    def __init__(self, shards: int) -> None:
        self._shards, self.global_batch, self.varies = shards, 0, False
        self.kind = self.weight = 0
        self._divisors: set[float] = set()
        self._piece: Piece | None = None
        self._loss: LossKind | None = None
        self._is_said = self._has_warned = False

    @property
    def divisor(self) -> int:
        """The divisor of losses of the kind DIVIDED; 0 if there is none, or if they have several."""
        return int(min(self._divisors)) if len(self._divisors) == 1 else 0

    def begin_step(self) -> None:
        """No batch has counted yet."""
        self.kind = self.weight = 0
        self._divisors.clear()

    def begin_piece(self, piece: Piece) -> None:
        """A batch comes."""
        self._piece, self._loss, self._is_said = piece, None, False

    def say(self, kind: LossKind) -> None:
        """The script says what the loss of this batch is.

        Raises:
            PermanentError: it has said something else of another loss of the same batch.
        """
        if self._loss is not None and self._loss[:2] != kind[:2]:
            raise differ(self._loss, kind)
        self._loss, self._is_said = kind, True

    def note(self, loss: Any) -> float | None:
        """The loop computes the gradient of a loss; returns a factor for it if its gradient is summed at once."""
        piece = self._piece
        if piece is None:
            return None
        before = self._loss
        if not self._is_said:
            self._recognise(loss, piece)
        if self._shards < 2:
            return None
        if before is not None and self._loss is not None and before[:2] != self._loss[:2]:
            raise differ(before, self._loss)  # the gradient of the first one is part of the sum already
        return self._factor(piece)[0] * self._shards  # FSDP takes the mean over its processes

    def end_piece(self, piece: Piece, *, has_gradient: bool) -> float:
        """The loop has trained on a batch; returns the factor of its gradients.

        Raises:
            PermanentError: its loss does not go with those of other batches, or nobody has seen it.
        """
        factor, weight = self._factor(piece)
        if has_gradient and piece.weight:
            loss = self._loss or LossKind(RECORDS)
            self.varies |= bool(weight) and loss.is_constant and loss.kind == WEIGHT
            self.kind = common({self.kind, loss.kind})
            self.weight += weight
            self._divisors.add(loss.weight)
        if has_gradient and self._shards > 1 and self._loss is None:
            raise unseen()
        self._piece = None
        return factor

    def _recognise(self, loss: Any, piece: Piece) -> None:
        """The loop has not said how a loss counts."""
        records = piece.end - piece.start
        whole = {round(records / piece.weight)} if piece.weight else set[int]()
        found, before = kind_of(loss, records, {*whole, self.global_batch}), self._loss
        if not found.is_known and not self._has_warned:
            self._has_warned = True
            _say_unknown(loss)
        if before is None or (found.is_mean and not before.is_mean):
            self._loss = found
        elif found.is_mean and found[:2] != before[:2] and piece.weight < 1.0:
            raise differ(before, found)

    def _factor(self, piece: Piece) -> tuple[float, int]:
        """The factor of the gradients of a batch, and its weight in units of 1/UNIT."""
        loss = self._loss or LossKind(RECORDS)
        if not piece.weight:
            return 0.0, 0
        if loss.kind in {WEIGHT, DIVIDED} and piece.weight < 1.0:
            weight = round(loss.weight * UNIT)
            return weight / UNIT, weight
        return (1.0 if loss.kind == SUM else piece.weight), 0


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
    if found.curve:
        raise PermanentError(
            f"Elastic: the loss is computed from a mean over the batch ({found.curve} of it), so its gradient is not"
            " the mean of those of the parts of the batch, and would depend on the number of trainers; train on the"
            " mean itself, such as the mean squared error and not its root, or on a mean of what is computed for"
            " each record; elastic.backward(loss, weight=len(x)) takes the mean over the batches"
        )
    if not found.is_certain:
        raise PermanentError(
            f"Elastic: the loss is a sum of terms, of which one is a mean over {found.weight:g} labels (some labels"
            " are ignored) and another one a mean over something else; no one weight is right for both: compute them"
            " separately, or say what counts with elastic.backward(loss, weight=...)"
        )
    if found.is_constant and found.weight in step_records and found.weight != records:
        return found._replace(kind=DIVIDED)
    return found


def _kind(node: Any, depth: int) -> LossKind | None:  # noqa: PLR0911 - one for each form of a loss
    if node is None or not depth:
        return None
    name = node.name()
    if name.startswith("NllLoss"):
        return _of_labels(node)
    if hasattr(node, "_saved_reduction"):
        return {_MEAN_OF_TORCH: LossKind(RECORDS), _SUM_OF_TORCH: LossKind(SUM)}.get(node._saved_reduction)  # noqa: SLF001
    inner = [of for of, _ in node.next_functions if of is not None]
    if _THROUGH.match(name):
        return _kind(inner[0], depth - 1) if inner else None
    if _CURVED.match(name):
        of = _kind(inner[0], depth - 1) if inner else None
        return of._replace(curve=of.curve or name.partition("Backward")[0].lower()) if of and of.is_mean else None
    if _TERMS.match(name):
        return _of_terms([_kind(of, depth - 1) for of in inner])
    if name.startswith("MeanBackward"):
        return _stacked(inner, depth) or LossKind(RECORDS)
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
    """The sum or mean over a list of losses is one of terms."""
    is_list = len(inner) == 1 and inner[0].name().startswith("StackBackward")
    return _kind(inner[0], depth - 1) if is_list else None


def _of_terms(found: list[LossKind | None]) -> LossKind | None:
    """A sum of losses; a sum without a mean, such as a penalty on the weights, is the same for all batches."""
    known = [of for of in found if of is not None]
    if curved := next((of for of in known if of.curve), None):
        return curved
    means = [of for of in known if of.kind != SUM and not of.is_divided] or [of for of in known if of.kind != SUM]
    weights = {of.weight for of in means if of.kind == WEIGHT}
    if not means:
        return known[0] if known else None
    if not weights:
        return means[0]
    ignores = any(of.ignores for of in means)
    is_clear = len(weights) == 1 and not (ignores and any(of.kind == RECORDS for of in means))
    return LossKind(WEIGHT, max(weights), ignores=ignores, is_certain=is_clear and all(of.is_certain for of in means))


def _scaled(node: Any, found: LossKind | None, *, is_division: bool) -> LossKind | None:
    """A sum that is divided by a number is a mean; a mean stays one."""
    other = getattr(node, "_saved_other", None)
    if found is None or found.kind != SUM or not is_division or other is None:
        return found
    if isinstance(other, torch.Tensor) and other.numel() != 1:
        return found
    return LossKind(WEIGHT, float(other), is_divided=True, is_constant=_is_number(other))


def _is_number(other: Any) -> bool:
    """True for a number of Python's, which yields to the type of any tensor."""
    if not isinstance(other, torch.Tensor):
        return True
    small = torch.ones((), dtype=torch.float16 if other.is_floating_point() else torch.int8)
    return bool(torch.result_type(small, other) == small.dtype)


def common(kinds: set[int]) -> int:
    """The kind of all losses of a step; 0 is none."""
    kinds = kinds - {0}
    if kinds == {WEIGHT, DIVIDED}:
        return WEIGHT
    if len(kinds) > 1:
        raise _mixed()
    return min(kinds, default=0)


def differ(one: LossKind, other: LossKind) -> PermanentError:
    """The error of two losses of one batch that count differently."""
    return PermanentError(
        f"Elastic: two losses of one batch count differently: {_words(one)}, and {_words(other)}; add them up and say"
        " what the sum is: elastic.backward(loss, weight=...)"
    )


def _words(loss: LossKind) -> str:
    names = {RECORDS: "a mean over records", SUM: "a sum"}
    return names.get(loss.kind, f"a mean over {loss.weight:g}")


def _say_unknown(loss: Any) -> None:
    """Log how a loss counts whose computation is not recognised."""
    _log.warning(
        "Elastic: it cannot be seen over what the loss (%s) is a mean, so each batch counts by its records. If it is"
        " a mean over something else, such as tokens, call elastic.backward(loss, weight=n) (said once)",
        loss.grad_fn.name() if loss.grad_fn is not None else "of no function",
    )


def unseen() -> PermanentError:
    """The error of a gradient that was computed without `backward` of a tensor."""
    return PermanentError(
        "Elastic: a gradient was computed in a way that edl does not see, and of a model in shards it could not be"
        " weighed afterwards; call loss.backward() or elastic.backward(loss) in the thread of the loop"
    )


def _mixed() -> PermanentError:
    return PermanentError(
        "Elastic: the losses of one step are of different kinds (a mean over records, a mean over something else, or"
        " a sum), so their gradients cannot be added up; compute the same loss for each batch, or say what counts:"
        " elastic.backward(loss, weight=...)"
    )
