"""The linear programs: what could be placed, what a fair share would be, and how good a plan could be at best.

All of them choose how many nodes of each class use which pattern. They bound what whole pods can do; `packing` then
does it. Duals are prices: what one more slot, one more node of a class, or one waiting serving pod less is worth.

Source: HiGHS by scipy.optimize.linprog and milp; the Lagrangian bound of column generation, Desrosiers and Luebbecke,
A Primer in Column Generation (2005), section 1.4.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp

from edl.core.capacity import IntArray, World
from edl.core.model import Role
from edl.core.patterns import Menu, NodeClass, Pattern, classify, list_patterns, price
from edl.core.room import SERVING, Placed, Room
from edl.errors import PlanError

FloatArray = NDArray[np.float64]

EPSILON = 1e-7
MAX_ROUNDS = 40
NODE_LIMIT = 200  # branch and bound nodes of an integer program: a limit in time would not be deterministic
INTEGER_COLUMNS = 1500
WORST_SHORTFALL, SHORTFALL = 1000.0, 10.0  # in fulfilment: what missing a promise costs the integer program


@dataclass(slots=True)
class Columns:
    """The classes of a cluster and the patterns known for each; `shapes` are the rows."""

    shapes: tuple[int, ...]
    classes: tuple[NodeClass, ...]
    request: IntArray
    menus: list[dict[Pattern, None]]
    complete: list[bool]

    def add(self, g: int, pattern: Pattern) -> bool:
        """Add a pattern to a class; False where it is known."""
        if pattern in self.menus[g]:
            return False
        self.menus[g][pattern] = None
        return True

    def flat(self) -> tuple[list[int], list[Pattern]]:
        """(columns,) the class of each column, and its pattern."""
        pairs = [(g, p) for g, menu in enumerate(self.menus) for p in menu]
        return [g for g, _ in pairs], [p for _, p in pairs]


@dataclass(frozen=True, slots=True)
class Program:
    """Maximise `gain @ v` over v and pattern counts y.

    Attributes:
        gain: (variables,) objective.
        low, high: (variables,) bounds.
        use: (shapes, variables) slots of each shape that one unit of a variable takes.
        need: (shapes,) slots that are taken anyway.
        rows, limits: further constraints rows @ v <= limits.
    """

    gain: FloatArray
    low: FloatArray
    high: FloatArray
    use: FloatArray
    need: FloatArray
    rows: FloatArray
    limits: FloatArray


@dataclass(frozen=True, slots=True)
class Solution:
    """What a program gave.

    Attributes:
        value: of the restricted program; bound: no solution with any pattern exceeds it.
        v: (variables,).
        slot_price: (shapes,); class_price: (classes,); row_price: (rows,).
    """

    value: float
    bound: float
    v: FloatArray
    slot_price: FloatArray
    class_price: FloatArray
    row_price: FloatArray


@dataclass(frozen=True, slots=True)
class Cluster:
    """A trial as the programs see it.

    Attributes:
        columns: classes and patterns of the room that members and what they lack may use.
        jobs: members, ascending.
        stuck: trainers of each that count but stand where no new one could.
        need: (shapes,) slots for serving and for masters and pservers.
    """

    world: World
    columns: Columns
    jobs: tuple[int, ...]
    stuck: dict[int, int]
    need: FloatArray
    serving: dict[int, int] = field(default_factory=dict)


def make_columns(world: World, room: IntArray, shapes: Iterable[int]) -> Columns:
    """Classes of nodes for these shapes, with the patterns to begin with."""
    rows = tuple(sorted(set(shapes)))
    request = world.request[list(rows)]
    classes = classify(room.clip(min=0), request, world.opened[list(rows)])
    menus: list[Menu] = [list_patterns(group, request) for group in classes]
    return Columns(rows, classes, request, [dict.fromkeys(m.patterns) for m in menus], [m.is_complete for m in menus])


def read_cluster(room: Room) -> Cluster:
    """The programs' view of a trial: its trainers and everything placed count as free, and as the first patterns."""
    world = room.world
    movable = [
        i
        for i, node in room.node_of.items()
        if world.seats[i].shape == world.claims[world.seats[i].claim].shape
        and world.opened[world.seats[i].shape, node]
    ]
    free = room.free.clip(min=0)
    used: dict[int, Counter[int]] = {}
    for node, shape in [
        *((room.node_of[i], world.seats[i].shape) for i in movable),
        *((place.node, place.shape) for place in room.placed),
    ]:
        free[node] += world.request[shape]
        used.setdefault(node, Counter())[shape] += 1
    shapes = {world.claims[j].shape for j in room.members} | {place.shape for place in room.placed}
    columns = make_columns(world, free, shapes)
    for g, group in enumerate(columns.classes):
        for node in group.nodes:
            columns.add(g, tuple(used.get(node, {}).get(s, 0) for s in columns.shapes))
    row = {s: k for k, s in enumerate(columns.shapes)}
    need = np.zeros(len(row))
    serving: Counter[int] = Counter()
    for place in room.placed:
        if place.role is not Role.TRAINER:
            need[row[place.shape]] += 1
            serving[place.shape] += place.owner == SERVING
    moved = Counter(world.seats[i].claim for i in movable)
    moved.update(place.owner for place in room.placed if place.role is Role.TRAINER)
    stuck = {j: room.count[j] - moved[j] for j in room.members}
    return Cluster(world, columns, room.members, stuck, need, dict(serving))


def solve(program: Program, columns: Columns, deadline_s: float) -> Solution:
    """Solve a program by column generation; the columns found are kept.

    Raises:
        PlanError: infeasible, late, or not a number.
    """
    for _ in range(MAX_ROUNDS):
        owner, patterns = columns.flat()
        result = _linprog(program, columns, owner, patterns, deadline_s)
        shapes, classes = len(columns.shapes), len(columns.classes)
        prices = -np.asarray(result.ineqlin.marginals, dtype=np.float64)
        slot, node = prices[:shapes].clip(min=0), prices[shapes : shapes + classes].clip(min=0)
        slack, is_new = 0.0, False
        for g, group in enumerate(columns.classes):
            if columns.complete[g]:
                best = max((float(np.dot(p, slot)) for p in columns.menus[g]), default=0.0)
            else:
                priced = price(group, columns.request, slot.tolist())
                best = priced.at_most
                if float(np.dot(priced.pattern, slot)) > node[g] + EPSILON:
                    is_new = columns.add(g, priced.pattern) or is_new
            slack += len(group.nodes) * max(0.0, best - float(node[g]))
        if not is_new:
            break
    value = -float(result.fun)
    return Solution(
        value, value + slack, np.asarray(result.x)[: len(program.gain)], slot, node, prices[shapes + classes :]
    )


def _matrix(
    program: Program, columns: Columns, owner: list[int], patterns: list[Pattern]
) -> tuple[FloatArray, FloatArray]:
    """Left and right sides: slots asked <= slots of the patterns; nodes used <= nodes; further rows."""
    shapes, classes, variables = len(columns.shapes), len(columns.classes), len(program.gain)
    left = np.zeros((shapes + classes + len(program.rows), variables + len(owner)))
    left[:shapes, :variables] = program.use
    if owner:
        left[:shapes, variables:] = -np.array(patterns, dtype=np.float64).T
        left[shapes + np.array(owner), variables + np.arange(len(owner))] = 1.0
    left[shapes + classes :, :variables] = program.rows
    nodes = [float(len(group.nodes)) for group in columns.classes]
    return left, np.concatenate([-program.need, nodes, program.limits])


def _linprog(
    program: Program, columns: Columns, owner: list[int], patterns: list[Pattern], deadline_s: float
) -> OptimizeResult:
    left, right = _matrix(program, columns, owner, patterns)
    result = linprog(
        np.concatenate([-program.gain, np.zeros(len(owner))]),
        A_ub=left,
        b_ub=right,
        bounds=[*zip(program.low, program.high, strict=True), *[(0, None)] * len(owner)],
        method="highs",
        options={"time_limit": deadline_s},
    )
    if result.status != 0 or result.x is None or not np.isfinite(result.fun):
        raise PlanError(f"the linear program gave no answer: {result.message}; the last plan stays in force")
    return result


def place_most(world: World, room: IntArray, wanted: Mapping[int, int], deadline_s: float) -> float:
    """The most pods of some shapes that the room could hold, as an upper bound.

    Args:
        world: the shapes and where they may go.
        room: (nodes, resources) what they may use.
        wanted: how many of each shape at most.
    """
    columns = make_columns(world, room, wanted)
    size = len(columns.shapes)
    program = Program(
        gain=np.ones(size),
        low=np.zeros(size),
        high=np.array([wanted[s] for s in columns.shapes], dtype=np.float64),
        use=np.eye(size),
        need=np.zeros(size),
        rows=np.zeros((0, size)),
        limits=np.zeros(0),
    )
    return solve(program, columns, deadline_s).bound


def pack_most(
    world: World, free: IntArray, wanted: Mapping[int, int], deadline_s: float
) -> list[tuple[int, int, int]] | None:
    """Pack the most whole pods of some shapes, exactly where the program is small.

    Returns:
        (node, shape, pods) sorted by node; None where there is too much to try, or no answer.
    """
    columns = make_columns(world, free, wanted)
    owner, patterns = columns.flat()
    size, uses = len(columns.shapes), len(owner)
    if not uses or uses > INTEGER_COLUMNS:
        return None
    slots = np.hstack([-np.eye(size), np.array(patterns, dtype=np.float64).T])
    nodes = np.zeros((len(columns.classes), size + uses))
    nodes[owner, size + np.arange(uses)] = 1.0
    result = milp(
        np.concatenate([-np.ones(size), np.zeros(uses)]),
        integrality=np.ones(size + uses),
        bounds=Bounds(np.zeros(size + uses), [*(wanted[s] for s in columns.shapes), *[np.inf] * uses]),
        constraints=[
            LinearConstraint(slots, lb=0.0),
            LinearConstraint(nodes, ub=[len(group.nodes) for group in columns.classes]),
        ],
        options={"time_limit": deadline_s, "node_limit": NODE_LIMIT},
    )
    if result.x is None:
        return None
    counts = np.asarray(result.x).round().astype(np.int64).tolist()
    left = dict(zip(columns.shapes, counts[:size], strict=True))
    packed = []
    for node, pattern in _spread(columns, counts[size:]):
        for shape, pods in zip(columns.shapes, pattern, strict=True):
            packed.append((node, shape, min(pods, left[shape])))
            left[shape] -= packed[-1][2]
    return sorted(place for place in packed if place[2])


def _spread(columns: Columns, uses: list[int]) -> Iterator[tuple[int, Pattern]]:
    """The nodes of each class, taken in order, and the pattern that each of them is to hold."""
    free_nodes = [iter(group.nodes) for group in columns.classes]
    for g, pattern, count in zip(*columns.flat(), uses, strict=True):
        for _ in range(count):
            yield next(free_nodes[g]), pattern


def fair_shares(cluster: Cluster, deadline_s: float) -> dict[int, float]:
    """Max-min fulfilment: the largest t with n_j >= m_j + t (M_j - m_j); freeze whoever is tight; repeat.

    Returns:
        Trainers of each member, in fractions, never below its minimum.

    Source: progressive filling, Bertsekas and Gallager, Data Networks (1992), section 6.5.2.
    """
    claims = [cluster.world.claims[j] for j in cluster.jobs]
    low = np.array([c.low for c in claims], dtype=np.float64)
    span = np.array([max(0, c.high - c.low) for c in claims], dtype=np.float64)
    frozen = span == 0
    floor = low.copy()
    while not frozen.all():
        program = _share_program(cluster, floor, low, span, frozen)
        solution = solve(program, cluster.columns, deadline_s)
        level = float(solution.v[-1])
        active = np.flatnonzero(~frozen)
        floor[active] = np.maximum(floor[active], low[active] + level * span[active])
        tight = active[solution.row_price > EPSILON]
        if level >= 1 - EPSILON or not len(tight):
            tight = active
        frozen[tight] = True
    return {j: float(n) for j, n in zip(cluster.jobs, floor, strict=True)}


def could_reach(cluster: Cluster, wanted: Mapping[int, int], deadline_s: float) -> bool:
    """False where it is proved that not every member can have as many trainers as wanted at once."""
    goal = np.array([wanted[j] for j in cluster.jobs], dtype=np.float64)
    stuck = np.array([cluster.stuck[j] for j in cluster.jobs], dtype=np.float64)
    use, need = _job_use(cluster)
    size = len(goal)
    high = np.maximum(goal, stuck)
    program = Program(np.ones(size), stuck, high, use, need, np.zeros((0, size)), np.zeros(0))
    return solve(program, cluster.columns, deadline_s).bound >= high.sum() - EPSILON


def _share_program(
    cluster: Cluster, floor: FloatArray, low: FloatArray, span: FloatArray, frozen: NDArray[np.bool_]
) -> Program:
    """Variables: one count for each job, then t."""
    jobs, active = len(low), np.flatnonzero(~frozen)
    rows = np.zeros((len(active), jobs + 1))
    rows[np.arange(len(active)), active] = -1.0
    rows[:, -1] = span[active]
    use, need = _job_use(cluster)
    return Program(
        gain=np.concatenate([np.zeros(jobs), [1.0]]),
        low=np.concatenate([_lower(cluster, floor), [0.0]]),
        high=np.concatenate([_upper(cluster, low + span, floor), [1.0]]),
        use=np.hstack([use, np.zeros((len(use), 1))]),
        need=need,
        rows=rows,
        limits=-low[active],
    )


def _job_use(cluster: Cluster) -> tuple[FloatArray, FloatArray]:
    """(shapes, jobs) slots by trainer, and the slots needed anyway, less what stands where no new one could."""
    row = {s: k for k, s in enumerate(cluster.columns.shapes)}
    use = np.zeros((len(row), len(cluster.jobs)))
    need = cluster.need.copy()
    for k, j in enumerate(cluster.jobs):
        shape = row[cluster.world.claims[j].shape]
        use[shape, k] = 1.0
        need[shape] -= cluster.stuck[j]
    return use, need


def _lower(cluster: Cluster, floor: FloatArray) -> FloatArray:
    """A job has at least what it is promised, and at least what stands where no new one could."""
    return np.maximum(floor - EPSILON, [cluster.stuck[j] for j in cluster.jobs])


def _upper(cluster: Cluster, high: FloatArray, floor: FloatArray) -> FloatArray:
    return np.maximum(high, _lower(cluster, floor))


def pack_anew(
    room: Room, ceiling: Mapping[int, int], promised: Mapping[int, int], deadline_s: float
) -> Room | None:
    """Pack all pods that are not created yet anew, by an integer program over patterns.

    Args:
        room: a packing; what it placed is the work to do again, and a solution to start from.
        ceiling: the most trainers of each member.
        promised: the fair share of each member in whole trainers.
        deadline_s: time for the program.

    Returns:
        The new packing; None where there is nothing to gain, too much to try, or no answer.
    """
    base = room.copy()
    for place in room.placed:
        base.drop(place)
    if room.world.limits.max_load_desired < 1.0:
        return None
    shapes = {p.shape for p in room.placed} | {room.world.claims[j].shape for j in ceiling if base.count[j] < ceiling[j]}
    if len({p.shape for p in room.placed}) < 2 or all(room.count[j] >= ceiling[j] for j in ceiling):
        return None
    columns = make_columns(room.world, base.free, shapes)
    placed = Counter((p.node, p.shape) for p in room.placed)
    for g, group in enumerate(columns.classes):
        for node in group.nodes:
            columns.add(g, tuple(placed[node, s] for s in columns.shapes))
    owner, patterns = columns.flat()
    if len(owner) > INTEGER_COLUMNS:
        return None
    answer = _integer_program(room, base, ceiling, promised, columns, deadline_s)
    return None if answer is None else _refill(room, base, columns, answer)


def _integer_program(
    room: Room,
    base: Room,
    ceiling: Mapping[int, int],
    promised: Mapping[int, int],
    columns: Columns,
    deadline_s: float,
) -> tuple[dict[int, int], list[int]] | None:
    """New trainers of each member and uses of each column: the worst-off shortfall first, then the sum.

    Variables: new trainers x_j; what is missing of the promise s_j; the largest part missing; uses y of each column.
    """
    jobs, (owner, patterns) = sorted(ceiling), columns.flat()
    claims = [room.world.claims[j] for j in jobs]
    size, uses = len(jobs), len(owner)
    span = np.array([max(1, c.high - c.low) for c in claims], dtype=np.float64)
    weight = np.array([c.job.weight for c in claims], dtype=np.float64)
    kept = np.array([base.count[j] for j in jobs], dtype=np.float64)
    cost = np.concatenate([-weight / span, SHORTFALL / span, [WORST_SHORTFALL], np.zeros(uses)])
    row = {s: k for k, s in enumerate(columns.shapes)}
    need = np.zeros(len(row))
    for place in room.placed:
        need[row[place.shape]] += place.role is not Role.TRAINER
    slots = np.zeros((len(row), len(cost)))
    for k, claim in enumerate(claims):
        if claim.shape in row:
            slots[row[claim.shape], k] = -1.0
    slots[:, -uses:] = np.array(patterns, dtype=np.float64).T
    nodes = np.zeros((len(columns.classes), len(cost)))
    nodes[owner, len(cost) - uses + np.arange(uses)] = 1.0
    promise = np.hstack([np.eye(size), np.eye(size), np.zeros((size, 1 + uses))])
    worst = np.hstack([np.zeros((size, size)), -np.diag(1.0 / span), np.ones((size, 1)), np.zeros((size, uses))])
    wanted = np.array([promised[j] for j in jobs]) - kept
    low = np.array([c.low for c in claims]) - kept
    most = np.array([ceiling[j] if c.shape in row else base.count[j] for j, c in zip(jobs, claims, strict=True)]) - kept
    result = milp(
        cost,
        integrality=np.concatenate([np.ones(size), np.zeros(size + 1), np.ones(uses)]),
        bounds=Bounds(
            np.concatenate([low.clip(min=0), np.zeros(size + 1 + uses)]),
            np.concatenate([np.maximum(most, low.clip(min=0)), np.full(size + 1 + uses, np.inf)]),
        ),
        constraints=[
            LinearConstraint(slots, lb=need),
            LinearConstraint(nodes, ub=[len(group.nodes) for group in columns.classes]),
            LinearConstraint(promise, lb=wanted),
            LinearConstraint(worst, lb=0.0),
        ],
        options={"time_limit": deadline_s, "node_limit": NODE_LIMIT},
    )
    if result.x is None:
        return None
    whole = np.asarray(result.x).round().astype(np.int64)
    return dict(zip(jobs, whole[:size].tolist(), strict=True)), whole[-uses:].tolist()


def _refill(room: Room, base: Room, columns: Columns, answer: tuple[dict[int, int], list[int]]) -> Room:
    """Put whole pods where the integer program says: serving first, then masters and pservers, then trainers."""
    more, uses = answer
    queues: dict[int, deque[Placed]] = {s: deque() for s in columns.shapes}
    for place in sorted(room.placed, key=lambda p: (p.owner, p.role or "", p.shape)):
        if place.role is not Role.TRAINER:
            queues[place.shape].append(place)
    for j, count in sorted(more.items()):
        shape = room.world.claims[j].shape
        queues.setdefault(shape, deque()).extend([Placed(j, Role.TRAINER, shape, 0)] * count)
    for node, pattern in _spread(columns, uses):
        for shape, pods in zip(columns.shapes, pattern, strict=True):
            for _ in range(min(pods, len(queues[shape]))):
                place = queues[shape].popleft()
                if place.role is Role.TRAINER:
                    base.place_trainer(place.owner, node)
                else:
                    base.hold(replace(place, node=node))
    return base


@dataclass(frozen=True, slots=True)
class Proof:
    """How good a plan is, and what its scarcities are worth.

    Attributes:
        achieved, bound: weighted fulfilment of the plan, and what no plan can exceed.
        cluster: classes and shapes that the prices are for; solution: None where nothing runs.
    """

    achieved: float
    bound: float
    cluster: Cluster
    solution: Solution | None


def prove(room: Room, level: Mapping[int, float], deadline_s: float) -> Proof:
    """Bound the sum of weighted fulfilment from above, with at least the promised or the planned trainers each.

    Args:
        room: the finished plan.
        level: trainers that the fair share promises each member.
        deadline_s: time for the program.
    """
    cluster = read_cluster(room)
    achieved = sum(room.world.claims[j].job.weight * room.fulfilment(j) for j in room.members)
    if not room.members:
        return Proof(achieved, achieved, cluster, None)
    claims = [room.world.claims[j] for j in room.members]
    low = np.array([c.low for c in claims], dtype=np.float64)
    span = np.array([c.high - c.low for c in claims], dtype=np.float64)
    weight = np.array([c.job.weight for c in claims], dtype=np.float64)
    gain = np.where(span > 0, weight / np.maximum(span, 1), 0.0)
    floor = np.array([min(int(level[j] + EPSILON), room.count[j]) for j in room.members], dtype=np.float64)
    use, need = _job_use(cluster)
    rows, limits = _load_rows(room)
    high = _upper(cluster, low + span, floor)
    solution = solve(
        Program(gain, _lower(cluster, floor), high, use, need, rows, limits), cluster.columns, deadline_s
    )
    constant = float(weight[span <= 0].sum() - (gain * low).sum())
    return Proof(achieved, solution.bound + constant + EPSILON, cluster, solution)


def _load_rows(room: Room) -> tuple[FloatArray, FloatArray]:
    """--max-load-desired over the members' counts; what a plan has anyway is allowed."""
    share, world = room.world.limits.max_load_desired, room.world
    if share >= 1.0:
        return np.zeros((0, len(room.members))), np.zeros(0)
    total = world.allocatable.sum(axis=0)
    left = (share * total - (total - room.free.sum(axis=0))).clip(min=0)
    rows = world.request[[world.claims[j].shape for j in room.members]].T.astype(np.float64)
    scale = total.clip(min=1).astype(np.float64)
    planned = rows @ np.array([room.count[j] for j in room.members], dtype=np.float64)
    return rows / scale[:, None], (planned + left) / scale
