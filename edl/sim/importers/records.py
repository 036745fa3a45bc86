"""A scenario from the decision records of a live controller: its nodes, its jobs and its serving over time.

A record is written when a decision changed, so what happened between two records is not known: a job ends at the
first record without it, and serving changes at the records. Nodes are those of the first record. What a scenario
cannot say is left out: nodes that are closed to usual pods, and pods without requests.
The cores of daemons are `system_cpu`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edl.errors import ConfigError
from edl.kube.yaml_files import bytes_of
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.quantity import format_quantity
from edl.model.resources import CPU, PODS, Resources
from edl.observability.decision_records import RECORDS, DecisionRecord, decode_record
from edl.sim.scenario import Scenario

AFTER_S = 60.0
"""How long the scenario goes on after the last record."""


def scenario_of_records(folder: Path, warn: Callable[[str], None] = lambda _: None) -> Scenario:
    """The scenario of a folder of records.

    Args:
        folder: what the controller wrote.
        warn: called with each sentence on what is left out.

    Raises:
        ConfigError: the folder has no record, one of them cannot be read, or they have nothing to run.
    """
    records = _read(folder)
    snapshots = [record.snapshot for record in records]
    nodes = _open_nodes(snapshots[0].nodes, warn)
    if not nodes:
        raise ConfigError(f"--from {folder}: its first record has no node for usual pods; give records with nodes")
    seen = _with_requests(_jobs(snapshots), warn)
    begin_s, end_s = snapshots[0].observed_at_s, snapshots[-1].observed_at_s
    body: dict[str, Any] = {
        "name": "records",
        "description": f"{len(records)} records over {end_s - begin_s:.0f} s",
        "duration_s": end_s - begin_s + AFTER_S,
        "nodes": _nodes(nodes, snapshots[0].pods),
        "jobs": [_job(number, one, begin_s) for number, one in enumerate(seen)],
        "serving": _serving(snapshots, begin_s, warn),
        "controller": {
            "max_load_desired": records[-1].limits.sharing.max_load_desired,
            "serving_headroom": records[-1].limits.serving.headroom,
            **_learned(records[-1].limits.serving.slo),
        },
        "policies": [records[-1].policy or "maxmin"],
    }
    try:
        return Scenario.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"--from {folder}: {field}: {first['msg']}; a scenario cannot hold these records"
        ) from error


def _learned(slo: float) -> dict[str, Any]:
    """The flags of learned headroom; none if the controller did not learn it."""
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


def _open_nodes(nodes: Iterable[Node], warn: Callable[[str], None]) -> list[Node]:
    """The nodes that pods without special tolerations may use."""
    here = list(nodes)
    closed = [
        n.name for n in here if n.cordoned or not n.ready or any(t.effect != "PreferNoSchedule" for t in n.taints)
    ]
    if closed:
        warn(f"left out {_named(closed)}: cordoned, tainted or not ready, which a scenario cannot say")
    return [node for node in here if node.name not in set(closed)]


def _named(names: Sequence[str]) -> str:
    """Name the first few of some objects, and say how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _nodes(nodes: Iterable[Node], pods: Iterable[Pod]) -> list[dict[str, Any]]:
    """Group equal nodes; the cores of daemons count as the system's, their other resources are subtracted."""
    daemons: dict[str, Resources] = {}
    for pod in pods:
        if pod.daemon and pod.is_live:
            daemons[pod.node] = daemons.get(pod.node, Resources()) + pod.shape.request
    kinds: Counter[tuple[Resources, int, tuple[tuple[str, str], ...]]] = Counter()
    for node in nodes:
        taken = daemons.get(node.name, Resources())
        left = {name: node.allocatable[name] - (taken[name] if name != CPU else 0) for name in node.allocatable}
        labels = tuple(label for label in node.labels if label[0] != "kubernetes.io/hostname")
        kinds[Resources.of({n: max(0, a) for n, a in left.items()}), min(taken[CPU], left[CPU]), labels] += 1
    return [
        {
            "name": f"kind{i}",
            "count": count,
            "resources": _amounts(amounts),
            "system_cpu": format_quantity(system, CPU),
            "labels": dict(labels),
        }
        for i, ((amounts, system, labels), count) in enumerate(kinds.items())
    ]


@dataclass(slots=True)
class _Seen:
    """A job with the times at which it was first seen and gone; None if it exists until the end."""

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


def _with_requests(seen: Sequence[_Seen], warn: Callable[[str], None]) -> list[_Seen]:
    """The jobs whose trainers request something."""
    bare = [one.job.key.name for one in seen if not _amounts(one.job.trainer.request)]
    if bare:
        warn(f"left out the jobs {_named(bare)}: their trainers have no requests, which a scenario cannot say")
    return [one for one in seen if _amounts(one.job.trainer.request)]


def _job(number: int, seen: _Seen, begin_s: float) -> dict[str, Any]:
    job = seen.job
    body: dict[str, Any] = {
        "name": f"job{number}",
        "arrival": {"first_s": max(0.0, seen.first_s - begin_s)},
        "min": job.min_trainers,
        "max": job.max_trainers,
        "fixed": min(job.max_trainers, max(job.min_trainers, len(job.live_trainers))),
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


def _serving(
    snapshots: Sequence[ClusterSnapshot], begin_s: float, warn: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Make a Deployment for each shape of serving pods."""
    counts = [
        Counter(pod.shape.request for pod in s.pods if pod.is_live and not pod.daemon and pod.priority >= 0)
        for s in snapshots
    ]
    found = list(dict.fromkeys(shape for each in counts for shape in each))
    shapes = [shape for shape in found if _amounts(shape)]
    if len(shapes) < len(found):
        warn("left out serving pods without requests, which a scenario cannot say")
    return [
        {
            "name": f"serving{i}",
            "resources": _amounts(shape),
            "replicas": [(s.observed_at_s - begin_s, each[shape]) for s, each in zip(snapshots, counts, strict=True)],
        }
        for i, shape in enumerate(shapes)
    ]
