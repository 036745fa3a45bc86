"""A job that trains while a disaster happens, and the judgement afterwards: its pods, and the audit of its journal.

The controller and the master are real processes, and the test makes the calls of the trainers. A drill is passed if
the job ends with every record done once, which `edl audit` decides from the journal.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.real_master import PretendTrainer, RealMaster

Object = dict[str, Any]
JOB = "ctr"
RECORDS, SHARD, TRAINERS = 500, 10, 4
MASTER_IP = "127.77.0.10"
WAIT_S = 120.0
# Nobody takes over from the only controller, so it keeps leading if the machine is too busy to renew a lease.
ALONE = ("--interval-s", "1", "--no-leader-election")


class Drill:
    """One cluster with a job at work.

    Args:
        plane: the cluster.
        folder: for the journal of the master.
        stack: ends the processes.
        flags: of the controller.
    """

    def __init__(self, plane: ControlPlane, folder: Path, stack: ExitStack, flags: tuple[str, ...] = ALONE) -> None:
        self.plane, self.folder, self.stack = plane, folder, stack
        self.world = World(plane, *flags)
        self.workers: list[PretendTrainer] = []

    @property
    def kube(self) -> Kube:
        return self.plane.kube

    @property
    def controller_log(self) -> str:
        return self.world.controller.log.read_text()

    def begin(self) -> Drill:
        """Start the controller, the job and its master; its trainers do a fifth of the data."""
        self.stack.enter_context(self.world.controller)
        return self.with_job()

    def with_job(self) -> Drill:
        """The same with a controller that runs already."""
        self.world.submit(job())
        self.wait_running()
        self.master = self.stack.enter_context(RealMaster(self.kube, JOB, self.folder / "master", MASTER_IP))
        # Until the controller publishes a roster, the master takes every trainer.
        self.kube.wait_until(lambda: self.master.ask("GET", "/v1/status")["roster"], WAIT_S, "it has a roster")
        self.workers = [PretendTrainer(self.master, name) for name in sorted(self.trainers())]
        self.train(RECORDS // 5)
        return self

    def wait_running(self) -> None:
        """Wait until all trainers run."""
        self.kube.wait_until(lambda: self.world.running(JOB) == TRAINERS, WAIT_S, "all trainers run")

    def trainers(self) -> dict[str, str]:
        """Name -> UID of the trainers that are not being deleted."""
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in facts.trainers(self.world.pods(), JOB)}

    def pods(self) -> dict[str, str]:
        """Name -> UID of every pod of the job that is not being deleted."""
        pods = self.kube.list("pods", "default", labels=f"paddlepaddle.org/job={JOB}")
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods if not facts.is_terminating(p)}

    def done(self) -> int:
        """How many records are done, as the master counts them."""
        status = self.master.ask("GET", "/v1/status")
        return int(status["reported"] + status["committed"])

    def train(self, until: int = RECORDS) -> None:
        """Let the trainers work until so many records are done, or the job ends."""
        while self.done() < until:
            for worker in self.workers:
                if worker.work()["status"] == "job_end":
                    return

    def rounds(self) -> int:
        """How many rounds the controller has finished."""
        return self.controller_log.count('msg="round done" result=acted')

    def wait_rounds(self, count: int = 3) -> None:
        """Let the controller finish so many rounds from now on."""
        seen = self.rounds()
        self.kube.wait_until(lambda: self.rounds() >= seen + count, WAIT_S, f"{count} rounds")

    def restart_master(self, folder: Path) -> None:
        """Start the master of the present job on the journal in that folder, and give it the present trainers."""
        self.master.__exit__(None, None, None)
        self.folder = folder
        self.master = self.stack.enter_context(RealMaster(self.kube, JOB, folder / "master", MASTER_IP))
        self.workers = [PretendTrainer(self.master, name) for name in sorted(self.trainers())]

    def judge(self) -> None:
        """Train to the end; by the audit of the journal every record is done once."""
        self.train()
        journal = self.folder / "master" / "journal"
        edl = [str(Path(sys.executable).with_name("edl")), "audit", str(journal), "-o", "json"]
        ended = subprocess.run(edl, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        (epoch,) = json.loads(ended.stdout)["epochs"]
        assert (epoch["done"], epoch["total"], epoch["quarantined"]) == (RECORDS, RECORDS, [])


def job() -> Object:
    """The job of a drill."""
    dataset = {"source": f"index:{RECORDS}", "shardSize": SHARD}
    return training_job(JOB, min_trainers=2, max_trainers=TRAINERS, dataset=dataset)
