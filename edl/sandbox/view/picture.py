"""A cluster in a few lines: what each node holds, how far each job is, whether serving is ready."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from edl.errors import ConfigError
from edl.sandbox.objects import amounts_of, is_deleted, is_finished, is_true, labels_of, name_of, request_of

Object = dict[str, Any]
JOB, ROLE = "paddlepaddle.org/job", "paddlepaddle.org/role"


@dataclass(frozen=True, slots=True)
class Block:
    """A pod on a node: of which job or Deployment, its role, and its millicores."""

    owner: str
    role: str
    cpu: int


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node: its millicores, and its pods in the order of their owners."""

    name: str
    cpu: int
    blocks: tuple[Block, ...]

    @property
    def used(self) -> int:
        """The millicores that the pods of the node request."""
        return sum(block.cpu for block in self.blocks)


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job: its phase, its trainers that run, their bounds, its progress in the epoch and its explanation."""

    name: str
    phase: str
    running: int
    least: int
    most: int
    done: float | None
    explanation: str


@dataclass(frozen=True, slots=True)
class ServingLine:
    """A Deployment: its pods that are ready, and how many it wants."""

    name: str
    ready: int
    wanted: int


@dataclass(frozen=True, slots=True)
class Picture:
    """What the sandbox shows of one moment."""

    nodes: tuple[NodeLine, ...]
    jobs: tuple[JobLine, ...]
    serving: tuple[ServingLine, ...]

    @property
    def share(self) -> float:
        """The share of the cpu that pods request, 0 to 1."""
        total = sum(node.cpu for node in self.nodes)
        return sum(node.used for node in self.nodes) / total if total else 0.0


def take_picture(
    nodes: Iterable[Object], pods: Iterable[Object], jobs: Iterable[Object], deployments: Iterable[Object]
) -> Picture:
    """Look at the objects of a cluster."""
    alive = [pod for pod in pods if not is_finished(pod)]
    return Picture(
        tuple(_node_line(node, alive) for node in sorted(nodes, key=name_of)),
        tuple(_job_line(job, alive) for job in sorted(jobs, key=name_of)),
        tuple(_serving_line(one, alive) for one in sorted(deployments, key=name_of)),
    )


def text_of(picture: Picture) -> str:
    """The picture on one line, for a log."""
    parts = [f"{job.name} {job.running} of {job.least}..{job.most}" for job in picture.jobs]
    parts += [f"{one.name} {one.ready} of {one.wanted} ready" for one in picture.serving]
    return f"{' | '.join([*parts, f'cpu {picture.share:.0%}'])}"


def running_trainers(pods: Iterable[Object], job: str) -> list[Object]:
    """The trainers of a job that run and are not terminating."""
    return [
        pod
        for pod in pods
        if labels_of(pod).get(JOB) == job
        and labels_of(pod).get(ROLE) == "trainer"
        and (pod.get("status") or {}).get("phase") == "Running"
        and not is_deleted(pod)
    ]


def _node_line(node: Object, pods: list[Object]) -> NodeLine:
    here = [_block(pod) for pod in pods if pod["spec"].get("nodeName") == name_of(node)]
    blocks = sorted(here, key=lambda block: (block.owner, block.role, block.cpu))
    allocatable = amounts_of((node.get("status") or {}).get("allocatable"))
    return NodeLine(name_of(node), allocatable.get("cpu", 0), tuple(blocks))


def _block(pod: Object) -> Block:
    labels = labels_of(pod)
    try:
        cpu = request_of(pod).get("cpu", 0)
    except ConfigError:
        cpu = 0
    return Block(labels.get(JOB) or labels.get("app") or name_of(pod), labels.get(ROLE, "serving"), cpu)


def _job_line(job: Object, pods: list[Object]) -> JobLine:
    trainer, status = job["spec"].get("trainer") or {}, job.get("status") or {}
    dataset = status.get("dataset") or {}
    total = dataset.get("total")
    least = int(trainer.get("min-instance") or 1)
    return JobLine(
        name_of(job),
        str(status.get("phase") or "Pending"),
        len(running_trainers(pods, name_of(job))),
        least,
        int(trainer.get("max-instance") or least),
        int(dataset.get("done") or 0) / total if total else None,
        str(status.get("explanation") or status.get("reason") or ""),
    )


def _serving_line(deployment: Object, pods: list[Object]) -> ServingLine:
    wanted = deployment["spec"].get("replicas")
    selector = ((deployment["spec"].get("selector") or {}).get("matchLabels") or {}).items()
    own = [pod for pod in pods if selector and selector <= labels_of(pod).items() and not is_deleted(pod)]
    return ServingLine(
        name_of(deployment), sum(is_true(pod, "Ready") for pod in own), 1 if wanted is None else wanted
    )


def cores(milli: int) -> str:
    """Format millicores as cores."""
    return f"{milli / 1000:g}"
