"""The rows of `kubectl get` for what owns pods, and for disruption budgets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from edl.sandbox.apiserver.kinds.ages import parse_time, short_duration
from edl.sandbox.apiserver.kinds.kind import AGE, NAME, Object, dig
from edl.sandbox.apiserver.kinds.rows.cells import (
    TEMPLATE_COLUMNS,
    format_labels,
    format_selector,
    head,
    plain,
    template_cells,
    whole,
)

DEPLOYMENT_COLUMNS = (NAME, *plain("Ready", "Up-to-date", "Available"), AGE, *TEMPLATE_COLUMNS)


def deployment_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a Deployment."""
    name, since = head(value, now)
    status, desired = value.get("status", {}), dig(value, "spec", "replicas", default=0)
    ready = f"{status.get('readyReplicas', 0)}/{desired}"
    counts = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    return name, ready, *counts, since, *template_cells(value), format_selector(dig(value, "spec", "selector"))


REPLICA_SET_COLUMNS = (NAME, *whole("Desired", "Current", "Ready"), AGE, *TEMPLATE_COLUMNS)


def replica_set_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a ReplicaSet."""
    name, since = head(value, now)
    status, desired = value.get("status", {}), dig(value, "spec", "replicas", default=0)
    counts = desired, status.get("replicas", 0), status.get("readyReplicas", 0)
    return name, *counts, since, *template_cells(value), format_selector(dig(value, "spec", "selector"))


_DAEMON_COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)
DAEMON_SET_COLUMNS = (
    NAME,
    *whole("Desired", "Current", "Ready", "Up-to-date", "Available"),
    *plain("Node Selector"),
    AGE,
    *TEMPLATE_COLUMNS,
)


def daemon_set_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a DaemonSet."""
    name, since = head(value, now)
    counts = [dig(value, "status", field, default=0) for field in _DAEMON_COUNTS]
    nodes = format_labels(dig(value, "spec", "template", "spec", "nodeSelector"))
    return name, *counts, nodes, since, *template_cells(value), format_selector(dig(value, "spec", "selector"))


JOB_COLUMNS = (NAME, *plain("Status", "Completions", "Duration"), AGE, *TEMPLATE_COLUMNS)


def job_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a batch/v1 Job."""
    name, since = head(value, now)
    status, spec = value.get("status", {}), value.get("spec", {})
    done = status.get("succeeded", 0)
    total = spec.get("completions", f"1 of {spec['parallelism']}" if spec.get("parallelism", 0) > 1 else 1)
    true = {one["type"] for one in status.get("conditions", ()) if one.get("status") == "True"}
    order = {"Complete": "Complete", "Failed": "Failed", "Suspended": "Suspended"}
    word = next((text for kind, text in order.items() if kind in true), "Running")
    start, end = parse_time(status.get("startTime", "")), parse_time(status.get("completionTime", "")) or now
    taken = short_duration(int((end - start).total_seconds())) if start else ""
    selector = format_selector(spec.get("selector"))
    return name, word, f"{done}/{total}", taken, since, *template_cells(value), selector


BUDGET_COLUMNS = (NAME, *plain("Min Available", "Max Unavailable"), *whole("Allowed Disruptions"), AGE)


def budget_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a PodDisruptionBudget."""
    name, since = head(value, now)
    bounds = (str(dig(value, "spec", field, default="N/A")) for field in ("minAvailable", "maxUnavailable"))
    return name, *bounds, dig(value, "status", "disruptionsAllowed", default=0), since
