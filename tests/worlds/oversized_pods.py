"""Pods that list too much, one kind for each limit, and a job at all of the limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl.model import pod_limits
from edl.model.jobs import Job
from edl.model.pods import Pod
from edl.model.resources import (
    CPU,
    HOST_PORT_PREFIX,
    PODS,
    NodeTerm,
    Placement,
    PodShape,
    Preference,
    Requirement,
    Resources,
    Toleration,
)
from tests.worlds.builders import make_job, make_serving


def _asking_for(prefix: str, count: int) -> PodShape:
    return PodShape(Resources.of({CPU: 100, PODS: 1, **{f"{prefix}{i}": 1 for i in range(count)}}))


def _placed(**fields: Any) -> PodShape:
    return PodShape(Resources.of({CPU: 100, PODS: 1}), replace(Placement(), **fields))


def keeps_away_from(count: int, key: str = "kubernetes.io/hostname") -> Requirement:
    """An expression that excludes so many values."""
    return Requirement(key, "NotIn", tuple(f"gone-{i:06d}" for i in range(count)))


_MANY = tuple(keeps_away_from(1, f"label-{i}") for i in range(pod_limits.MAX_EXPRESSIONS + 1))

SHAPES: dict[str, tuple[PodShape, str]] = {
    "host ports": (_asking_for(f"{HOST_PORT_PREFIX}TCP/", 1750), "1750 host ports exceed the 512"),
    "resources": (_asking_for("example.com/r", 5000), "5002 resource names exceed the 128"),
    "selectors": (
        _placed(node_selector=tuple((f"l{i:02d}", "x") for i in range(65))),
        "65 labels of the node selector exceed the 64",
    ),
    "tolerations": (
        _placed(tolerations=tuple(Toleration(f"t{i}", "Exists") for i in range(10_000))),
        "10000 tolerations exceed the 64",
    ),
    "terms": (
        _placed(required=(NodeTerm((keeps_away_from(1),)),) * 65),
        "65 terms of the required node affinity exceed the 64",
    ),
    "expressions": (_placed(required=(NodeTerm(_MANY),)), "257 expressions of the node affinity exceed the 256"),
    "values": (
        _placed(required=(NodeTerm((keeps_away_from(100_000),)),)),
        "100000 values of the node affinity exceed the 2000",
    ),
}
"""A shape beyond each limit, and a part of the sentence about it."""


def oversized_job(kind: str, name: str = "huge") -> Job:
    """A job whose trainers are beyond a limit."""
    return replace(make_job(name, max_trainers=5), trainer=SHAPES[kind][0])


def oversized_serving(kind: str, name: str = "huge") -> Pod:
    """A waiting serving pod beyond a limit."""
    return replace(make_serving(name), shape=SHAPES[kind][0])


def job_at_limits(number: int, shared_ports: range = range(30_000, 31_000)) -> Job:
    """A job that is at all limits at once; its host ports are every second or third of a range, and so on."""
    job = make_job(f"at-limits-{number:03d}", max_trainers=5, cpu=1, memory_gib=2)
    ports = list(shared_ports)[:: 2 + number % 3][: pod_limits.MAX_HOST_PORTS]
    names = {f"{HOST_PORT_PREFIX}TCP/{port}": 1 for port in ports}
    values, half = pod_limits.MAX_VALUES // pod_limits.MAX_TERMS, pod_limits.MAX_TERMS // 2
    rest = (keeps_away_from(1, f"label-{number}-{i}") for i in range(3))
    required = tuple(NodeTerm((keeps_away_from(values - 3 - i % 2), *rest)) for i in range(half))
    preferred = tuple(Preference(1 + i, NodeTerm((keeps_away_from(values),))) for i in range(half))
    tolerations = tuple(Toleration(f"t{i}-{number}", "Exists") for i in range(pod_limits.MAX_TOLERATIONS))
    shape = PodShape(job.trainer.request + Resources.of(names), Placement(required=required, tolerations=tolerations))
    return replace(job, trainer=shape, preferred=preferred)
