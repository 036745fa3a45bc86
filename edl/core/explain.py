"""The plan in words: for each job a reason, and one sentence that a researcher accepts.

A sentence names what holds the job: its own maximum, a resource that is full and who has it, serving, or time. It is
built from the finished packing, not from the duals, which are not unique; prices are given as prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import TypeVar

from edl.core.admission import Admission
from edl.core.capacity import Claim, World
from edl.core.guard import DEAD_BAND, cooldown_left_s, growth_hold_left_s, is_arriving
from edl.core.model import (
    CPU,
    EPHEMERAL_STORAGE,
    HOST_PORT_PREFIX,
    MEMORY,
    PODS,
    Job,
    JobKey,
    PodShape,
    Reason,
    Resources,
)
from edl.core.optimizer import Proof
from edl.core.plan import Price
from edl.core.room import Placed, Room
from edl.core.settling import Served
from edl.core.sharing import Share

GIB = 1024**3
NAMED_HOLDERS = 2
SMALLEST_PRICE = 1e-6

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Told:
    """What a job is told."""

    reason: Reason
    message: str
    shrink_reason: str


@dataclass(frozen=True, slots=True)
class Surplus:
    """Members with trainers where some shape may go: how many each has above its minimum, who has most, the sum."""

    held: Mapping[int, int]
    first: tuple[int, ...]
    total: int


@dataclass(frozen=True)
class Outcome:
    """Everything that was decided, and what many sentences need of it, found once."""

    world: World
    served: Served
    admission: Admission
    shared: Share

    def claim(self, job: Job) -> Claim | None:
        """The claim of a job that may be given something."""
        return self._claims.get(job.key)

    @cached_property
    def _claims(self) -> dict[JobKey, Claim]:
        return {claim.job.key: claim for claim in self.world.claims}

    @cached_property
    def placed(self) -> Mapping[int, list[Placed]]:
        """The new pods of each member, in the order in which they were placed."""
        return _by_owner((place.owner, place) for place in self.shared.room.placed)

    @cached_property
    def dying(self) -> Mapping[int, list[int]]:
        """The seats of each claim that die."""
        room = self.shared.room
        seats = self.world.seats
        bound = _by_owner((seats[i].claim, i) for i in room.victims)
        return {j: [*bound.get(j, ()), *room.homeless[j]] for j in room.members}

    @cached_property
    def arriving(self) -> frozenset[int]:
        """Members that may claim their whole share."""
        now_s = self.world.snapshot.observed_at_s
        return frozenset(j for j in self.shared.room.count if is_arriving(self.world.claims[j].job, now_s))

    @cached_property
    def cooling(self) -> tuple[tuple[float, JobKey], ...]:
        """Members with more than their share that were resized too recently to give it, the last to end first."""
        room, level, now_s = self.shared.room, self.shared.level, self.world.snapshot.observed_at_s
        claims = (self.world.claims[j] for j in room.members if room.count[j] > level[j] + 1)
        waits = ((cooldown_left_s(claim.job, now_s), claim.job.key) for claim in claims)
        return tuple(sorted((wait for wait in waits if wait[0] > 0), reverse=True))

    @cached_property
    def scarcities(self) -> dict[int, str]:
        """What is full for each trainer shape, as far as it was asked."""
        return {}

    @cached_property
    def surpluses(self) -> dict[int, Surplus]:
        """Who holds how much above a minimum where each trainer shape may go, as far as it was asked."""
        return {}

    def member(self, job: Job) -> int | None:
        """The index of a job that is admitted."""
        claim = self.claim(job)
        return claim.index if claim is not None and claim.index in self.shared.room.count else None


def _by_owner(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    groups: dict[int, list[T]] = {}
    for owner, item in pairs:
        groups.setdefault(owner, []).append(item)
    return groups


def explain(job: Job, outcome: Outcome) -> Told:
    """Say why a job has the count it has."""
    claim = outcome.claim(job)
    if claim is None:
        reason, message = _excluded(job)
        return Told(reason, message, reason)
    if claim.index not in outcome.shared.room.count:
        reason, message = _refused(claim, outcome)
        return Told(reason, message, reason)
    reason, message = _admitted(claim, outcome)
    if any(i in outcome.shared.room.for_serving for i in outcome.dying[claim.index]):
        return Told(reason, message, Reason.SERVING_NEEDS_ROOM)
    return Told(reason, message, Reason.ADMITTED if _makes_way(claim, outcome) else reason)


def _makes_way(claim: Claim, outcome: Outcome) -> bool:
    """True where trainers of a job die so that another one, just admitted, gets its minimum or its share."""
    limit = claim.job.pinned or claim.job.max_trainers
    return len(claim.seats) <= limit and bool(outcome.arriving - {claim.index})


def _excluded(job: Job) -> tuple[Reason, str]:
    if job.deleting:
        return Reason.FINISHED, "it is being deleted: its pods go"
    if job.finished:
        return Reason.FINISHED, "it has finished: it gets no pods"
    if job.problem:
        return Reason.INVALID_SPEC, job.problem
    return Reason.SUSPENDED, "it is suspended: it gets no pods until spec.suspend is false"


def _refused(claim: Claim, outcome: Outcome) -> tuple[Reason, str]:
    needs = _needs(claim)
    if claim.index in outcome.admission.hopeless:
        return Reason.UNSCHEDULABLE, f"needs {needs}, which would not fit even alone: {_misfit(claim, outcome.world)}"
    if claim.job.was_admitted and any(outcome.served.due.values()):
        pods = sum(outcome.served.due.values())
        return (
            Reason.SERVING_NEEDS_ROOM,
            f"needs {needs}; {_count(pods, 'serving pod')} took the room it needs to run",
        )
    head = outcome.admission.head.get(claim.index)
    if head is None or head == claim.index:
        return Reason.MIN_UNSATISFIED, f"waits for room: needs {needs}"
    ahead = outcome.world.claims[head].job.key
    return Reason.MIN_UNSATISFIED, f"waits for room behind {ahead}: needs {needs}"


def _needs(claim: Claim) -> str:
    """Everything that a job needs to start, in pods and in totals."""
    pods = [_count(f.count, f.role.value) for f in sorted(claim.job.fixed, key=lambda f: f.role) if f.count]
    total = claim.job.trainer.request * claim.low
    for fixed in claim.job.fixed:
        total = total + fixed.shape.request * fixed.count
    pods = [_count(claim.low, "trainer"), *pods]
    return f"{_listed(pods)} ({_amounts(total)} in all)"


def _misfit(claim: Claim, world: World) -> str:
    """Which pod no node can hold, and for want of what; else that they do not fit together."""
    shapes = [("trainer", claim.job.trainer), *((f.role.value, f.shape) for f in claim.job.fixed if f.count)]
    number = {shape: i for i, shape in enumerate(world.shapes)}
    for role, shape in shapes:
        nodes = [n for n, is_open in enumerate(world.opened[number[shape]].tolist()) if is_open]
        if not nodes:
            return f"no node takes its {role}s (readiness, cordon, taints, node selector and affinity considered)"
        for column, name in enumerate(world.names):
            asked, most = shape.request[name], max(int(world.empty[n, column]) for n in nodes)
            if asked > most:
                return (
                    f"one {role} asks for {_amount(name, asked)},"
                    f" and no node that takes it has more than {_amount(name, max(0, most))}"
                )
    return "each pod has a node that could hold it, but not all of them together"


def _admitted(claim: Claim, outcome: Outcome) -> tuple[Reason, str]:
    room, job = outcome.shared.room, claim.job
    count = room.count[claim.index]
    of = f"{count} of {job.max_trainers}"
    if job.pinned:
        return Reason.PINNED, f"{of}: pinned to {_count(job.pinned, 'trainer')}"
    if count >= job.max_trainers:
        return Reason.AT_MAX, f"{of}: at its maximum"
    lost = sum(i in room.for_serving for i in outcome.dying[claim.index])
    if lost and count < len(claim.seats):
        pods = _count(sum(outcome.served.due.values()), "serving pod")
        return Reason.SERVING_NEEDS_ROOM, f"{of}: gives up {_count(lost, 'trainer')} to make room for {pods}"
    return _short_of_max(claim, outcome, of)


def _short_of_max(claim: Claim, outcome: Outcome, of: str) -> tuple[Reason, str]:
    room = outcome.shared.room
    hold_s = growth_hold_left_s(claim.job, outcome.world.limits, outcome.world.snapshot.observed_at_s)
    if hold_s > 0 and room.slots(claim.shape).any():
        return Reason.COOLDOWN, f"{of}: gave way to serving; waits another {_seconds(hold_s)} before it grows"
    if (cooling := _cooling_donor(claim, outcome)) is not None:
        return Reason.COOLDOWN, f"{of}: its fair share is {int(outcome.shared.level[claim.index])}; {cooling}"
    if room.count[claim.index] >= claim.high:
        return Reason.INSUFFICIENT_CAPACITY, f"{of}: no more would fit even if no other job ran"
    return Reason.INSUFFICIENT_CAPACITY, f"{of}: {_scarcity(claim, outcome)}; {_holders(claim, outcome)}"


def _cooling_donor(claim: Claim, outcome: Outcome) -> str | None:
    """Who would have to give, but was resized too recently."""
    room, level = outcome.shared.room, outcome.shared.level
    promised = int(level[claim.index] + SMALLEST_PRICE)
    if claim.fulfilment(promised) - room.fulfilment(claim.index) <= DEAD_BAND:
        return None
    if not outcome.cooling:
        return None
    wait_s, key = outcome.cooling[0]
    return f"{key} has more than its own, but was resized lately and is not shrunk for another {_seconds(wait_s)}"


def _scarcity(claim: Claim, outcome: Outcome) -> str:
    """Which resource is full, and on how many of the nodes that take the job's trainers."""
    if claim.shape not in outcome.scarcities:
        outcome.scarcities[claim.shape] = _scarcity_of(claim.shape, outcome.shared.room)
    return outcome.scarcities[claim.shape]


def _scarcity_of(shape: int, room: Room) -> str:
    world = room.world
    nodes = int(world.opened[shape].sum())
    if not nodes:
        return "no node takes new trainers of it"
    if room.slots(shape).any():
        return f"--max-load-desired {world.limits.max_load_desired:g} is reached"
    lacking = zip(world.names, room.lacking(shape), strict=True)
    name, full = min(lacking, key=lambda item: (-item[1], _rank(item[0])))
    where = "every node that takes its trainers" if full == nodes else "most nodes that take its trainers"
    return f"{_plain(name)} is full on {where} ({full} of {nodes})"


def _holders(claim: Claim, outcome: Outcome) -> str:
    """Who holds trainers above its minimum on the nodes that the job could use."""
    if claim.shape not in outcome.surpluses:
        outcome.surpluses[claim.shape] = _surplus_near(claim.shape, outcome)
    surplus = outcome.surpluses[claim.shape]
    own = surplus.held.get(claim.index, 0)
    others = len(surplus.held) - (claim.index in surplus.held)
    if not others:
        return "no other job holds more than its minimum there"
    first = [j for j in surplus.first if j != claim.index][:NAMED_HOLDERS]
    named = [f"{outcome.world.claims[j].job.key} holds {surplus.held[j]} above its minimum" for j in first]
    if others > NAMED_HOLDERS:
        rest = surplus.total - own - sum(surplus.held[j] for j in first)
        named.append(f"{_count(others - NAMED_HOLDERS, 'other job')} {rest} in all")
    return _listed(named)


def _surplus_near(shape: int, outcome: Outcome) -> Surplus:
    claims, room = outcome.world.claims, outcome.shared.room
    held = {j: over for j in room.near(shape) if (over := room.count[j] - claims[j].low) > 0}
    first = nsmallest(NAMED_HOLDERS + 1, held, key=lambda j: (-held[j], claims[j].job.key))
    return Surplus(held, tuple(first), sum(held.values()))


def prices_of(proof: Proof, world: World) -> tuple[Price, ...]:
    """A price for each scarce shape, class and serving shape: what one more would add to the objective."""
    if proof.solution is None:
        return ()
    columns = proof.cluster.columns
    total = world.allocatable.sum(axis=0).tolist()
    prices = []
    for shape, worth in zip(columns.shapes, proof.solution.slot_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            name, resource = _shape_name(world.shapes[shape]), _scarcest(world, shape, total)
            prices.append(Price("shape", name, resource, worth))
            if proof.cluster.serving.get(shape):
                prices.append(Price("serving", name, resource, worth))
    for group, worth in zip(columns.classes, proof.solution.class_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            first = world.snapshot.nodes[group.nodes[0]].name
            others = len(group.nodes) - 1
            name = f"{first} and {_count(others, 'node')} like it" if others else first
            prices.append(Price("class", name, _scarcest(world, columns.shapes[0], total), worth))
    return tuple(prices)


def _scarcest(world: World, shape: int, total: list[int]) -> str:
    """The resource of which the shape asks for the largest part of what there is."""
    asked = [(c, n) for c, n in enumerate(world.request[shape].tolist()) if n > 0]
    return (
        world.names[min(asked, key=lambda a: (-a[1] / max(1, total[a[0]]), _rank(world.names[a[0]])))[0]]
        if asked
        else ""
    )


def _shape_name(shape: PodShape) -> str:
    return _amounts(shape.request)


def _rank(resource: str) -> tuple[int, str]:
    """The order in which resources are named: what people know best first."""
    return ({CPU: 0, MEMORY: 1, PODS: 3}.get(resource, 2), resource)


def _plain(resource: str) -> str:
    return "the number of pods" if resource == PODS else resource


def _amounts(request: Resources) -> str:
    names = sorted((n for n in request if n != PODS), key=_rank)
    return ", ".join(_amount(name, request[name]) for name in names) or _amount(PODS, request[PODS])


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return f"{amount / 1000:g} {'core' if amount == 1000 else 'cores'}"
    if name in {MEMORY, EPHEMERAL_STORAGE}:
        kind = "memory" if name == MEMORY else "ephemeral storage"
        return f"{_binary(amount)} of {kind}"
    if name.startswith(HOST_PORT_PREFIX):
        return f"host port {name.removeprefix(HOST_PORT_PREFIX)}"
    return _count(amount, "pod") if name == PODS else f"{amount} {name}"


def _binary(amount: int) -> str:
    """Bytes in the largest unit from GiB to EiB that leaves at least one."""
    power = max((p for p in range(4) if amount >= GIB * 1024**p), default=0)
    return f"{amount / (GIB * 1024**power):.4g} {('GiB', 'TiB', 'PiB', 'EiB')[power]}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _seconds(duration_s: float) -> str:
    return f"{max(1, round(duration_s))} s"


def _listed(parts: Iterable[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
