"""A large cluster of objects alone, and how long edl's controller takes for what happens there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.scale import fill
from tests.e2e.scale.audit import ACCOUNT, AuditLog, Sent
from tests.e2e.scale.fill import Filler, Object, Rate, Request
from tests.e2e.scale.process import Usage
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.harness import install
from tests.worlds.waiting import wait_until

BARE = Settings(audit_level="Metadata", audit_user=ACCOUNT, is_bare=True, api_heap_percent=400)
QUIET_S = 7.0
"""Longer than from plan to plan at rest."""
BAD = 400
"""HTTP statuses from here on are refusals."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a cluster is.

    Attributes:
        nodes: their number.
        jobs: their number.
        trainers: of each job, at the start and at most.
        least: the minimum of each job.
        serving: serving pods on each node.
        cpu: of each node; a serving pod and a trainer take 1 each, a master 0.1.
        wide: the cpu of a serving pod that fits on no node before trainers leave it.
    """

    nodes: int
    jobs: int
    trainers: int = 7
    least: int = 1
    serving: int = 9
    cpu: str = "14"
    wide: str = "5"


@dataclass
class ScaleWorld:
    """The cluster, filled, and its controller.

    Attributes:
        filled: how fast the API server took the bound pods, with nothing else going on.
        jobs: the names of the jobs that were there from the start and still run.
    """

    plane: ControlPlane
    size: Size
    audit: AuditLog
    filler: Filler
    controller: ControllerProcess
    filled: Rate = field(default_factory=lambda: Rate(0, 0.0))
    jobs: list[str] = field(default_factory=list)
    pods: dict[str, list[str]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def fill(self, *, is_bare: bool) -> None:
        """Create nodes, serving pods, jobs, and their pods, which run."""
        size, send = self.size, self.filler.send
        self.plane.kube.create(fill.priority_class())
        if is_bare:
            send(fill.create(fill.NODES, fill.machine(n, size.cpu)) for n in range(size.nodes))
        names = [fill.node_name(n) for n in range(size.nodes)]
        serving = (fill.serving_pod(f"web-{node}-{k}", "1", node=node) for k in range(size.serving) for node in names)
        bound = [fill.create(fill.PODS, pod) for pod in serving]
        wanted = (fill.job(f"job-{n:04}", least=size.least, most=size.trainers) for n in range(size.jobs))
        stored, _ = send(fill.create(fill.JOBS, body) for body in wanted)
        hosts, of_masters = itertools.cycle(names), itertools.cycle(names)
        for body in stored:
            pods = list(fill.pods_of(body, size.trainers, hosts, of_masters))
            self.pods[fill.name_of(body)] = [fill.name_of(pod) for pod in pods]
            bound += [fill.create(fill.PODS, pod) for pod in pods]
        self.jobs = [fill.name_of(body) for body in stored]
        _, self.filled = send(bound)
        if is_bare:  # else something else plays the kubelets
            own = itertools.chain.from_iterable(self.pods.values())
            send(fill.set_status(fill.PODS, name, fill.RUNS) for name in own)

    def reap(self, since_s: float) -> None:
        """Let the pods go that the controller has deleted since then, as their kubelets would."""
        ended = [one.name for one in self.audit.since(since_s) if one.what == "delete pods" and one.code < BAD]
        self.filler.send(Request("DELETE", f"{fill.PODS}/{name}", {"gracePeriodSeconds": 0}) for name in ended)

    def next(self, prefix: str) -> str:
        """A name that was not used yet."""
        return f"{prefix}{next(self._numbers):04}"

    # What happens; each returns the seconds until the controller's first write about it

    def after(self, happen: Callable[[], object], is_about: Callable[[Sent], bool]) -> float:
        """Let something happen; returns the seconds until the first write about it."""
        began_s = time.time()
        happen()
        return self.audit.wait(began_s, is_about).at_s - began_s

    def job_comes(self) -> float:
        """A job arrives; its first write is its first status, or what its pods need."""
        name = self.next("new")
        body = fill.job(name, least=1, most=2)
        return self.after(lambda: self.plane.kube.create(body), lambda sent: sent.is_of(name))

    def serving_comes(self) -> float:
        """A serving pod arrives for which trainers must go; the first write marks or deletes one."""
        pod = fill.serving_pod(self.next("wide"), self.size.wide, priority_class=fill.NEVER)
        return self.after(lambda: self.plane.kube.create(pod), lambda sent: sent.is_end)

    def node_goes(self) -> float:
        """A node and its pods are gone; the first write is about a job that had pods there."""
        kube = self.plane.kube
        pods = kube.list("pods", fields=f"spec.nodeName={self._node_of_trainers()}")
        lost = {pod["metadata"]["labels"][fill.JOB_LABEL] for pod in pods if fill.is_of_job(pod)}
        node = pods[0]["spec"]["nodeName"]

        def lose() -> None:
            kube.delete("nodes", node)
            ends = (Request("DELETE", f"{fill.PODS}/{fill.name_of(pod)}", {"gracePeriodSeconds": 0}) for pod in pods)
            self.filler.send(ends)

        return self.after(lose, lambda sent: any(map(sent.is_of, lost)))

    def job_ends(self) -> float:
        """The last trainers of a job succeed."""
        name = self.jobs.pop()
        requests = [fill.set_status(fill.PODS, fill.name_of(pod), fill.SUCCEEDED) for pod in self._trainers(name)]
        return self.after(lambda: self.filler.send(requests), lambda sent: sent.is_of(name))

    def _node_of_trainers(self) -> str:
        """A node that still exists and has trainers: that of the last trainer of a job."""
        trainers = self._trainers(self.jobs.pop(0))
        return str(trainers[-1]["spec"]["nodeName"])

    def _trainers(self, job: str) -> list[Object]:
        """The trainers of a job on a node that nobody has deleted."""
        pods = self.plane.kube.list("pods", labels=f"{fill.JOB_LABEL}={job}")
        live = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and pod["spec"].get("nodeName"))
        return [pod for pod in live if "-trainer-" in fill.name_of(pod)]

    def grow(self, jobs: Sequence[str], most: int) -> None:
        """Raise the maximum of jobs; their growth begins."""
        patch: Object = {"spec": {"trainer": {"max-instance": most}}}
        self.filler.send(Request("PATCH", f"{fill.JOBS}/{name}", patch) for name in jobs)

    def usage(self) -> Usage:
        """What the controller's process has used."""
        return Usage.of(self.controller.pid)


def _with_status(audit: AuditLog) -> set[str]:
    return {one.name for one in audit.read() if one.what == "patch trainingjobs/status"}


@contextmanager
def started(
    plane: ControlPlane, size: Size, *flags: str, account: Path | None = None, is_bare: bool = True
) -> Iterator[ScaleWorld]:
    """Fill a fresh cluster and start the controller; yields once it has nothing to write.

    Args:
        plane: the cluster, with its nodes if it is not bare.
        size: what to fill it with.
        flags: of the controller.
        account: the controller's kubeconfig; None installs edl first.
        is_bare: no kubelets run, so nodes and running pods are written here.
    """
    controller = ControllerProcess(account or install(plane), plane.workdir, *flags)
    controller.is_preloaded = False  # what it needs of memory is measured
    audit = AuditLog(Path(plane.workdir) / "logs" / "audit.log")
    world = ScaleWorld(plane, size, audit, Filler(plane.kubeconfig), controller)
    world.fill(is_bare=is_bare)
    with controller:
        wait_until(lambda: set(world.jobs) <= _with_status(audit), "every job has a status", timeout_s=600.0)
        audit.wait_for_silence(QUIET_S)
        yield world
