"""The demonstration: a real control plane, the controller, three jobs and a serving wave, told as it happens.

Run it with `make demo`. It starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok (in place of
kubelets) on loopback, builds them first where they are missing, and leaves nothing running, however it ends.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tests.e2e import world
from tests.e2e.control_plane.build import ensure_binaries
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.nodes import make_nodes
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.e2e.controller_process import ControllerError
from tests.e2e.harness import World, bounds
from tests.e2e.jobs import serving, training_job
from tests.e2e.pod_log import PodLog

Object = dict[str, Any]
NODES = 6
POD_DELETE_S = 4.0
LOOK_EVERY_S = 0.25
JOBS = (
    training_job("vision", min_trainers=2, max_trainers=40),
    training_job("speech", min_trainers=2, max_trainers=30),
    training_job("ads", min_trainers=4, max_trainers=12, cpu="2"),
)
SERVING_PODS = 8


class Narrator:
    """Looks at the cluster and says what has changed since it looked last."""

    def __init__(self, here: World) -> None:
        self._here = here
        self._since = time.monotonic()
        self._told: set[tuple[str, str, int]] = set()
        self._line = ""
        self._target = 0

    def say(self, text: str) -> None:
        """Print one line with the seconds since the start."""
        print(f"{time.monotonic() - self._since:6.1f} s  {text}", flush=True)

    def serve(self, target: int) -> None:
        """Scale serving."""
        self._target = target
        self.say(f"serving is scaled to {target} pods of 3 cpu")
        self._here.kube.scale("deployments", "web", target)

    def until(self, done: Callable[[], bool], timeout_s: float, what: str) -> float:
        """Tell what happens until `done`; the seconds it took."""
        since = time.monotonic()
        while not done():
            self._look()
            if time.monotonic() - since > timeout_s:
                raise ControlPlaneError(f"after {timeout_s:g} s not yet: {what}\n{self._here.controller.tail()}")
            time.sleep(LOOK_EVERY_S)
        self._look()
        return time.monotonic() - since

    def _look(self) -> None:
        for event in sorted(
            self._here.kube.list("events", "default"), key=lambda e: int(e["metadata"]["resourceVersion"])
        ):
            about = event["involvedObject"]
            key = (event["metadata"]["uid"], event["message"], event.get("count") or 1)
            if about["kind"] == "TrainingJob" and key not in self._told:
                self._told.add(key)
                self.say(f"  {about['name']}: {event['reason']} {event['message']}")
        line = self._state()
        if line != self._line:
            self._line = line
            self.say(line)

    def _state(self) -> str:
        nodes, pods = self._here.kube.list("nodes"), self._here.pods()
        parts = []
        for name, job in self._here.jobs().items():
            running = sum(map(world.is_running, world.trainers(pods, name)))
            low, high = bounds(job)
            parts.append(f"{name} {running} of {low}..{high}")
        if self._target or self._here.ready_serving():
            parts.append(f"serving {self._here.ready_serving()} of {self._target}")
        return f"{' | '.join(parts)} | cpu {cpu_share(nodes, pods):.0%}"


def cpu_share(nodes: list[Object], pods: list[Object]) -> float:
    """The part of the cluster's cpu that pods on nodes have requested."""
    total = sum(world.amount("cpu", node["status"]["allocatable"]["cpu"]) for node in nodes)
    held = sum(world.request(p).get("cpu", 0) for p in pods if p["spec"].get("nodeName") and not world.is_finished(p))
    return held / total


def play(here: World, tell: Narrator, log: PodLog) -> None:
    """The story: jobs arrive one by one, serving rises and ebbs, a job leaves."""
    facts = []
    for job in JOBS:
        facts.append(arrive(here, tell, log, job))
        tell.until(lambda: not here.unfilled(), 90, "the cluster is full")
    facts.append(
        "fairness of the three shares (Jain index, 1 is equal): "
        + f"{world.jain(list(here.fulfilments().values())):.3f}"
    )
    tell.serve(SERVING_PODS)
    waited = tell.until(lambda: here.ready_serving() == SERVING_PODS, 60, "serving is ready")
    facts.append(f"serving: 0 -> {SERVING_PODS} pods ready in {waited:.1f} s; a pod takes {POD_DELETE_S:g} s to go")
    tell.serve(0)
    tell.say("training takes the room back 30 s after it last gave way, so that a flapping load does not shake it")
    tell.until(lambda: not here.ready_serving() and not here.unfilled(), 120, "the room is taken back")
    leaving = str(JOBS[0]["metadata"]["name"])
    tell.say(f"kubectl delete: TrainingJob {leaving}")
    log.forget(leaving)
    here.withdraw(leaving)
    tell.until(lambda: not here.unfilled(), 90, "the others have grown")
    summarise(here, log, facts)


def arrive(here: World, tell: Narrator, log: PodLog, job: Object) -> str:
    """Submit a job and wait until it runs; what is to be said of that in the summary."""
    name, (least, most) = str(job["metadata"]["name"]), bounds(job)
    size = job["spec"]["trainer"]["resources"]["requests"]["cpu"]
    tell.say(f"kubectl create: TrainingJob {name}, {least} to {most} trainers of {size} cpu")
    log.expect(name, least)
    here.submit(job)
    waited = tell.until(lambda: here.running(name) >= least, 60, f"{name} runs")
    return f"{name}: at its minimum {waited:.1f} s after its creation"


_WHO = {
    "scheduler": "kube-scheduler, for serving pods",
    "controller: Admitted": "the controller, for a job that came",
    "controller: InsufficientCapacity": "the controller, for another job's share",
    "controller: ServingNeedsRoom": "the controller, for serving pods",
}


def summarise(here: World, log: PodLog, facts: list[str]) -> None:
    """Print what came of it."""
    print("\nSummary")
    for fact in facts:
        print(f"  {fact}")
    for name, job in here.jobs().items():
        count, least = here.counts()[name], bounds(job)[0]
        print(f"  {name}: {count} trainers at the end, never below {log.lowest[name]} (its minimum is {least})")
    for cause, count in sorted(log.causes().items()):
        print(f"  {count} trainers were ended by {_WHO.get(cause, cause)}")
    print(f"  cpu requested at the end: {cpu_share(here.kube.list('nodes'), here.pods()):.0%}")


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demonstration as Ctrl-C does, so that it cleans up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def main() -> int:
    """Run the demonstration: 0 when the story ended well, 1 when it failed, 130 when interrupted."""
    try:
        with ending_on_signals(), tempfile.TemporaryDirectory(prefix="edl-demo-") as folder:
            ensure_binaries()
            print(f"starting a control plane with {NODES} nodes of 8 cpu", flush=True)
            with start(Path(folder)) as plane:
                here = World(plane)
                here.kube.create(serving())
                with here.controller, PodLog(here.kube) as log:
                    play(here, Narrator(here), log)
            print("everything is stopped")
    except KeyboardInterrupt:
        print("\ninterrupted; everything is stopped", file=sys.stderr)
        return 130
    except (ControlPlaneError, ControllerError) as error:
        print(f"the demonstration failed: {error}", file=sys.stderr)
        return 1
    return 0


def start(folder: Path) -> ControlPlane:
    """The control plane of the demonstration."""
    return ControlPlane.start(folder, nodes=make_nodes(NODES), settings=Settings(pod_delete_s=POD_DELETE_S))


if __name__ == "__main__":
    sys.exit(main())
