"""The work of `benchmarks.master` on the strongest peer: DLRover 0.6.1's master, with its own clients.

It needs a Python with `pip install 'dlrover[k8s]==0.6.1' protobuf`, preferably in a separate environment. Its master
stores nothing on disk. Its clients make two calls for each task, because no call both reports and takes one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLIENTS = Path(__file__).with_name("dlrover_clients.py")
_TICKS = os.sysconf("SC_CLK_TCK")


def python_with_peer(named: str | None) -> str | None:
    """A Python that has the peer: the named one, else this one; None if neither has it."""
    return named or (sys.executable if importlib.util.find_spec("dlrover") else None)


def cpu_s(pid: int) -> float:
    """The CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measure_peer(python: str, seconds: float) -> None:
    """Print a line for 1, 8 and 64 clients, each with a new master."""
    for clients in (1, 8, 64):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        command = [python, "-m", "dlrover.python.master.main", "--platform", "local", "--port", str(port)]
        with tempfile.TemporaryDirectory() as folder:
            master = subprocess.Popen(
                [*command, "--job_name", "benchmark"],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                _await(master, port)
                used_s = cpu_s(master.pid)
                call = [python, str(CLIENTS), f"127.0.0.1:{port}", str(clients), str(seconds), "200000"]
                done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
                used_s = cpu_s(master.pid) - used_s
            finally:
                master.kill()
                master.wait()
        found = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{clients:3} clients of DLRover 0.6.1: {found['tasks'] / found['seconds']:8.0f} tasks/s,"
            f" {found['tasks'] / used_s:8.0f} tasks per CPU second of its master, nothing durable;"
            f" a pair of calls p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms"
        )


def _await(master: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if master.poll() is not None or time.monotonic() > until:
                raise SystemExit("DLRover's master does not start; try it by hand: see benchmarks/peer.py") from None
            time.sleep(0.1)
        else:
            return
