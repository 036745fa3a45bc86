"""Adds up gradients: of the batches of this trainer, then of all trainers.

Sums of half precision are kept in single precision. A gradient that no trainer has stays None, so an optimizer leaves
that parameter alone, as it does in a script for one process.
"""

from __future__ import annotations

from typing import Any

from edl.errors import ConfigError, PermanentError
from edl.worker.step_settings import parts_of
from edl.worker_torch.part_tree import Node, RunningSum, cover, total
from edl.worker_torch.portable import like, local_of
from edl.worker_torch.state import TrainState
from edl.worker_torch.wire import Wire

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

Row = list[Any]
"""A vector of all gradients: one tensor for each type in which they are summed."""


class GradientSum:
    """The sum of the gradients of one step, over batches and trainers.

    Args:
        state: whose parameters have gradients.
        wire: to the other trainers.

    Attributes:
        parameters: in the order in which they are summed.
        present: bit i is set if parameter i has had a gradient in this step.
    """

    def __init__(self, state: TrainState, wire: Wire) -> None:
        self._state, self._wire = state, wire
        self.parameters: list[Any] = []
        self.present = self.parts = 0
        self._buckets: list[tuple[Any, Any, list[int]]] = []  # type, device, indexes of parameters
        self._free: list[Row] = []
        self._views: dict[int, list[Any]] = {}  # id of a row -> the part of each parameter
        self._own = range(0)
        self._tree: RunningSum[Row] = RunningSum(0, self._added)
        self._kept: list[Any] | None = None  # the gradients themselves, if there is nothing to add to them
        self._row: Row | None = None
        self._whole: Row | None = None  # the sum over all trainers, if it is not made in the row of this one
        self._given: tuple[Row, list[int]] | None = None  # the row of the last step, and its uses
        self._slot = 0

    def begin_world(self, parts: int) -> None:
        """Prepare to sum with the trainers of a new world.

        Args:
            parts: into how many parts its steps are always divided; 0 for one part for each trainer.
        """
        self.parts = parts
        self._own = parts_of(parts, self._wire.rank, self._wire.size) if parts else range(0)
        self._arrange(self._state.parameters)  # the length of a row depends on the number of trainers

    def begin_step(self) -> None:
        """Set the sum to zero; the optimizers may have other parameters than in the step before."""
        parameters = self._state.parameters
        if list(map(id, parameters)) != list(map(id, self.parameters)):
            self._state.check(parameters)
            self._arrange(parameters)
        self.present, self._kept, self._row = 0, None, None
        self._take_back()
        self._tree = RunningSum(self.parts, self._added)
        self._slot = self._own.start
        self._free = [row for row in self._free if len(row) == len(self._buckets)]

    def add(self, slot: int, factor: float) -> None:
        """Add the gradients of a batch to the sum, and clear them in the parameters.

        Args:
            slot: the part of the step to which the batch belongs.
            factor: for the gradients.
        """
        found = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        self._check(found)
        self.present |= sum(1 << index for index, one in enumerate(found) if one is not None)
        if self._wire.is_alone and not self.parts and self._row is None and self._kept is None and factor == 1.0:
            self._kept = found
            return
        if self.parts:
            self._finish_slots(slot)
        self._add(found, factor)

    def summed(self, divisor: float, present: int) -> list[Any]:
        """Sum over all trainers: the gradient of the step for each parameter; None where no trainer has one.

        Args:
            divisor: the divisor of the sum.
            present: the union of `present` over all trainers.

        Raises:
            PeerLostError: a trainer is gone.
        """
        if self._kept is not None and divisor == 1.0:
            return self._kept
        self._spill()
        row = self._tree_total() if self.parts else self._plain_total()
        for tensor in row if divisor != 1.0 else ():
            tensor.div_(divisor)
        views = self._views_of(row)
        self._given = row, _uses(row)
        pairs = enumerate(zip(views, self.parameters, strict=True))
        return [like(p, view.detach().to(p.dtype)) if present >> index & 1 else None for index, (view, p) in pairs]

    def _take_back(self) -> None:
        """Use the memory of the last step again, unless somebody keeps a gradient of it, as some optimizers do."""
        if self._given is None:
            return
        (row, uses), self._given = self._given, None
        is_free = _uses(row) == uses
        if not is_free:
            self._views.pop(id(row), None)
            self._whole = None if row is self._whole else self._whole
        elif row is not self._whole:
            self._free.append(row)

    def _arrange(self, parameters: list[Any]) -> None:
        self.parameters, self._free, self._whole = parameters, [], None
        self._views.clear()
        places: dict[tuple[Any, Any], list[int]] = {}
        for index, one in enumerate(parameters):
            kind = torch.float64 if one.dtype == torch.float64 else torch.float32
            places.setdefault((kind, one.device), []).append(index)
        self._buckets = [(kind, device, indexes) for (kind, device), indexes in places.items()]

    def _new_row(self) -> Row:
        if self._free:
            return self._free.pop()
        counts = [sum(local_of(self.parameters[i]).numel() for i in indexes) for *_, indexes in self._buckets]
        pairs = zip(self._buckets, map(self._wire.width_of, counts), strict=True)
        return [torch.zeros(count, dtype=kind, device=device) for (kind, device, _), count in pairs]

    def _views_of(self, row: Row) -> list[Any]:
        """Views of a flat row, one for each parameter, in the parameter's shape."""
        found = self._views.get(id(row))
        if found is None:
            found = [None] * len(self.parameters)
            for tensor, (_, _, indexes) in zip(row, self._buckets, strict=True):
                at = 0  # a row is a little longer than its parameters
                for index in indexes:
                    part = local_of(self.parameters[index])
                    found[index] = tensor[at : at + part.numel()].view_as(part)
                    at += part.numel()
            self._views[id(row)] = found
        return found

    def _check(self, found: list[Any]) -> None:
        for parameter, one in zip(self.parameters, found, strict=True):
            if one is not None and one.layout != torch.strided:
                raise PermanentError(
                    f"Elastic: the gradient of {self._state.name_of(parameter)} is sparse, and sparse gradients are"
                    " not summed; build the layer with sparse=False and use an optimizer for such gradients"
                )

    def _spill(self) -> None:
        """Copy the gradients of a single batch, kept as they were so far, into a row."""
        if self._kept is not None:
            found, self._kept = self._kept, None
            self._add(found, 1.0)

    def _add(self, found: list[Any], factor: float) -> None:
        if self._kept is not None:
            self._spill()
        is_first = self._row is None
        row = self._row = self._row if self._row is not None else self._new_row()
        views, has = self._views_of(row), [index for index, one in enumerate(found) if one is not None]
        mine = [views[index] for index in has]
        theirs = [local_of(found[index]).to(views[index].dtype) for index in has]
        if not is_first:
            if mine:
                torch._foreach_add_(mine, theirs, alpha=factor)
            return
        if mine:
            torch._foreach_copy_(mine, theirs)
        if mine and factor != 1.0:
            torch._foreach_mul_(mine, factor)
        for index in set(range(len(found))).difference(has):
            views[index].zero_()

    def _finish_slots(self, until: int) -> None:
        """Close all parts with a number below `until`; a part without records is zero."""
        while self._slot < until:
            self._tree.push(self._slot, self._take_row())
            self._slot += 1

    def _added(self, left: Row, right: Row) -> Row:
        for mine, its in zip(left, right, strict=True):
            mine.add_(its)
        self._free.append(right)
        return left

    def _take_row(self) -> Row:
        """Return the sum of the batches so far, zeros without any, and begin a new sum."""
        if self._row is None:
            self._add([None] * len(self.parameters), 1.0)
        row, self._row = self._row, None
        return row or []

    def _plain_total(self) -> Row:
        row = self._take_row()
        self._wire.sum(row)
        return row

    def _tree_total(self) -> Row:
        """Sum the parts of all trainers in the order of the tree.

        Each trainer sums one segment, and sends it to all.
        """
        self._finish_slots(self._own.stop)
        nodes: dict[Node, Row] = self._tree.take()
        if self._wire.is_alone:
            return nodes[0, self.parts]
        if self._whole is None:
            self._whole = self._new_row()
        counts = [
            len(cover(self.parts, parts_of(self.parts, rank, self._wire.size))) for rank in range(self._wire.size)
        ]
        rows = [nodes[node] for node in sorted(nodes)]
        for place, whole in enumerate(self._whole):
            self._wire.sum_in_order([row[place] for row in rows], whole, counts, self._add_segments)
        self._free += rows
        return self._whole

    def _add_segments(self, segments: list[list[Any]]) -> Any:
        """Sum the subtrees of one segment in the order of the tree.

        Args:
            segments: rank -> the segment of each of its subtrees.
        """
        values: dict[Node, Any] = {}
        for rank, its in enumerate(segments):
            values.update(zip(cover(self.parts, parts_of(self.parts, rank, self._wire.size)), its, strict=True))
        return total(self.parts, values, torch.add)


def _uses(row: Row) -> list[int]:
    """How many tensors share the memory of each tensor of a row."""
    return [torch._C._storage_Use_Count(one.untyped_storage()._cdata) for one in row]  # noqa: SLF001 - no other name
