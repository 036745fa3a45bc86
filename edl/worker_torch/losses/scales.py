"""By what a sum over records was divided: by a number of records it is a mean, and by another one a sum."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from edl.errors import ConfigError

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

THROUGH = re.compile(r"(ToCopy|Neg|View|UnsafeView|Reshape|Squeeze|Unsqueeze|Alias|Clone|Select|Expand)Backward")
"""What leaves a loss what it is."""
_PRODUCT = re.compile(r"(Mul|Div)Backward")
_REDUCTION = re.compile(r"(Mean|Sum)Backward")
_NEAR, _SAME, _DEEPEST, _MOST = 1e-5, 1e-4, 64, 2**22
_NORMALISED = (
    "the loss is weighed by numbers that were divided by their sum or mean over the batch, and a trainer has a part"
    " of the batch only"
)
_MULTIPLIED = (
    "the loss is a sum that is multiplied by a tensor, or by a number that may be one divided by how many records"
    " count; divide the sum by their number, or say reduction='sum' for a factor"
)


class Scale(NamedTuple):
    """What a sum was divided by.

    Attributes:
        divisor: 0 if it was not divided, or multiplied by a factor that is the same for all batches.
        is_number: it is a number of Python's.
        doubt: why it cannot be said; else empty.
    """

    divisor: float = 0.0
    is_number: bool = True
    doubt: str = ""


def is_of_records(value: float, records: int, size: int) -> bool:
    """True if a number may be that of the records of a batch, or of the numbers that a sum over them adds up."""
    return value == records or (value >= records and not value % records and bool(size) and not size % value)


def numbers_of(node: Any) -> int:
    """How many numbers an output has; 0 if torch does not say it."""
    known = getattr(node, "_input_metadata", ())
    return math.prod(known[0].shape) if known else 0


def is_number(other: Any) -> bool:
    """True for a number of Python's, which yields to the type of any tensor."""
    if not isinstance(other, torch.Tensor):
        return True
    small = torch.ones((), dtype=torch.float16 if other.is_floating_point() else torch.int8)
    return bool(torch.result_type(small, other) == small.dtype)


def scale_of(node: Any, records: int, size: int, factors: set[float]) -> Scale:
    """What a sum was divided by in one product or division.

    Args:
        node: of a product or a division of a sum over records.
        records: of the batch.
        size: how many numbers the sum adds up; 0 if that is not known.
        factors: numbers that are known to be factors; one that can be nothing else is added.
    """
    other = _other(node)
    if other is None or (isinstance(other, torch.Tensor) and other.numel() != 1):
        return Scale()
    value, of_python = float(other), is_number(other)
    if node.name().startswith("Div"):
        return Scale(value, of_python)
    if value == 1.0:
        return Scale()
    inverse = 1.0 / value if value else 0.0
    is_whole = abs(inverse - round(inverse)) <= _NEAR * abs(inverse)
    if not of_python or (is_whole and is_of_records(round(inverse), records, size) and value not in factors):
        return Scale(doubt=_MULTIPLIED)
    factors.add(value)
    return Scale()


def scale_below(node: Any, records: int, size: int, factors: set[float]) -> Scale:
    """What the numbers of a sum over records were divided by before they were added up.

    Args:
        node: that has computed these numbers; None for none.
        records: of the batch.
        size: how many numbers there are.
        factors: see `scale_of`.
    """
    found = Scale()
    for _ in range(_DEEPEST):
        inner = [of for of, _ in node.next_functions if of is not None] if node is not None else []
        name = node.name() if node is not None else ""
        if len(inner) != 1 or not (THROUGH.match(name) or _REDUCTION.match(name) or _PRODUCT.match(name)):
            break
        if _PRODUCT.match(name):
            its = _of_weights(node, records) or scale_of(node, records, size, factors)
            if its.doubt:
                return its
            found = its if its.divisor else found
        node = inner[0]
    return found


def _other(node: Any) -> Any:
    """What the one operand with a gradient was multiplied with or divided by; None if it is not known."""
    if sum(of is not None for of, _ in node.next_functions) != 1:
        return None
    sides = ("other",) if node.name().startswith("Div") else ("other", "self")
    return next((one for side in sides if (one := getattr(node, f"_saved_{side}", None)) is not None), None)


def _of_weights(node: Any, records: int) -> Scale | None:
    """What weights of records say, one for each; None if there are none."""
    other, known = _other(node), getattr(node, "_input_metadata", ())
    shape = tuple(known[0].shape) if known else ()
    is_tensor = isinstance(other, torch.Tensor) and 1 < other.numel() <= _MOST and other.is_floating_point()
    if records < 2 or not is_tensor or other.dim() != len(shape) or other.shape[0] != shape[0] or shape[0] % records:
        return None
    weights = (other.detach() if node.name().startswith("Mul") else 1 / other.detach()).double().flatten()
    first, total = float(weights[0]), float(weights.sum())
    if bool((weights == first).all()):
        inverse = 1 / first if first else 0.0
        is_whole = abs(inverse - round(inverse)) <= _NEAR * abs(inverse)
        return Scale(float(round(inverse))) if is_whole and is_of_records(round(inverse), records, 0) else None
    is_mask = bool(((weights == 0) | (weights == 1)).all())
    is_normalised = min(abs(total - 1), abs(total / len(weights) - 1)) < _SAME
    return Scale(doubt=_NORMALISED) if is_normalised and not is_mask else None
