"""An hour on a real control plane, scraped and evaluated as in production: `make prometheus-hour`.

Every five minutes a job comes and goes, serving takes room and gives it back, and a trainer is lost. Once each, a job
and a serving pod are too large for every node, and once the controller is killed for two minutes. At the end every
query of every panel is asked for the whole hour. The exit code is 1 if a panel shows nothing, a rule is in error, or
an alert fired without cause.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import urllib.error
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from edl.install.alerts import ALERTS
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Object
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.real_master import PORT, PretendTrainer, RealMaster
from tests.prometheus.scene import JOB, QUEUE, SETTINGS, WAIT_S, panels
from tests.prometheus.server import Prometheus, prometheus

SCRAPE_S = 15
MASTER_IP = "127.77.0.23"  # of no other test
CYCLE_S = 300.0
VAST, TOO_LARGE, KILLED = 2, 3, 6
"""The cycles with a job and with a serving pod that fit nowhere, and without a controller for two minutes."""
CAUSED = {
    "EdlNobodyLeads",
    "EdlNoStandby",
    "EdlServingShort",
    "EdlServingBudgetBurnsFast",
    "EdlServingBudgetBurnsSlowly",
}
"""Alerts that what happens here may cause."""


class Training(threading.Thread):
    """The trainers of the job: each that runs finishes a lease a second."""

    def __init__(self, world: World, master: RealMaster) -> None:
        super().__init__(daemon=True)
        self._world, self._master = world, master
        self.done = 0

    def run(self) -> None:
        trainers: dict[str, PretendTrainer] = {}
        while True:
            began_s = time.monotonic()
            running = filter(facts.is_running, facts.trainers(self._world.pods(), self._master.job))
            names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in running}
            with suppress(ControlPlaneError):  # a pod is gone since it was listed
                trainers = {
                    uid: trainers.get(uid) or PretendTrainer(self._master, name) for uid, name in names.items()
                }
            for trainer in trainers.values():
                done, trainer.leases = trainer.leases, []
                keys = ("epoch", "start", "end", "fence")
                with suppress(urllib.error.URLError, OSError):  # its pod has just been deleted
                    # One call, so that a trainer always holds a lease, as one that trains does.
                    trainer.sync(1, done=[{key: lease[key] for key in keys} for lease in done])
                    self.done += len(done)
            time.sleep(max(0.0, began_s + 1.0 - time.monotonic()))


def play(world: World, cycle: int, watch_controller: Callable[[], None]) -> None:
    """What happens in five minutes."""
    began_s = time.monotonic()

    def at(second: float) -> None:
        time.sleep(max(0.0, began_s + second - time.monotonic()))

    names, too_large = [f"video-{cycle}"], cycle == TOO_LARGE
    world.submit(training_job(*names, min_trainers=4, max_trainers=8))
    if cycle == VAST:
        world.submit(training_job("vast", min_trainers=400, max_trainers=400))
        names.append("vast")
    at(60)
    world.kube.create(serving(replicas=4))
    if too_large:
        world.kube.create(serving("huge", replicas=1, cpu="64"))
    at(100)
    with suppress(ControlPlaneError):
        world.kube.delete("pods", "ctr-trainer-0", grace_s=0)
    at(120)
    if cycle == KILLED:
        world.controller.kill()
    at(240)
    if cycle == KILLED:
        world.controller.start()
        watch_controller()
    world.kube.delete("deployments", "web")
    if too_large:
        world.kube.delete("deployments", "huge")
    for name in names:
        world.withdraw(name)
    at(CYCLE_S)


def judge(server: Prometheus, since_s: float) -> list[str]:
    """Print what Prometheus saw, and return what is wrong."""
    wrong = []
    print(f"{'panel':58} series  values")
    for title, queries in panels().items():
        found = [series for query in queries for series in server.series(query, since_s, step_s=SCRAPE_S)]
        values = {value for series in found for _, value in series["values"] if value != "NaN"}
        print(f"{title:58} {len(found):6}  {len(values):6}")
        if not values:
            wrong.append(f"panel {title} shows nothing")
    print(f"\n{'alert':30} minutes true or pending  minutes firing")
    for alert in ALERTS:
        minutes = {
            state: sum(
                len(series["values"])
                for series in server.series(
                    f'max(ALERTS{{alertname="{alert.name}",alertstate="{state}"}})', since_s, step_s=SCRAPE_S
                )
            )
            * SCRAPE_S
            / 60
            for state in ("pending", "firing")
        }
        print(f"{alert.name:30} {minutes['pending'] + minutes['firing']:23.1f} {minutes['firing']:15.1f}")
        if minutes["firing"] and alert.name not in CAUSED:
            wrong.append(f"alert {alert.name} fired without cause")
    for group in server.ask("rules")["groups"]:
        wrong += [
            f"rule {rule['name']}: {rule.get('lastError')}" for rule in group["rules"] if rule["health"] != "ok"
        ]
    return wrong


def main() -> int:
    """Play, judge, and print both."""
    parser = argparse.ArgumentParser(description="an hour on a real control plane, as Prometheus sees it")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to play; at least 5")
    cycles = max(1, round(parser.parse_args().minutes * 60 / CYCLE_S))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "prometheus").mkdir()
        plane = ControlPlane.start(folder / "cluster", nodes="small", settings=SETTINGS)
        stack.callback(plane.stop)
        world = World(plane, "--serving-headroom", "1")
        server = stack.enter_context(prometheus(folder / "prometheus", every_s=SCRAPE_S))
        stack.enter_context(world.controller)
        masters: list[Object] = []

        def watch_controller() -> None:
            server.set_targets([{"targets": [f"127.0.0.1:{world.controller.port}"]}, *masters])

        watch_controller()
        since_s = server.now_s()
        world.kube.create(QUEUE)
        data = {"source": "index:1000000000", "shardSize": 100}
        world.submit(training_job("ctr", dataset=data, max_trainers=20))
        world.kube.wait_until(lambda: world.running("ctr") >= 3, WAIT_S, "trainers run")
        master = stack.enter_context(RealMaster(world.kube, "ctr", folder / "master", MASTER_IP))
        masters.append({"targets": [f"{MASTER_IP}:{PORT}"], "labels": JOB})
        watch_controller()
        training = Training(world, master)
        training.start()
        for cycle in range(1, cycles + 1):
            play(world, cycle, watch_controller)
            print(f"{cycle * CYCLE_S / 60:.0f} min: {training.done} leases done", file=sys.stderr, flush=True)
        wrong = judge(server, since_s)
    print(*(f"wrong: {line}" for line in wrong or ["nothing"]), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
