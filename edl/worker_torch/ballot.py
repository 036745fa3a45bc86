"""The ballot: what each trainer reports about a step before it is made, as a row of whole numbers for all."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from edl.errors import ConfigError

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_BITS = 62  # of a set in one whole number


class Ballot(NamedTuple):
    """The report of one trainer about a step.

    Attributes:
        must_change, leaving, stop: see `Flags`.
        settings: a digest of the optimizers' settings.
        counts: a digest of the optimizers' step counts.
        modes: a digest of what trains; see `Modes`. 0 if it had no records.
        is_compared: 1 if `tensors` is there.
        tensors: the bits of parameters and buffers.
        cost_us: what it took to compute `tensors`, in microseconds.
        step_us: what a step takes; 0 if it is not known.
        kind: the kind of its losses; see `losses.kinds`. 0 if there was none.
        action: what the script asks for; see `TorchReplica`.
        weight: over how much its losses are means, in units of 2**-20.
        divisor: the divisor of losses of the kind DIVIDED; 0 if there is none, or if they have several.
        factors: a digest of the tensors by which its losses were multiplied; see `LossBook.factors`.
        varies: 1 if sums of this job were divided by numbers other than the records of a step.
        max_norm: the bits of a double.
        groups: passes whose gradients are in `spread`; 0 in a step that is not measured.
        spread: the bits of a double: the sum of their squares, each divided by the weight of its pass.
        square: the bits of a double: the square of the summed gradient of the step before; nan if not measured.
        watch_us: what it took to compute these, in microseconds.
        batch: the records that the next step should have; 0 for a job of one batch.
        present: bit i is set if parameter i has a gradient.
        changed: bit i is set if buffer i may have changed.
    """

    must_change: int
    leaving: int
    stop: int
    settings: int
    counts: int
    modes: int
    is_compared: int
    tensors: int
    cost_us: int
    step_us: int
    kind: int
    action: int
    weight: int
    divisor: int
    factors: int
    varies: int
    max_norm: int
    groups: int
    spread: int
    square: int
    watch_us: int
    batch: int
    present: int
    changed: int


_FIXED = len(Ballot._fields) - 2


def to_row(ballot: Ballot, parameters: int, buffers: int) -> Any:
    """Encode a ballot as a tensor of whole numbers.

    Args:
        ballot: the ballot of this trainer.
        parameters: at most so many; the same number in all trainers.
        buffers: at most so many.
    """
    words = [*ballot[:_FIXED], *_words(ballot.present, parameters), *_words(ballot.changed, buffers)]
    return torch.tensor(words, dtype=torch.int64)


def from_row(row: Any, parameters: int) -> Ballot:
    """Decode a ballot from a tensor that `to_row` has made."""
    words = row.tolist()
    cut = _FIXED + -(-parameters // _BITS)
    return Ballot._make([*words[:_FIXED], _number(words[_FIXED:cut]), _number(words[cut:])])


def float_bits(value: float) -> int:
    """The bits of a double as a whole number."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def bits_float(bits: int) -> float:
    """The double that has these bits."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def _words(number: int, bits: int) -> list[int]:
    return [number >> at & (1 << _BITS) - 1 for at in range(0, bits, _BITS)]


def _number(words: list[int]) -> int:
    return sum(word << at * _BITS for at, word in enumerate(words))
