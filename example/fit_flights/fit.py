"""Which flights are late? A logistic model, trained by any number of trainers.

The same script runs in every pod of the job: `python -m fit_flights.fit`. A trainer may be killed at any line.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edl.errors import EdlError, PermanentError
from edl.worker.job import Job, connect

from . import pserver
from .flights import Flights, auc, load

BATCH = 64
SAVE_EVERY = 500  # pushes of all trainers together
LOG_EVERY = 250  # batches
RETRY_S = 0.2

Vector = NDArray[np.float32]


def main() -> None:
    """Run the role of this pod."""
    flights = load()
    if os.environ["TRAINING_ROLE"] == "PSERVER":
        pserver.serve(flights.size)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # connect() gives the leases back on exit
        train(flights, Model(os.environ["PADDLE_PSERVERS"].split(","), flights.size))


def train(flights: Flights, model: Model) -> None:
    """Train until every record of every epoch is done, by this trainer or by others."""
    with connect() as job:
        weights, saved = model.pull(), model.pushes // SAVE_EVERY
        for count, batch in enumerate(job.batches(BATCH), 1):  # asking for the next batch acknowledges this one
            columns = flights.columns[batch]
            chance, late = predict(weights, columns), flights.late[batch]
            weights = model.push(
                np.bincount(columns.ravel(), np.repeat(chance - late, columns.shape[1]), flights.size)
            )
            if model.pushes // SAVE_EVERY > saved:
                saved = model.pushes // SAVE_EVERY
                save(job, model, saved)
            if count % LOG_EVERY == 0:
                loss = -np.log(np.where(late > 0, chance, 1 - chance)).mean()
                pserver.log(f"epoch {job.epoch}: {count} batches by this trainer, loss {loss:.3f}")
    score = predict(weights, flights.test_columns)
    pserver.log(f"AUC {auc(flights.test_late, score):.4f} on {len(score)} held-out flights, {model.pushes} pushes")


def predict(weights: Vector, columns: NDArray[np.int64]) -> Vector:
    """The probability that each flight is late.

    Args:
        weights: (weights,) of the model.
        columns: (flights, features) the weights that each flight uses.

    Returns:
        (flights,) in [0, 1].
    """
    chance: Vector = 1 / (1 + np.exp(-weights[columns].sum(axis=1)))
    return chance


def save(job: Job, model: Model, step: int) -> None:
    """Save the model in one trainer; everything that is reported until now is committed with it."""
    if not job.should_save(step):
        return
    try:
        with job.checkpoint(step) as number:
            model.save(number)
        pserver.log(f"saved checkpoint {number} after {model.pushes} pushes")
    except PermanentError as error:  # a pserver was lost meanwhile, and training returned to an earlier checkpoint
        pserver.log(f"step {step} is not saved: {error}")


class Model:
    """The weights, of which each pserver holds a part; the model waits for a lost pserver.

    Args:
        peers: HOST:PORT of each pserver.
        size: number of weights.

    Attributes:
        pushes: of all trainers, as of the last answer.
    """

    def __init__(self, peers: list[str], size: int) -> None:
        self._peers, self._size = peers, size
        self._connections = [http.client.HTTPConnection(peer, timeout=pserver.TIMEOUT_S) for peer in peers]
        self._name = f"{os.environ.get('POD_NAME', 'trainer')}.{time.time_ns()}"
        self._seq = 0
        self.pushes = 0

    def pull(self) -> Vector:
        """The current weights."""
        return self._join(self._call(part, "GET", "/weights") for part in range(len(self._peers)))

    def push(self, gradient: NDArray[Any]) -> Vector:
        """Send a gradient to every part, once; returns the weights after it."""
        self._seq += 1
        whole, path = gradient.astype(np.float32), f"/push?by={self._name}&seq={self._seq}"
        count = len(self._peers)
        return self._join(self._call(part, "POST", path, whole[part::count].tobytes()) for part in range(count))

    def save(self, number: int) -> None:
        """Let every part save its state as a checkpoint."""
        for part in range(len(self._peers)):
            self._call(part, "POST", f"/save?number={number}")

    def _join(self, parts: Iterable[bytes]) -> Vector:
        weights = np.empty(self._size, np.float32)
        for index, part in enumerate(parts):
            weights[index :: len(self._peers)] = np.frombuffer(part, np.float32)
        return weights

    def _call(self, part: int, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request until the pserver answers."""
        connection, is_logged = self._connections[part], False
        while True:
            try:
                connection.request(method, path, body)
                answer = connection.getresponse()
                data = answer.read()
                if answer.status == http.client.OK:
                    self.pushes = int(answer.headers["X-Pushes"])
                    return data
                if answer.status < http.client.INTERNAL_SERVER_ERROR:
                    sys.exit(f"pserver {self._peers[part]}: it refused {method} {path} with status {answer.status}")
                problem = f"status {answer.status}"
            except (OSError, http.client.HTTPException) as error:
                problem = repr(error)
            connection.close()
            if not is_logged:
                pserver.log(f"pserver {self._peers[part]}: {problem}; waiting for it")
                is_logged = True
            time.sleep(RETRY_S)


if __name__ == "__main__":
    try:
        main()
    except EdlError as problem:
        sys.exit(f"fit: {problem}")
