"""The annotations by which a workload asks edl to resize it, and the one that edl writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from typing import Any

from edl.api.roles import MAX_INSTANCES
from edl.kube.translate.scalars import Scalar, text
from edl.model.names import (
    ANNOTATION_KUEUE_PRIORITY,
    ANNOTATION_KUEUE_QUEUE,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_QUEUE,
)
from edl.model.sizes import MOST_SIZES, Sizes, in_steps

ELASTIC = "paddlepaddle.org/elastic"
MIN, MAX = ANNOTATION_MIN, ANNOTATION_MAX
QUEUE = ANNOTATION_QUEUE
SIZES, STEP = "paddlepaddle.org/sizes", "paddlepaddle.org/step"
"""The only numbers of pods that the workload may have, such as `2,4,8`, or what they are multiples of."""

TASK = "paddlepaddle.org/task"
"""Names the task of a Volcano Job, or the group of a RayCluster, that edl resizes."""

INDEXES = "paddlepaddle.org/indexes"
"""Says of an Indexed Job what its indexes are; see `batch_jobs`."""

RECORD = "paddlepaddle.org/last-resize"
"""The annotation with edl's last resize, as JSON like `status.lastResize`; removing it gives the count back."""

FLAVOR_NODES = "paddlepaddle.org/flavor-nodes"
"""The annotation with what edl has added to the pod template for a flavor of Kueue, as JSON."""

_PREFIX = "paddlepaddle.org"
_ASKED = (ELASTIC, MIN, MAX, SIZES, STEP, QUEUE, TASK, INDEXES, ANNOTATION_KUEUE_QUEUE, ANNOTATION_KUEUE_PRIORITY)
_KNOWN_NAMES = (*_ASKED, RECORD, FLAVOR_NODES)
_KNOWN = tuple(name.partition("/")[2] for name in _KNOWN_NAMES)
_MAX_COMPARED = 20  # names; to compare one takes long

MANAGER = "edl"
"""The name of edl in managedFields: the API server takes it from the User-Agent."""

_DEFAULTS = {MIN: "1", MAX: "1", STEP: "1"}
_QUEUE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")

Annotations = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Wish:
    """The resize settings in the annotations of a workload.

    Attributes:
        min_trainers, max_trainers: the bounds; 1 and 1 if they cannot be read.
        sizes: the numbers of pods that it may have; see `edl.model.sizes`.
        problem: what is wrong with the annotations, and the remedy; empty if nothing is.
    """

    min_trainers: int = 1
    max_trainers: int = 1
    queue: str = "default"
    problem: str = ""
    sizes: Sizes = ()


def is_elastic(annotations: Annotations) -> bool:
    """Return True if the annotation `elastic` has any value but `false`.

    Whether that value is valid is judged later.
    """
    return text(annotations.get(ELASTIC)) not in {"", "false"}


def read_wish(annotations: Annotations) -> Wish:
    """Read the annotations of a workload that asks to be resized; its queue counts, whatever else is wrong."""
    queue = text(annotations.get(QUEUE)) or "default"
    problem = _queue_problem(queue)
    return Wish(problem=problem) if problem else replace(_read_bounds(annotations), queue=queue)


def _read_bounds(annotations: Annotations) -> Wish:
    """Read minimum, maximum and sizes from the annotations."""
    if (value := text(annotations.get(ELASTIC))) != "true":
        return Wish(problem=f'annotation {ELASTIC} is "{value[:40]}"; write "true" or "false"')
    problem = _misspelled(annotations)
    if MAX not in annotations:
        problem = problem or f"annotation {MAX} is missing; set it to the most pods that the job may have"
    if problem:
        return Wish(problem=problem)
    numbers = {name: _number(text(annotations.get(name, default))) for name, default in _DEFAULTS.items()}
    bad = next((name for name, number in numbers.items() if number is None), None)
    if bad is not None:
        remedy = f"write a whole number from 1 to {MAX_INSTANCES}"
        return Wish(problem=f'annotation {bad} is "{text(annotations.get(bad))[:40]}"; {remedy}')
    low, high, step = (number or 1 for number in numbers.values())
    if problem := _bounds_problem(low, high):
        return Wish(problem=problem)
    if problem := _size_problem(annotations, (low, high), step):
        return Wish(low, high, problem=problem)
    listed = _listed(text(annotations.get(SIZES)))
    return Wish(low, high, sizes=tuple(listed or ()) or in_steps(low, high, step))


def _bounds_problem(low: int, high: int) -> str:
    return f"annotation {MIN} {low} exceeds {MAX} {high}; lower {MIN}" if low > high else ""


def _queue_problem(queue: str) -> str:
    return "" if _QUEUE.fullmatch(queue) else f'annotation {QUEUE} is "{queue[:80]}"; write the name of a queue'


def _number(value: str) -> int | None:
    """Parse a number of pods; None for anything else."""
    is_number = value.isascii() and value.isdigit() and len(value) < 10
    return int(value) if is_number and 1 <= int(value) <= MAX_INSTANCES else None


def _listed(value: str) -> list[int] | None:
    """The sizes of the annotation, ascending; None if it has something else, or too many."""
    if not value:
        return []
    found = [_number(part.strip()) for part in value.split(",", MOST_SIZES)]
    numbers = sorted({number for number in found if number is not None})
    return numbers if len(numbers) == len(found) <= MOST_SIZES else None


def _size_problem(annotations: Annotations, bounds: tuple[int, int], step: int) -> str:
    """Say what is wrong with the sizes, or with bounds that are not among the sizes."""
    value, (low, high) = text(annotations.get(SIZES)), bounds
    listed = _listed(value)
    if listed is None:
        return f'annotation {SIZES} is "{value[:80]}"; write up to {MOST_SIZES} different numbers such as "2,4,8"'
    if listed and step > 1:
        return f"annotations {SIZES} and {STEP} are both set; remove one of them"
    if listed and (listed[0], listed[-1]) != bounds:
        return (
            f'annotation {SIZES} is "{value[:80]}", but {MIN} is {low} and {MAX} is {high}; make these the least and'
            " the largest of the sizes"
        )
    if low % step or high % step:
        return f"{MIN} {low} and {MAX} {high} are not both multiples of {STEP} {step}; make them so"
    return ""


def _misspelled(annotations: Annotations) -> str:
    """Warn of the first annotation whose name is almost one of edl's; empty if there is none."""
    unknown = (name for name in sorted(annotations) if name.startswith(f"{_PREFIX}/") and name not in _KNOWN_NAMES)
    for name in islice(unknown, _MAX_COMPARED):
        if near := get_close_matches(name.partition("/")[2], _KNOWN, 1, 0.75):
            return f"annotation {name[:80]} is not known; did you mean {_PREFIX}/{near[0]}?"
    return ""


def other_writer(count: int, record: Mapping[str, Any], managers: tuple[str, ...], field: str) -> str:
    """Name the field manager that changes the count after edl did; empty if there is none.

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
