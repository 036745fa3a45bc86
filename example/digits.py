"""Writes the handwritten digits of scikit-learn in the format of the MNIST database: a data set without a download.

    python digits.py FOLDER

The 1,797 pictures of 8 x 8 (from UCI) are enlarged by 3 and framed, so a network for MNIST takes them as they are.
The last 297 are the test.
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

TRAIN = 1500
_PICTURES, _NUMBERS = 2051, 2049  # the first words of the two kinds of files


def write_all(folder: Path) -> None:
    """Write the four files: pictures and their digits, to train on and to test."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    for name, part in (("train", slice(TRAIN)), ("t10k", slice(TRAIN, None))):
        _write(folder, name, digits.images[part], digits.target[part])


def _write(folder: Path, name: str, pictures: NDArray[np.float64], numbers: NDArray[np.int64]) -> None:
    large = np.pad(pictures.repeat(3, axis=1).repeat(3, axis=2) * 15.9375, ((0, 0), (2, 2), (2, 2)))
    head = struct.pack(">IIII", _PICTURES, len(numbers), 28, 28)
    (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + large.astype(np.uint8).tobytes()))
    head = struct.pack(">II", _NUMBERS, len(numbers))
    (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(head + numbers.astype(np.uint8).tobytes()))


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
