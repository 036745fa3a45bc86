"""A scenario from the decision records of a live controller: its nodes, its jobs and its serving over time.

A record is written when a decision changed, so what happened between two records is not known: a job ends at the
first record without it, and serving changes at the records. Nodes are those of the first record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl.errors import ConfigError
from edl.kube.yaml_files import bytes_of
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.quantity import format_quantity
from edl.model.resources import PODS, Resources
from edl.observability.decision_records import RECORDS, DecisionRecord, decode_record
from edl.sim.scenario import Scenario

AFTER_S = 60.0
"""How long the scenario goes on after the last record."""


def scenario_of_records(folder: Path) -> Scenario:
    """The scenario of a folder of records.

    Raises:
        ConfigError: the folder has no record, or one of them cannot be read.
    """
    records = _read(folder)
    snapshots = [record.snapshot for record in records]
    begin_s, end_s = snapshots[0].observed_at_s, snapshots[-1].observed_at_s
    body: dict[str, Any] = {
        "name": "records",
        "description": f"{len(records)} records over {end_s - begin_s:.0f} s",
        "duration_s": end_s - begin_s + AFTER_S,
        "nodes": _nodes(snapshots[0].nodes),
        "jobs": [_job(number, seen, begin_s) for number, seen in enumerate(_jobs(snapshots))],
        "serving": _serving(snapshots, begin_s),
        "controller": {
            "max_load_desired": records[-1].limits.max_load_desired,
            "serving_headroom": records[-1].limits.serving_headroom,
            **_learned(records[-1].limits.serving_slo),
        },
        "policies": [records[-1].policy or "maxmin"],
    }
    return Scenario.model_validate(body)


def _learned(slo: float) -> dict[str, Any]:
    """The flags of headroom that was learned; none if it was not."""
    return {"serving_headroom": "auto", "serving_slo": slo} if slo else {}


def _read(folder: Path) -> Sequence[DecisionRecord]:
    files = sorted(folder.glob(RECORDS)) if folder.is_dir() else []
    if not files:
        raise ConfigError(f"--from {folder} holds no records; give a folder that edl controller --record wrote")
    records = []
    for path in files:
        try:
            records.append(decode_record(bytes_of(path)()))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
    return records


def _amounts(resources: Resources) -> dict[str, str]:
    return {name: format_quantity(resources[name], name) for name in resources if name != PODS}


def _nodes(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    kinds = Counter(
        (node.allocatable, tuple(label for label in node.labels if label[0] != "kubernetes.io/hostname"))
        for node in nodes
    )
    return [
        {"name": f"kind{i}", "count": count, "resources": _amounts(kind[0]), "labels": dict(kind[1])}
        for i, (kind, count) in enumerate(kinds.items())
    ]


@dataclass(slots=True)
class _Seen:
    """A job, when it was first seen and when it was gone; None if it is there to the end."""

    job: Job
    first_s: float
    gone_s: float | None = None


def _jobs(snapshots: Sequence[ClusterSnapshot]) -> list[_Seen]:
    seen: dict[tuple[JobKey, str], _Seen] = {}
    for snapshot in snapshots:
        here = {(job.key, job.uid): job for job in snapshot.jobs if job.is_schedulable}
        for key, job in here.items():
            seen.setdefault(key, _Seen(job, min(snapshot.observed_at_s, max(job.created_s, 0.0))))
        for key, one in seen.items():
            if key not in here and one.gone_s is None:
                one.gone_s = snapshot.observed_at_s
    return list(seen.values())


def _job(number: int, seen: _Seen, begin_s: float) -> dict[str, Any]:
    job = seen.job
    body: dict[str, Any] = {
        "name": f"job{number}",
        "arrival": {"first_s": max(0.0, seen.first_s - begin_s)},
        "min": job.min_trainers,
        "max": job.max_trainers,
        "fixed": max(job.min_trainers, len(job.live_trainers)),
        "trainer": _amounts(job.trainer.request),
        "weight": job.weight,
        "cooldown_s": job.cooldown_s,
        "throughput": job.throughput,
        "resize": {"cost_s": job.resize_cost_s or 0.0},
    }
    if seen.gone_s is not None:
        body["removal"] = {"first_s": seen.gone_s - begin_s}
    for fixed in job.fixed:
        if fixed.role is not Role.TRAINER:
            body[fixed.role.value] = {"count": fixed.count, "resources": _amounts(fixed.shape.request)}
    return body


def _serving(snapshots: Sequence[ClusterSnapshot], begin_s: float) -> list[dict[str, Any]]:
    """A Deployment for each shape of serving pods."""
    counts = [
        Counter(pod.shape.request for pod in s.pods if pod.is_live and not pod.daemon and pod.priority >= 0)
        for s in snapshots
    ]
    shapes = list(dict.fromkeys(shape for each in counts for shape in each))
    return [
        {
            "name": f"serving{i}",
            "resources": _amounts(shape),
            "replicas": [(s.observed_at_s - begin_s, each[shape]) for s, each in zip(snapshots, counts, strict=True)],
        }
        for i, shape in enumerate(shapes)
    ]
