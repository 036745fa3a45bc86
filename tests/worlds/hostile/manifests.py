"""Builders of the TrainingJobs in the table of hostile jobs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One job and its verdict.

    Attributes:
        name: the name of the case.
        job: the manifest, without a namespace.
        accepted: the verdict of both the API server and `parse_job`.
        says: a part of the message of `parse_job`; empty if the job is accepted.
        server_says: a part of the API server's message.
    """

    name: str
    job: Object
    accepted: bool
    says: str = ""
    server_says: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """An update of a job that has a status, and whether the API server accepts it."""

    name: str
    status: Object
    job: Object
    accepted: bool
    server_says: str = ""
    before: Object | None = None
    """The job that is updated; by default the small one."""


def make_manifest(name: str = "job", **spec: Any) -> Object:
    """A small valid job: elastic, with two pservers."""
    amounts = {"cpu": "200m", "memory": "200Mi"}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "image": "example/trainer",
            "fault_tolerant": True,
            "trainer": {
                "entrypoint": "python train.py",
                "min-instance": 2,
                "max-instance": 6,
                "resources": {"requests": dict(amounts), "limits": dict(amounts)},
            },
            "pserver": {"min-instance": 2, "max-instance": 2, "resources": {"requests": dict(amounts)}},
            **spec,
        },
    }


def edited(*path: str, **values: Any) -> Object:
    """The small job with fields set under a path of the spec; None removes a field."""
    job = make_manifest()
    target = job["spec"]
    for step in path:
        target = target.setdefault(step, {})
    for name, value in values.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = value
    return job


def trainer(**values: Any) -> Object:
    """The small job with these fields of the trainer; underscores become hyphens."""
    return edited("trainer", **{name.replace("_", "-"): value for name, value in values.items()})


def requests(**amounts: Any) -> Object:
    """The small job with these requests of a trainer and no limits."""
    return trainer(resources={"requests": amounts})


def amounts(requests: Object | None = None, limits: Object | None = None) -> Object:
    """The small job with these requests and limits of a trainer."""
    given = {"requests": requests, "limits": limits}
    return trainer(resources={field: value for field, value in given.items() if value is not None})


def template(role: str = "trainer", *, metadata: Object | None = None, **spec: Any) -> Object:
    """The small job with this pod template."""
    overlay = {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}
    return edited(role, template=overlay)


def without(*names: str) -> Object:
    """The small job without these top-level fields."""
    job = make_manifest()
    for name in names:
        del job[name]
    return job


def renamed(name: str) -> Object:
    """The small job under another name."""
    return make_manifest(name)


def refused(name: str, job: Object, says: str, server_says: str = "") -> Case:
    """A case that both must refuse."""
    return Case(name, job, accepted=False, says=says, server_says=server_says)


def accepted(name: str, job: Object) -> Case:
    """A case that both must accept."""
    return Case(name, job, accepted=True)


def container(**fields: Any) -> Object:
    return template(containers=[{"name": "trainer", **fields}])


def with_spec(change: Callable[[Object], None]) -> Object:
    job = make_manifest()
    change(job["spec"])
    return job


def with_ports(*counts: int) -> Object:
    """The small job whose template has containers with so many ports."""
    return template(
        containers=[
            {
                "name": f"c{i}",
                "image": "c:1",
                "ports": [{"containerPort": 1 + k, "hostPort": 1 + k} for k in range(n)],
            }
            for i, n in enumerate(counts)
        ]
    )


def with_sidecars(*resources: Object) -> Object:
    """The small job with containers of these resources."""
    return template(
        containers=[{"name": f"c{i}", "image": "c:1", "resources": have} for i, have in enumerate(resources)]
    )


def term(*expressions: tuple[str, int]) -> Object:
    """A term that excludes so many values of each of these labels."""
    return {
        "matchExpressions": [
            {"key": key, "operator": "NotIn", "values": [f"v{i}" for i in range(count)]} for key, count in expressions
        ]
    }


def with_affinity(required: list[Object], preferred: list[Object] | None = None) -> Object:
    """The small job with these terms of node affinity."""
    wanted = [{"weight": 1, "preference": term} for term in preferred or ()]
    return template(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required},
                **({"preferredDuringSchedulingIgnoredDuringExecution": wanted} if wanted else {}),
            }
        }
    )


def manifest_of(case: Case, name: str) -> Object:
    """The job of a case under a unique name, for an API server. Cases about the name keep theirs."""
    job = copy.deepcopy(case.job)
    if job["metadata"].get("name") == "job":
        job["metadata"]["name"] = name
    return job
