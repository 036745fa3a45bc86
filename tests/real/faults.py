"""The faults while the example trains: all of them in one run, with a trainer killed every few seconds."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import Any

from tests.e2e.control_plane.report import is_ready
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.real.cluster.images import BASE_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.mission import LEASE, NAMESPACE, events, names, pods

Object = dict[str, Any]
GREEDY = "/tmp/greedy"
"""A trainer that finds that file takes more memory than it may."""
EVERY_S = 4.0
_TOO_LATE = (ControlPlaneError, IndexError, KeyError, subprocess.TimeoutExpired)
"""A trainer that was to be killed has ended by itself, or its kubelet is away."""


def serving(replicas: int) -> Object:
    """A Deployment that serves: of priority 0, and so before any training."""
    container = {
        "name": "web",
        "image": BASE_IMAGE,
        "command": ["python3", "-m", "http.server", "8000"],
        "resources": {"requests": {"cpu": "400m", "memory": "32Mi"}},
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
        },
    }


class Faults:
    """What goes wrong in one run, each fault after the one before has been got over."""

    def __init__(self, cluster: RealCluster, job: str, stopped_s: float, seed: int) -> None:
        self._cluster, self._job, self._stopped_s = cluster, job, stopped_s
        self._seed = seed
        self.killed: Counter[str] = Counter()

    def failures(self) -> int:
        """Ends that are the pods' own, the pserver's included: what is deleted, preempted or shrunk is none."""
        own = (self.kill_as_the_kernel, self.make_greedy)
        return 1 + sum(self.killed[way.__name__] for way in own)

    def do_all(self) -> None:
        """All of them, in order; but for the first, with trainers killed at the same time."""
        self.await_trainers(6)
        self.exhaust_memory()
        with self.killing():
            self.serve()
            self.kill_pserver()
            self.stop_kubelet()
            self.kill_master()
            self.kill_leader()

    @contextmanager
    def killing(self) -> Iterator[None]:
        """One trainer after the other, each in another way, while the context lasts."""
        stop = threading.Event()
        thread = threading.Thread(target=self._kill_until, args=(stop,), name="kills trainers")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _kill_until(self, stop: threading.Event) -> None:
        ways: tuple[Callable[[str], object], ...] = (self.kill_as_the_kernel, self.delete_by_force, self.make_greedy)
        for number, way in enumerate(cycle(ways), self._seed):
            if stop.wait(EVERY_S):
                return
            found = names(pods(self._cluster, self._job))
            with suppress(*_TOO_LATE):
                way(found[5 * number % max(1, len(found))])
                self.killed[way.__name__] += 1

    def kill_as_the_kernel(self, trainer: str) -> None:
        self._cluster.kill_container(trainer)

    def delete_by_force(self, trainer: str) -> None:
        """As an impatient user does."""
        self._cluster.kubectl("delete", "pod", trainer, "--force", "--grace-period=0")

    def make_greedy(self, trainer: str) -> None:
        """It soon takes more memory than it may have, and the kernel ends it."""
        self._cluster.exec(trainer, "touch", GREEDY)

    def await_trainers(self, count: int) -> None:
        self._cluster.kube.wait_until(
            lambda: len(pods(self._cluster, self._job)) == count, 60, f"{count} trainers run"
        )

    def exhaust_memory(self) -> None:
        """A trainer goes beyond its limit, and the job tells it."""
        (name, *_) = names(pods(self._cluster, self._job))
        self.make_greedy(name)
        self.killed[self.make_greedy.__name__] += 1
        said = f"{name} exited with code 137 (OOMKilled: "
        self._cluster.kube.wait_until(lambda: said in events(self._cluster, self._job), 60, "an event says why")

    def serve(self) -> None:
        """A wave that leaves room for two trainers, and goes."""
        self._cluster.kube.apply(serving(replicas=5))
        self._cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s", timeout_s=90)
        assert len(pods(self._cluster, self._job)) <= 3
        self._cluster.kubectl("delete", "deployment/web")
        self.await_trainers(6)

    def kill_pserver(self) -> None:
        self._kill(f"{self._job}-pserver-1")

    def kill_master(self) -> None:
        self._kill(f"{self._job}-master-0")

    def _kill(self, name: str) -> None:
        """SIGKILL for its container; it is over when another one runs in its place."""
        before = running_container(self._cluster, name)
        self._cluster.kill_container(name)
        self._cluster.kube.wait_until(
            lambda: running_container(self._cluster, name) not in {"", before}, 60, f"{name} is back"
        )

    def stop_kubelet(self) -> None:
        """A node goes silent, with all that runs on it."""
        self._cluster.stop_kubelet("node-2")
        until_s = time.monotonic() + self._stopped_s
        self._cluster.kube.wait_until(lambda: not is_ready(self._cluster.kube.get("nodes", "node-2")), 30, "NotReady")
        time.sleep(max(0.0, until_s - time.monotonic()))
        self._cluster.start_kubelet("node-2")
        self._cluster.kube.wait_until(lambda: is_ready(self._cluster.kube.get("nodes", "node-2")), 30, "Ready")

    def kill_leader(self) -> None:
        """Another replica leads then."""
        before = self._leader()
        pod = next(
            name
            for name in names(self._cluster.kube.list("pods", NAMESPACE, labels="app.kubernetes.io/name=edl"))
            if before.startswith(name)
        )
        self._cluster.kubectl("delete", "pod", "-n", NAMESPACE, pod, "--force", "--grace-period=0")
        self._cluster.kube.wait_until(lambda: self._leader() not in {"", before}, 60, "another one leads")

    def _leader(self) -> str:
        held: str = self._cluster.kube.get("leases", LEASE, NAMESPACE)["spec"].get("holderIdentity") or ""
        return held


def running_container(cluster: RealCluster, pod: str) -> str:
    """The id of the first container of a pod, on its node."""
    found = cluster.kube.get("pods", pod)["status"].get("containerStatuses") or [{}]
    return str(found[0].get("containerID", "")) if "running" in found[0].get("state", {}) else ""
