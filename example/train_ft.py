"""Handwritten digits with a convolutional network: the fault-tolerant training of the first EDL tutorial on Paddle 3.

The original (2017) used paddle.v2, whose trainers, reader and parameter servers no longer exist. The structure is
the same: three networks to choose from, batches of ten, one line for each hundred batches, a test after each pass.
The reader is new: it gets its batches from the job's master. The parameter servers are those of
`example/fit_flights`. They use Adagrad; the original used momentum with weight decay.
"""

from __future__ import annotations

import gzip
import os
import signal
import sys
from pathlib import Path

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import nn

from edl.worker.job import Job, connect
from example.fit_flights.fit import Model, save
from example.fit_flights.pserver import log, serve

DATASET_PATH = Path(os.environ.get("DATASET_PATH", "/data/mnist"))
BATCH, PASSES, RATE = 10, 120, 0.005
SAVE_EVERY, LOG_EVERY = 1000, 100  # pushes of all trainers; batches

Vector = NDArray[np.float32]


def softmax_regression() -> nn.Layer:
    """One layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def multilayer_perceptron() -> nn.Layer:
    """Two hidden layers with 128 and 64 units."""
    hidden = [nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, 10))


def convolutional_neural_network() -> nn.Layer:
    """Two convolutions with pooling, then one layer."""
    first = [nn.Conv2D(1, 20, 5), nn.ReLU(), nn.MaxPool2D(2, 2)]
    second = [nn.Conv2D(20, 50, 5), nn.ReLU(), nn.MaxPool2D(2, 2)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(800, 10))


def main() -> None:
    """Run the role of this pod."""
    paddle.seed(1)  # every pod starts with the same weights; the pservers hold the difference
    network = convolutional_neural_network()
    beginning = np.concatenate([weights.numpy().ravel() for weights in network.parameters()])
    if os.environ["TRAINING_ROLE"] == "PSERVER":
        serve(len(beginning), RATE)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    model = Model(os.environ["PADDLE_PSERVERS"].split(","), len(beginning))
    with connect() as job:
        train(job, network, model, beginning)


def train(job: Job, network: nn.Layer, model: Model, beginning: Vector) -> None:
    """Train until every image of every pass is done, by this trainer or by others."""
    images, labels = read("train")
    if job.status()["dataset"] is None:  # the job's spec has no data set
        job.set_dataset(f"index:{len(labels)}", epochs=int(os.environ.get("PADDLE_INIT_NUM_PASSES", PASSES)))
    set_weights(network, beginning + model.pull())
    saved, pass_id = model.pushes // SAVE_EVERY, 0
    for batch_id, batch in enumerate(job.batches(BATCH)):
        if job.epoch > pass_id:
            test(network, pass_id)
            pass_id = job.epoch
        cost = nn.functional.cross_entropy(network(paddle.to_tensor(images[batch])), paddle.to_tensor(labels[batch]))
        cost.backward()
        gradient = np.concatenate([weights.grad.numpy().ravel() for weights in network.parameters()])
        set_weights(network, beginning + model.push(gradient))
        network.clear_gradients()
        if batch_id % LOG_EVERY == 0:
            log(f"Pass {pass_id}, Batch {batch_id}, Cost {float(cost):.6f}")
        if model.pushes // SAVE_EVERY > saved:
            saved = model.pushes // SAVE_EVERY
            save(job, model, saved)
    test(network, pass_id)


def test(network: nn.Layer, pass_id: int) -> None:
    """Log the share of test images that the network recognises."""
    images, labels = read("t10k")
    with paddle.no_grad():
        guesses = [network(paddle.to_tensor(part)).numpy().argmax(axis=1) for part in np.array_split(images, 20)]
    log(f"Test with Pass {pass_id}, accuracy {(np.concatenate(guesses) == labels).mean():.4f}")


def set_weights(network: nn.Layer, whole: Vector) -> None:
    """Set the parameters of the network from one vector."""
    start = 0
    for weights in network.parameters():
        count = int(np.prod(weights.shape))
        weights.set_value(whole[start : start + count].reshape(weights.shape))
        start += count


def read(name: str) -> tuple[Vector, NDArray[np.int64]]:
    """Read (images, 1, 28, 28) from -1 to 1, and (images,) their digits, from the files of the MNIST database."""
    with gzip.open(DATASET_PATH / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(DATASET_PATH / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return pixels.astype(np.float32) / 127.5 - 1, labels.astype(np.int64)


if __name__ == "__main__":
    main()
