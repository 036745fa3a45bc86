"""Two tenants who do all that a user may do to take what is another tenant's: jobs come and go without pause."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Self

from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.worlds.jobs import training_job

Object = dict[str, Any]
TENANTS = ("mallory", "eve")
PAUSE_S = 0.1
"""Between two acts: without a pause the client would measure how fast this machine is."""
_KEPT = 12


class HostileTenants:
    """Creates and deletes hostile jobs in a thread while the block runs.

    Attributes:
        acts: how many jobs were created, refused and deleted.
    """

    def __init__(self, kube: Kube) -> None:
        self.acts: Counter[str] = Counter()
        self._kube, self._stop = kube, threading.Event()
        self._made: deque[tuple[str, str]] = deque()
        self._thread = threading.Thread(target=self._run, name="hostile tenants", daemon=True)

    @classmethod
    def settle(cls, kube: Kube) -> None:
        """Create their namespaces, whose quota refuses every pod."""
        for name in TENANTS:
            kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            kube.create(_quota(), name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        while self._made:
            self._delete_oldest()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.wait(PAUSE_S):
                return
            self._act(number)
            if len(self._made) > _KEPT:
                self._delete_oldest()

    def _act(self, number: int) -> None:
        namespace = TENANTS[number % 2]
        job = _JOBS[number % len(_JOBS)](number)
        job["metadata"]["namespace"] = namespace
        try:
            self._kube.create(job, namespace)
        except KubeError:
            self.acts["refused"] += 1
        else:
            self.acts["created"] += 1
            self._made.append((namespace, job["metadata"]["name"]))

    def _delete_oldest(self) -> None:
        namespace, name = self._made.popleft()
        try:
            self._kube.delete("trainingjobs", name, namespace)
            self.acts["deleted"] += 1
        except KubeError:
            self.acts["refused"] += 1


def _quota() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "0"}},
    }


def _job(number: int, **spec: Any) -> Object:
    return training_job(f"h-{number}", min_trainers=spec.pop("low", 2), max_trainers=spec.pop("high", 200), **spec)


def _like_an_honest_one(number: int) -> Object:
    job = _job(number)
    job["metadata"]["name"] = f"honest-{number % 3}-{number}"
    return job


def _with_ports(number: int) -> Object:
    return _job(number, hostNetwork=True, ports_num=120)


def _with_affinity(number: int) -> Object:
    values = [f"n-{i}" for i in range(1500)]
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": values}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return _job(number, trainer={"template": {"spec": {"affinity": affinity}}})


def _giant(number: int) -> Object:
    env = [{"name": f"E{i}", "value": "x" * 200} for i in range(400)]
    return _job(number, trainer={"template": {"spec": {"containers": [{"name": "trainer", "env": env}]}}})


_JOBS: tuple[Callable[[int], Object], ...] = (
    lambda number: _job(number, low=150, priority=1_000_000),
    lambda number: _job(number, queue="of-my-own"),
    _job,
    _like_an_honest_one,
    _with_ports,
    _with_affinity,
    _giant,
)
