"""A master and trainers as separate processes, which a test can kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.worlds.waiting import wait_until

TOKEN = "trainer-token-0123456789"
CONTROLLER_TOKEN = "controller-token-0123456789"

TRAINER = """
import os, sys, time
from edl.worker import connect
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with connect() as job:
    for record in job.records():
        time.sleep(float(sys.argv[2]))
        os.write(log, f"{job.epoch} {record}\\n".encode())
os.write(log, b"end\\n")
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Cluster:
    """One master and some trainers, with their files in one folder."""

    folder: Path
    dataset: str
    ttl_s: float = 1.0
    port: int = field(default_factory=free_port)
    master: subprocess.Popen[bytes] | None = None
    trainers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    def start_master(self) -> None:
        (self.folder / "token").write_text(TOKEN + "\n")
        (self.folder / "controller").write_text(CONTROLLER_TOKEN + "\n")
        command = ["master", "--listen", f"127.0.0.1:{self.port}", "--journal", str(self.journal)]
        command += ["--token-file", str(self.folder / "token"), "--lease-ttl-s", str(self.ttl_s)]
        command += ["--controller-token-file", str(self.folder / "controller")]
        command += ["--dataset", self.dataset] if self.dataset else []
        with (self.folder / "master.log").open("ab") as log:
            self.master = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", "from edl.cli.main import main; main()", *command, *self.flags],
                stderr=log,
            )

    def await_master(self, seconds: float = 30.0) -> None:
        wait_until(self._answers, "the master answers", seconds)

    def _answers(self) -> bool:
        assert self.master is not None
        assert self.master.poll() is None, self.master_log
        with suppress(URLError, OSError), urlopen(self.url + "/healthz", timeout=1):
            return True
        return False

    @property
    def master_log(self) -> str:
        return (self.folder / "master.log").read_text()

    def start_trainer(self, name: str, seconds: float, suffix: str = "") -> None:
        environment = {**os.environ, "EDL_MASTER": self.url, "EDL_TOKEN_FILE": str(self.folder / "token")}
        environment |= {"POD_NAME": name, "POD_UID": f"uid-{name}{suffix}"}
        self.trainers[name] = subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(self.folder / f"{name}.log"), str(seconds)],
            env=environment,
            stderr=subprocess.DEVNULL,
        )

    def consumed(self) -> list[tuple[int, int]]:
        """(epoch, record) of each record that a trainer has trained on."""
        lines = [line.split() for path in self.folder.glob("t*.log") for line in path.read_text().splitlines()]
        return [(int(line[0]), int(line[1])) for line in lines if len(line) == 2]

    def audit(self) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-c",
            "from edl.cli.main import main; main()",
            "audit",
            str(self.journal),
            "-o",
            "json",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def stop(self) -> None:
        for process in (*self.trainers.values(), *([self.master] if self.master else [])):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(timeout=60)


@contextmanager
def cluster(folder: Path, dataset: str, ttl_s: float = 1.0, *flags: str) -> Iterator[Cluster]:
    made = Cluster(folder, dataset, ttl_s, flags=flags)
    made.start_master()
    try:
        made.await_master()
        yield made
    finally:
        made.stop()
