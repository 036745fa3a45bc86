"""A tenant whose quota lets it have a few pods, and what it does with them: lying masters, trainers that never end.

Its jobs are there from the start on, and its small ones have a node of their own, so that honest jobs have the same
capacity without and with its hostility.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.lying_masters import LyingMasters

Object = dict[str, Any]
TENANT = "trudy"
LIARS = {"huge": 12, "long": 4, "pieces": 4, "silent": 4, "changing": 8}
STUCK, STUCK_TRAINERS = "stuck", 3
PAUSE_S = 2.0
TINY = {"cpu": "10m", "memory": "16Mi"}
_CORNER = "corner"
_TAINT = {"key": _CORNER, "value": TENANT, "effect": "NoSchedule"}
_THERE = {
    "spec": {
        "nodeSelector": {"kubernetes.io/hostname": _CORNER},
        "tolerations": [{"key": _CORNER, "operator": "Exists"}],
    }
}
_MASTER: Object = {"resources": {"requests": TINY}, "template": _THERE}
_NEVER = {"edl.test/stop-s": "1000000"}
"""A kubelet that waits for containers with a grace period of years, as far as kwok can play it."""


class HostilePods:
    """What the tenant does with its pods, in a thread while the block runs.

    Attributes:
        acts: how often it did what.
        masters: those that answer in the place of its masters.
    """

    def __init__(self, kube: Kube, pace: float = 1.0) -> None:
        self.acts: Counter[str] = Counter()
        self._pause_s = PAUSE_S / pace
        self.masters = LyingMasters()
        self._kube, self._stop = kube, threading.Event()
        self._thread = threading.Thread(target=self._run, name="hostile pods", daemon=True)

    @staticmethod
    def settle(plane: ControlPlane) -> None:
        """Create its node, its namespace, its quota and its jobs; wait until they run."""
        kube = plane.kube
        plane.add_nodes([NodeSpec(_CORNER, {"cpu": "2", "memory": "8Gi", "pods": "110"}, taints=[_TAINT])])
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
        hard = {"requests.cpu": str(STUCK_TRAINERS + 1), "pods": "90"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
        kube.create(quota, TENANT)
        for kind, count in LIARS.items():
            for number in range(count):
                kube.create(_tiny(f"{kind}-{number}"), TENANT)
        stuck = training_job(STUCK, min_trainers=1, max_trainers=STUCK_TRAINERS, master=_MASTER)
        stuck["spec"]["trainer"]["template"] = {"spec": {"terminationGracePeriodSeconds": 2**31 - 1}}
        kube.create(_named(STUCK, stuck), TENANT)
        wanted = 2 * sum(LIARS.values()) + 1 + STUCK_TRAINERS
        kube.wait_until(lambda: sum(map(facts.is_running, kube.list("pods", TENANT))) == wanted, 120, "its pods run")

    def __enter__(self) -> Self:
        self.masters.__enter__()
        for kind, count in LIARS.items():
            for number in range(count):
                self.masters.speak_for(self._kube, f"{kind}-{number}", kind, TENANT)
        _, *others = facts.trainers(self._kube.list("pods", TENANT), STUCK)  # edl would replace its minimum
        for pod in others:
            name = pod["metadata"]["name"]
            kept = {"annotations": _NEVER, "finalizers": ["example.org/never"]}
            self._kube.patch("pods", name, {"metadata": kept}, TENANT)
            self._kube.delete("pods", name, TENANT)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.masters.__exit__(None, None, None)

    def _run(self) -> None:
        """Create and delete a job with a finalizer again and again; its pods must end without the tenant."""
        for number in itertools.count():
            name = f"kept-{number}"
            job = _tiny(name)
            job["metadata"]["finalizers"] = ["example.org/never"]
            self._try("created", partial(self._kube.create, job, TENANT))
            if self._stop.wait(self._pause_s):
                return
            self._try("deleted", partial(self._kube.delete, "trainingjobs", name, TENANT))

    def _try(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except KubeError:
            self.acts["refused"] += 1
        else:
            self.acts[what] += 1


def _tiny(name: str) -> Object:
    there = {"template": _THERE}
    job = training_job(name, min_trainers=1, max_trainers=1, **TINY, master=_MASTER, trainer=there)
    return _named(name, job)


def _named(name: str, job: Object) -> Object:
    return {**job, "metadata": {"name": name}}
