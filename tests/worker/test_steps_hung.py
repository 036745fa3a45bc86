"""A trainer that hangs in the middle of a step: the others go on after a time limit, and it may come back."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edl.ledger.group_values import GroupSettings
from edl.master.status_client import status_text
from edl.worker import connect
from tests.worker.test_worker import in_thread
from tests.worlds.in_step.lists import FolderWire, ListReplica, Wire
from tests.worlds.in_step.process import environment
from tests.worlds.master_server import TOKEN, Served, serving
from tests.worlds.waiting import PATIENCE, wait_until

RECORDS = 1000


def losses(served: Served) -> list[tuple[str, str]]:
    group = served.master.status()["group"]
    return [(loss["name"], loss["reason"]) for loss in group["losses"]]


@contextmanager
def hanging(served: Served, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The trainer b as a process, which stops itself after 320 records."""
    command = [sys.executable, "-m", "tests.worlds.in_step.process", served.url, "b", str(folder), "320"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def is_stopped(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_the_others_go_on_without_a_stopped_process_and_it_comes_back_later(tmp_path: Path) -> None:
    replica = ListReplica(FolderWire(tmp_path), tmp_path)
    steps_s: list[tuple[float, int]] = []
    hangs: list[str] = []

    def beside() -> list[int]:
        with connect(served.url, token=TOKEN, environment=environment("a")) as job:
            loop = job.steps(replica, "at-a")
            loop.on_step = lambda _start, _end, world: steps_s.append((time.monotonic(), world.size))
            for _ in loop.pieces():
                if len(replica.model) >= 800 and is_stopped(hung):
                    hangs.append(status_text(job.status()))
                    os.kill(hung.pid, signal.SIGCONT)
                    wait_until(lambda: job._group is not None and job._group.must_change, "it comes back")
        return replica.model

    async with serving(tmp_path / "j", f"index:{RECORDS}", group=GroupSettings(unwatched_s=2.0)) as served:
        with hanging(served, tmp_path) as hung:
            model = await in_thread(beside, 30 * PATIENCE)
            printed, _ = await asyncio.to_thread(hung.communicate)
            lost = losses(served)
            later = status_text((await served.ask("GET", "/v1/status"))[1])
    assert model == list(range(RECORDS)), "a record is in no step, or in two"
    assert printed.split() == [str(RECORDS), "True"]
    assert lost == [("b", "silent")]
    assert re.search(r"in step: a \(world \d+\)\nHANGS: b for \d+ s \(silent\)", hangs[0])
    assert "HANGS" not in later
    sizes = [size for _, size in steps_s]
    first_alone = sizes.index(1)
    assert sizes == [2] * first_alone + [1] * sizes.count(1) + [2] * (len(sizes) - first_alone - sizes.count(1))
    assert 2.0 < steps_s[first_alone][0] - steps_s[first_alone - 1][0] < 4.0 * PATIENCE


async def test_the_others_go_on_without_a_trainer_whose_loop_hangs(tmp_path: Path) -> None:
    """Its process still reports to the master, so only the time limits of a collective and of regrouping end it."""
    wire, free = Wire(timeout_s=1.0), threading.Event()
    replicas = {name: ListReplica(wire, tmp_path) for name in "ab"}

    def train(name: str) -> list[int]:
        replica = replicas[name]
        with connect(served.url, token=TOKEN, environment=environment(name)) as job:
            loop = job.steps(replica, f"at-{name}")
            for _ in loop.pieces():
                if name == "b" and 320 <= len(replica.model) < 800:
                    free.wait()
                elif name == "a" and len(replica.model) >= 800 and not free.is_set():
                    free.set()
                    wait_until(lambda: job._group is not None and job._group.must_change, "it comes back")
        return replica.model

    async with serving(tmp_path / "j", f"index:{RECORDS}", group=GroupSettings(regroup_s=1.0)) as served:
        models = await asyncio.gather(
            in_thread(lambda: train("a"), 30 * PATIENCE), in_thread(lambda: train("b"), 30 * PATIENCE)
        )
        lost = losses(served)
    assert [*models] == [list(range(RECORDS))] * 2
    assert lost == [("b", "stuck")]
