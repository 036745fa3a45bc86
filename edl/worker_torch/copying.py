"""Copies the state of a model to the trainers that lack it, chunk by chunk, from all trainers that have it.

A chunk goes from one of the holders along a chain of the receivers, which begins with another receiver for each
chunk. So a holder sends its part of the state once, however many trainers join, and each receiver sends at most what
it gets. Chunks are sent from the memory of the tensors and received into it; nothing holds Python's lock meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from edl.errors import ConfigError
from edl.worker.group import World
from edl.worker_torch.portable import Packed, Unpacked, flat_bytes
from edl.worker_torch.wire import Wire

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

CHUNK = 4 * 2**20
"""The most bytes of a message."""
_UNDER_WAY = 8


def copy_state(wire: Wire, world: World, state: Any) -> Any:
    """Copy the state of the training from the trainers that hold it to those that lack it, and return it.

    Args:
        wire: connected.
        world: whose holders have the state.
        state: the state of this trainer, plain; None if it has to receive it.

    Raises:
        PeerLostError: a trainer is gone; nothing has changed.
    """
    packed = Packed(state) if state is not None else None
    header = _copy_header(wire, world, packed.header if packed is not None else b"")
    target = Unpacked(header) if packed is None else None
    tensors = packed.tensors if packed is not None else target.tensors if target is not None else []
    chunks = list(_chunks(tensors))
    wire.beside(lambda: _pass_on(wire, world, chunks), "the state was not copied")
    return target.state if target is not None else state


def _copy_header(wire: Wire, world: World, header: bytes) -> bytes:
    size = torch.tensor([len(header)])
    wire.broadcast(size, world.source)
    is_source = world.rank == world.source
    data = (
        torch.frombuffer(bytearray(header), dtype=torch.uint8)
        if is_source
        else torch.empty(int(size), dtype=torch.uint8)
    )
    wire.broadcast(data, world.source)
    return header if is_source else data.numpy().tobytes()


def _chunks(tensors: list[Any]) -> Iterator[Any]:
    """Yield the memory of the tensors in order, in pieces of at most `CHUNK` bytes."""
    for tensor in tensors:
        if tensor.numel():
            yield from flat_bytes(tensor).split(CHUNK)


def chain(number: int, holders: tuple[int, ...], receivers: list[int]) -> list[int]:
    """The order of ranks in which a chunk is passed on.

    Args:
        number: the number of the chunk, from 0.
        holders: ranks with the state.
        receivers: ranks without it.
    """
    turn = number % len(receivers)
    return [holders[number % len(holders)], *receivers[turn:], *receivers[:turn]]


def _pass_on(wire: Wire, world: World, chunks: list[Any]) -> None:
    """Receive and send all chunks of this rank; several are under way at a time, so that chains do not stall."""
    receivers = [rank for rank in range(world.size) if rank not in world.holders]
    places = [(n, chain(n, world.holders, receivers)) for n in range(len(chunks))]
    mine = [(n, ranks, ranks.index(world.rank)) for n, ranks in places if world.rank in ranks]
    coming: deque[Any] = deque()
    going: deque[Any] = deque()
    posted = 0
    for number, ranks, at in mine:
        while at and posted < len(mine) and len(coming) < _UNDER_WAY:
            ahead, its, place = mine[posted]
            coming.append(wire.receive(chunks[ahead], its[place - 1], ahead))
            posted += 1
        if at:
            coming.popleft().wait()
        if at + 1 < len(ranks):
            row = chunks[number] if chunks[number].device.type == "cpu" else chunks[number].cpu()
            going.append((wire.send(row, ranks[at + 1], number), row))  # the row must live until it is sent
            if len(going) > _UNDER_WAY:
                going.popleft()[0].wait()
    while going:
        going.popleft()[0].wait()
