"""The plan in words: for each job a reason, and one sentence that a researcher accepts.

A sentence names what holds the job: its own maximum, a resource that is full and who has it, serving, or time. It is
built from the finished packing, not from the duals, which are not unique; prices are given as prices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

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
    PodShape,
    Reason,
    Resources,
    Role,
)
from edl.core.optimizer import Proof, quotas_of
from edl.core.plan import Price
from edl.core.quota import Meter, QuotaRow, most_alone
from edl.core.room import Room
from edl.core.settling import Served
from edl.core.sharing import Share

GIB = 1024**3
NAMED_HOLDERS = 2
SMALLEST_PRICE = 1e-6


@dataclass(frozen=True, slots=True)
class Told:
    """What a job is told."""

    reason: Reason
    message: str
    shrink_reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that was decided."""

    world: World
    served: Served
    admission: Admission
    shared: Share
    meter: Meter

    def claim(self, job: Job) -> Claim | None:
        """The claim of a job that may be given something."""
        return next((c for c in self.world.claims if c.job.key == job.key), None)

    def member(self, job: Job) -> int | None:
        """The index of a job that is admitted."""
        claim = self.claim(job)
        return claim.index if claim is not None and claim.index in self.shared.room.count else None


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
    by_serving = outcome.shared.room.for_serving & {
        *outcome.shared.room.victims,
        *outcome.shared.room.homeless[claim.index],
    }
    if any(i in by_serving for i in claim.seats):
        return Told(reason, message, Reason.SERVING_NEEDS_ROOM)
    return Told(reason, message, _shrink_reason(reason, claim, outcome))


def _shrink_reason(reason: Reason, claim: Claim, outcome: Outcome) -> Reason:
    """Why trainers of a job die, if any do, other than for serving."""
    is_for_quota = any(i in outcome.shared.for_quota for i in claim.seats)
    if _makes_way(claim, outcome, claim.job.queue if is_for_quota else None):
        return Reason.ADMITTED
    if is_for_quota:
        return Reason.QUOTA_REACHED
    return Reason.INSUFFICIENT_CAPACITY if reason is Reason.QUOTA_REACHED else reason


def _makes_way(claim: Claim, outcome: Outcome, queue: str | None) -> bool:
    """True where trainers of a job die so that another one, just admitted, of that queue or any, gets its share."""
    now_s = outcome.world.snapshot.observed_at_s
    others = (outcome.world.claims[j].job for j in outcome.shared.room.count if j != claim.index)
    limit = claim.job.pinned or claim.job.max_trainers
    return len(claim.seats) <= limit and any(
        is_arriving(job, now_s) for job in others if queue is None or job.queue == queue
    )


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
    if most_alone(claim.asks) < claim.low:
        row = next(ask.row for ask in claim.asks if ask.total(claim.low) > ask.row.limit)
        return Reason.QUOTA_REACHED, f"needs {needs}, more than queue {row.queue} may ever have: {_quota(row)}"
    if (short := outcome.admission.short.get(claim.index)) is not None:
        before = outcome.admission.head.get(claim.index, claim.index)
        behind = "" if before == claim.index else f" behind {outcome.world.claims[before].job.key}"
        used = _amount(short.row.resource, short.used)
        return Reason.QUOTA_REACHED, (
            f"waits for quota{behind}: needs {needs}, and the jobs of queue {short.row.queue} that run need {used}"
            f" at least, of {_quota(short.row)}"
        )
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


def _quota(row: QuotaRow) -> str:
    return f"its quota of {_amount(row.resource, row.limit)}"


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
    lost = sum(i in room.for_serving for i in (*room.victims, *room.homeless[claim.index]) if i in claim.seats)
    if lost and count < len(claim.seats):
        pods = _count(sum(outcome.served.due.values()), "serving pod")
        return Reason.SERVING_NEEDS_ROOM, f"{of}: gives up {_count(lost, 'trainer')} to make room for {pods}"
    return _short_of_max(claim, outcome, of)


def _short_of_max(claim: Claim, outcome: Outcome, of: str) -> tuple[Reason, str]:
    room = outcome.shared.room
    hold_s = growth_hold_left_s(claim.job, outcome.world.limits, outcome.world.snapshot.observed_at_s)
    if hold_s > 0 and room.slots(claim.shape).any():
        return Reason.COOLDOWN, f"{of}: gave way to serving; waits another {_seconds(hold_s)} before it grows"
    if (short := outcome.meter.short_of(claim.index)) is not None:
        used = _amount(short.row.resource, short.used)
        return Reason.QUOTA_REACHED, f"{of}: queue {short.row.queue} uses {used} of {_quota(short.row)}"
    if (cooling := _cooling_donor(claim, outcome)) is not None:
        return Reason.COOLDOWN, f"{of}: its fair share is {int(outcome.shared.level[claim.index])}; {cooling}"
    if claim.index in outcome.shared.not_worth_it:
        return Reason.RESIZE_NOT_WORTH_IT, (
            f"{of}: trainers of others would add more speed here, but by less than the restarts of both jobs cost"
        )
    if room.count[claim.index] >= claim.high:
        return Reason.INSUFFICIENT_CAPACITY, f"{of}: no more would fit even if no other job ran"
    return Reason.INSUFFICIENT_CAPACITY, f"{of}: {_scarcity(claim, room)}; {_holders(claim, room)}"


def _cooling_donor(claim: Claim, outcome: Outcome) -> str | None:
    """Who would have to give, but was resized too recently."""
    room, level = outcome.shared.room, outcome.shared.level
    now_s = outcome.world.snapshot.observed_at_s
    promised = int(level[claim.index] + SMALLEST_PRICE)
    if claim.fulfilment(promised) - room.fulfilment(claim.index) <= DEAD_BAND:
        return None
    waits = [
        (cooldown_left_s(other.job, now_s), other.job.key)
        for other in (outcome.world.claims[j] for j in room.members)
        if room.count[other.index] > level[other.index] + 1 and cooldown_left_s(other.job, now_s) > 0
    ]
    if not waits:
        return None
    wait_s, key = max(waits)
    return f"{key} has more than its own, but gave to others lately and is not shrunk for another {_seconds(wait_s)}"


def _scarcity(claim: Claim, room: Room) -> str:
    """Which resource is full, and on how many of the nodes that take the job's trainers."""
    world = room.world
    nodes = world.opened[claim.shape].nonzero()[0].tolist()
    if not nodes:
        return "no node takes new trainers of it"
    asked = [(c, name) for c, name in enumerate(world.names) if world.request[claim.shape, c] > 0]
    lacking = Counter(
        {name: sum(bool(room.free[n, c] < world.request[claim.shape, c]) for n in nodes) for c, name in asked}
    )
    if room.slots(claim.shape).any():
        return f"--max-load-desired {world.limits.max_load_desired:g} is reached"
    name, full = min(lacking.items(), key=lambda item: (-item[1], _rank(item[0])))
    where = "every node that takes its trainers" if full == len(nodes) else "most nodes that take its trainers"
    return f"{_plain(name)} is full on {where} ({full} of {len(nodes)})"


def _holders(claim: Claim, room: Room) -> str:
    """Who holds trainers above its minimum on the nodes that the job could use."""
    world = room.world
    usable = world.opened[claim.shape].tolist()
    near = {world.seats[i].claim for i, n in room.node_of.items() if usable[n]}
    near |= {p.owner for p in room.placed if p.role is Role.TRAINER and usable[p.node]}
    surplus = sorted(
        (world.claims[j].low - room.count[j], world.claims[j].job.key)
        for j in near - {claim.index}
        if room.count[j] > world.claims[j].low
    )
    if not surplus:
        return "no other job holds more than its minimum there"
    named = [f"{key} holds {-over} above its minimum" for over, key in surplus[:NAMED_HOLDERS]]
    if len(surplus) > NAMED_HOLDERS:
        rest = sum(-over for over, _ in surplus[NAMED_HOLDERS:])
        named.append(f"{_count(len(surplus) - NAMED_HOLDERS, 'other job')} {rest} in all")
    return _listed(named)


def prices_of(proof: Proof, world: World) -> tuple[Price, ...]:
    """A price for each scarce shape, class and serving shape: what one more would add to the objective."""
    if proof.solution is None:
        return ()
    columns = proof.cluster.columns
    prices = []
    for shape, worth in zip(columns.shapes, proof.solution.slot_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            name, resource = _shape_name(world.shapes[shape]), _scarcest(world, shape)
            prices.append(Price("shape", name, resource, worth))
            if proof.cluster.serving.get(shape):
                prices.append(Price("serving", name, resource, worth))
    for group, worth in zip(columns.classes, proof.solution.class_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            first = world.snapshot.nodes[group.nodes[0]].name
            others = len(group.nodes) - 1
            name = f"{first} and {_count(others, 'node')} like it" if others else first
            prices.append(Price("class", name, _scarcest(world, columns.shapes[0]), worth))
    quotas = quotas_of(world, proof.cluster.jobs)
    worths = proof.solution.row_price.tolist()[len(proof.cluster.rows) - len(quotas) :]
    for row, worth in zip(quotas, worths, strict=True):
        if worth > SMALLEST_PRICE:
            unit = {CPU: 1000, MEMORY: GIB, EPHEMERAL_STORAGE: GIB}.get(row.resource, 1)
            prices.append(Price("quota", row.queue, row.resource, worth * unit / max(1, row.limit)))
    return tuple(prices)


def _scarcest(world: World, shape: int) -> str:
    """The resource of which the shape asks for the largest part of what there is."""
    total = world.allocatable.sum(axis=0).tolist()
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
