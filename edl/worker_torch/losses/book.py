"""The weight of each batch in the gradient of a step, and the losses for which no weight is right."""

from __future__ import annotations

import logging
from typing import Any

from edl.errors import PermanentError
from edl.worker.step_settings import Piece
from edl.worker_torch.losses.coupling import is_coupled
from edl.worker_torch.losses.kinds import DIVIDED, RECORDS, SUM, UNIT, WEIGHT, LossKind, kind_of

_SET = (
    "the loop sets gradients that it computed without backward(), so each batch counts by its records. What is not"
    " linear in the gradient of a batch, such as the projection of one gradient on another, depends on the number of"
    " trainers"
)
_LEFT_OUT = (
    "the loop has left out a batch, whose records count with a gradient of zero. A batch is a part of a step, so"
    " which ones are left out depends on the number of trainers"
)
_DIGITS, _ALWAYS, _OFTEN = 6, 64, 8
_log = logging.getLogger(__name__)


class LossBook:
    """Keeps the weight that each batch of a step has in the gradient, as the kind of its loss demands.

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
        self._odd: tuple[float, int] = 1.0, 0  # by what the last batches were divided, and how many of them were
        self._shares: tuple[float, int] = 0.0, 0  # the same of weights that add up to 1 or to the records
        self._factors: set[tuple[float, ...]] = set()
        self._piece: Piece | None = None
        self._loss: LossKind | None = None
        self._is_said = self._has_warned = False
        self._pieces = 0

    @property
    def divisor(self) -> int:
        """The number by which losses of the kind DIVIDED were divided in this step.

        0 if there is none, or several.
        """
        return int(min(self._divisors)) if len(self._divisors) == 1 else 0

    @property
    def factors(self) -> int:
        """A digest of the factors of the losses of this step; 0 if there are none, -1 if batches have several."""
        found = {one for one in self._factors if one}
        return -1 if len(found) > 1 else hash(found.pop()) >> 2 if found else 0

    def begin_step(self) -> None:
        """Forget the losses of the last step."""
        self.kind = self.weight = 0
        self._divisors.clear()
        self._factors.clear()

    def begin_piece(self, piece: Piece) -> None:
        """Begin a batch: its loss is not known yet."""
        self._piece, self._loss, self._is_said = piece, None, False
        self._pieces += 1

    def say(self, kind: LossKind) -> None:
        """Take what the script says of the loss of this batch, in place of what its computation shows.

        Raises:
            PermanentError: it has said something else of another loss of the same batch.
        """
        if self._loss is not None and self._loss[:2] != kind[:2]:
            raise differ(self._loss, kind)
        self._loss, self._is_said = kind, True

    def note(self, loss: Any, *, has_gradient: bool = False) -> float | None:
        """The loop computes the gradient of a loss; returns a factor for it if its gradient is summed at once.

        Args:
            loss: as the loop gives it to `backward`.
            has_gradient: the loop gives its gradient, too.

        Raises:
            PermanentError: it cannot be seen how much it counts.
        """
        piece = self._piece
        if piece is None:
            return None
        before = self._loss
        if has_gradient or loss.numel() != 1:
            if before is None:  # else it goes on with a gradient that was computed from a loss
                raise _not_one_number()
            return None
        if not self._is_said:
            self._recognise(loss, piece)
        if self._shards < 2:
            return None
        if before is not None and self._loss is not None and before[:2] != self._loss[:2]:
            raise differ(before, self._loss)  # the gradient of the first one is part of the sum already
        return self._factor(piece)[0] * self._shards  # FSDP takes the mean over its processes

    def end_piece(self, piece: Piece, *, has_gradient: bool) -> float:
        """Count a batch on which the loop has trained, and return the factor of its gradients.

        Raises:
            PermanentError: its loss does not go with those of other batches, or nobody has seen it.
        """
        factor, weight = self._factor(piece)
        if has_gradient and piece.weight:
            loss = self._loss or LossKind(RECORDS)
            self.varies |= bool(weight) and loss.is_constant and loss.kind == WEIGHT
            if piece.weight < 1.0 and not self._is_said:
                self._check_divisor(loss)
                self._check_shares(loss)
            self.kind = common({self.kind, loss.kind})
            self.weight += weight
            self._divisors.add(loss.weight)
            shares = (round(sum(loss.numbers), _DIGITS),) if loss.numbers else ()  # of mixup they add up to one
            self._factors.add(loss.factors + shares)
        if has_gradient and self._loss is None and self._shards > 1:
            raise unseen()
        if piece.weight and (self._loss is None or not has_gradient) and not self._has_warned:
            self._has_warned = True
            _log.warning("Elastic: %s (said once)", _SET if has_gradient else _LEFT_OUT)
        self._piece = None
        return factor

    def _check_divisor(self, loss: LossKind) -> None:
        """Refuse a sum that is always divided by one number: then it is a factor, and not what each batch counts."""
        value, times = self._odd
        self._odd = loss.weight, (times + 1 if loss.is_odd and loss.weight == value else 1)
        if loss.is_odd and loss.weight != 1.0 and self._odd[1] >= _ALWAYS:
            raise PermanentError(
                f"Elastic: the loss is a sum that is divided by {loss.weight:g}, in {_ALWAYS} batches one after the"
                " other, so it cannot be seen whether that is a number that counts or a factor; say"
                " elastic.backward(loss, reduction='sum') for a factor, or weight=n for a mean over n"
            )

    def _check_shares(self, loss: LossKind) -> None:
        """Refuse weights that always add up to 1 or to the records, though they are others in each batch."""
        value, times = self._shares
        self._shares = loss.share, (times + 1 if loss.share and loss.share != value else bool(loss.share))
        if self._shares[1] >= _OFTEN:
            raise PermanentError(
                "Elastic: the loss is weighed by numbers that were divided by their sum or mean over the batch, and a"
                " trainer has a part of the batch only; divide a sum by their sum, (each * w).sum() / w.sum(), or say"
                " what counts with elastic.backward(loss, weight=...)"
            )

    def _recognise(self, loss: Any, piece: Piece) -> None:
        """Find out from its computation whether a loss is a mean or a sum, because the script has not said it."""
        records = piece.end - piece.start
        is_due = not self._pieces & (self._pieces - 1)
        whole = {round(records / piece.weight)} if piece.weight else set[int]()
        found, before = kind_of(loss, records, {*whole, self.global_batch}), self._loss
        if is_due and self._shards < 2 and is_coupled(loss, records):
            raise _coupled()
        if found.doubt:
            raise PermanentError(
                f"Elastic: {found.doubt}; no one weight is right for the parts of a step; compute a mean over the"
                " records, compute what counts differently separately, or say what counts with"
                " elastic.backward(loss, weight=...)"
            )
        if not found.is_known and not self._has_warned:
            self._has_warned = True
            _say_unknown(loss)
        if before is None or (found.is_mean and not before.is_mean):
            self._loss = found
        elif found.is_mean and found[:2] != before[:2] and piece.weight < 1.0:
            raise differ(before, found)

    def _factor(self, piece: Piece) -> tuple[float, int]:
        """The factor by which the gradients of a batch are multiplied, and the batch's weight in units of 1/UNIT."""
        loss = self._loss or LossKind(RECORDS)
        if not piece.weight:
            return 0.0, 0
        if loss.kind in {WEIGHT, DIVIDED} and piece.weight < 1.0:
            weight = round(loss.weight * UNIT)
            return weight / UNIT, weight
        return (1.0 if loss.kind == SUM else piece.weight), 0


def common(kinds: set[int]) -> int:
    """The kind that all losses of a step share; 0 if there is no loss."""
    kinds = kinds - {0}
    if kinds == {WEIGHT, DIVIDED}:
        return WEIGHT
    if len(kinds) > 1:
        raise _mixed()
    return min(kinds, default=0)


def check_factors(found: set[int]) -> None:
    """Refuse losses that are multiplied by a number that is not the same for all batches of a step.

    Args:
        found: `LossBook.factors` of all trainers.

    Raises:
        PermanentError: they differ, or batches of one trainer have several.
    """
    if len(found) > 1 or -1 in found:
        raise PermanentError(
            "Elastic: the loss is multiplied or divided by a number or a tensor that has another value in another"
            " batch of the same step, such as a detached loss, a variance of the batch, a random number or a count of"
            " the loop. Each trainer has a part of the batch only, so the step would depend on the number of"
            " trainers; multiply by a number that all batches of a step share, such as one that is computed from"
            " elastic.step, and divide a sum over records by their number: each.sum() / len(x)"
        )


def _not_one_number() -> PermanentError:
    return PermanentError(
        "Elastic: backward() got a loss of several numbers, or a gradient for it, so it cannot be seen over how much"
        " it is a mean; call it for one number: loss.mean().backward(), or (loss * gradient).sum().backward()"
    )


def differ(one: LossKind, other: LossKind) -> PermanentError:
    """Make the error for two losses of one batch that are means over different numbers, or a mean and a sum."""
    return PermanentError(
        f"Elastic: two losses of one batch count differently: {_words(one)}, and {_words(other)}; add them up and say"
        " what the sum is: elastic.backward(loss, weight=...)"
    )


def _words(loss: LossKind) -> str:
    names = {RECORDS: "a mean over records", SUM: "a sum"}
    return names.get(loss.kind, f"a mean over {loss.weight:g}")


def _say_unknown(loss: Any) -> None:
    """Warn that edl does not recognise what a loss is a mean over."""
    _log.warning(
        "Elastic: it cannot be seen over what the loss (%s) is a mean, so each batch counts by its records. If it is"
        " a mean over something else, such as tokens, call elastic.backward(loss, weight=n) (said once)",
        loss.grad_fn.name() if loss.grad_fn is not None else "of no function",
    )


def _coupled() -> PermanentError:
    return PermanentError(
        "Elastic: the loss of a record depends on the other records of its batch, as with in-batch negatives, a Dice"
        " loss over the batch, or a product of two means. A trainer has a part of the batch only, so the gradient"
        " would depend on the number of trainers; train on a mean of what is computed for each record alone."
        " elastic.backward(loss, weight=len(x)) takes the mean over the parts instead, which is another training than"
        " that of one process"
    )


def unseen() -> PermanentError:
    """Make the error for a gradient that the loop has computed without `backward` of a tensor."""
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
