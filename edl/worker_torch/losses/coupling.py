"""Whether the loss of a record depends on the other records of its batch, as with in-batch negatives.

A trainer sees a part of each batch. The parts add up to the whole only if the loss is a sum of one term for each
record: then its second derivative by the outputs of two records is zero. That is what is computed here, in some
batches, for the outputs of the last layers: of what has parameters, and of normalisation over the batch. So what
couples records within the model, such as batch normalisation, is not seen. Nor is a loss of straight pieces, such as
a hinge, whose second derivative is zero everywhere.
"""

from __future__ import annotations

import math
import re
from typing import Any

from edl.errors import ConfigError

try:
    import torch
    from torch import nn
    from torch.autograd.function import BackwardCFunction
    from torch.autograd.graph import GradientEdge
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_MOST_NODES, _MOST_NUMBERS, _MOST_ROWS = 4096, 2**22, 4
_TOLERANCE = 1e-5
_THROUGH = re.compile(r"(T|Transpose|Permute|View|UnsafeView|Reshape|Alias|Expand|Unsqueeze|Squeeze|ToCopy)Backward")
_COMPARES = re.compile(r"(Topk|Sort|Kthvalue)Backward")
_ELEMENTWISE = re.compile(r"(Add|Sub|Mul)Backward")
_LAYER = re.compile(r".*BatchNorm|CompiledFunction")


def is_coupled(loss: Any, records: int) -> bool:
    """Whether records of a batch meet in its loss. False also if that cannot be seen.

    Args:
        loss: a scalar before its gradient is computed; its graph is kept.
        records: of the batch. An output belongs to them if it has one to four rows for each of them.
    """
    if records < 2 or loss.numel() != 1:
        return False
    edges, others = _last_outputs(loss)
    if any(_is_along_records(node, records) or _is_of_pairs(node, records) for node in others):
        return True
    try:
        gradients = torch.autograd.grad(loss, edges, create_graph=True, allow_unused=True) if edges else []
        # The first axis is that of the records, or of time, and the second one that of the records.
        return bool(_meet(gradients, edges, 0, records)) and _meet(gradients, edges, 1, records) is not False
    except RuntimeError:  # an operation without a second derivative, such as that of CTC
        return False


def _is_along_records(node: Any, records: int) -> bool:
    """Whether numbers of all records are compared, to take the largest or to sort them."""
    if not _COMPARES.match(node.name()) or not hasattr(node, "_saved_dim"):
        return False
    sizes = node._saved_self_sym_sizes  # noqa: SLF001 - torch has no other name for it
    is_first = node._saved_dim in {0, 2**64 - len(sizes), -len(sizes)}  # noqa: SLF001
    return bool(sizes) and is_first and not sizes[0] % records


def _is_of_pairs(node: Any, records: int) -> bool:
    """Whether a square has the difference (or sum, or product) of each two numbers, one for each row of the batch."""
    inner = [(of, place) for of, place in node.next_functions if of is not None]
    shape, *others = (_shape(of, place) for of, place in [(node, 0), *inner])
    if not _ELEMENTWISE.match(node.name()) or len(shape) != 2 or shape[0] != shape[1] or shape[0] % records:
        return False
    return len(others) == 2 and all(math.prod(one) == shape[0] for one in others)


def _shape(node: Any, place: int) -> tuple[int, ...]:
    """That of an output; empty if torch does not say it."""
    known = getattr(node, "_input_metadata", ())
    return tuple(known[place].shape) if place < len(known) else ()


def _last_outputs(loss: Any) -> tuple[list[GradientEdge], list[Any]]:
    """Return the outputs of the layers nearest to the loss, and the nodes of the graph between them and the loss.

    No outputs if there are too many of them to look at, or an `autograd.Function` of a script comes after them.
    """
    ahead, seen, found, numbers = [(loss.grad_fn, 0)], set[tuple[Any, int]](), list[GradientEdge](), 0
    others = []
    while ahead:
        node, place = ahead.pop()
        if node is None or (node, place) in seen:
            continue
        seen.add((node, place))
        if not _is_layer(node):
            others.append(node)
            ahead += node.next_functions
        elif not _has_all_rows(node) and hasattr(node, "_input_metadata"):
            numbers += math.prod(_shape(node, place))
            found.append(GradientEdge(node, place))
        is_own = not _is_layer(node) and isinstance(node, BackwardCFunction)  # its backward may bear one call only
        if is_own or len(seen) > _MOST_NODES or numbers > _MOST_NUMBERS:
            return [], others
    return found, others


def _has_all_rows(node: Any) -> bool:
    """True for the whole table of an embedding, which is the same for every batch."""
    rows = getattr(node, "_saved_indices", None) if node.name().startswith("EmbeddingBackward") else None
    return rows is not None and torch.equal(rows.flatten(), torch.arange(rows.numel()).to(rows))


def _is_layer(node: Any) -> bool:
    """Return True if a node of the graph computes with a parameter of more than one number, as a layer does."""
    if _LAYER.match(node.name()):
        return True
    for one, _ in node.next_functions:
        of = one
        while of is not None and _THROUGH.match(of.name()):
            of = of.next_functions[0][0]
        value = getattr(of, "variable", None)
        if isinstance(value, nn.Parameter) and value.numel() > 1:
            return True
    return False


def _meet(gradients: Any, edges: list[GradientEdge], axis: int, records: int) -> bool | None:
    """Return whether the gradients of later records in a batch change with the outputs of earlier records.

    Args:
        gradients: of the outputs.
        edges: the outputs.
        axis: along which the records are.
        records: how many they are.

    Returns:
        None if no output has the records along this axis.
    """
    parts = []
    for gradient, edge in zip(gradients, edges, strict=True):
        count = gradient.shape[axis] if gradient is not None and gradient.dim() > 2 * axis else 0
        if count and not count % records and (axis or count // records <= _MOST_ROWS):
            parts.append((edge, *_sides(gradient, axis, records)))
    if not parts:
        return None
    total = sum(
        ((earlier * (1.5 + torch.arange(earlier.numel()).cos().view(earlier.shape).to(earlier))).sum())
        for _, earlier, *_ in parts
    )
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return False
    found = torch.autograd.grad(total, [edge for edge, *_ in parts], retain_graph=True, allow_unused=True)
    own = across = 0.0
    for second, (_, _, earlier, later) in zip(found, parts, strict=True):
        if second is not None:
            own = max(own, float(second.index_select(axis, earlier).abs().max()))
            across = max(across, float(second.index_select(axis, later).abs().max()))
    return across > _TOLERANCE * max(own, across)


def _sides(gradient: Any, axis: int, records: int) -> tuple[Any, Any, Any]:
    """The gradients of earlier records, the places of those, and the places of later ones.

    The rows of a record may follow each other, or lie as far apart as there are records: places are sure for both.
    """
    place = torch.arange(gradient.shape[axis], device=gradient.device)
    rows, half = gradient.shape[axis] // records, records // 2
    near, far = place // rows < half, place % records < half
    earlier, later = (near & far).nonzero().flatten(), (~near & ~far).nonzero().flatten()
    return gradient.index_select(axis, earlier), earlier, later
