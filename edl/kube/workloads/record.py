"""The record of the last resize: what edl writes on a workload together with its count, and reads again.

It belongs to one object, by its UID. A record that came with an exported manifest says nothing about the object that
was created from it.
"""

from __future__ import annotations

import json
from typing import Any

from edl.kube.translate.objects import text
from edl.kube.workloads.annotations import RECORD
from edl.kube.workloads.workload_objects import WorkloadMetadata
from edl.model.actions import ResizeWorkload
from edl.model.times import seconds_of, text_of


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


def record_of(action: ResizeWorkload) -> str:
    """The record of a resize as JSON, with the names of `status.lastResize`."""
    resize = action.resize
    voluntary = {} if resize.voluntary_s is None else {"voluntaryTime": text_of(resize.voluntary_s)}
    counts = {"from": resize.from_count, "to": resize.to_count}
    return json.dumps(
        {"time": text_of(resize.time_s), **counts, "reason": resize.reason, **voluntary, "uid": action.job_uid}
    )
