"""The hour of a seed: nodes, jobs of three kinds in two namespaces, waves of serving, and one to three troubles."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.worlds.storms.local_server import Object
from tests.worlds.storms.troubles import REJECTIONS, Kind, Trouble

HOUR_S = 3600.0
CORES = 8
NAMESPACES = ("red", "blue")
CRASHES_S = (1.0, 10.0, 100.0)
INIT: Object = {"name": "fetch-data", "image": "fetch:1"}
PATIENT = 1000
"""The backoffLimit of all jobs: a job that fails for good soon brings no storm."""
QUOTAS: tuple[tuple[str, Any], ...] = (
    ("pods", (2, 4, 7)),
    ("count/pods", (3, 5, 8)),
    ("requests.cpu", ("2", "4", "7500m")),
    ("requests.memory", ("3Gi", "6Gi")),
    ("limits.cpu", ("6",)),
    ("requests.ephemeral-storage", ("10Gi",)),
    ("count/services", (0,)),
    ("services", (0,)),
    ("secrets", (0,)),
)
"""The resource of a quota, and its values; a pod without limits is refused where `limits.cpu` is limited."""


@dataclass(frozen=True)
class JobPlan:
    """A job of an hour.

    Attributes:
        kind: `elastic`, `gang` (TrainingJobs) or `batch` (a `batch/v1` Job).
        low, high: how many trainers it may have.
        cores: of each trainer.
        pservers: how many; a gang or a batch Job has none.
        comes_s: when it is created, in seconds after the start of the hour.
        works_s: how long its trainers run until they exit with code 0; None for ever.
        has_init: its trainers have an init container.
    """

    namespace: str
    name: str
    kind: str
    low: int
    high: int
    cores: int
    pservers: int = 0
    comes_s: float = 0.0
    works_s: float | None = None
    has_init: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Wave:
    """Serving pods that come and go."""

    comes_s: float
    goes_s: float
    pods: int
    cores: int


@dataclass(frozen=True)
class Hour:
    """What happens in an hour.

    Attributes:
        owner_s, scheduler_s: how often the controller of `batch/v1` Jobs and kube-scheduler look; 0 for each step.
        lasts_s: how long the hour is.
    """

    seed: int
    nodes: int
    jobs: tuple[JobPlan, ...]
    waves: tuple[Wave, ...]
    troubles: tuple[Trouble, ...]
    owner_s: float = 0.0
    scheduler_s: float = 0.0
    lasts_s: float = HOUR_S

    def __str__(self) -> str:
        return "\n".join(
            [f"hour {self.seed}: {self.nodes} nodes", *map(str, (*self.jobs, *self.waves, *self.troubles))]
        )


def hour_of(seed: int, start_s: float) -> Hour:
    """The hour of a seed; each kind of trouble comes first in every fifteenth one.

    Args:
        seed: of the hour.
        start_s: when it starts, in seconds of the loop.
    """
    chance = random.Random(seed)  # noqa: S311 - not a secret
    nodes = chance.randint(2, 4)
    jobs = tuple(_job(chance, number) for number in range(chance.randint(3, 4)))
    waves = tuple(_wave(chance) for _ in range(chance.randint(1, 3)))
    kinds = list(Kind)
    chosen = [kinds[seed % len(kinds)], *chance.choices(kinds, k=chance.choice([0, 1, 1, 2]))]
    troubles = tuple(_trouble(chance, kind, jobs, nodes, start_s) for kind in chosen)
    stuck = {one.target for one in troubles if one.kind is Kind.INIT}
    jobs = tuple(replace(job, has_init=job.has_init or job.key in stuck) for job in jobs)
    return Hour(seed, nodes, jobs, waves, troubles)


def _job(chance: random.Random, number: int) -> JobPlan:
    kind = chance.choice(["elastic", "elastic", "elastic", "gang", "batch"])
    low = chance.randint(2, 5) if kind == "gang" else chance.randint(1, 3)
    return JobPlan(
        namespace=chance.choice(NAMESPACES),
        name=f"{kind}-{number}",
        kind=kind,
        low=low,
        high=low if kind == "gang" else low + chance.randint(1, 12),
        cores=chance.choice([1, 1, 2]),
        pservers=chance.randint(1, 2) if kind == "elastic" and chance.random() < 0.3 else 0,
        comes_s=0.0 if number < 2 else chance.choice([0.0, 60.0, 900.0]),
        works_s=chance.choice([None, None, None, 1200.0]),
        has_init=kind != "batch" and chance.random() < 0.3,
    )


def _wave(chance: random.Random) -> Wave:
    comes_s = chance.uniform(200, 2400)
    return Wave(comes_s, comes_s + chance.choice([120.0, 600.0, 3600.0]), chance.randint(1, 3), chance.randint(1, 3))


def _trouble(chance: random.Random, kind: Kind, jobs: Sequence[JobPlan], nodes: int, start_s: float) -> Trouble:
    begin_s = start_s + chance.choice([0.0, 0.0, 0.0, 30.0, 300.0])
    end_s = chance.choice([1e9, 1e9, begin_s + 300.0, begin_s + 1200.0])
    victim = chance.choice(jobs)
    if kind in {Kind.IMAGE, Kind.CONFIGURATION, Kind.INIT, Kind.HANGS, Kind.CRASH}:
        detail = chance.choice(CRASHES_S) if kind is Kind.CRASH else None
        return Trouble(kind, victim.key, begin_s, end_s, detail, only_surplus=chance.random() < 0.4)
    if kind is Kind.REJECTED:
        return Trouble(kind, f"n{chance.randrange(nodes)}", begin_s, end_s, chance.choice(REJECTIONS))
    if kind is Kind.RECREATED:
        comes_s = start_s + victim.comes_s  # nobody creates again what has not been created
        times = sorted(comes_s + chance.uniform(60, 3000 - victim.comes_s) for _ in range(chance.randint(1, 3)))
        return Trouble(kind, victim.key, start_s, 1e9, (chance.choice(["Background", "Orphan"]), tuple(times)))
    if kind is Kind.QUOTA:
        name, values = chance.choice(QUOTAS)
        return Trouble(kind, victim.namespace, begin_s, end_s, (name, chance.choice(values)))
    return Trouble(kind, victim.namespace, begin_s, end_s)


# --- Manifests


def node(number: int) -> Object:
    """A ready node of 8 cores."""
    amounts = {"cpu": str(CORES), "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    name = f"n{number}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def manifest(job: JobPlan) -> tuple[str, Object]:
    """The collection and the object of a job."""
    resources = {"requests": {"cpu": str(job.cores), "memory": "1Gi"}}
    if job.kind == "batch":
        annotations = {"elastic": "true", "min-instance": str(job.low), "max-instance": str(job.high)}
        container = {"name": "train", "image": "train:1", "resources": resources}
        inits = {"initContainers": [INIT]} if job.has_init else {}
        return f"/apis/batch/v1/namespaces/{job.namespace}/jobs", {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": job.name,
                "annotations": {f"paddlepaddle.org/{key}": value for key, value in annotations.items()},
            },
            "spec": {
                "parallelism": job.low,
                "backoffLimit": PATIENT,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container], **inits}},
            },
        }
    trainer: Object = {
        "min-instance": job.low,
        "max-instance": job.high,
        "entrypoint": "python train.py",
        "resources": resources,
    }
    if job.has_init:
        trainer["template"] = {"spec": {"initContainers": [INIT]}}
    spec: Object = {
        "image": "train:1",
        "fault_tolerant": job.kind == "elastic",
        "backoffLimit": PATIENT,
        "trainer": trainer,
    }
    if job.pservers:
        spec["pserver"] = {
            "min-instance": job.pservers,
            "max-instance": job.pservers,
            "entrypoint": "python serve.py",
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
        }
    return f"/apis/paddlepaddle.org/v1/namespaces/{job.namespace}/trainingjobs", {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": job.name},
        "spec": spec,
    }


def serving_pod(name: str, cores: int) -> Object:
    """A serving pod."""
    container = {"name": "web", "image": "web:1", "resources": {"requests": {"cpu": str(cores), "memory": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def quota(hard: tuple[str, Any]) -> Object:
    """A ResourceQuota with one limit."""
    name, value = hard
    metadata = {"name": "team-quota"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {name: str(value)}}}
