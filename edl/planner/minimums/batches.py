"""What a plan must place, shape by shape: pending serving pods, then masters and pservers, then minimums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edl.model.names import Role
from edl.planner.packing import PodBatch
from edl.planner.problem import Problem
from edl.planner.trial_packing import SERVING, TrialPacking


@dataclass(frozen=True, slots=True)
class Served:
    """The pending serving pods that a plan places.

    Attributes:
        due: by shape, pods that must be placed, even if trainers are deleted for them.
        in_grace: by shape, pods for which only free capacity is reserved.
        short: how many pods do not fit even without training.
        order: the shapes in an order of placing in which so many fit; empty if no order was tried or none does.
        places: (node, shape, pods) on which so many fit where no order of placing does; else empty.
    """

    due: Mapping[int, int]
    in_grace: Mapping[int, int]
    short: int
    order: tuple[int, ...] = ()
    places: tuple[tuple[int, int, int], ...] = ()


def batches_of(packing: TrialPacking, served: Served) -> list[PodBatch]:
    """The pods that must fit and have no node yet.

    Serving pods come first, in the order in which they fit without training, then masters and pservers, then
    minimums; within these groups, larger pods first. Trainers
    come last because a trainer costs one slot of a trainer wherever it goes. The other pods can go where they cost
    less.
    """
    problem = packing.problem
    fixed: dict[int, list[tuple[int, Role | None]]] = {}
    trainers: dict[int, list[tuple[int, Role | None]]] = {}
    for (j, role, shape), count in sorted(Counter(packing.fixed_without_node).items()):
        fixed.setdefault(shape, []).extend([(j, role)] * count)
    placed = Counter((p.owner, p.role, p.shape) for p in packing.placed)
    for j in packing.members:
        demand = problem.demands[j]
        for need in demand.needs:
            missing = need.missing - placed[j, need.role, need.shape]
            fixed.setdefault(need.shape, []).extend([(j, need.role)] * missing)
        trainers.setdefault(demand.shape, []).extend([(j, Role.TRAINER)] * (demand.min_trainers - packing.count[j]))
    shapes = served.order or by_size(problem, served.due)
    serving = [for_serving(s, served.due[s]) for s in shapes if served.due.get(s)]
    return [*serving, *(PodBatch(s, tuple(g[s])) for g in (fixed, trainers) for s in by_size(problem, g) if g[s])]


def fixed_and_minimums(packing: TrialPacking, served: Served) -> tuple[list[PodBatch], list[PodBatch]]:
    """Divide `batches_of` into serving pods, masters and pservers, and into trainers."""
    batches = batches_of(packing, served)
    first = sum(batch.owners[0][1] is not Role.TRAINER for batch in batches)
    return batches[:first], batches[first:]


def surplus(packing: TrialPacking) -> dict[int, int]:
    """How many trainers each job of the packing has above its minimum."""
    return {j: max(0, packing.count[j] - packing.problem.demands[j].min_trainers) for j in packing.members}


def for_serving(shape: int, count: int) -> PodBatch:
    """A batch of `count` serving pods of one shape."""
    return PodBatch(shape, ((SERVING, None),) * count)


def by_size(problem: Problem, shapes: Iterable[int]) -> list[int]:
    """The shapes, from the largest to the smallest."""
    return sorted(shapes, key=lambda s: (-size_of(problem, s), s))


def size_of(problem: Problem, shape: int) -> float:
    """The size of a shape: the largest part that it requests of any resource of the largest node."""
    return float((problem.request[shape] / problem.largest).max(initial=0.0))
