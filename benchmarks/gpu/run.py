"""A job whose trainers have several processes each: they join, leave and are killed, and the weights are compared.

A trainer trains; a second one joins and leaves, a third one joins and is killed; then the job ends. Another job makes
as many steps with trainers that stay. With two logical ranks both have the same weights, to the last bit.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import signal
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.forked_trainers import FORKS, ForkedTrainers
from benchmarks.gpu.trainer import Settings, train
from example.fit_flights.local import Plan, free_ports

_LEFT, _TIMEOUT_S, _RECORDS, _EPOCHS = 143, 300.0, 1600, 50
_PARTS = 2
_BYTES_OF_STATE = {"float32": 12, "float64": 24, "bfloat16": 6}


@dataclass(frozen=True)
class ShardResult:
    """What one model has shown.

    Attributes:
        step_s: the median step of one trainer.
        joins_s: the pauses of two joins.
        leave_s, kill_s: the pauses.
        steps: of the whole training.
        worlds: how many there were.
        digest: of the trained weights.
        bytes: of the state of a trainer.
    """

    step_s: float
    joins_s: tuple[float, float]
    leave_s: float
    kill_s: float
    steps: int
    worlds: int
    digest: str
    bytes: float


class ShardRun(ForkedTrainers):
    """A job of one model.

    Args:
        folder: for its files.
        settings: of a trainer; `folder` of it is not used.
        processes: of each trainer.
    """

    def __init__(self, folder: Path, settings: Settings, processes: int) -> None:
        folder.mkdir(exist_ok=True)
        if settings.device == "cpu":  # a fork of a process that knows of a GPU could not use it
            FORKS.set_forkserver_preload(["benchmarks.gpu.trainer"])
        self._settings, self._processes = settings._replace(folder=str(folder)), processes
        one_thread = {"OMP_NUM_THREADS": "1", "EDL_LOGICAL_RANKS": str(_PARTS)}
        self._environment = {"EDL_CHECKPOINTS": str(folder / "models"), **one_thread}
        super().__init__(folder, Plan(1, 1, 0, records=_RECORDS, epochs=_EPOCHS, environment=self._environment))

    def measure(self) -> ShardResult:
        """Let trainers come and go, then end the job."""
        self._wait_for_master()
        first = self.add()
        self.wait_for(first, size=1, steps=4)
        second = self.add()
        self.wait_for(first, size=2, steps=3)
        self.end(second, signal.SIGTERM)
        self.wait_for(first, size=1, steps=3)
        third = self.add()
        self.wait_for(first, size=2, steps=3)
        self.end(third, signal.SIGKILL)
        self.wait_for(first, size=1, steps=3)
        (self.folder / "end").touch()
        return self._result(first)

    def fixed(self, count: int) -> str:
        """Train with some trainers that stay until `stop_at`; the digest of the weights."""
        self._wait_for_master()
        for name in [self.add() for _ in range(count)]:
            self._join(name)
        return self._digest()

    def add(self) -> str:
        """Start a trainer; its name."""
        name = self.new_name()
        pod = {"POD_NAME": name, "POD_UID": f"uid-{name}", "EDL_MASTER": self._url}
        pod |= {"EDL_TOKEN_FILE": str(self.folder / "token"), "MASTER_ADDR": "127.0.0.1"}
        pod |= {"MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": str(self._processes)}
        for rank in range(self._processes):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RUN_ID": name}
            self.fork(f"{name}-{rank}", train, {**self._environment, **pod, **ranks}, self._settings)
        return name

    def end(self, name: str, number: int) -> None:
        """Send a signal to all processes of a trainer, as the end of its pod does, and wait for them."""
        for rank in range(self._processes):
            process = self.forked[f"{name}-{rank}"]
            self.expected[f"{name}-{rank}"] = _LEFT if number == signal.SIGTERM else -number
            (process.terminate if number == signal.SIGTERM else process.kill)()
        self._join(name)

    def _join(self, name: str) -> None:
        until_s = time.monotonic() + _TIMEOUT_S
        while any(one.startswith(name) for one in self.live()):
            if time.monotonic() > until_s:
                raise TimeoutError(f"{name} does not end; its logs are in {self.folder}")
            time.sleep(0.05)

    def wait_for(self, name: str, *, size: int, steps: int) -> None:
        """Wait until the last world has that many trainers and has made some steps."""
        until_s = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < until_s:
            self.live()
            found = self._steps(name)
            last = [one for one in found if one["generation"] == found[-1]["generation"]] if found else []
            if len(last) >= steps and last[-1]["size"] == size:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{name} makes no steps in a world of {size}; its logs are in {self.folder}")

    def _steps(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / f"steps-{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _digest(self) -> str:
        found = torch.load(self.folder / "models" / "model.pt", weights_only=True)
        data = b"".join(one.contiguous().view(torch.uint8).numpy().tobytes() for one in found.values())
        return hashlib.sha256(data).hexdigest()

    def _result(self, name: str) -> ShardResult:
        self._join(name)
        steps = self._steps(name)
        worlds = [list(group) for _, group in itertools.groupby(steps, key=lambda one: one["generation"])]
        gaps = []
        for before, after in itertools.pairwise(worlds):
            step_s = statistics.median(b["at_s"] - a["at_s"] for a, b in itertools.pairwise(after))
            gaps.append(after[0]["at_s"] - before[-1]["at_s"] - step_s)
        step_s = statistics.median(b["at_s"] - a["at_s"] for a, b in itertools.pairwise(worlds[0]))
        size = self._settings.millions * 1e6 * _BYTES_OF_STATE[self._settings.kind]
        made = int((self.folder / f"{name}.steps").read_text())
        return ShardResult(step_s, (gaps[0], gaps[2]), gaps[1], gaps[3], made, len(worlds), self._digest(), size)
