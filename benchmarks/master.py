"""Measures the data master: `python -m benchmarks.master [rates|peer|latency|heartbeats|connections|restart|lines]`.

`--dlrover-python PATH` names a Python with DLRover 0.6.1, whose master then does the same work in the same run.

The master is a separate process with its journal on the disk of the working directory; the clients use the other
cores. Rates are per second of wall time and per second of the master's CPU time. The latter is the rate per core, and
does not depend on other load. A task is one lease granted and one reported, both durable before the response.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.peer import cpu_s, measure_peer, python_with_peer
from edl.master.bodies import DatasetBody
from edl.master.datasets import Catalog

TOKEN = "benchmark-token-0123456789"  # noqa: S105
SECONDS = 5.0
CLIENTS = 10_000


class Client:
    """One trainer on one connection, with as little HTTP as possible."""

    def __init__(self, port: int, number: int) -> None:
        self._port = port
        self._session = {"pod_uid": f"uid-{number}", "incarnation": 1, "name": f"t{number}"}
        self._seq = 0
        self.tasks = 0
        self.done: list[dict[str, int]] = []

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def sync(self, want: int) -> None:
        """Report all leases and take as many new ones."""
        self._seq += 1
        body = {"session": self._session, "seq": self._seq, "done": self.done, "want": want}
        answer = await self.post(json.dumps(body).encode())
        self.tasks += len(self.done)
        self.done = [{k: x[k] for k in ("epoch", "start", "end", "fence")} for x in answer["leases"]]

    async def post(self, data: bytes) -> dict[str, Any]:
        """Make one call."""
        head = (
            f"POST /v1/sync HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        found: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        if "error" in found:
            raise SystemExit(f"the master refused the call: {found}")
        return found

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()


class Process:
    """A master process."""

    def __init__(self, folder: Path, records: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        (folder / "token").write_text(TOKEN)
        data = json.dumps({"source": f"index:{records}", "shardSize": 1})
        command = ["master", "--listen", f"127.0.0.1:{self.port}", "--journal", str(folder / "journal")]
        command += ["--token-file", str(folder / "token"), "--dataset", data]
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from edl.cli.main import main; main()", *command], stderr=subprocess.DEVNULL
        )

    def wait(self) -> None:
        """Wait until it responds."""
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if self._process.poll() is not None:
                    raise SystemExit("the master does not start") from None
                time.sleep(0.01)
            else:
                return

    @property
    def cpu_s(self) -> float:
        """The CPU seconds that it has used."""
        return cpu_s(self._process.pid)

    @property
    def memory_mb(self) -> float:
        """Its resident memory in MB."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    def stop(self, *, kill: bool = False) -> None:
        """Stop it."""
        (self._process.kill if kill else self._process.terminate)()
        self._process.wait(timeout=30)


@asynccontextmanager
async def master(records: int, clients: int) -> AsyncIterator[tuple[Process, list[Client]]]:
    """A master with connected trainers."""
    folder = Path(tempfile.mkdtemp(dir=Path.cwd(), prefix=".benchmark-"))
    process = Process(folder, records)
    trainers = [Client(process.port, number) for number in range(clients)]
    try:
        process.wait()
        for trainer in trainers:
            await trainer.open()
        yield process, trainers
        for trainer in trainers:
            trainer.close()
    finally:
        process.stop()
        shutil.rmtree(folder)


async def rates() -> None:
    """Measure durable tasks per second."""
    for clients, want in ((1, 1), (8, 1), (64, 1), (64, 2), (64, 16)):
        async with master(10**8, clients) as (process, trainers):
            end, cpu_s, begun = time.monotonic() + SECONDS, process.cpu_s, time.monotonic()
            await asyncio.gather(*(_until(end, trainer, want) for trainer in trainers))
            passed_s, used_s = time.monotonic() - begun, process.cpu_s - cpu_s
            tasks = sum(trainer.tasks for trainer in trainers)
            print(
                f"{clients:3} clients, {want:2} tasks a call: {tasks / passed_s:8.0f} tasks/s,"
                f" {tasks / used_s:8.0f} tasks per CPU second"
            )


async def _until(end: float, trainer: Client, want: int) -> None:
    while time.monotonic() < end:
        await trainer.sync(want)


async def latency() -> None:
    """Measure latencies at 2,000 calls per second."""
    waits: list[float] = []

    async def beat(trainer: Client, begin: float, every_s: float) -> None:
        for turn in range(int(SECONDS / every_s)):
            await asyncio.sleep(max(0.0, begin + turn * every_s - time.monotonic()))
            sent = time.monotonic()
            await trainer.sync(1)
            waits.append(time.monotonic() - sent)

    async with master(10**8, 64) as (process, trainers):
        cpu_s, begin = process.cpu_s, time.monotonic()
        every_s = len(trainers) / 2000
        await asyncio.gather(*(beat(t, begin + i / 2000, every_s) for i, t in enumerate(trainers)))
        passed_s = time.monotonic() - begin
        cuts = statistics.quantiles(waits, n=100)
        print(
            f"{len(waits) / passed_s:.0f} calls/s: p50 {1e3 * cuts[49]:.1f} ms, p99 {1e3 * cuts[98]:.1f} ms,"
            f" CPU {100 * (process.cpu_s - cpu_s) / passed_s:.0f} %"
        )


async def heartbeats() -> None:
    """Measure 10,000 trainers that send a heartbeat every 10 s over a few connections."""
    async with master(10**8, 50) as (process, lines):
        bodies = [
            json.dumps({"session": {"pod_uid": f"u{n}", "incarnation": 1, "name": f"t{n}"}, "seq": 1, "want": 1})
            for n in range(10_000)
        ]
        leases = [await _pass(line, bodies[i::50]) for i, line in enumerate(lines)]
        held = [lease for policies in leases for lease in policies]
        cpu_s, begun = process.cpu_s, time.monotonic()

        async def beat(line: Client, number: int) -> None:
            for turn, n in enumerate(range(number, 10_000, 50)):
                await asyncio.sleep(max(0.0, begun + turn * 0.05 - time.monotonic()))
                who = {"pod_uid": f"u{n}", "incarnation": 1, "name": f"t{n}"}
                item = {k: held[0][k] for k in ("epoch", "start", "end", "fence")} | {"cursor": held[0]["start"]}
                await line.post(json.dumps({"session": who, "seq": 2, "progress": [item]}).encode())

        await asyncio.gather(*(beat(line, i) for i, line in enumerate(lines)))
        passed_s = time.monotonic() - begun
        used = 100 * (process.cpu_s - cpu_s) / passed_s
        print(f"10,000 heartbeats in {passed_s:.1f} s: CPU {used:.0f} % of a core, {process.memory_mb:.0f} MB")


async def connections() -> None:
    """Measure the memory of a master with 10,000 trainers, each with a connection of its own and a lease."""
    async with master(10**8, CLIENTS) as (process, trainers):
        before_mb = process.memory_mb
        for turn in range(2):
            for first in range(0, CLIENTS, 100):
                await asyncio.gather(*(trainer.sync(1) for trainer in trainers[first : first + 100]))
            found = f"{process.memory_mb:.0f} MB; {before_mb:.0f} MB before"
            print(f"{CLIENTS} trainers, call {turn + 1} of each: {found}")


async def _pass(line: Client, bodies: list[str]) -> list[dict[str, Any]]:
    return [lease for body in bodies for lease in (await line.post(body.encode()))["leases"]]


async def restart() -> None:
    """Measure the restart of a master that was killed with a million shards, half of them done."""
    folder = Path(tempfile.mkdtemp(dir=Path.cwd(), prefix=".benchmark-"))
    process = Process(folder, 10**6)
    try:
        process.wait()
        trainers = [Client(process.port, number) for number in range(64)]
        for trainer in trainers:
            await trainer.open()
        while sum(trainer.tasks for trainer in trainers) < 500_000:
            await asyncio.gather(*(trainer.sync(64) for trainer in trainers))
        memory = process.memory_mb
        process.stop(kill=True)
        begun = time.monotonic()
        process = Process(folder, 10**6)
        process.wait()
        print(f"restart with 10^6 shards: {time.monotonic() - begun:.1f} s, {memory:.0f} MB before it")
    finally:
        process.stop()
        shutil.rmtree(folder)


async def lines() -> None:
    """Measure how long it takes to index the lines of a file of 1 GiB."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
        path = Path(folder) / "lines.txt"
        with path.open("wb") as file:
            for _ in range(1024):
                file.write((b"x" * 99 + b"\n") * 10_485 + b"\n" * 76)
        before_s, begun = cpu_s(os.getpid()), time.monotonic()
        found = await Catalog(Path(folder)).describe(DatasetBody(source=f"lines:{path}"))
        passed_s, used_s = time.monotonic() - begun, cpu_s(os.getpid()) - before_s
        (index,) = Path(folder).glob("dataset-*")  # noqa: ASYNC240 one name
        print(
            f"{found.total} lines of 1 GiB: {passed_s:.2f} s, {used_s:.2f} CPU s; an index of"
            f" {index.stat().st_size / 1024:.0f} KiB"
        )


def main() -> None:
    """Run the named measurements."""
    arguments = argparse.ArgumentParser(prog="benchmarks.master")
    arguments.add_argument("--dlrover-python", metavar="PATH")
    arguments.add_argument("names", nargs="*")
    given = arguments.parse_args()
    python = python_with_peer(given.dlrover_python)

    async def peer() -> None:
        if python is None:
            print("DLRover is not installed in this Python; name one that has it: --dlrover-python PATH")
        else:
            measure_peer(python, SECONDS)

    all_of_it: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "rates": rates,
        "peer": peer,
        "latency": latency,
        "heartbeats": heartbeats,
        "connections": connections,
        "restart": restart,
        "lines": lines,
    }
    for name in given.names or all_of_it:
        asyncio.run(all_of_it[name]())


if __name__ == "__main__":
    main()
