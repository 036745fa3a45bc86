"""Numbers of all trainers together: sums, and evaluations whose batches the trainers share among them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from edl.errors import ConfigError
from edl.worker.steps import PeerLostError
from edl.worker_torch.collating import begun, options_of
from edl.worker_torch.wire import Wire

try:
    import torch
    from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error


Together = Callable[[], contextlib.AbstractContextManager[None]]


def summed(wire: Wire, numbers: Mapping[str, float]) -> dict[str, float]:
    """The sum of each number over all trainers, which give the same names.

    Raises:
        PeerLostError: a trainer is gone.
    """
    names = sorted(numbers)
    row = torch.tensor([float(numbers[name]) for name in names], dtype=torch.float64)
    rows = wire.gather(row)
    return dict(zip(names, torch.stack(rows).sum(0).tolist(), strict=True))


def gathered(wire: Wire, value: Any) -> Any:
    """The tensors of all trainers, one after the other in the order of their ranks.

    Args:
        wire: to the other trainers.
        value: of shape [n, ...], on any device; n may differ between trainers, the rest and the type may not.

    Raises:
        ConfigError: the value has no first dimension, or the trainers have other shapes or types.
        PeerLostError: a trainer is gone.
    """
    if not isinstance(value, torch.Tensor) or not value.dim():
        raise ConfigError(
            f"Elastic.gather: it got {_described(value)}, and puts tensors one after the other; give a tensor of"
            " shape [n, ...], such as value.reshape(1) for one number"
        )
    mine = value.detach().cpu().contiguous()
    others = [its.decode() for its in wire.gather_bytes(_described(mine[:0]).encode())]
    if len(set(others)) > 1:
        raise ConfigError(
            f"Elastic.gather: the trainers have tensors that do not fit together, by rank, without their lengths:"
            f" {', '.join(others)}; give the same shape but for the first dimension, and the same type"
        )
    counts = [int(count) for count in wire.gather(torch.tensor([len(mine)]))]
    row = mine.new_zeros([max(1, *counts), *mine.shape[1:]])
    row[: len(mine)] = mine
    rows = [its.view(mine.dtype).view(row.shape) for its in wire.gather(row.flatten().view(torch.uint8))]
    return torch.cat([its[:count] for its, count in zip(rows, counts, strict=True)]).to(value.device)


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of {str(value.dtype).removeprefix('torch.')} of shape {[*value.shape]}"


def _check_order(batches: Any) -> None:
    """Refuse a DataLoader that may have another order in each trainer, or no places."""
    if not isinstance(batches, DataLoader):
        return
    is_stream = isinstance(batches.dataset, IterableDataset)
    sampler: Any = None if is_stream else batches.sampler
    if type(sampler) is not SequentialSampler or type(batches.batch_sampler) is not BatchSampler:
        kind = "no places, since its data are a stream" if is_stream else "a sampler of its own"
        raise ConfigError(
            f"Elastic.evaluate: the loader has {kind}, so its order may differ between trainers, and records would be"
            " evaluated twice or not at all; give a loader of a data set with __getitem__, with batch_size= and"
            " shuffle=False"
        )


def _loaded(batches: Any, places: Sequence[int]) -> Iterator[Any]:
    """The batches at some places; a DataLoader loads no others."""
    if not isinstance(batches, DataLoader):
        return (batches[place] for place in places)
    numbers = list(batches.batch_sampler or ())
    data = DataLoader(
        batches.dataset,
        batch_sampler=[numbers[place] for place in places],
        collate_fn=batches.collate_fn,
        **{"num_workers": batches.num_workers, **dict(options_of(batches).get("reading", {}))},
    )
    return begun(data)


def evaluated(
    wire: Wire,
    batches: Any,
    metrics: Callable[[Any], Mapping[str, float]],
    together: Together = contextlib.nullcontext,
) -> dict[str, float]:
    """The sum of each metric over all batches.

    The numbers of each batch are exchanged, and every trainer adds them up in the order of the batches. So the result
    is the same to the last bit in a trainer that had to compute all of them itself.

    Args:
        wire: to the other trainers.
        batches: the same in every trainer.
        metrics: the metrics of a batch.
        together: makes a block that fails in all processes of this trainer if it fails in one.

    Raises:
        ConfigError: a loader may have another order in each trainer, or the trainers have different metrics.
    """
    _check_order(batches)
    places = range(wire.rank, len(batches), wire.size)
    mine = {place: dict(metrics(one)) for place, one in zip(places, _loaded(batches, places), strict=True)}
    names = sorted({name for found in mine.values() for name in found})
    try:
        with together():
            table = _exchanged(wire, names, mine, len(batches))
    except PeerLostError:
        lost = [place for place in range(len(batches)) if place not in mine]
        rest = {place: dict(metrics(one)) for place, one in zip(lost, _loaded(batches, lost), strict=True)}
        return _added([{**mine, **rest}[place] for place in range(len(batches))])
    return _added(table)


def _exchanged(wire: Wire, names: list[str], mine: dict[int, dict[str, float]], count: int) -> list[dict[str, float]]:
    """The metrics of every batch; a trainer without a batch learns the number of metrics from the others."""
    texts = [its.decode() for its in wire.gather_bytes(",".join(names).encode())]
    known: list[str] = next((text.split(",") for text in texts if text), [])
    if any(text and text.split(",") != known for text in texts):
        raise ConfigError(f"Elastic.evaluate: the trainers have different metrics: {texts}; return the same names")
    table = torch.zeros(count, len(known), dtype=torch.float64)
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
