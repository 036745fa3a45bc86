"""Numbers of all trainers together: sums, and evaluations whose batches the trainers share among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edl.errors import ConfigError
from edl.worker.steps import PeerLostError
from edl.worker_torch.wire import Wire

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error


def summed(wire: Wire, numbers: Mapping[str, float]) -> dict[str, float]:
    """The sum of each number over all trainers, which give the same names.

    Raises:
        PeerLostError: a trainer is gone.
    """
    names = sorted(numbers)
    row = torch.tensor([float(numbers[name]) for name in names], dtype=torch.float64)
    rows = wire.gather(row)
    return dict(zip(names, torch.stack(rows).sum(0).tolist(), strict=True))


def evaluated(wire: Wire, batches: Sequence[Any], metrics: Callable[[Any], Mapping[str, float]]) -> dict[str, float]:
    """The sum of each metric over all batches.

    The numbers of each batch are exchanged, and every trainer adds them up in the order of the batches. So the result
    is the same to the last bit in a trainer that had to compute all of them itself.

    Args:
        wire: to the other trainers.
        batches: the same in every trainer.
        metrics: of a batch.
    """
    mine = {place: dict(metrics(batches[place])) for place in range(wire.rank, len(batches), wire.size)}
    names = sorted({name for found in mine.values() for name in found})
    try:
        table = _exchanged(wire, names, mine, len(batches))
    except PeerLostError:
        rest = {place: dict(metrics(batches[place])) for place in range(len(batches)) if place not in mine}
        return _added([{**mine, **rest}[place] for place in range(len(batches))])
    return _added(table)


def _exchanged(wire: Wire, names: list[str], mine: dict[int, dict[str, float]], count: int) -> list[dict[str, float]]:
    """The metrics of every batch; a trainer without a batch learns the number of metrics from the others."""
    width = max(int(size) for size in wire.gather(torch.tensor([len(names)])))
    text = ",".join(names).encode().ljust(1, b"\0")
    longest = max(int(size) for size in wire.gather(torch.tensor([len(text)])))
    rows = wire.gather(torch.frombuffer(bytearray(text.ljust(longest, b"\0")), dtype=torch.uint8))
    texts = [row.numpy().tobytes().rstrip(b"\0").decode() for row in rows]
    known: list[str] = next((text.split(",") for text in texts if text), [])
    if any(text and text.split(",") != known for text in texts) or len(known) != width:
        raise ConfigError(f"Elastic.evaluate: the trainers have different metrics: {texts}; return the same names")
    table = torch.zeros(count, width, dtype=torch.float64)
    for place, found in mine.items():
        table[place] = torch.tensor([float(found[name]) for name in known], dtype=torch.float64)
    wire.sum([table])
    return [dict(zip(known, row, strict=True)) for row in table.tolist()]


def _added(table: list[dict[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in table:
        for name, value in row.items():
            found[name] = found.get(name, 0.0) + float(value)
    return found
