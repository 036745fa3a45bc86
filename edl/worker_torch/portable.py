"""Turns the state of a model into plain data and tensors, so that other trainers and files can hold it, and back.

A state is what `state_dict` methods return: dictionaries, lists, tuples, numbers, text, tensors. numpy's scalars
become Python's numbers, since a file with them is refused by `torch.load(..., weights_only=True)`. Its arrays become
tensors with a tag, and queues and sets become lists with one. Of a tensor that is spread over processes, the part of
this one is kept, with its place. Any other object is refused by name before it is written: nobody could load it.
"""

from __future__ import annotations

import importlib
import io
from collections import deque
from collections.abc import Mapping
from typing import Any

from edl.errors import ConfigError, PermanentError

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_ARRAY, _TENSOR, _SHARD, _DEQUE, _SET = "edl.array", "edl.tensor", "edl.shard", "edl.deque", "edl.set"
_WORD = 8
_SHARD_FIELDS = 5
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def plain(value: Any, place: str = "state") -> Any:  # noqa: PLR0911 - one for each kind of value
    """Convert a state into containers, Python scalars and tensors alone.

    Args:
        value: the value of a `state_dict`.
        place: its name in a message.

    Raises:
        ConfigError: an object in it is of another kind.
    """
    if isinstance(value, torch.Tensor):
        return _shard(value) if is_shard(value) else value
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {plain(key, f"a key of {place}"): plain(item, f"{place}[{key!r}]") for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, deque | set | frozenset):
        items = [plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
        return (_DEQUE, items, value.maxlen) if isinstance(value, deque) else (_SET, items)
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "item"):
        if kind.__name__ == "ndarray" and value.dtype.kind in "biufc":
            return (_ARRAY, torch.from_numpy(value.copy()))
        if kind.__name__ != "ndarray" and type(value.item()) in _PLAIN:
            return value.item()
    if isinstance(value, torch.dtype | torch.device | torch.Size):
        return value
    for simple in (bool, int, float, str):
        if isinstance(value, simple):  # a subclass, such as an enumeration of numbers
            return simple(value)
    raise ConfigError(
        f"Elastic: {place} is a {kind.__module__}.{kind.__qualname__}, which could be saved but not loaded safely, by"
        " no other trainer and from no checkpoint; let state_dict() (or get_extra_state()) return numbers, text,"
        " lists, dictionaries and tensors"
    )


def restored(value: Any, mesh: Any = None) -> Any:  # noqa: PLR0911 - one for each kind of value
    """Convert a state back from the result of `plain`; numpy scalars come back as Python's.

    Args:
        value: from `plain`.
        mesh: over which shards are spread.
    """
    if isinstance(value, dict):
        return {key: restored(item, mesh) for key, item in value.items()}
    if isinstance(value, list):
        return [restored(item, mesh) for item in value]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        if len(value) == _SHARD_FIELDS and value[0] == _SHARD:
            return _joined_to(mesh, value)
        if len(value) == 2 and value[0] == _ARRAY:
            importlib.import_module("numpy")  # the state was made with it, so its owner needs it
            return value[1].numpy()
        if len(value) == 3 and value[0] == _DEQUE:
            return deque(restored(value[1], mesh), maxlen=value[2])
        if len(value) == 2 and value[0] == _SET:
            return set(restored(value[1], mesh))
        return tuple(restored(item, mesh) for item in value)
    return value


def detached(value: Any) -> Any:
    """Copy the tensors of a state: those of a file mapped to memory would change with the file."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: detached(item) for key, item in value.items()}
    if isinstance(value, list):
        return [detached(item) for item in value]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple(detached(item) for item in value)
    return value


def is_shard(tensor: Any) -> bool:
    """True for a part of a tensor that is spread over processes: a DTensor, as FSDP2 makes it."""
    return hasattr(tensor, "to_local")


def local_of(tensor: Any) -> Any:
    """The part of a tensor that this process has."""
    return tensor.to_local() if is_shard(tensor) else tensor


def like(tensor: Any, part: Any) -> Any:
    """Give a local part the form of another tensor: a shard of the same placement, or the part as it is."""
    if not is_shard(tensor):
        return part
    return type(tensor).from_local(
        part, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def bits_of(tensor: Any) -> int:
    """A sum over the bits of a tensor, in [-2**63, 2**63); it differs for other bits but by a rare chance."""
    flat = _flat(tensor)
    whole = len(flat) // _WORD * _WORD
    found = int(flat[:whole].view(torch.int64).sum()) if whole and not flat.storage_offset() % _WORD else 0
    if not found and whole:
        found = int(flat[:whole].clone().view(torch.int64).sum())
    rest = flat[whole:].tolist()
    return _signed(found + sum(byte << (_WORD * place) for place, byte in enumerate(rest)))


def bytes_of(tensor: Any) -> Any:
    """The numbers of a tensor as a row of bytes on the CPU; a copy if they are elsewhere, or have gaps."""
    return _flat(tensor.cpu())


def _flat(tensor: Any) -> Any:
    return resolved(tensor.detach()).contiguous().view(-1).view(torch.uint8)


def resolved(tensor: Any) -> Any:
    """The tensor with the numbers that it shows in its memory, where a conjugate or negative view has others."""
    return tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor


def check_kind(place: str, tensor: Any) -> None:
    """Refuse a tensor of which the memory is not its numbers.

    Args:
        place: its name in a message.
        tensor: that other trainers need, too.

    Raises:
        PermanentError: it is quantised, or sparse.
    """
    if tensor.is_quantized or tensor.layout != torch.strided:
        raise PermanentError(
            f"Elastic: {place} is {tensor.dtype} of layout {tensor.layout}, and quantised and sparse tensors cannot"
            " be copied to other trainers; keep its parts as plain buffers, and build it from them"
        )


def version_of(tensor: Any) -> int:
    """How often a tensor was written to; 0 for one of `torch.inference_mode`, for which torch does not count."""
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - torch's only name for it


def overwrite(tensor: Any, values: Any) -> None:
    """Write values of the same shape into a tensor, also into one of `torch.inference_mode`."""
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        tensor.copy_(values)


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _shard(tensor: Any) -> tuple[Any, ...]:
    dims = [one.dim if one.is_shard() else -1 for one in tensor.placements]
    return (_SHARD, local_of(tensor.detach()), list(tensor.shape), list(tensor.stride()), dims)


def _joined_to(mesh: Any, value: tuple[Any, ...]) -> Any:
    module = importlib.import_module("torch.distributed.tensor")
    _, part, shape, strides, dims = value
    places = [module.Shard(dim) if dim >= 0 else module.Replicate() for dim in dims]
    if mesh is None:
        raise ValueError("a part of it is a shard, and this model has none")
    return module.DTensor.from_local(
        part, mesh, places, run_check=False, shape=torch.Size(shape), stride=tuple(strides)
    )


class Packed:
    """A state as a small header and a list of tensors; tensors that share memory are listed once.

    Args:
        state: plain.

    Attributes:
        tensors: the tensors of the state, not copied.

    Raises:
        PermanentError: a tensor is quantised, or sparse.
    """

    def __init__(self, state: Any) -> None:
        self.tensors: list[Any] = []
        self._places: dict[tuple[Any, ...], int] = {}
        skeleton = self._taken_out(state)
        shapes = [(one.dtype, tuple(one.shape), layout_of(one)) for one in self.tensors]
        file = io.BytesIO()
        torch.save((skeleton, shapes), file)
        self.header = file.getvalue()

    def _taken_out(self, value: Any, place: str = "state") -> Any:
        if isinstance(value, torch.Tensor):
            check_kind(place, value)
            value = resolved(value)
            key = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride(), value.device)
            number = self._places.setdefault(key, len(self.tensors)) if value.numel() else len(self.tensors)
            if number == len(self.tensors):
                self.tensors.append(value.detach())
            return (_TENSOR, number)
        if isinstance(value, dict):
            return {key: self._taken_out(item, f"{place}[{key!r}]") for key, item in value.items()}
        if isinstance(value, list):
            return [self._taken_out(item, place) for item in value]
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            return tuple(self._taken_out(item, place) for item in value)
        return value


class Unpacked:
    """A state rebuilt from a header, with memory for its tensors, which the caller fills.

    Args:
        header: the header of `Packed`.

    Attributes:
        tensors: empty, in the order of `Packed.tensors`.
    """

    def __init__(self, header: bytes) -> None:
        self._skeleton, shapes = torch.load(io.BytesIO(header), weights_only=True)
        self.tensors = [torch.empty_strided(shape, strides, dtype=dtype) for dtype, shape, strides in shapes]

    @property
    def state(self) -> Any:
        """The state, once the tensors are filled."""
        return self._put_in(self._skeleton)

    def _put_in(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._put_in(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._put_in(item) for item in value]
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            if len(value) == 2 and value[0] == _TENSOR:
                return self.tensors[value[1]]
            return tuple(self._put_in(item) for item in value)
        return value


def layout_of(tensor: Any) -> tuple[int, ...]:
    """The strides that a tensor would have without gaps in memory; its own if it has no gaps."""
    return tuple(torch.empty_like(tensor, device="meta").stride())


def flat_bytes(tensor: Any) -> Any:
    """The memory of a tensor as bytes, in the order of `layout_of`; a copy only if the tensor has gaps."""
    strides = layout_of(tensor)
    if tensor.stride() != strides:
        tensor = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
