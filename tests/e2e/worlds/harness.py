"""A control plane with edl installed and a controller to start and stop."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Self

import yaml

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube
from tests.e2e.worlds import facts
from tests.e2e.worlds.controller_process import ControllerProcess

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "paddlecloud"
NEVER_ON_KWOK = {"Deployment", "PodDisruptionBudget", "NetworkPolicy"}


def install(plane: ControlPlane) -> Path:
    """Install edl without its Deployment; return a kubeconfig with the rights of the Deployment.

    The controller runs as a process with the token of its ServiceAccount, so that what the shipped ClusterRole does
    not allow fails here too.
    """
    objects = _objects()
    account = next(body["metadata"]["name"] for body in objects if body["kind"] == "ServiceAccount")
    for body in objects:
        if body["kind"] not in NEVER_ON_KWOK:
            plane.kube.apply(body)
    plane.kube.wait_until(lambda: _is_served(plane.kube), 20, "the API server serves trainingjobs")
    return plane.kubeconfig_for(account, NAMESPACE)


@cache
def _objects() -> tuple[Object, ...]:
    """What the shipped file installs; a process that starts many clusters reads it once."""
    return tuple(body for body in yaml.safe_load_all((ROOT / "deploy/edl_controller.yaml").read_text()) if body)


def _is_served(kube: Kube) -> bool:
    return isinstance(kube.list("trainingjobs.paddlepaddle.org"), list)


class World:
    """One cluster under test, and its controller.

    Attributes:
        restless: namespaces whose pods come, go or stay as they like: nobody waits for them.
    """

    def __init__(self, plane: ControlPlane, *flags: str) -> None:
        self.plane = plane
        self.kube = plane.kube
        self.controller = ControllerProcess(install(plane), plane.workdir, *flags)
        self._jobs: dict[str, Object] = {}
        self.restless = frozenset[str]()

    def submit(self, job: Object) -> None:
        """Create a TrainingJob."""
        self.kube.create(job)
        self._jobs[job["metadata"]["name"]] = job

    def withdraw(self, name: str) -> None:
        """Delete a TrainingJob."""
        self.kube.delete("trainingjobs", name)
        del self._jobs[name]

    def jobs(self) -> dict[str, Object]:
        """The jobs that were created and not deleted, by name, as they were submitted."""
        return dict(self._jobs)

    def pods(self) -> list[Object]:
        """Every pod of the cluster."""
        return self.kube.list("pods")

    def counts(self) -> dict[str, int]:
        """Live trainers of each submitted job."""
        pods = self.pods()
        return {name: len(facts.trainers(pods, name)) for name in self._jobs}

    def running(self, job: str) -> int:
        """The number of trainers of a job that run and are not being deleted."""
        return sum(map(facts.is_running, facts.trainers(self.pods(), job)))

    def fulfilments(self) -> dict[str, float]:
        """The fulfilment of each job: 0 at its minimum, 1 at its maximum."""
        counts = self.counts()
        return {name: facts.fulfilment(counts[name], *bounds(job)) for name, job in self._jobs.items()}

    def unfilled(self) -> str:
        """Why the cluster still changes, is not full or slows a trainer; empty if it is at rest and full."""
        nodes, pods = self.kube.list("nodes"), self.pods()
        awaited = [pod for pod in pods if pod["metadata"]["namespace"] not in self.restless]
        moving = [pod["metadata"]["name"] for pod in awaited if not facts.is_running(pod)]
        if moving:
            return f"pods start or terminate: {moving}"
        if slowed := facts.slowed(nodes, pods):
            return f"serving slows trainers that lend: {slowed}"
        room = facts.free_room(nodes, map(facts.as_declared, pods))
        for name, job in self._jobs.items():
            count = len(facts.trainers(pods, name))
            if count < bounds(job)[1] and (more := facts.slots(trainer_request(job), room)):
                return f"{more} more trainers of {name} would fit, which has {count} of {bounds(job)}"
        return ""

    def wait_full(self, timeout_s: float, *, poll_s: float = 0.05, further: Callable[[], str] = lambda: "") -> None:
        """Wait until no pod starts or terminates, no further trainer fits, and `further` returns nothing."""
        what = "the cluster is at rest and full"
        self.kube.wait_until(lambda: _Verdict(self.unfilled() or further()), timeout_s, what, poll_s=poll_s)

    def ready_serving(self, name: str = "web") -> int:
        """The number of ready pods of a serving Deployment."""
        return sum(map(facts.is_ready, self.kube.list("pods", "default", labels=f"app={name}")))


class WithController:
    """A scene of a world: in its `with` block the controller runs.

    Attributes:
        world: the cluster, with the controller.
    """

    world: World

    def __enter__(self) -> Self:
        self.world.controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.world.controller.is_alive():
            self.world.controller.kill()


class _Verdict:
    """True if there is no complaint; else shows the complaint when a wait times out."""

    def __init__(self, complaint: str) -> None:
        self._complaint = complaint

    def __bool__(self) -> bool:
        return not self._complaint

    def __repr__(self) -> str:
        return self._complaint


def bounds(job: Object) -> tuple[int, int]:
    """The minimum and maximum of trainers of a submitted job."""
    trainer = job["spec"]["trainer"]
    return trainer["min-instance"], trainer["max-instance"]


def trainer_request(job: Object) -> facts.Amounts:
    """The request of one trainer of a submitted job."""
    wanted = job["spec"]["trainer"]["resources"]["requests"]
    return {"pods": 1, **{name: facts.amount(name, text) for name, text in wanted.items()}}
