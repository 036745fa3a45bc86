"""Training on Paddle's own parameter servers; the same script runs in pservers and in trainers.

The embeddings are in a table that the pservers divide among them, and so are the other weights. Trainers push their
gradients when they have them (Paddle's asynchronous mode), so they come and go as they like, and each record is
trained on once: edl's master hands the records out.

Environment: TRAINING_ROLE, PADDLE_PSERVERS (HOST:PORT of each), PADDLE_PSERVER_ID or PADDLE_TRAINER_ID, as
`paddle_k8s` sets them; CTR_OUTPUT, the folder of the trained model.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from edl.worker import connect
from edl.worker.job import Job

from .clicks import HELD_OUT, NUMBERS, RECORDS, SLOTS, VALUES, Clicks, generate
from .network import LAYERS, TABLE, WIDTH, Network, Vector, auc, build, predict, save_for_inference

BATCH, RATE, SHARDS = 100, 0.003, 8
_PAUSE_S, _WAIT_S = 0.2, 300.0
_DENSE = [*(f"{kind}-{n}" for n in range(len(LAYERS)) for kind in ("weights", "bias")), "weights-last", "bias-last"]


def main() -> None:
    """Run the role of this pod."""
    is_pserver = os.environ["TRAINING_ROLE"] == "PSERVER"
    pservers = [address(entry) for entry in os.environ["PADDLE_PSERVERS"].split(",")]
    set_role(pservers, is_pserver=is_pserver)
    paddle.enable_static()
    if is_pserver:
        prepare()
        fleet().init_server()
        fleet().run_server()
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with connect() as job:
        Trainer(job, pservers).train(generate())


def fleet() -> Any:  # noqa: ANN401 - Paddle has no types
    """Paddle's distributed training; imported late, because it reads the environment."""
    from paddle.distributed import fleet as module  # noqa: PLC0415

    return module


def address(entry: str) -> str:
    """IP:PORT of a pserver; waits until its name is known."""
    host, _, port = entry.rpartition(":")
    until_s = time.monotonic() + _WAIT_S
    while True:
        try:
            return f"{socket.gethostbyname(host)}:{port}"
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(_PAUSE_S)


def set_role(pservers: list[str], *, is_pserver: bool) -> None:
    """Set what Paddle reads; each trainer is the only one that it knows of, so others may come and go."""
    own = os.environ["PADDLE_PSERVER_ID" if is_pserver else "PADDLE_TRAINER_ID"]
    ip, port = pservers[int(own)].split(":") if is_pserver else ("127.0.0.1", "0")
    os.environ.update(
        PADDLE_PSERVERS_IP_PORT_LIST=",".join(pservers),
        PADDLE_TRAINERS_NUM="1",
        PADDLE_TRAINER_ID="0",
        PADDLE_TRAINER_ENDPOINTS="127.0.0.1:0",
        PADDLE_WITH_GLOO="0",
        POD_IP=ip,
        PADDLE_PORT=port,
    )


def prepare() -> Network:
    """The program of this process, divided between trainers and pservers."""
    paddle.seed(1)  # every process builds the same network with the same first weights
    fleet().init()
    network = build(on_pservers=True)
    strategy = fleet().DistributedStrategy()
    strategy.a_sync = True
    strategy.sparse_table_configs = {TABLE: {f"table_parameters.{TABLE}.shard_num": SHARDS}}
    optimizer = fleet().distributed_optimizer(paddle.optimizer.Adam(RATE, lazy_mode=True), strategy)
    optimizer.minimize(network.cost)
    return network


class Trainer:
    """One trainer.

    Args:
        job: connected.
        pservers: IP:PORT of each.
    """

    def __init__(self, job: Job, pservers: list[str]) -> None:
        self._job, self._pservers = job, pservers
        self._network: Network | None = None
        self._executor = paddle.static.Executor(paddle.CPUPlace())

    def train(self, clicks: Clicks) -> None:
        """Train until every record is done, by this trainer or by others; then one of them saves the model."""
        costs: list[float] = []
        for batch in self._job.batches(BATCH):
            if self._network is None:
                self._network = self._connected()
            costs.append(self._step(self._network, clicks, batch))
            if len(costs) % 100 == 0:
                print(f"{len(costs)} batches: cost {np.mean(costs[-100:]):.4f}", flush=True)
        if self._network is not None:
            if self._job.should_save(2):
                self._save(self._network, clicks)
            fleet().stop_worker()  # it waits for the last gradients

    def _connected(self) -> Network:
        """Connect to the pservers, once this trainer has records: before that edl may still take the data back."""
        wait_for(self._pservers)
        is_first = self._job.should_save(1)  # one trainer of the job gives the pservers their first weights
        while not is_first and not has_begun(self._job.status()):
            time.sleep(_PAUSE_S)
        os.environ["TEST_MODE"] = str(int(has_begun(self._job.status())))
        network = prepare()
        self._executor.run(paddle.static.default_startup_program())
        fleet().init_worker()
        return network

    def _step(self, network: Network, clicks: Clicks, batch: list[int]) -> float:
        """Push the gradients of a batch; returns its cost."""
        self._pull()
        given = {
            "numbers": clicks.numbers[batch],
            "categories": clicks.categories[batch].reshape(-1, 1),
            "clicked": clicks.clicked[batch, None].astype(np.float32),
        }
        (cost,) = self._executor.run(feed=given, fetch_list=[network.cost])
        return float(cost)

    def _pull(self) -> None:
        """Fetch the dense weights; Paddle does that by itself only for its own readers of files."""
        from paddle.distributed.ps.utils.public import get_the_one_recv_context  # noqa: PLC0415

        runtime = fleet().fleet._runtime_handle  # noqa: SLF001 - Paddle offers no other way
        places = get_the_one_recv_context(runtime.context)
        runtime._pull_all_dense([paddle.static.global_scope()], runtime._send_ctx, places)  # noqa: SLF001

    def _save(self, network: Network, clicks: Clicks) -> None:
        """Save the model, and test what is saved."""
        self._pull()
        dense = {name: np.array(paddle.static.global_scope().find_var(name).get_tensor()) for name in _DENSE}
        path = save_for_inference(Path(os.environ.get("CTR_OUTPUT", "model")), self._table(network), dense)
        found = auc(clicks.clicked[RECORDS:], predict(path, clicks))
        print(f"AUC {found:.4f} on {HELD_OUT} held-out records; the model is {path}.pdmodel", flush=True)

    def _table(self, network: Network) -> Vector:
        """The embeddings of all categories, from the pservers."""
        given = {
            "numbers": np.zeros((VALUES, NUMBERS), np.float32),
            "categories": np.arange(SLOTS * VALUES).reshape(-1, 1),
            "clicked": np.zeros((VALUES, 1), np.float32),
        }
        (rows,) = self._executor.run(feed=given, fetch_list=[network.embedded], use_prune=True)
        return np.asarray(rows, np.float32).reshape(-1, WIDTH)


def has_begun(status: dict[str, Any]) -> bool:
    """True if the pservers have weights: some record was trained on."""
    return bool(status["epoch"] or status["consumed"] or status["state"] == "finished")


def wait_for(pservers: list[str]) -> None:
    """Wait until every pserver listens; a pull before that fails for good.

    Raises:
        TimeoutError: one of them does not come.
    """
    until_s = time.monotonic() + _WAIT_S
    for entry in pservers:
        host, _, port = entry.rpartition(":")
        while True:
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
                break
            if time.monotonic() > until_s:
                raise TimeoutError(f"pserver {entry} does not listen")
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
