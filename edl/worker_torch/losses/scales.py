"""The numbers by which a sum over records, and what it adds up, was multiplied or divided."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
_SAME, _DEEPEST = 1e-4, 64


class Scale(NamedTuple):
    """By what the numbers of a sum or mean were multiplied or divided before they were added up.

    Attributes:
        factors: tensors of one number, by their values.
        numbers: numbers of Python's.
        share: the largest one of weights, one for each record, that add up to 1 or to the records; 0 for none.
    """

    factors: tuple[float, ...] = ()
    numbers: tuple[float, ...] = ()
    share: float = 0.0


def shape_of(node: Any) -> tuple[int, ...] | None:
    """The shape of an output; None if torch does not say it."""
    known = getattr(node, "_input_metadata", ())
    return tuple(known[0].shape) if known else None


def is_number(other: Any) -> bool:
    """True for a number of Python's, which yields to the type of any tensor."""
    if not isinstance(other, torch.Tensor):
        return True
    small = torch.ones((), dtype=torch.float16 if other.is_floating_point() else torch.int8)
    return bool(torch.result_type(small, other) == small.dtype)


def factors_of(node: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Tensors of one number, and Python's numbers, of a product or division; none has a gradient."""
    other = other_of(node)
    if other is None or (isinstance(other, torch.Tensor) and other.numel() != 1):
        return (), ()
    return ((), (float(other),)) if is_number(other) else ((float(other),), ())


def other_of(node: Any) -> Any:
    """What the one operand with a gradient was multiplied with or divided by; None if it is not known."""
    if sum(of is not None for of, _ in node.next_functions) != 1:
        return None
    sides = ("other",) if node.name().startswith("Div") else ("other", "self")
    return next((one for side in sides if (one := getattr(node, f"_saved_{side}", None)) is not None), None)


def scale_below(node: Any, records: int) -> Scale:
    """By what the numbers of a sum or mean were multiplied or divided before they were added up.

    Args:
        node: that has computed these numbers; None for none.
        records: of the batch.
    """
    found = Scale()
    for product in _products(node):
        other = other_of(product)
        if isinstance(other, torch.Tensor) and other.dim():
            found = found._replace(share=_share(product, other, records) or found.share)
        else:
            factors, numbers = factors_of(product)
            found = found._replace(factors=found.factors + factors, numbers=found.numbers + numbers)
    return found


def is_nothing(node: Any) -> bool:
    """True for a term that is multiplied by the number 0, which only gives parameters a gradient."""
    return any(one.name().startswith("Mul") and 0.0 in factors_of(one)[1] for one in _products(node))


def _products(node: Any) -> Iterator[Any]:
    """The products and divisions that numbers went through one by one, from the last one on."""
    for _ in range(_DEEPEST):
        name = node.name() if node is not None else ""
        is_product = bool(_PRODUCT.match(name))
        inner = [of for of, _ in node.next_functions if of is not None] if name else []
        if len(inner) != 1 or not (is_product or THROUGH.match(name) or _REDUCTION.match(name)):
            return
        if is_product:
            yield node
        node = inner[0]


def _share(node: Any, other: Any, records: int) -> float:
    """The largest one of weights, one for each record, that add up to 1 or to the records; 0 for none."""
    rows = (shape_of(node) or (0,))[0]
    are_weights = records > 1 and other.is_floating_point() and other.numel() == records == other.shape[0] == rows
    if not are_weights or not node.name().startswith("Mul"):
        return 0.0
    weights = other.detach().double()
    total = float(weights.sum())
    is_normalised = min(abs(total - 1), abs(total / records - 1)) < _SAME
    return float(weights.max()) if is_normalised else 0.0
