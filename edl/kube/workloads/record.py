"""The record of the last resize: what edl writes on a workload together with its count, and reads again.

It belongs to one object, by its UID. A record that came with an exported manifest says nothing about the object that
was created from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edl.errors import ConfigError
from edl.kube.translate.scalars import text
from edl.kube.translate.shapes import parse_amounts
from edl.kube.workloads.annotations import RECORD
from edl.kube.workloads.workload_objects import WorkloadMetadata
from edl.model.actions import ResizeWorkload
from edl.model.quantity import format_quantity
from edl.model.resources import PODS, Resources, is_amount
from edl.model.status import Unseen
from edl.model.times import exact_text_of, seconds_of, text_of


def read_record(metadata: WorkloadMetadata[Any]) -> dict[str, Any]:
    """The last resize that edl wrote on this object, as `status.lastResize` has it.

    Returns:
        Empty if there is none that can be read, or if it is that of another object: its UID is another one, or it has
        none and is older than the object.
    """
    try:
        record = json.loads(text((metadata.annotations or {}).get(RECORD)) or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(record, dict):
        return {}
    if "uid" in record:
        return record if record["uid"] == metadata.uid else {}
    written_s, created_s = seconds_of(record.get("time")), seconds_of(metadata.creation_timestamp)
    is_older = written_s is not None and created_s is not None and written_s < created_s
    return {} if is_older else record


def read_requests(record: Mapping[str, Any], template: Resources) -> Resources | None:
    """The requests of a pod when the record was written, if admission had changed those of its template.

    Args:
        record: of the workload.
        template: what a pod requests by the template now.

    Returns:
        None if nothing is recorded, if it cannot be read, or if the template has changed since.
    """
    requests = record.get("requests")
    if not isinstance(requests, dict):
        return None
    before, observed = (_read_amounts(requests.get(name)) for name in ("template", "pods"))
    if not before or not observed or before != _recorded(template):
        return None
    return Resources.of({**template.as_dict(), **observed})


def _read_amounts(value: object) -> dict[str, int]:
    """Read amounts in base units; empty if they cannot be read."""
    if not isinstance(value, dict) or not all(isinstance(quantity, str) for quantity in value.values()):
        return {}
    try:
        return parse_amounts(value)
    except ConfigError:
        return {}


def _recorded(request: Resources) -> dict[str, int]:
    """The amounts of a request that admission may change: its host ports are those of the template."""
    return {name: n for name, n in request.amounts if n and name != PODS and is_amount(name)}


def record_of(action: ResizeWorkload) -> str:
    """The record of a resize as JSON, with the names of `status.lastResize`."""
    resize = action.resize
    voluntary = {} if resize.voluntary_s is None else {"voluntaryTime": text_of(resize.voluntary_s)}
    counts = {"from": resize.from_count, "to": resize.to_count}
    record = {"time": text_of(resize.time_s), **counts, "reason": resize.reason, **voluntary, "uid": action.job_uid}
    unseen = {} if resize.unseen is None else {"unseen": _unseen(resize.unseen)}
    return json.dumps({**record, **unseen, **({} if action.requests is None else _requests(*action.requests))})


def _unseen(unseen: Unseen) -> dict[str, object]:
    return {"count": unseen.count, "until": exact_text_of(unseen.until_s)}


def _requests(template: Resources, pods: Resources) -> dict[str, object]:
    sides = {"template": template, "pods": pods}
    return {
        "requests": {
            side: {name: format_quantity(n, name) for name, n in _recorded(request).items()}
            for side, request in sides.items()
        }
    }
