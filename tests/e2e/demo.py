"""The demonstration: a real control plane, the controller, three jobs and a wave of serving pods, with a live log.

Run it with `make demo-cluster`. It starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok (in
place of kubelets) on loopback. It builds them first if they are missing, and stops everything when it ends or is
interrupted.
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

from tests.e2e.control_plane.build import ensure_binaries
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.nodes import make_nodes
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.e2e.worlds import facts
from tests.e2e.worlds.controller_process import ControllerError
from tests.e2e.worlds.harness import World, bounds
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.pod_log import PodLog

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
    """Polls the cluster and prints what has changed."""

    def __init__(self, here: World) -> None:
        self._here = here
        self._since = time.monotonic()
        self._printed: set[tuple[str, str, int]] = set()
        self._line = ""
        self._target = 0

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"{time.monotonic() - self._since:6.1f} s  {text}", flush=True)

    def serve(self, target: int) -> None:
        """Scale the serving Deployment."""
        self._target = target
        self.say(f"serving is scaled to {target} pods of 3 cpu")
        self._here.kube.scale("deployments", "web", target)

    def until(self, done: Callable[[], bool], timeout_s: float, what: str) -> float:
        """Print changes until `done` is true; return the seconds it took."""
        since = time.monotonic()
        while not done():
            self._look()
            if time.monotonic() - since > timeout_s:
                raise ControlPlaneError(f"not within {timeout_s:g} s: {what}\n{self._here.controller.tail()}")
            time.sleep(LOOK_EVERY_S)
        self._look()
        return time.monotonic() - since

    def _look(self) -> None:
        for event in sorted(
            self._here.kube.list("events", "default"), key=lambda e: int(e["metadata"]["resourceVersion"])
        ):
            about = event["involvedObject"]
            key = (event["metadata"]["uid"], event["message"], event.get("count") or 1)
            if about["kind"] == "TrainingJob" and key not in self._printed:
                self._printed.add(key)
                self.say(f"  {about['name']}: {event['reason']} {event['message']}")
        line = self._state()
        if line != self._line:
            self._line = line
            self.say(line)

    def _state(self) -> str:
        nodes, pods = self._here.kube.list("nodes"), self._here.pods()
        parts = []
        for name, job in self._here.jobs().items():
            running = sum(map(facts.is_running, facts.trainers(pods, name)))
            low, high = bounds(job)
            parts.append(f"{name} {running} of {low}..{high}")
        if self._target or self._here.ready_serving():
            parts.append(f"serving {self._here.ready_serving()} of {self._target}")
        return f"{' | '.join(parts)} | cpu {cpu_share(nodes, pods):.0%}"


def cpu_share(nodes: list[Object], pods: list[Object]) -> float:
    """The share of the cluster's cpu that the pods on its nodes request."""
    total = sum(facts.amount("cpu", node["status"]["allocatable"]["cpu"]) for node in nodes)
    held = sum(facts.request(p).get("cpu", 0) for p in pods if p["spec"].get("nodeName") and not facts.is_finished(p))
    return held / total


def play(here: World, tell: Narrator, log: PodLog) -> None:
    """Create the jobs one by one, scale serving up and down, then delete a job."""
    results = []
    for job in JOBS:
        results.append(arrive(here, tell, log, job))
        tell.until(lambda: not here.unfilled(), 90, "the cluster is full")
    results.append(
        "fairness of the three shares (Jain index; 1 is equal): "
        + f"{facts.jain(list(here.fulfilments().values())):.3f}"
    )
    tell.serve(SERVING_PODS)
    waited = tell.until(lambda: here.ready_serving() == SERVING_PODS, 60, "serving is ready")
    results.append(
        f"serving: {SERVING_PODS} pods ready after {waited:.1f} s; a deleted pod takes {POD_DELETE_S:g} s to end"
    )
    tell.serve(0)
    tell.say("training grows again 30 s after it last shrank, so that a flapping load does not disturb it")
    tell.until(lambda: not here.ready_serving() and not here.unfilled(), 120, "training has grown again")
    leaving = str(JOBS[0]["metadata"]["name"])
    tell.say(f"TrainingJob {leaving} is deleted")
    log.forget(leaving)
    here.withdraw(leaving)
    tell.until(lambda: not here.unfilled(), 90, "the other jobs have grown")
    summarise(here, log, results)


def arrive(here: World, tell: Narrator, log: PodLog, job: Object) -> str:
    """Create a job and wait until it runs; return its line of the summary."""
    name, (least, most) = str(job["metadata"]["name"]), bounds(job)
    size = job["spec"]["trainer"]["resources"]["requests"]["cpu"]
    tell.say(f"TrainingJob {name} is created: {least} to {most} trainers of {size} cpu")
    log.expect(name, least)
    here.submit(job)
    waited = tell.until(lambda: here.running(name) >= least, 60, f"{name} runs")
    return f"{name}: minimum reached {waited:.1f} s after creation"


_WHO = {
    "scheduler": "kube-scheduler, for serving pods",
    "controller: Admitted": "the controller, for a new job",
    "controller: InsufficientCapacity": "the controller, for the fair share of another job",
    "controller: ServingNeedsRoom": "the controller, for serving pods",
}


def summarise(here: World, log: PodLog, results: list[str]) -> None:
    """Print the summary."""
    print("\nSummary")
    for result in results:
        print(f"  {result}")
    for name, job in here.jobs().items():
        count, least = here.counts()[name], bounds(job)[0]
        print(f"  {name}: {count} trainers at the end, at least {log.lowest[name]} at all times (minimum {least})")
    for cause, count in sorted(log.causes().items()):
        print(f"  {count} trainers were deleted by {_WHO.get(cause, cause)}")
    print(f"  cpu requested at the end: {cpu_share(here.kube.list('nodes'), here.pods()):.0%}")


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that the demonstration cleans up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def main() -> int:
    """Run the demonstration; return 0 if it succeeds, 1 if it fails, 130 if it is interrupted."""
    try:
        with ending_on_signals(), tempfile.TemporaryDirectory(prefix="edl-demo-") as folder:
            ensure_binaries()
            print(f"starting a control plane with {NODES} nodes of 8 cpu each", flush=True)
            with start(Path(folder)) as plane:
                here = World(plane)
                here.kube.create(serving())
                with here.controller, PodLog(here.kube) as log:
                    play(here, Narrator(here), log)
            print("all processes are stopped")
    except KeyboardInterrupt:
        print("\ninterrupted; all processes are stopped", file=sys.stderr)
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
