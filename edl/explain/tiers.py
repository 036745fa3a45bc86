"""The QoS class of a job's trainers, and the nodes whose pods may use more than there is: lines of `edl explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.overcommit import COUNTED, Limit, overcommit
from edl.model.resources import QosClass
from edl.model.units import amount, count, plain

_MEANING = {
    QosClass.GUARANTEED: "",
    QosClass.BURSTABLE: "",
    QosClass.BEST_EFFORT: ": each counts as one pod and is evicted before any trainer that requests cpu or memory",
}


def qos_of(job: Job | None) -> str | None:
    """The QoS class of the trainers of a job; None if its spec is not valid."""
    return job.qos.value if job is not None and not job.problem else None


def of_trainers(job: Job, snapshot: ClusterSnapshot, nodes: Sequence[str]) -> Iterator[str]:
    """Yield a line with the QoS class of the trainers, and one for each overcommitted resource, with its worst node.

    Args:
        job: the job.
        snapshot: the cluster.
        nodes: the nodes that have trainers of the job, or get some.
    """
    yield f"  QoS class {job.qos.value}{_MEANING[job.qos]}"
    found = overcommit(snapshot)
    known = [name for name in nodes if name in found.nodes]
    for position, resource in enumerate(COUNTED):
        worst = found.worst(resource, known)
        if worst is None or worst[1].part <= 1:
            continue
        name, limit = worst
        others = f", and {count(limit.unlimited, 'pod')} without a limit" if limit.unlimited else ""
        whole = round(100 * found.cluster[position].part)
        yield (
            f"  pods on {name} may use {_percent(limit)} of its {plain(resource)} by their limits"
            f" ({amount(resource, limit.limits)} of {amount(resource, limit.allocatable)}{others}); in the cluster"
            f" {whole} %"
        )


def overcommit_json(snapshot: ClusterSnapshot, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """By resource, how much pods may use by their limits: in the cluster, and on the worst of these nodes."""
    found = overcommit(snapshot)
    known = [name for name in nodes if name in found.nodes]
    body = []
    for whole in found.cluster:
        worst = found.worst(whole.resource, known)
        body.append(
            {
                "resource": whole.resource,
                "cluster": whole.part,
                "withoutLimit": whole.unlimited,
                "node": worst[0] if worst else None,
                "worst": worst[1].part if worst else None,
            }
        )
    return body


def _percent(limit: Limit) -> str:
    return f"{round(100 * limit.part)} %"
