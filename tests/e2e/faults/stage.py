"""A controller behind a proxy that can inject faults, and a job that no fault may affect."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.faults.faults import Asked
from tests.e2e.faults.proxy import FaultProxy
from tests.e2e.worlds import facts
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import Object, training_job
from tests.e2e.worlds.pod_log import PodLog

STEADY = "steady"
GROWN = 4
GROWS_S = 40.0
"""The longest pause after failures is 30 s."""
SMALL = {"cpu": "100m", "memory": "64Mi"}


@dataclass
class Stage:
    """One cluster, one controller behind a proxy, one job that runs before every fault.

    Attributes:
        account: a kubeconfig with the Deployment's rights, past the proxy.
        steady: the UIDs of that job's pods, which outlive everything.
    """

    here: World
    account: Path
    proxy: FaultProxy
    log: PodLog
    steady: frozenset[str] = frozenset()

    def submit(self, name: str, namespace: str = "default", **spec: Any) -> None:
        """A small job of two to four trainers."""
        job = training_job(name, min_trainers=2, max_trainers=GROWN, **{**SMALL, **spec})
        job["metadata"]["namespace"] = namespace
        self.here.kube.create(job)

    def wait_grown(self, name: str, namespace: str = "default", timeout_s: float = GROWS_S) -> None:
        """Wait until a job has all that it may have, and says so."""
        kube = self.here.kube
        kube.wait_until(lambda: self.here.running(name) == GROWN, timeout_s, f"{GROWN} trainers of {name} run")

        def ready() -> int:
            return int(self.status(name, namespace).get("trainer", {}).get("ready", 0))

        kube.wait_until(lambda: ready() == GROWN, timeout_s, f"the status of {name} says so")

    def status(self, name: str, namespace: str = "default") -> Object:
        """The job's status."""
        found: Object = self.here.kube.get("tj", name, namespace).get("status") or {}
        return found

    def condition(self, name: str, kind: str, namespace: str = "default") -> Object:
        """One condition of a job; empty if the job does not have it."""
        conditions = self.status(name, namespace).get("conditions") or []
        found: Object = next((c for c in conditions if c["type"] == kind), {})
        return found

    def pods_of(self, name: str) -> list[Object]:
        """Every pod of a job, finished and terminating ones too."""
        return [p for p in self.here.pods() if (p["metadata"].get("labels") or {}).get(facts.JOB_LABEL) == name]

    def uids_of(self, name: str) -> frozenset[str]:
        """The UIDs of a job's pods."""
        return frozenset(pod["metadata"]["uid"] for pod in self.pods_of(name))

    def assert_only_grown(self, name: str) -> None:
        """The job never had a pod too many and lost none: a master and the trainers, each created once."""
        assert len(self.pods_of(name)) == 1 + GROWN
        created = {p["metadata"]["name"] for p in self.pods_of(name)}
        assert created == {f"{name}-master-0", *(f"{name}-trainer-{i}" for i in range(GROWN))}
        assert self.log.most[name] <= GROWN
        assert [
            p["metadata"]["name"] for p in self.log.ended_trainers() if p["metadata"]["name"].startswith(name)
        ] == []

    def assert_steady(self) -> None:
        """The steady job has kept every pod."""
        assert self.uids_of(STEADY) == self.steady

    def revive(self) -> None:
        """Start the controller where a test that failed has ended it."""
        if not self.here.controller.is_alive():
            self.here.controller.start()

    def clear(self) -> None:
        """Delete every job but the steady one, and wait until their pods are gone."""
        kube = self.here.kube
        for job in kube.list("tj"):
            if job["metadata"]["name"] != STEADY:
                kube.delete("tj", job["metadata"]["name"], job["metadata"]["namespace"])
        kube.wait_until(
            lambda: all(self.is_steady(pod) for pod in kube.list("pods", labels=facts.JOB_LABEL)),
            60,
            "only the steady job has pods",
        )

    @staticmethod
    def is_steady(pod: Object) -> bool:
        """True for a pod of the steady job."""
        return bool(pod["metadata"]["labels"][facts.JOB_LABEL] == STEADY)

    @contextmanager
    def without_controller(self) -> Iterator[None]:
        """Let the block run other controllers."""
        self.here.controller.stop()
        try:
            yield
        finally:
            self.here.controller.start()

    def assert_well(self) -> None:
        """The process lives and answers, logged no bug, and the steady job has kept every pod."""
        assert self.here.controller.is_alive(), self.here.controller.tail()
        assert self.here.controller.answers("/healthz")
        self.assert_steady()
        log = self.here.controller.log.read_text()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]


@contextmanager
def staged(plane: ControlPlane) -> Iterator[Stage]:
    """Install, start the controller behind a proxy, and let a job grow.

    There is no election: an outage that outlives the lease ends its holder on purpose.
    """
    here = World(plane)
    account = here.controller.kubeconfig
    with FaultProxy(account) as proxy, PodLog(here.kube) as log:
        here.controller = ControllerProcess(proxy.kubeconfig, plane.workdir, "--no-leader-election")
        here.controller.is_preloaded = False  # what it needs of memory is measured
        with here.controller:
            stage = Stage(here, account, proxy, log)
            stage.submit(STEADY)
            stage.wait_grown(STEADY)
            stage.steady = stage.uids_of(STEADY)
            log.expect(STEADY, GROWN)
            yield stage


def failures_in_a_row(asked: list[Asked]) -> Iterator[tuple[str, list[Asked]]]:
    """For each collection, or the part of it that was chosen, its requests without a success in between."""
    by_what: defaultdict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        by_what[f"{one.method} {one.path} {one.chosen}"].append(one)
    for what, requests in by_what.items():
        for failed, row in groupby(requests, lambda a: not HTTPStatus.OK <= a.status < HTTPStatus.MULTIPLE_CHOICES):
            if failed:
                yield what, list(row)


def attempts_within(seconds: float, first_s: float) -> int:
    """The most attempts in that time of one who pauses half to all of `first_s`, then twice that, and so on."""
    attempts, pause_s, at_s = 1, first_s / 2, 0.0
    while at_s <= seconds:
        attempts, at_s, pause_s = attempts + 1, at_s + pause_s, min(2 * pause_s, 15.0)
    return attempts


def seconds_since(at_s: float) -> float:
    """Seconds since a monotonic time."""
    return time.monotonic() - at_s
