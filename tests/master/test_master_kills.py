"""Real processes on one machine, killed without warning."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from tests.worlds.master_processes import Cluster, cluster
from tests.worlds.waiting import wait_until

TRAINERS = int(os.environ.get("EDL_TEST_TRAINERS", "8"))
EPOCHS = int(os.environ.get("EDL_TEST_EPOCHS", "2"))
RECORDS = int(os.environ.get("EDL_TEST_RECORDS", "2000"))
KILLS = int(os.environ.get("EDL_TEST_KILLS", "9"))
RECORD_S = 0.004


def test_killing_trainers_and_the_master_loses_no_record_and_doubles_none(tmp_path: Path) -> None:
    """The kills follow the progress and not the clock, so that a fast machine sees as many as a slow one."""
    draw = random.Random(1)  # noqa: S311 - faults, not secrets
    data = json.dumps({"source": f"index:{RECORDS}", "epochs": EPOCHS, "seed": 5, "shardSize": 20})
    with cluster(tmp_path, data) as world:
        for number in range(TRAINERS):
            world.start_trainer(f"t{number}", RECORD_S)
        kills, until = 0, time.monotonic() + 120 + 50 * EPOCHS
        while not all(process.poll() == 0 for process in world.trainers.values()):
            assert time.monotonic() < until, world.master_log
            again = draw.choice(["", f"-{kills}"])  # the same pod, or a replacement
            restart_killed(world, again)
            if kills < KILLS and logged_bytes(tmp_path) >= ALL_BYTES * (kills + 1) / (KILLS + 2):
                kills += 1
                running = [p for p in world.trainers.values() if p.poll() is None]
                victim = world.master if kills % 3 == 0 else draw.choice(running)
                assert victim is not None
                victim.kill()
                victim.wait()
            time.sleep(0.02)
        report = json.loads(world.audit().stdout)
    assert kills == KILLS
    assert report["ok"], report["problems"]
    assert [(e["epoch"], e["total"], e["done"], e["quarantined"], e["closed"]) for e in report["epochs"]] == [
        (epoch, RECORDS, RECORDS, [], True) for epoch in range(EPOCHS)
    ]
    assert set(world.consumed()) == {(epoch, record) for epoch in range(EPOCHS) for record in range(RECORDS)}
    assert all((tmp_path / f"t{n}.log").read_text().endswith("end\n") for n in range(TRAINERS))


ALL_BYTES = sum(len(f"{epoch} {record}\n") for epoch in range(EPOCHS) for record in range(RECORDS))


def logged_bytes(folder: Path) -> int:
    """How many bytes the trainers have logged; a repeated record counts twice."""
    return sum(path.stat().st_size for path in folder.glob("t*.log"))


def restart_killed(world: Cluster, suffix: str) -> None:
    """Restart killed processes; no process may have ended in another way."""
    for name, process in list(world.trainers.items()):
        if process.poll() not in {None, 0}:
            assert process.returncode == -9, f"{name} left with {process.returncode}"
            world.start_trainer(name, RECORD_S, suffix)
    assert world.master is not None
    if world.master.poll() is not None:
        assert world.master.returncode == -9, world.master_log
        world.start_master()


def test_a_trainer_that_was_paused_for_long_doubles_no_record(tmp_path: Path) -> None:
    with cluster(tmp_path, json.dumps({"source": "index:60", "shardSize": 10}), 0.6) as world:
        world.start_trainer("t0", 0.02)
        wait_until(world.consumed, "the trainer consumes a record", 60)
        world.trainers["t0"].send_signal(signal.SIGSTOP)
        world.start_trainer("t1", 0.001)
        assert world.trainers["t1"].wait(timeout=60) == 0  # it does not wait for the paused trainer
        before = len((tmp_path / "t0.log").read_text().splitlines())
        world.trainers["t0"].send_signal(signal.SIGCONT)
        assert world.trainers["t0"].wait(timeout=60) == 0
        (epoch,) = json.loads(world.audit().stdout)["epochs"]
    assert (epoch["done"], epoch["closed"]) == (60, True)
    assert epoch["redispatched"] > 0
    assert epoch["by"]["t0"] + epoch["by"]["t1"] == 60
    lines = (tmp_path / "t0.log").read_text().splitlines()
    assert len(lines) <= before + 2  # its current record and the end, but no record of its lost lease
    assert lines[-1] == "end"
