"""The annotations with which a workload of somebody else asks edl to resize it, and the one that edl writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from edl.api.roles import MAX_INSTANCES
from edl.kube.translate.objects import Scalar, text

ELASTIC = "paddlepaddle.org/elastic"
MIN, MAX = "paddlepaddle.org/min-instance", "paddlepaddle.org/max-instance"
QUEUE = "paddlepaddle.org/queue"
TASK = "paddlepaddle.org/task"
"""Names the task of a Volcano Job, or the group of a RayCluster, that edl resizes."""

INDEXES = "paddlepaddle.org/indexes"
"""Says of an Indexed Job what its indexes are; see `batch_jobs`."""

RECORD = "paddlepaddle.org/last-resize"
"""What edl did last, as JSON with the fields of `status.lastResize`. A person removes it to give the count back."""

_PREFIX = "paddlepaddle.org"
_KNOWN = tuple(name.partition("/")[2] for name in (ELASTIC, MIN, MAX, QUEUE, TASK, INDEXES, RECORD))

MANAGER = "edl"
"""The name of edl in managedFields: the API server takes it from the User-Agent."""

_QUEUE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")

Annotations = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the annotations ask for.

    Attributes:
        min_trainers, max_trainers: the bounds; 1 and 1 if they cannot be read.
        problem: what is wrong with the annotations, and the remedy; empty if nothing is.
    """

    min_trainers: int = 1
    max_trainers: int = 1
    queue: str = "default"
    problem: str = ""


def is_elastic(annotations: Annotations) -> bool:
    """True if the annotations ask for resizing, or try to: a value that is neither true nor false is an error."""
    return text(annotations.get(ELASTIC)) not in {"", "false"}


def read_wish(annotations: Annotations) -> Wish:
    """Read the annotations of a workload that asks to be resized."""
    if (value := text(annotations.get(ELASTIC))) != "true":
        return Wish(problem=f'annotation {ELASTIC} is "{value[:40]}"; write "true" or "false"')
    problem = _misspelled(annotations)
    if MAX not in annotations:
        problem = problem or f"annotation {MAX} is missing; set it to the most pods that the job may have"
    if problem:
        return Wish(problem=problem)
    bounds = []
    for name in (MIN, MAX):
        value = text(annotations.get(name, "1"))
        if not (value.isascii() and value.isdigit() and len(value) < 10 and 1 <= int(value) <= MAX_INSTANCES):
            remedy = f"write a whole number from 1 to {MAX_INSTANCES}"
            return Wish(problem=f'annotation {name} is "{value[:40]}"; {remedy}')
        bounds.append(int(value))
    low, high = bounds
    if low > high:
        return Wish(problem=f"annotation {MIN} {low} exceeds {MAX} {high}; lower {MIN}")
    queue = text(annotations.get(QUEUE)) or "default"
    if not _QUEUE.fullmatch(queue):
        return Wish(problem=f'annotation {QUEUE} is "{queue[:80]}"; write the name of a queue')
    return Wish(low, high, queue)


def _misspelled(annotations: Annotations) -> str:
    """What is wrong with the first annotation whose name is almost one of edl's; empty if there is none."""
    for name in sorted(annotations):
        prefix, _, rest = name.partition("/")
        if prefix == _PREFIX and rest not in _KNOWN and (near := get_close_matches(rest, _KNOWN, 1, 0.75)):
            return f"annotation {name[:80]} is not known; did you mean {prefix}/{near[0]}?"
    return ""


def other_writer(count: int, record: Mapping[str, Any], managers: tuple[str, ...], field: str) -> str:
    """Who else changes the count after edl did; empty if nobody does.

    Args:
        count: the count now.
        record: the last resize that edl wrote.
        managers: the managers that own the field, by managedFields, without edl.
        field: name of the field.
    """
    written = record.get("to")
    if not isinstance(written, int) or isinstance(written, bool) or written == count:
        return ""
    who = " and ".join(managers) or "somebody"
    return (
        f"{who} set {field} to {count} after edl had set it to {written}; edl leaves the count to that writer;"
        f" to give it back to edl, stop the other writer and remove annotation {RECORD}"
    )
