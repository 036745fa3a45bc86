"""torchrun's elastic training and torchft on the schedules of `elastic_node` and `elastic_torch`.

    python -m benchmarks.elastic_peers torchrun
    python -m benchmarks.elastic_peers torchft              # needs the package torchft beside PyTorch
    python -m benchmarks.elastic_peers torchft --resizes 100 --kills 20 --steps 8400

The trainers are processes in groups of their own, on two pretended nodes. A trainer that is killed is replaced a
second later. A lost node (SIGSTOP of all of its processes) is replaced after the others train on, or half a minute
after its loss. torchrun's rendezvous store is with the first trainer, to which nothing happens. After a trainer has
come it waits 2 s for others, not 30 s.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.elastic_node import (
    BATCH,
    EVENTS,
    GONE_AFTER_S,
    POLL_S,
    RECORDS,
    REPLACED_AFTER_S,
    SETTLED_STEPS,
    Event,
)
from benchmarks.elastic_schedule import random_changes
from example.fit_flights.local import ROOT, Process, free_ports

_LONG = 5.0  # a pause of so many steps was caused by an event
_TIMEOUT_S, _TIMEOUT_OF_AN_EVENT_S = 900.0, 45.0  # torchrun starts all processes again, which takes up to 40 s
_GONE_AT_LATEST_S = 30.0  # the pods of a lost node
_MOST = 4  # trainers


def random_events(resizes: int, kills: int, seed: int) -> list[Event]:
    """The schedule of `elastic_torch` with this seed, after four trainers have started."""
    found, live = [Event(0.0, "start", _MOST, "join")], _MOST
    for kind in random_changes(resizes, kills, 0, trainers=_MOST, seed=seed):
        live += {"join": 1, "leave": -1}.get(kind, 0)
        found.append(Event(0.0, kind, live, kind))
    return found


class PeerRun:
    """One run: a context that ends all of its processes.

    Args:
        kind: torchrun or torchft.
        folder: for its files.
        seed: of the weights and of the order of the data.
        steps: in all.
        pace_s: a step takes at least so long.
        events: what happens.
        heartbeat_s: torchft gives up a trainer that says nothing for so long.

    Attributes:
        happened: the events until now, and when they did.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        seed: int,
        steps: int,
        pace_s: float,
        events: Sequence[Event],
        heartbeat_s: float,
    ) -> None:
        self._kind, self.folder, self._steps, self._events = kind, folder, steps, events
        self._heartbeat_ms = round(1000 * heartbeat_s)
        (self._port,) = free_ports(1)
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
            "FOLDER": str(folder),
            "SEED": str(seed),
            "STEPS": str(steps),
            "PACE_S": str(pace_s),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # without it nobody can join later, in torch 2.15
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{self._port}",
        }
        self._trainers: dict[str, Process] = {}
        self._others: list[Process] = []
        self._started = 0
        self.happened: list[tuple[Event, float]] = []
        self._read: dict[str, int] = {}  # bytes of each file of steps
        self._lines: list[dict[str, Any]] = []
        self._latest = (0, 0, 0.0)

    def __enter__(self) -> PeerRun:
        if self._kind == "torchft":
            program = self.folder / "lighthouse.py"  # it reads the words after the file
            program.write_text("from torchft._torchft import lighthouse_main\nlighthouse_main()\n")
            flags = ["--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000"]
            flags += ["--heartbeat_timeout_ms", str(self._heartbeat_ms)]
            flags += ["--bind", f"127.0.0.1:{self._port}"]
            self._others.append(self._process("lighthouse", [sys.executable, str(program), *flags]))
        return self

    def __exit__(self, *error: object) -> None:
        for process in (*self._trainers.values(), *self._others):
            _signal(process, signal.SIGKILL)
            process.wait()

    def measure(self) -> list[tuple[int, int, float]]:
        """Run to the end; returns (step, trainers, when) of each step, as it was last applied.

        Raises:
            TimeoutError: the run takes too long.
        """
        events = list(self._events)
        timeout_s = _TIMEOUT_S + _TIMEOUT_OF_AN_EVENT_S * len(events)
        until_s = time.monotonic() + timeout_s
        wanted, since, replaced_s = 1, 0, 0.0
        stopped: list[str] = []
        while not list(self.folder.glob("end-*")):
            if time.monotonic() > until_s:
                raise TimeoutError(f"the run takes longer than {timeout_s:g} s; it has made {self._last()[0]} steps")
            if not stopped and time.monotonic() >= replaced_s:
                self._trainers = {name: one for name, one in self._trainers.items() if one.poll() is None}
                while len(self._trainers) < wanted:
                    self._start_trainer()
            step, size, at_s = self._last()
            if stopped and self._is_gone(at_s, size < wanted):
                for name in stopped:
                    self._end(name, signal.SIGKILL)
                stopped, replaced_s = [], time.monotonic() + REPLACED_AFTER_S
            since = step if size != wanted else since
            if events and size == wanted and step >= max(since + SETTLED_STEPS, events[0].part * self._steps):
                event = events.pop(0)
                self.happened.append((event, time.time()))
                stopped = self._happen(event)
                wanted, since, replaced_s = event.wanted, step, time.monotonic() + REPLACED_AFTER_S
            time.sleep(4 * POLL_S)
        return self._applied()[0]

    def accuracy(self) -> float:
        """Of the first trainer that reached the end."""
        return float(next(self.folder.glob("end-*")).read_text())

    def repeated(self) -> int:
        """Steps that were made again."""
        return self._applied()[1]

    def _is_gone(self, at_s: float, is_smaller: bool) -> bool:
        """Whether the pods of the lost node are deleted; `at_s` is the time of the last step."""
        lost_s = self.happened[-1][1]
        return (is_smaller and at_s > lost_s + GONE_AFTER_S) or time.time() > lost_s + _GONE_AT_LATEST_S

    def _happen(self, event: Event) -> list[str]:
        """Returns the trainers that are stopped."""
        names = sorted(self._trainers)
        if event.how == "kill":
            self._end(names[-1], signal.SIGKILL)
        elif event.how == "leave":
            for name in names[event.wanted :]:
                self._end(name, signal.SIGTERM)
        elif event.how == "stop":
            for name in names[-2:]:
                _signal(self._trainers[name], signal.SIGSTOP)
            return names[-2:]
        return []

    def _end(self, name: str, number: int) -> None:
        process = self._trainers.pop(name)
        _signal(process, number)
        self._others.append(process)

    def _start_trainer(self) -> None:
        name = f"trainer-{self._started:03}"
        self._started += 1
        command = [sys.executable, "-m", "benchmarks.elastic_peers_trainer", "torchft"]
        if self._kind == "torchrun":
            place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self._port}", "--rdzv-id", "digits"]
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:4", "--nproc-per-node", "1"]
            command += ["--max-restarts", "1000", *place, "--rdzv-conf", "last_call_timeout=2"]
            command += ["-m", "benchmarks.elastic_peers_trainer", "torchrun"]
        self._trainers[name] = self._process(name, command)

    def _process(self, name: str, command: list[str]) -> Process:
        with (self.folder / f"{name}.log").open("ab") as log:
            environment = {**self._environment, "NAME": name}
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def _last(self) -> tuple[int, int, float]:
        """The step that was applied last, by how many trainers, and when."""
        for line in self._new_lines():
            self._latest = max(self._latest, (line["step"], line["size"], line["at_s"]), key=lambda step: step[2])
        return self._latest

    def _new_lines(self) -> list[dict[str, Any]]:
        """The whole lines that the trainers have written since the last call."""
        found = []
        for path in self.folder.glob("steps-*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path.name, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path.name] = self._read.get(path.name, 0) + len(whole)
            found += [json.loads(line) for line in whole.splitlines()]
        self._lines += found
        return found

    def _applied(self) -> tuple[list[tuple[int, int, float]], int]:
        self._new_lines()
        found: dict[int, tuple[int, int, float]] = {}
        repeated: set[tuple[int, int]] = set()
        for line in sorted(self._lines, key=lambda line: line["at_s"]):
            before = found.get(line["step"])
            if before is not None and line["at_s"] - before[2] > 1.0:
                repeated.add((line["step"], round(before[2])))
            found[line["step"]] = (line["step"], line["size"], line["at_s"])
        return [found[step] for step in sorted(found)], len(repeated)


def _signal(process: Process, number: int) -> None:
    """To a trainer with all of its processes; torchrun's worker has a session of its own."""
    if process.poll() is not None:
        return
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children if number != signal.SIGTERM else []:
        os.kill(int(child), number)
    os.kill(process.pid, number)


def lost_seconds(found: list[tuple[int, int, float]], happened: list[tuple[Event, float]]) -> dict[str, list[float]]:
    """Seconds beyond a step in the long pauses after each event, by what happened."""
    costs: dict[str, list[float]] = {}
    gaps = [(b[2], b[2] - a[2]) for a, b in itertools.pairwise(found)]
    step_s = statistics.median(gap for _, gap in gaps)
    ends_s = [*(at_s for _, at_s in happened[1:]), float("inf")]
    for (event, began_s), next_s in zip(happened, ends_s, strict=True):
        long = [gap - step_s for at_s, gap in gaps if began_s <= at_s < next_s and gap > _LONG * step_s]
        costs.setdefault(event.what, []).append(sum(long))
    return costs


def parse() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="torchrun and torchft on the schedules of edl's own measurements.")
    parser.add_argument("kind", choices=["torchrun", "torchft"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--steps", type=int, help="instead of --epochs")
    parser.add_argument("--pace-s", type=float, default=0.06)
    parser.add_argument("--heartbeat-s", type=float, default=5.0, help="of torchft's lighthouse; its default")
    parser.add_argument("--resizes", type=int, default=0, help="random events instead of those of elastic_node")
    parser.add_argument("--kills", type=int, default=0, help="the same")
    return parser.parse_args()


def main() -> int:
    """Run the schedule with each seed, and print what each event cost."""
    chosen, costs = parse(), dict[str, list[float]]()
    for seed in range(chosen.seeds):
        is_random = bool(chosen.resizes or chosen.kills)
        events = random_events(chosen.resizes, chosen.kills, seed) if is_random else EVENTS
        with (
            tempfile.TemporaryDirectory() as name,
            PeerRun(
                chosen.kind,
                Path(name),
                seed=seed,
                steps=chosen.steps or chosen.epochs * RECORDS // BATCH,
                pace_s=chosen.pace_s,
                events=events,
                heartbeat_s=chosen.heartbeat_s,
            ) as run,
        ):
            found = run.measure()
            print(f"seed {seed}: accuracy {run.accuracy():.4f}, {len(found)} steps, {run.repeated()} made again")
        print(
            f"{len(run.happened)} of {len(events)} events, {found[-1][2] - found[0][2]:.0f} s from first to last step"
        )
        for what, lost in lost_seconds(found, run.happened).items():
            costs.setdefault(what, []).extend(lost)
    for what, lost in costs.items():
        print(f"| {what}, {len(lost)} | {statistics.median(lost):.3g} s ({min(lost):.3g} to {max(lost):.3g}) |")
    print(f"load {os.getloadavg()[1]:.1f} over 5 minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
