"""The whole job on this machine, without Kubernetes: a master, pservers and trainers as local processes.

    python -m example.fit_flights.local                      # 2 pservers, 4 trainers, one epoch
    python -m example.fit_flights.local --kills 20           # kill trainers without warning, and let others join
    python -m example.fit_flights.local --kills 20 --pserver-kills 1
    python -m example.fit_flights.local --seeds 5 --kills 20 # five runs with different seeds

It does what the controller does in a cluster: it replaces killed processes, and after the loss of a pserver it makes
the master return to the last committed checkpoint. Each run ends with the AUC on the held-out flights and with the
audit of the master's journal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .flights import load

ROOT = Path(__file__).resolve().parents[2]
TTL_S = 2.0
POLL_S = 0.05
TIMEOUT_S = 300.0
_KILLED = -signal.SIGKILL
_SCORE = re.compile(r"AUC ([0-9.]+) on [0-9]+ held-out flights, ([0-9]+) pushes")
Process = subprocess.Popen[bytes]


@dataclass
class Plan:
    """The settings of a run.

    The kills follow the progress of the training, so that a slow machine sees as many as a fast one.

    Attributes:
        kills, pserver_kills: how many trainers and pservers to kill.
        records: of the data set.
        module: the program of the pservers and the trainers.
        environment: added to the environment of every process.
    """

    seed: int = 0
    trainers: int = 4
    pservers: int = 2
    kills: int = 0
    pserver_kills: int = 0
    records: int = field(default_factory=lambda: len(load().late))
    epochs: int = 1
    module: str = "example.fit_flights.fit"
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class RunResult:
    """The result of a run.

    Attributes:
        auc: NaN if no trainer printed it.
        audit: the output of `edl audit -o json`.
        seconds: duration of the run.
        trainer_kills, pserver_kills: how many were killed.
        logs: name of a process -> its log.
    """

    auc: float
    audit: dict[str, Any]
    seconds: float
    trainer_kills: int = 0
    pserver_kills: int = 0
    logs: dict[str, str] = field(default_factory=dict)


class LocalJob:
    """One job with its files in one folder: a context that ends all of its processes.

    Args:
        folder: for the journal, the checkpoints and the logs.
        plan: the settings of the run.

    Attributes:
        trainers: name -> process, without the replaced ones.
        pservers: the process of each index.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self._random = random.Random(plan.seed)  # noqa: S311 - not a secret
        self._ports = free_ports(1 + plan.pservers)
        self._master: Process | None = None
        self.pservers: list[Process] = []
        self.trainers: dict[str, Process] = {}
        self._started = 0

    def __enter__(self) -> Self:
        (self.folder / "token").write_text(os.urandom(16).hex())
        dataset = {
            "source": f"index:{self.plan.records}",
            "epochs": self.plan.epochs,
            "seed": self.plan.seed,
            "shardSize": 2000,
        }
        command = ["-c", "from edl.cli.main import main; main()", "master", "--listen", f"127.0.0.1:{self._ports[0]}"]
        command += ["--journal", str(self.folder / "journal"), "--token-file", str(self.folder / "token")]
        command += ["--lease-ttl-s", str(TTL_S), "--dataset", json.dumps(dataset)]
        self._master = self._start("master", command, {})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self.trainers.values(), *self.pservers, *([self._master] if self._master else [])):
            if process.poll() is None:
                process.kill()
            process.wait()

    def start(self) -> None:
        """Start the master, the pservers and the trainers."""
        self._wait_for_master()
        self.pservers = [self.start_pserver(index) for index in range(self.plan.pservers)]
        for _ in range(self.plan.trainers):
            self._add_trainer()

    def run(self) -> RunResult:
        """Train until the end of the last epoch, with the kills of the plan.

        Raises:
            TimeoutError: the run takes too long.
        """
        start_s = time.monotonic()
        self.start()
        faults = self._faults()
        kills = {"trainer": 0, "pserver": 0}
        while any(process.poll() is None for process in self.trainers.values()):
            if time.monotonic() - start_s > TIMEOUT_S:
                raise TimeoutError(f"the run takes longer than {TIMEOUT_S:g} s; read the logs in {self.folder}")
            self._replace_killed()
            if faults and self._done() >= faults[0][0] * self.plan.records:
                _, role = faults.pop(0)
                kills[role] += self._kill(role)
            time.sleep(POLL_S)
        self._replace_killed()
        logs = {path.stem: path.read_text() for path in self.folder.glob("*.log")}
        matches = [_SCORE.fullmatch(line) for text in logs.values() for line in text.splitlines()]
        _, auc = max(((int(found[2]), float(found[1])) for found in matches if found), default=(0, math.nan))
        seconds = time.monotonic() - start_s
        return RunResult(auc, self._audit(), seconds, kills["trainer"], kills["pserver"], logs)

    def _faults(self) -> list[tuple[float, str]]:
        """(share of the epoch after which to kill, role to kill), in order."""
        drawn = [(self._random.uniform(0.05, 0.9), "trainer") for _ in range(self.plan.kills)]
        drawn += [(self._random.uniform(0.3, 0.8), "pserver") for _ in range(self.plan.pserver_kills)]
        return sorted(drawn)

    def _kill(self, role: str) -> int:
        """Kill a running process of a role; returns how many were killed.

        About every third time another trainer joins besides the replacement.
        """
        choice = self.pservers if role == "pserver" else list(self.trainers.values())
        running = [process for process in choice if process.poll() is None]
        if not running:
            return 0
        self._random.choice(running).kill()
        if role == "trainer" and self._random.random() < 1 / 3 and len(running) < 2 * self.plan.trainers:
            self._add_trainer()
        return 1

    def _replace_killed(self) -> None:
        """Replace killed processes; no process may end in another way."""
        for index, process in enumerate(self.pservers):
            if process.poll() is not None:
                self._check_was_killed(f"pserver-{index}", process)
                self.ask("POST", "/v1/checkpoint/restore", {"id": "latest"})
                self.pservers[index] = self.start_pserver(index)
        for name, process in list(self.trainers.items()):
            if process.poll() not in {None, 0}:
                self._check_was_killed(name, process)
                del self.trainers[name]
                self._add_trainer()

    def _check_was_killed(self, name: str, process: Process) -> None:
        if process.returncode != _KILLED:
            log = (self.folder / f"{name}.log").read_text()
            raise RuntimeError(f"{name} exited with code {process.returncode}; its log: {log}")

    def _add_trainer(self) -> None:
        """Start another trainer, with the identity of a new pod."""
        name = f"trainer-{self._started}"
        self._started += 1
        self.trainers[name] = self._start(name, ["-m", self.plan.module], {"TRAINING_ROLE": "TRAINER"})

    def start_pserver(self, index: int) -> Process:
        """Start a pserver, or a replacement for a lost one."""
        role = {"TRAINING_ROLE": "PSERVER", "PADDLE_PSERVER_ID": str(index)}
        role["CHECKPOINT_DIR"] = str(self.folder / f"checkpoints-{index}")
        return self._start(f"pserver-{index}", ["-m", self.plan.module], role)

    def _start(self, name: str, command: list[str], role: dict[str, str]) -> Process:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "EDL_MASTER": self._url,
            "EDL_TOKEN_FILE": str(self.folder / "token"),
            "POD_NAME": name,
            "POD_UID": f"uid-{name}-{time.time_ns()}",
            "PADDLE_PSERVERS": ",".join(f"127.0.0.1:{port}" for port in self._ports[1:]),
            "OMP_NUM_THREADS": "1",
            **self.plan.environment,
            **role,
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([sys.executable, *command], env=environment, stdout=log, stderr=log)

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    def _wait_for_master(self) -> None:
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{self._url}/healthz", timeout=1):  # noqa: S310
                return
            if self._master is None or self._master.poll() is not None:
                raise RuntimeError(f"the master has ended; its log: {(self.folder / 'master.log').read_text()}")
            time.sleep(POLL_S)

    def _done(self) -> int:
        """How many records are reported."""
        return int(self.ask("GET", "/v1/status")["done"])

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send a request to the master; returns the JSON object of the answer."""
        headers = {"Authorization": f"Bearer {(self.folder / 'token').read_text()}"}
        headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310 - a local server
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found

    def _audit(self) -> dict[str, Any]:
        command = [
            sys.executable,
            "-c",
            "from edl.cli.main import main; main()",
            "audit",
            str(self.folder / "journal"),
        ]
        done = subprocess.run(
            [*command, "-o", "json"], capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def free_ports(count: int) -> list[int]:
    """Free ports of the loopback interface."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def main() -> int:
    """Run the plan once for each seed, and print the results."""
    parser = argparse.ArgumentParser(description="Train the model of late flights on this machine.")
    for name, default in (("seeds", 1), ("trainers", 4), ("pservers", 2), ("kills", 0), ("pserver-kills", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--logs", type=Path, help="copy the logs of the last run into this folder")
    arguments = parser.parse_args()
    scores: list[float] = []
    for seed in range(arguments.seeds):
        plan = Plan(seed, arguments.trainers, arguments.pservers, arguments.kills, arguments.pserver_kills)
        with tempfile.TemporaryDirectory() as folder, LocalJob(Path(folder), plan) as local:
            result = local.run()
            if arguments.logs:
                shutil.copytree(folder, arguments.logs, dirs_exist_ok=True)
        (epoch,) = result.audit["epochs"]
        scores.append(result.auc)
        print(
            f"seed {seed}: AUC {result.auc:.4f} in {result.seconds:.1f} s, {result.trainer_kills} trainers and"
            f" {result.pserver_kills} pservers killed; audit {'ok' if result.audit['ok'] else 'BROKEN'}:"
            f" {epoch['done']} of {epoch['total']} done, {epoch['redispatched']} dispatched again",
            flush=True,
        )
    print(f"AUC {min(scores):.4f} to {max(scores):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
