"""The status of a job in the form that the API server stores; `jobs.read_status` reads the same status back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.model.progress import Goodput, Progress, Speed
from edl.model.ranges import text_of_indexes
from edl.model.status import Condition, JobStatus, LentCpu, NodeTrouble, Resize, RoleCount
from edl.model.times import text_of


def status_body(status: JobStatus) -> dict[str, Any]:
    """Return every field; one without a value is null, so that a merge patch removes an old value.

    Only `dataset` is absent if the master never reported it: then the stored value stays.
    """
    dataset = {} if status.dataset is None else {"dataset": _progress(status.dataset)}
    return {
        **dataset,
        "phase": status.phase.value,
        "reason": status.reason,
        "selector": status.selector,
        "observedGeneration": status.observed_generation,
        "conditions": [_condition(c) for c in status.conditions],
        "trainer": _counts(status.trainer),
        "pserver": _counts(status.pserver),
        "master": _counts(status.master),
        "startTime": _time(status.start_s),
        "completionTime": _time(status.completion_s),
        "lastResize": _resize(status.last_resize),
        "qosClass": status.qos.value if status.qos is not None else None,
        "lending": _lending(status.lending),
        "failures": status.failures,
        "completed": text_of_indexes(status.completed) or None,
        "nodeTroubles": [_trouble(trouble) for trouble in status.troubles] or None,
        "explanation": status.explanation,
        "throughput": [_speed(speed) for speed in status.measured.speeds] or None,
        "goodput": [_goodput(one) for one in status.measured.goodputs] or None,
        "globalBatch": status.measured.batch or None,
        "resizeSeconds": status.measured.resize_s,
        "lendingPrice": status.measured.lending_price,
    }


def _progress(progress: Progress) -> dict[str, Any]:
    return {
        "epoch": progress.epoch,
        "done": progress.done,
        "total": progress.total,
        "unsaved": progress.unsaved,
        "model": progress.model or None,
    }


def _speed(speed: Speed) -> dict[str, Any]:
    return {"instances": speed.trainers, "samplesPerSecond": speed.per_s, "seconds": speed.weight_s}


def _goodput(one: Goodput) -> dict[str, Any]:
    known = {"globalBatch": one.batch, "efficiency": one.efficiency, "measured": one.is_measured}
    return {
        "instances": one.trainers,
        "samplesPerSecond": one.per_s,
        **{name: value for name, value in known.items() if value},
    }


def _trouble(trouble: NodeTrouble) -> dict[str, Any]:
    return {
        "node": trouble.node,
        "time": _time(trouble.time_s),
        "hung": trouble.hung,
        "waits": trouble.waits,
        "confirmed": trouble.confirmed,
    }


def _condition(condition: Condition) -> dict[str, Any]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": _time(condition.since_s),
        "observedGeneration": condition.observed_generation,
    }


def _counts(count: RoleCount) -> dict[str, int]:
    return {"desired": count.desired, "ready": count.ready, "pending": count.pending}


def _lending(lending: LentCpu | None) -> dict[str, Any] | None:
    return None if lending is None else {"cpu": f"{lending.cpu_milli}m", "slowed": lending.slowed}


def _resize(resize: Resize | None) -> dict[str, Any] | None:
    if resize is None:
        return None
    return {
        "time": _time(resize.time_s),
        "from": resize.from_count,
        "to": resize.to_count,
        "reason": resize.reason,
        "voluntaryTime": _time(resize.voluntary_s),
        "seconds": resize.lost_s,
    }


def _time(seconds: float | None) -> Any:  # noqa: ANN401 the form of a stored time is `text_of`'s
    return None if seconds is None else text_of(seconds)


def contains(stored: object, patch: object) -> bool:
    """Return True if a merge patch would change nothing; null in a patch equals an absent field."""
    if isinstance(patch, Mapping):
        return isinstance(stored, Mapping) and all(contains(stored.get(name), value) for name, value in patch.items())
    return stored == patch
