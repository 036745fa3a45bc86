"""A cluster with edl installed and the controller running, as the end-to-end tests use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import world
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube
from tests.e2e.controller_process import ControllerProcess

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "paddlecloud"
NEVER_ON_KWOK = {"Deployment", "PodDisruptionBudget", "NetworkPolicy"}


def install(plane: ControlPlane) -> Path:
    """Install all of edl but its Deployment, and return a kubeconfig with the Deployment's rights.

    The controller runs as a process beside the cluster, with its ServiceAccount's token: what the shipped ClusterRole
    does not allow fails here too.
    """
    objects = [body for body in yaml.safe_load_all((ROOT / "deploy/edl_controller.yaml").read_text()) if body]
    account = next(body["metadata"]["name"] for body in objects if body["kind"] == "ServiceAccount")
    for body in objects:
        if body["kind"] not in NEVER_ON_KWOK:
            plane.kube.apply(body)
    plane.kube.wait_until(lambda: _is_served(plane.kube), 20, "the API server serves trainingjobs")
    return plane.kubeconfig_for(account, NAMESPACE)


def _is_served(kube: Kube) -> bool:
    return isinstance(kube.list("trainingjobs.paddlepaddle.org"), list)


class World:
    """One cluster under test: what stands in the API server, and the controller to start and stop."""

    def __init__(self, plane: ControlPlane, *flags: str) -> None:
        self.plane = plane
        self.kube = plane.kube
        self.controller = ControllerProcess(install(plane), plane.workdir, *flags)
        self._jobs: dict[str, Object] = {}

    def submit(self, job: Object) -> None:
        """Create a TrainingJob."""
        self.kube.create(job)
        self._jobs[job["metadata"]["name"]] = job

    def withdraw(self, name: str) -> None:
        """Delete a TrainingJob."""
        self.kube.delete("trainingjobs", name)
        del self._jobs[name]

    def jobs(self) -> dict[str, Object]:
        """The jobs submitted and not withdrawn, by name, as they were submitted."""
        return dict(self._jobs)

    def pods(self) -> list[Object]:
        """Every pod of the cluster."""
        return self.kube.list("pods")

    def counts(self) -> dict[str, int]:
        """Live trainers of each submitted job."""
        pods = self.pods()
        return {name: len(world.trainers(pods, name)) for name in self._jobs}

    def running(self, job: str) -> int:
        """Trainers of a job that run and are not on their way out."""
        return sum(map(world.is_running, world.trainers(self.pods(), job)))

    def fulfilments(self) -> dict[str, float]:
        """How far each job has come from its minimum to its maximum."""
        counts = self.counts()
        return {name: world.fulfilment(counts[name], *bounds(job)) for name, job in self._jobs.items()}

    def unfilled(self) -> str:
        """Why the cluster is not at rest and full; empty where it is."""
        nodes, pods = self.kube.list("nodes"), self.pods()
        moving = [pod["metadata"]["name"] for pod in pods if world.is_terminating(pod) or not world.is_running(pod)]
        if moving:
            return f"on the move: {moving}"
        room = world.free_room(nodes, pods)
        for name, job in self._jobs.items():
            count = len(world.trainers(pods, name))
            if count < bounds(job)[1] and (more := world.slots(trainer_request(job), room)):
                return f"{more} more trainers of {name} would fit, which has {count} of {bounds(job)}"
        return ""

    def wait_full(self, timeout_s: float, *, poll_s: float = 0.05, further: Callable[[], str] = lambda: "") -> None:
        """Wait until nothing moves and no further trainer of any job fits anywhere, nor is there more to wait for."""
        what = "the cluster is at rest and full"
        self.kube.wait_until(lambda: _Verdict(self.unfilled() or further()), timeout_s, what, poll_s=poll_s)

    def ready_serving(self, name: str = "web") -> int:
        """Ready pods of a serving Deployment."""
        return sum(map(world.is_ready, self.kube.list("pods", "default", labels=f"app={name}")))


class _Verdict:
    """True where there is nothing to complain of; shows the complaint where a wait ends in vain."""

    def __init__(self, complaint: str) -> None:
        self._complaint = complaint

    def __bool__(self) -> bool:
        return not self._complaint

    def __repr__(self) -> str:
        return self._complaint


def bounds(job: Object) -> tuple[int, int]:
    """Least and most trainers of a submitted job."""
    trainer = job["spec"]["trainer"]
    return trainer["min-instance"], trainer["max-instance"]


def trainer_request(job: Object) -> world.Amounts:
    """What one trainer of a submitted job asks of a node."""
    wanted = job["spec"]["trainer"]["resources"]["requests"]
    return {"pods": 1, **{name: world.amount(name, text) for name, text in wanted.items()}}
