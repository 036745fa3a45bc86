"""The job on this machine, without Kubernetes: a master and trainers as local processes that come and go.

    python -m example.torch_elastic.local                             # two trainers, nobody comes or goes
    python -m example.torch_elastic.local --joins 2 --leaves 1 --kills 1 --step-s 0.05

It does what the controller does in a cluster: it starts trainers, asks them to leave with SIGTERM, and replaces those
that were killed. Each run ends with the accuracy, a digest of the weights, and the audit of the master's journal.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from example.fit_flights.local import POLL_S, LocalJob, Plan

RECORDS, BATCH, LOGICAL_RANKS = 1500, 60, 4
_LEFT = 143
_TIMEOUT_S = 900.0


class LocalElasticJob(LocalJob):
    """The job in one folder: a context that ends all of its processes.

    Args:
        folder: for the journal, the models and the logs.
        trainers: at the beginning.
        epochs: over the data.
        changes: join, leave or kill, in the order in which they happen.
        seed: of the data's order and of who leaves.
        step_s: a step takes at least so long: a new trainer needs some seconds to import PyTorch.

    Attributes:
        played: the changes that have happened; the others were due after the last step.
    """

    def __init__(
        self, folder: Path, *, trainers: int, epochs: int, changes: list[str], seed: int, step_s: float = 0.0
    ) -> None:
        environment = {
            "EDL_CHECKPOINTS": str(folder / "models"),
            "EDL_GLOBAL_BATCH": str(BATCH),
            "EDL_LOGICAL_RANKS": str(LOGICAL_RANKS),
            "STEP_S": str(step_s),
            "TRAINERS": str(trainers),
        }
        module = "example.torch_elastic.train"
        super().__init__(
            folder, Plan(seed, trainers, 0, records=RECORDS, epochs=epochs, module=module, environment=environment)
        )
        self._end = RECORDS * epochs
        self._changes = [((index + 1) / (len(changes) + 1), what) for index, what in enumerate(changes)]
        self._pick = random.Random(seed)  # noqa: S311 - not a secret
        self._asked: dict[str, int] = {}
        self.played: list[str] = []

    def train(self) -> dict[str, Any]:
        """Train to the end; returns the audit.

        Raises:
            TimeoutError: the run takes too long.
            RuntimeError: a trainer failed.
        """
        until_s = time.monotonic() + _TIMEOUT_S
        self.start()
        while live := self._live():
            if time.monotonic() > until_s:
                raise TimeoutError(f"the run takes longer than {_TIMEOUT_S:g} s; choose fewer epochs")
            group = self.ask("GET", "/v1/status")["group"]
            # A change is due at a position, and once all trainers are in the world after the change before.
            is_settled = group is not None and sorted(group["members"]) == sorted(live)
            if self._changes and is_settled and group["position"] >= self._changes[0][0] * self._end:
                self._change(self._changes.pop(0)[1], live)
            time.sleep(POLL_S)
        return self._audit()

    def results(self) -> list[str]:
        """The last lines of the trainers that reached the end."""
        logs = (path.read_text().splitlines() for path in sorted(self.folder.glob("trainer-*.log")))
        return [line for lines in logs for line in lines if line.startswith("accuracy ")]

    def _live(self) -> list[str]:
        for name, process in self.trainers.items():
            if process.poll() not in {None, 0, self._asked.get(name, 0)}:
                log = (self.folder / f"{name}.log").read_text()
                raise RuntimeError(f"{name} exited with code {process.returncode}; its log: {log}")
        return [name for name, process in self.trainers.items() if process.poll() is None]

    def _change(self, what: str, live: list[str]) -> None:
        self.played.append(what)
        if what == "join":
            self._add_trainer()
            return
        name = self._pick.choice(live)
        number = signal.SIGKILL if what == "kill" else signal.SIGTERM
        self._asked[name] = -number if what == "kill" else _LEFT
        self.trainers[name].send_signal(number)
        if what == "kill":
            self._add_trainer()


def main() -> int:
    """Run the job once, and print the results."""
    parser = argparse.ArgumentParser(description="Train a network on digits, with trainers that come and go.")
    for name, default in (("trainers", 2), ("epochs", 40), ("joins", 0), ("leaves", 0), ("kills", 0), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--step-s", type=float, default=0.0, help="a step takes at least so long, in seconds")
    chosen = parser.parse_args()
    changes = ["join"] * chosen.joins + ["leave"] * chosen.leaves + ["kill"] * chosen.kills
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalElasticJob(
            Path(folder),
            trainers=chosen.trainers,
            epochs=chosen.epochs,
            changes=changes,
            seed=chosen.seed,
            step_s=chosen.step_s,
        ) as job,
    ):
        found = job.train()
        for line in job.results():
            print(line)
    if changes:
        print(f"{len(job.played)} of {len(changes)} changes happened: {', '.join(job.played) or 'none'}")
    done = sum(epoch["done"] for epoch in found["epochs"])
    total = sum(epoch["total"] for epoch in found["epochs"])
    print(f"audit {'ok' if found['ok'] else 'BROKEN'}: {done} of {total} records in one step")
    return int(not found["ok"])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (TimeoutError, RuntimeError) as problem:
        sys.exit(f"local: {problem}")
