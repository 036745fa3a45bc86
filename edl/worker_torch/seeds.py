"""Random numbers that depend only on a piece of a step, not on the trainer or process that draws them."""

from __future__ import annotations

import random
import sys

from edl.errors import ConfigError
from edl.worker.forks import LIBRARY_CALL
from edl.worker.step_settings import Piece

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_MIX = 0x9E3779B97F4A7C15  # odd, so that neighbouring positions get different seeds
_READING = 0x2545F4914F6CDD1D


def piece_seed(step: int, piece: Piece, parts: int) -> int:
    """The seed of what the loop computes from a piece.

    Args:
        step: the position at which its step begins.
        piece: the piece of that step.
        parts: into how many parts each step is divided.
    """
    return ((step + 1) * _MIX + piece.start * parts + piece.slot) % 2**63


def reading_seed(seed: int) -> int:
    """The seed for reading the records of a piece, derived from the seed of the piece."""
    return (seed ^ _READING) % 2**63


def seed_all(seed: int) -> None:
    """Seed torch, Python's `random`, and numpy's global numbers if numpy is in use."""
    with LIBRARY_CALL:  # torch and numpy have locks for it, and a process of a DataLoader begins with seeding both
        torch.manual_seed(seed)
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed % 2**32)
