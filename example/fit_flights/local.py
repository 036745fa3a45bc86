"""The whole job on this machine, without Kubernetes: a master, pservers and trainers as processes over loopback.

    python -m example.fit_flights.local                      # 2 pservers, 4 trainers, one epoch
    python -m example.fit_flights.local --kills 20           # trainers killed without warning, others joining
    python -m example.fit_flights.local --kills 20 --pserver-kills 1
    python -m example.fit_flights.local --seeds 5 --kills 20 # the spread

It does by hand what the controller does in a cluster: who died is replaced, and after the loss of a pserver the
master goes back to the last committed checkpoint. Each run ends with the AUC on the held-out flights and the master's
audit.
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
from typing import Any

from .flights import load

ROOT = Path(__file__).resolve().parents[2]
TTL_S = 2.0
LOOK_EVERY_S = 0.05
LONGEST_S = 300.0
_KILLED = -signal.SIGKILL
_SCORE = re.compile(r"AUC ([0-9.]+) on [0-9]+ held-out flights, ([0-9]+) pushes")
Process = subprocess.Popen[bytes]


@dataclass
class Plan:
    """What happens in a run: kills come by progress, so that a slow machine sees as many as a fast one."""

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
class Outcome:
    """How a run ended."""

    auc: float  # NaN where the trainers do not tell any
    audit: dict[str, Any]
    seconds: float
    trainer_kills: int = 0
    pserver_kills: int = 0
    words: dict[str, str] = field(default_factory=dict)


class Local:
    """One job in one folder; a context that leaves no process behind.

    Attributes:
        trainers: those that have not been replaced, by name.
        pservers: by index.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self._random = random.Random(plan.seed)  # noqa: S311 faults, not secrets
        self._ports = free_ports(1 + plan.pservers)
        self._master: Process | None = None
        self.pservers: list[Process] = []
        self.trainers: dict[str, Process] = {}
        self._begun = 0

    def __enter__(self) -> Local:
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
        """Start everybody."""
        self._await_master()
        self.pservers = [self.start_pserver(index) for index in range(self.plan.pservers)]
        for _ in range(self.plan.trainers):
            self._join()

    def run(self) -> Outcome:
        """Train to the end of the epoch, with the faults of the plan."""
        begun_s = time.monotonic()
        self.start()
        faults = self._faults()
        kills = {"trainer": 0, "pserver": 0}
        while any(process.poll() is None for process in self.trainers.values()):
            if time.monotonic() - begun_s > LONGEST_S:
                raise TimeoutError(f"the run takes longer than {LONGEST_S:g} s; look at the logs in {self.folder}")
            self._look_after()
            if faults and self._done() >= faults[0][0] * self.plan.records:
                _, role = faults.pop(0)
                kills[role] += self._kill(role)
            time.sleep(LOOK_EVERY_S)
        self._look_after()
        words = {path.stem: path.read_text() for path in self.folder.glob("*.log")}
        told = [_SCORE.fullmatch(line) for text in words.values() for line in text.splitlines()]
        _, score = max(((int(found[2]), float(found[1])) for found in told if found), default=(0, math.nan))
        return Outcome(score, self._audit(), time.monotonic() - begun_s, kills["trainer"], kills["pserver"], words)

    def _faults(self) -> list[tuple[float, str]]:
        """(share of the epoch that is done, who is killed then), in order."""
        drawn = [(self._random.uniform(0.05, 0.9), "trainer") for _ in range(self.plan.kills)]
        drawn += [(self._random.uniform(0.3, 0.8), "pserver") for _ in range(self.plan.pserver_kills)]
        return sorted(drawn)

    def _kill(self, role: str) -> int:
        """SIGKILL to one that runs; every third trainer gets a companion besides its replacement."""
        choice = self.pservers if role == "pserver" else list(self.trainers.values())
        running = [process for process in choice if process.poll() is None]
        if not running:
            return 0
        self._random.choice(running).kill()
        if role == "trainer" and self._random.random() < 1 / 3 and len(running) < 2 * self.plan.trainers:
            self._join()
        return 1

    def _look_after(self) -> None:
        """Replace who was killed; nobody may end in another way."""
        for index, process in enumerate(self.pservers):
            if process.poll() is not None:
                self._expect_killed(f"pserver-{index}", process)
                self.ask("POST", "/v1/checkpoint/restore", {"id": "latest"})
                self.pservers[index] = self.start_pserver(index)
        for name, process in list(self.trainers.items()):
            if process.poll() not in {None, 0}:
                self._expect_killed(name, process)
                del self.trainers[name]
                self._join()

    def _expect_killed(self, name: str, process: Process) -> None:
        if process.returncode != _KILLED:
            words = (self.folder / f"{name}.log").read_text()
            raise RuntimeError(f"{name} ended with {process.returncode}: {words}")

    def _join(self) -> None:
        """One more trainer: a new pod with a name of its own."""
        name = f"trainer-{self._begun}"
        self._begun += 1
        self.trainers[name] = self._start(name, ["-m", self.plan.module], {"TRAINING_ROLE": "TRAINER"})

    def start_pserver(self, index: int) -> Process:
        """A pserver, new or in place of one that is gone."""
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

    def _await_master(self) -> None:
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{self._url}/healthz", timeout=1):  # noqa: S310
                return
            if self._master is None or self._master.poll() is not None:
                raise RuntimeError(f"no master: {(self.folder / 'master.log').read_text()}")
            time.sleep(LOOK_EVERY_S)

    def _done(self) -> int:
        """Records that are reported."""
        return int(self.ask("GET", "/v1/status")["done"])

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """A request to the master."""
        headers = {"Authorization": f"Bearer {(self.folder / 'token').read_text()}"}
        headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310 our own
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
    """Ports of loopback that nobody listens on."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def main() -> int:
    """Run the plan once for each seed, and print how it went."""
    parser = argparse.ArgumentParser(description="Train on late flights on this machine.")
    for name, default in (("seeds", 1), ("trainers", 4), ("pservers", 2), ("kills", 0), ("pserver-kills", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--logs", type=Path, help="keep the logs of the last run in this folder")
    asked = parser.parse_args()
    scores: list[float] = []
    for seed in range(asked.seeds):
        plan = Plan(seed, asked.trainers, asked.pservers, asked.kills, asked.pserver_kills)
        with tempfile.TemporaryDirectory() as folder, Local(Path(folder), plan) as local:
            outcome = local.run()
            if asked.logs:
                shutil.copytree(folder, asked.logs, dirs_exist_ok=True)
        (epoch,) = outcome.audit["epochs"]
        scores.append(outcome.auc)
        print(
            f"seed {seed}: AUC {outcome.auc:.4f} in {outcome.seconds:.1f} s, {outcome.trainer_kills} trainers and"
            f" {outcome.pserver_kills} pservers killed; audit {'ok' if outcome.audit['ok'] else 'BROKEN'}:"
            f" {epoch['done']} of {epoch['total']} done, {epoch['redispatched']} dispatched again",
            flush=True,
        )
    print(f"AUC {min(scores):.4f} to {max(scores):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
