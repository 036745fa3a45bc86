"""What it costs PyTorch trainers of a large model that one joins, leaves or is killed.

    python -m benchmarks.elastic_large --millions 3 20 124

`benchmarks.elastic_changes` has the order of events. The state of a model with AdamW has 12 bytes for each parameter;
it is copied within the pause of a join.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
from pathlib import Path

from benchmarks.elastic_changes import ChangingTrainers, Pauses
from benchmarks.elastic_large_trainer import train
from example.fit_flights.local import Plan

_BATCH, _RECORDS = 8, 1600
_BYTES = 12
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class LargeRun(ChangingTrainers):
    """A job of one large model.

    Args:
        folder: for its files.
        millions: of parameters.
        pace_s: a step takes at least so long.
    """

    def __init__(self, folder: Path, millions: float, pace_s: float = 0.1) -> None:
        place = {"EDL_CHECKPOINTS": str(folder / "models")}  # the last trainer that leaves saves its state
        self._environment = {"EDL_GLOBAL_BATCH": str(_BATCH), **_ONE_THREAD, **place}
        super().__init__(folder, Plan(1, 1, 0, records=_RECORDS, epochs=20, environment=self._environment))
        self._millions, self._pace_s = millions, pace_s

    def measure(self) -> Pauses:
        """Let trainers come and go; the job ends when its last trainer leaves."""
        return self.play(lambda first: self.end(first, signal.SIGTERM))

    def add(self) -> str:
        """See `ChangingTrainers.add`."""
        name = self.new_name()
        pod = {"POD_NAME": name, "POD_UID": f"uid-{name}", "EDL_MASTER": self._url}
        token = {"EDL_TOKEN_FILE": str(self.folder / "token")}
        self.fork(name, train, {**self._environment, **pod, **token}, str(self.folder), self._millions, self._pace_s)
        return name


def main() -> None:
    """Measure some sizes, and print a line for each."""
    parser = argparse.ArgumentParser(description="What joins, leaves and kills cost trainers of a large model.")
    parser.add_argument("--millions", type=float, nargs="+", default=[3.0, 20.0])
    for millions in parser.parse_args().millions:
        with tempfile.TemporaryDirectory() as folder, LargeRun(Path(folder), millions) as job:
            found = job.measure()
        rate = millions * _BYTES / 1e3 / max(1e-9, min(found.joins_s))
        print(
            f"{millions:g} million parameters, {millions * _BYTES:.0f} MB of state: step {found.step_s:.2f} s; pause"
            f" of a join {found.joins_s[0]:.2f} and {found.joins_s[1]:.2f} s ({rate:.2f} GB/s), of a leave"
            f" {found.leave_s:.2f} s, of a kill {found.kill_s:.2f} s; {found.repeated} steps made twice",
            flush=True,
        )


if __name__ == "__main__":
    main()
