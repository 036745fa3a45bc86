"""Runs example/train_ft.py with kills, if Paddle is installed: `make train-ft`.

Paddle is too large for every run of the tests, and the MNIST database is not on the package index. The program
therefore writes the digits of scikit-learn (1,797 images of 8 x 8, from UCI) in the format of MNIST, enlarged by 3.
"""

from __future__ import annotations

import gzip
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from example.fit_flights.local import LocalJob, Plan

TRAIN = 1500


def write(folder: Path, name: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Write two files in the format of the MNIST database."""
    large = np.pad(images.repeat(3, axis=1).repeat(3, axis=2) * 15.9375, ((0, 0), (2, 2), (2, 2)))
    head = struct.pack(">IIII", 2051, len(labels), 28, 28)
    (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + large.astype(np.uint8).tobytes()))
    head = struct.pack(">II", 2049, len(labels))
    (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(head + labels.astype(np.uint8).tobytes()))


def main() -> int:
    """Train four passes with two trainers and four kills; 1 if a record is lost or the network does not learn."""
    digits = load_digits()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, "train", digits.images[:TRAIN], digits.target[:TRAIN])
        write(folder, "t10k", digits.images[TRAIN:], digits.target[TRAIN:])
        environment = {"DATASET_PATH": name, "PADDLE_INIT_NUM_PASSES": "4"}
        plan = Plan(trainers=2, kills=4, records=TRAIN, epochs=4, module="example.train_ft", environment=environment)
        with LocalJob(folder, plan) as local:
            result = local.run()
    tests = [line for logs in result.logs.values() for line in logs.splitlines() if line.startswith("Test with")]
    print(*tests, sep="\n")
    done = [epoch["done"] for epoch in result.audit["epochs"]]
    print(f"audit ok: {result.audit['ok']}, done per pass: {done}, {result.trainer_kills} trainers killed")
    best = max(float(line.rpartition(" ")[2]) for line in tests)
    return 0 if result.audit["ok"] and done == [TRAIN] * 4 and best > 0.85 else 1


if __name__ == "__main__":
    sys.exit(main())
