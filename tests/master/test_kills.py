"""Real processes over loopback, killed without warning."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from tests.master.processes import cluster

TRAINERS = int(os.environ.get("EDL_TEST_TRAINERS", "8"))
EPOCHS = int(os.environ.get("EDL_TEST_EPOCHS", "2"))
RECORDS = int(os.environ.get("EDL_TEST_RECORDS", "2000"))
KILL_EVERY_S = float(os.environ.get("EDL_TEST_KILL_EVERY_S", "0.4"))


def test_kills_of_trainers_and_of_the_master_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    draw = random.Random(1)  # noqa: S311 - faults, not secrets
    kills = {"master": 0, "trainer": 0}
    data = json.dumps({"source": f"index:{RECORDS}", "epochs": EPOCHS, "seed": 5, "shardSize": 20})
    with cluster(tmp_path, data) as world:
        for number in range(TRAINERS):
            world.start_trainer(f"t{number}", 0.004)
        until, next_kill = time.monotonic() + 100 + 50 * EPOCHS, time.monotonic() + 1.0
        while not all(process.poll() == 0 for process in world.trainers.values()):
            assert time.monotonic() < until, world.master_log
            assert world.master is not None
            for name, process in list(world.trainers.items()):
                if process.poll() not in {None, 0}:
                    assert process.returncode == -9, f"{name} left with {process.returncode}"
                    again = draw.choice(["", f"-{kills['trainer']}"])  # the same pod, or another in its place
                    world.start_trainer(name, 0.004, again)
            if world.master.poll() is not None:
                assert world.master.returncode == -9, world.master_log
                world.start_master()
            if time.monotonic() >= next_kill:
                running = [p for p in world.trainers.values() if p.poll() is None]
                victim = world.master if draw.random() < 0.3 else draw.choice(running or [world.master])
                kills["master" if victim is world.master else "trainer"] += 1
                victim.kill()
                victim.wait()
                next_kill = time.monotonic() + KILL_EVERY_S * (5 if victim is world.master else 1)
            time.sleep(0.02)
        report = json.loads(world.audit().stdout)
    print(f"kills: {kills}")
    assert kills["master"] >= 1
    assert kills["trainer"] >= 3
    assert report["ok"], report["problems"]
    assert [(e["epoch"], e["total"], e["done"], e["quarantined"], e["closed"]) for e in report["epochs"]] == [
        (epoch, RECORDS, RECORDS, [], True) for epoch in range(EPOCHS)
    ]
    assert set(world.consumed()) == {(epoch, record) for epoch in range(EPOCHS) for record in range(RECORDS)}
    assert all((tmp_path / f"t{n}.log").read_text().endswith("end\n") for n in range(TRAINERS))


def test_a_trainer_that_was_stopped_for_long_comes_back_without_doubling_anything(tmp_path: Path) -> None:
    with cluster(tmp_path, json.dumps({"source": "index:60", "shardSize": 10}), 0.6) as world:
        world.start_trainer("t0", 0.02)
        until = time.monotonic() + 60
        while not world.consumed():
            assert time.monotonic() < until
            time.sleep(0.01)
        world.trainers["t0"].send_signal(signal.SIGSTOP)
        world.start_trainer("t1", 0.001)
        assert world.trainers["t1"].wait(timeout=60) == 0  # it need not wait for the other
        before = len((tmp_path / "t0.log").read_text().splitlines())
        world.trainers["t0"].send_signal(signal.SIGCONT)
        assert world.trainers["t0"].wait(timeout=60) == 0
        (epoch,) = json.loads(world.audit().stdout)["epochs"]
    assert (epoch["done"], epoch["closed"]) == (60, True)
    assert epoch["redispatched"] > 0
    assert epoch["by"]["t0"] + epoch["by"]["t1"] == 60
    told = (tmp_path / "t0.log").read_text().splitlines()
    assert len(told) <= before + 2  # the record in hand, and the end: nothing of what it had lost
    assert told[-1] == "end"
