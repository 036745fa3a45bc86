"""Which PriorityClass a pod of a TrainingJob has, so that kube-scheduler ends trainers in the order of the plan.

All are below 0, the priority of serving. The values are in `edl.install.objects`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edl.api.v1 import TrainingJob
from edl.model.names import PRIORITY_BEST_EFFORT, PRIORITY_BEST_EFFORT_SURPLUS, Role
from edl.model.resources import CPU, MEMORY

PRIORITY_CORE = "edl-core"
PRIORITY_TRAINING = "edl-training"
PRIORITY_SURPLUS = "edl-surplus"
BASIC_PRIORITY_CLASSES = (PRIORITY_CORE, PRIORITY_TRAINING, PRIORITY_SURPLUS)
"""The PriorityClasses that every job needs."""
PRIORITY_CLASSES = (*BASIC_PRIORITY_CLASSES, PRIORITY_BEST_EFFORT, PRIORITY_BEST_EFFORT_SURPLUS)


def priority_classes_of(
    job: TrainingJob,
    role: Role,
    index: int,
    spec: Mapping[str, Any],
    *,
    is_best_effort: bool = True,
    is_base: bool = False,
) -> tuple[str, ...]:
    """Return the PriorityClass of a pod, followed by substitutes for clusters that lack it, the best one first.

    The substitutes are the next higher classes, up to that of the master. So serving never preempts a master while a
    trainer stays.

    Args:
        job: a valid job.
        role: the role of the pod.
        index: the number of the pod within its role, from 0.
        spec: the pod, which says whether it requests cpu or memory.
        is_best_effort: False if a trainer that requests neither gets requests by admission, from a LimitRange.
        is_base: a trainer belongs to the minimum although its index does not, because others do not have that class.
    """
    if role is not Role.TRAINER:
        return (PRIORITY_CORE,)
    is_surplus = index >= job.spec.trainer.min_trainers and not is_base
    usual = (*((PRIORITY_SURPLUS,) if is_surplus else ()), PRIORITY_TRAINING, PRIORITY_CORE)
    if not is_best_effort or any(name in (CPU, MEMORY) for name in _resources(spec)):
        return usual
    return (PRIORITY_BEST_EFFORT_SURPLUS if is_surplus else PRIORITY_BEST_EFFORT, *usual)


def _resources(spec: Mapping[str, Any]) -> Iterator[str]:
    """The names of all resources that a pod or one of its containers requests or limits."""
    for part in (spec, *spec.get("containers", ()), *spec.get("initContainers", ())):
        for amounts in (part.get("resources") or {}).values():
            yield from amounts if isinstance(amounts, Mapping) else ()
