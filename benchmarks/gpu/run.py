"""A job whose trainers have several processes each: they join, leave and are killed, and the weights are compared.

`benchmarks.elastic_changes` has the order of events. Another job makes as many steps with trainers that stay. With
two logical ranks both have the same weights, to the last bit.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.elastic_changes import ChangingTrainers, Pauses
from benchmarks.forked_trainers import FORKS
from benchmarks.gpu.trainer import Settings, train
from example.fit_flights.local import Plan, free_ports

_RECORDS, _EPOCHS = 1600, 50
_PARTS = 2
_BYTES_OF_STATE = {"float32": 12, "float64": 24, "bfloat16": 6}


@dataclass(frozen=True)
class ShardResult(Pauses):
    """What one model has shown.

    Attributes:
        steps: of the whole training.
        digest: of the trained weights.
        bytes: of the state of a trainer.
    """

    steps: int
    digest: str
    bytes: float


class ShardRun(ChangingTrainers):
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
        """Let trainers come and go, then end the training with the step that is under way."""

        def end_job(first: str) -> None:
            (self.folder / "end").touch()
            self.join(first)

        pauses = self.play(end_job)
        size = self._settings.millions * 1e6 * _BYTES_OF_STATE[self._settings.kind]
        (made,) = self.folder.glob("*.steps")  # of the trainer that stayed to the end
        return ShardResult(**asdict(pauses), steps=int(made.read_text()), digest=self._digest(), bytes=size)

    def fixed(self, count: int) -> str:
        """Train with some trainers that stay until `stop_at`; the digest of the weights."""
        self._wait_for_master()
        for name in [self.add() for _ in range(count)]:
            self.join(name)
        return self._digest()

    def add(self) -> str:
        """See `ChangingTrainers.add`."""
        name = self.new_name()
        pod = {"POD_NAME": name, "POD_UID": f"uid-{name}", "EDL_MASTER": self._url}
        pod |= {"EDL_TOKEN_FILE": str(self.folder / "token"), "MASTER_ADDR": "127.0.0.1"}
        pod |= {"MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": str(self._processes)}
        for rank in range(self._processes):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RUN_ID": name}
            self.fork(f"{name}-{rank}", train, {**self._environment, **pod, **ranks}, self._settings)
        return name

    def _digest(self) -> str:
        found = torch.load(self.folder / "models" / "model.pt", weights_only=True)
        data = b"".join(one.contiguous().view(torch.uint8).numpy().tobytes() for one in found.values())
        return hashlib.sha256(data).hexdigest()
