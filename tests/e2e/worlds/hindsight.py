"""How full a cluster could have been, if every later change had been known.

Masters and pservers stay where they are once they run, while serving pods come and go. A planner cannot reach an
optimum that places them again at each moment. This module computes what a planner could reach if it knew every later
moment, so that a test can compare the result with what was possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from tests.e2e.worlds import facts
from tests.e2e.worlds.facts import JOB_LABEL, ROLE_LABEL, Amounts, Object

TIME_LIMIT_S = 300.0
MOST_ON_A_NODE = 200


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster at rest.

    Attributes:
        most: trainers that would fit if pservers and trainers were placed again now.
        weight: the request of all pods in that case, in trainers.
    """

    nodes: Sequence[Object]
    pods: Sequence[Object]
    most: int
    weight: float


class _Rows:
    """The constraints of an integer program, row by row."""

    def __init__(self) -> None:
        self._at: list[tuple[int, int, float]] = []
        self._low: list[float] = []
        self._high: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        """Add bounds of a sum of (column, factor) terms."""
        self._at += [(len(self._low), column, factor) for column, factor in terms]
        self._low.append(low)
        self._high.append(high)

    def done(self, width: int) -> LinearConstraint:
        """All constraints."""
        row, column, factor = zip(*self._at, strict=True)
        matrix = coo_array((factor, (row, column)), shape=(len(self._low), width)).tocsr()
        return LinearConstraint(matrix, np.array(self._low), np.array(self._high))


def best_without_moves(moments: Sequence[Moment], trainer: Amounts) -> float:
    """The share of the optimum that can be reached at all moments if masters and pservers never move.

    An integer program: for each node the masters and pservers on it, the same at all moments; for each node and
    moment the trainers beside them and beside the pods of no job. It minimises the largest share of the optimum that
    is missing at any moment. The pods of jobs are those of the first moment.
    """
    fixed = Counter(
        tuple(sorted(facts.request(pod).items()))
        for pod in moments[0].pods
        if _is_of_a_job(pod) and pod["metadata"]["labels"].get(ROLE_LABEL) != "trainer"
    )
    shapes = [dict(need) for need in fixed]
    rooms = [facts.free_room(m.nodes, [p for p in m.pods if not _is_of_a_job(p)]) for m in moments]
    places = sorted(rooms[0])
    count, width = len(places), len(places) * (len(shapes) + len(moments)) + 1
    rows = _Rows()
    for s, need in enumerate(fixed):
        rows.add([(s * count + i, 1.0) for i in range(count)], fixed[need], np.inf)
    for m, (moment, room) in enumerate(zip(moments, rooms, strict=True)):
        first = (len(shapes) + m) * count
        rows.add([*((first + i, 1.0) for i in range(count)), (width - 1, moment.weight)], moment.most, np.inf)
        for i, place in enumerate(places):
            for name, each in trainer.items():
                held = [(s * count + i, float(shape.get(name, 0))) for s, shape in enumerate(shapes)]
                rows.add([*held, (first + i, float(each))], -np.inf, room[place].get(name, 0))
    result = milp(
        c=np.eye(1, width, width - 1)[0],
        constraints=rows.done(width),
        integrality=np.append(np.ones(width - 1, dtype=np.int64), 0),
        bounds=Bounds(0, np.append(np.full(width - 1, MOST_ON_A_NODE), 1.0)),
        options={"time_limit": TIME_LIMIT_S},
    )
    return 1.0 - max(0.0, float(result.mip_dual_bound or 0.0))


def _is_of_a_job(pod: Object) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(JOB_LABEL))
