"""Clients of DLRover's master. `benchmarks.master --dlrover-python PATH` runs it with a Python that has dlrover.

    PATH benchmarks/dlrover_clients.py ADDRESS CLIENTS SECONDS RECORDS

Each client takes a task of one record and reports it, as often as it can, with the calls of DLRover's own client. It
prints one line of JSON: tasks, seconds, and the median and 99th percentile of a pair of calls in milliseconds.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import threading
import time
from typing import Any


def main() -> None:
    """Run the clients."""
    address, clients, seconds, records = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    client = importlib.import_module("dlrover.python.elastic_agent.master_client").GrpcMasterClient
    made = [client(address, number, "worker") for number in range(clients)]
    made[0].report_dataset_shard_params(1, 1, records, shuffle=False, num_minibatches_per_shard=1, dataset_name="d")
    waits: list[float] = []
    begun = time.monotonic()
    threads = [threading.Thread(target=_work, args=(one, begun + seconds, waits)) for one in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cuts = statistics.quantiles(waits, n=100)
    passed_s = time.monotonic() - begun
    figures = {"tasks": len(waits), "seconds": passed_s, "p50_ms": 1e3 * cuts[49], "p99_ms": 1e3 * cuts[98]}
    print(json.dumps(figures))


def _work(client: Any, end: float, waits: list[float]) -> None:  # noqa: ANN401 a class of DLRover's
    while time.monotonic() < end:
        begun = time.monotonic()
        _, task = client.get_task("d")
        if task.shard.end <= task.shard.start:
            raise SystemExit("dlrover has no task: give more records")
        client.report_task_result("d", task.task_id, "")
        waits.append(time.monotonic() - begun)


if __name__ == "__main__":
    main()
