"""The best possible plan of a tiny cluster: it tries every way to fill each node with whole pods.

It uses no code of the planner. It reads snapshots only, counts resources in plain integers, and decides by itself
which node accepts which pod. It is fast enough for a few nodes and pod shapes only. A running trainer may be deleted
and start again on any node; running masters and pservers stay on their nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.resources import PodShape

Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bin:
    """A node and its free resources by name; negative if its pods request more than it has."""

    node: Node
    free: Mapping[str, int]

    def without(self, pods: Iterable[Pod]) -> Bin:
        """The bin after the requests of these pods are subtracted."""
        free = Counter(self.free)
        for pod in pods:
            if (pod.node or pod.nominated) == self.node.name:
                free.subtract(pod.shape.request.as_dict())
        return Bin(self.node, free)

    def holds(self, wanted: Mapping[PodShape, int]) -> bool:
        """True if pods of these shapes fit together."""
        asked: Counter[str] = Counter()
        for shape, count in wanted.items():
            if count and not may_go(shape, self.node):
                return False
            asked.update({name: amount * count for name, amount in shape.request.as_dict().items()})
        return all(amount <= self.free.get(name, 0) for name, amount in asked.items() if amount)


def may_go(shape: PodShape, node: Node) -> bool:
    """Check readiness, cordon, taints and node selector; no pod here tolerates a cordon or has an affinity."""
    labels = dict(node.labels)
    tolerated = {(t.key, t.value, t.effect) for t in shape.placement.tolerations}
    return (
        node.ready
        and not node.cordoned
        and all(labels.get(key) == value for key, value in shape.placement.node_selector)
        and all(tuple(taint) in tolerated for taint in node.taints if taint.effect != "PreferNoSchedule")
    )


def bins_of(snapshot: ClusterSnapshot, jobs: Iterable[Job] = ()) -> tuple[Bin, ...]:
    """What is free on each node beside foreign pods and those pods of these jobs that cannot move."""
    fixed = [
        p
        for job in jobs
        for p in job.pods
        if p.is_live and (p.role is not Role.TRAINER or is_stuck(snapshot, job, p))
    ]
    held = [*(p for p in snapshot.pods if not p.is_finished), *fixed]
    bins = []
    for node in snapshot.nodes:
        free = Counter(node.allocatable.as_dict())
        free.subtract(node.reserved.as_dict())
        bins.append(Bin(node, free).without(held))
    return tuple(bins)


def is_stuck(snapshot: ClusterSnapshot, job: Job, pod: Pod) -> bool:
    """True for a live trainer on a node where its job could not start a new one."""
    if not pod.is_live or pod.role is not Role.TRAINER or not pod.node:
        return False
    node = next((n for n in snapshot.nodes if n.name == pod.node), None)
    return node is None or not may_go(job.trainer, node) or pod.shape != job.trainer


def ways(bins: Sequence[Bin], kinds: Sequence[PodShape], caps: Counts) -> list[Counts]:
    """All maximal vectors of counts, at most `caps`, that the bins hold together."""
    if not kinds:
        return [()]
    total = np.zeros((1, len(kinds)), dtype=np.int64)
    for each in bins:
        here = np.array(_largest(list(_fillings(each, kinds, caps))), dtype=np.int64).reshape(-1, len(kinds))
        sums = np.minimum(total[:, None] + here[None], np.array(caps, dtype=np.int64)).reshape(-1, len(kinds))
        total = np.array(_largest(sums.tolist()), dtype=np.int64).reshape(-1, len(kinds))
    return [tuple(row) for row in total.tolist()]


def _fillings(each: Bin, kinds: Sequence[PodShape], caps: Counts) -> Iterator[Counts]:
    def fill(depth: int, counts: Counts) -> Iterator[Counts]:
        if depth == len(kinds):
            yield counts
            return
        for n in range(caps[depth] + 1):
            more = (*counts, n)
            if n and not each.holds(Counter(dict(zip(kinds, more, strict=False)))):
                break
            yield from fill(depth + 1, more)

    yield from fill(0, ())


def _largest(rows: Iterable[Sequence[int]]) -> list[Counts]:
    """The rows that are not below another row."""
    table = np.unique(np.array([tuple(row) for row in rows], dtype=np.int64), axis=0)
    covered = (table[None] >= table[:, None]).all(axis=2).sum(axis=1) > 1
    return [tuple(row) for row in table[~covered].tolist()]


def fits(bins: Sequence[Bin], wanted: Mapping[PodShape, int]) -> bool:
    """True if all of these pods fit together."""
    kinds = [shape for shape in wanted if wanted[shape] > 0]
    goal = tuple(wanted[shape] for shape in kinds)
    return goal in ways(bins, kinds, goal)


def most_of(bins: Sequence[Bin], shape: PodShape, limit: int, beside: Mapping[PodShape, int]) -> int:
    """The most pods of a shape, up to a limit, that fit beside others; -1 if the others do not fit."""
    counts = Counter(beside)
    kinds = [*(s for s in counts if s != shape), shape]
    goal = tuple(counts[s] for s in kinds)
    tops = [way[-1] for way in ways(bins, kinds, (*goal[:-1], goal[-1] + limit)) if way[:-1] == goal[:-1]]
    return max(tops, default=-1) - counts[shape] if max(tops, default=-1) >= counts[shape] else -1


def servings(snapshot: ClusterSnapshot) -> list[Counter[PodShape]]:
    """Every largest set of waiting serving pods that fits without any training."""
    wanted = Counter(pod.shape for pod in snapshot.pods if pod.is_waiting_serving)
    kinds = list(wanted)
    all_ways = ways(bins_of(snapshot), kinds, tuple(wanted[s] for s in kinds))
    most = max(map(sum, all_ways))
    return [Counter(dict(zip(kinds, way, strict=True))) for way in all_ways if sum(way) == most]


def lacking(snapshot: ClusterSnapshot, job: Job, trainers: int) -> Counter[PodShape]:
    """The pods that need a node for a job to have that many trainers; pods that cannot move already have one."""
    missing: Counter[PodShape] = Counter()
    for fixed in job.fixed:
        missing[fixed.shape] += fixed.count - sum(p.role is fixed.role and p.is_live for p in job.pods)
    stuck = sum(is_stuck(snapshot, job, p) for p in job.pods)
    missing[job.trainer] += max(0, trainers - stuck)
    return +missing


def low_of(job: Job) -> int:
    return job.pinned or job.min_trainers


def as_pinned(snapshot: ClusterSnapshot, plan: ScalePlan) -> ClusterSnapshot:
    """The cluster with what a plan gives instead of each pinned count that does not fit, or else with its minimum."""
    jobs = (
        replace(job, pinned=d.target if d.admitted else job.min_trainers) if job.pinned > job.min_trainers else job
        for job, d in zip(snapshot.jobs, plan.decisions, strict=True)
    )
    return replace(snapshot, jobs=tuple(jobs))


def all_fit(snapshot: ClusterSnapshot, jobs: Sequence[Job], serving: Counter[PodShape]) -> bool:
    """True if the minimum of all these jobs fits beside serving."""
    wanted = Counter(serving)
    for job in jobs:
        wanted += lacking(snapshot, job, low_of(job))
    return fits(bins_of(snapshot, jobs), wanted)


def cap_of(snapshot: ClusterSnapshot, job: Job, serving: Counter[PodShape]) -> int:
    """The most trainers of a job alone beside serving, up to its maximum; -1 if its fixed pods do not fit."""
    stuck = sum(is_stuck(snapshot, job, p) for p in job.pods)
    beside = Counter(serving) + lacking(snapshot, job, 0)
    most = most_of(bins_of(snapshot, [job]), job.trainer, job.max_trainers, beside)
    return min(job.max_trainers, most + stuck) if most >= 0 else -1


def admitted_of(
    snapshot: ClusterSnapshot, serving: Counter[PodShape], head_wait_s: float = 600.0
) -> tuple[set[JobKey], set[JobKey]]:
    """The jobs that the rules admit, and the jobs that would not fit even alone.

    Jobs are taken tier by tier, running jobs before waiting ones, the oldest first. If a waiting job does not fit,
    later ones may overtake it until it has waited for `head_wait_s`.
    """
    jobs = [job for job in snapshot.jobs if job.is_schedulable]
    alone = [job for job in jobs if (job.was_admitted and job.live_trainers) or all_fit(snapshot, [job], serving)]
    chosen: list[Job] = []
    for tier in sorted({job.tier for job in alone}, reverse=True):
        here = sorted(
            (job for job in alone if job.tier == tier), key=lambda job: (_is_broken(job), job.created_s, job.key)
        )
        for job in (job for job in here if job.was_admitted):
            if all_fit(snapshot, [*chosen, job], serving):
                chosen.append(job)
        is_closed = False
        for job in (job for job in here if not job.was_admitted):
            if not is_closed and all_fit(snapshot, [*chosen, job], serving):
                chosen.append(job)
            elif snapshot.observed_at_s - job.created_s >= head_wait_s:
                is_closed = True
    return {job.key for job in chosen}, {job.key for job in jobs} - {job.key for job in alone}


def _is_broken(job: Job) -> bool:
    fixed = all(sum(p.role is f.role and p.is_live for p in job.pods) >= f.count for f in job.fixed)
    return job.was_admitted and not (fixed and len(job.live_trainers) >= low_of(job))


def fair_levels(snapshot: ClusterSnapshot, jobs: Sequence[Job], serving: Counter[PodShape]) -> list[float]:
    """The sorted fulfilments of the max-min fair plan: the lowest as high as possible, then the next, and so on."""
    return max((sorted(levels) for levels in _shares(snapshot, jobs, serving)), default=[])


def _shares(snapshot: ClusterSnapshot, jobs: Sequence[Job], serving: Counter[PodShape]) -> Iterator[list[float]]:
    """The fulfilments for every maximal packing, if each slot goes to the job with the lowest fulfilment."""
    tops = {job.key: top_of(snapshot, job, serving) for job in jobs}
    needed = Counter(serving)
    for job in jobs:
        needed += lacking(snapshot, job, 0)
    stuck = {job.key: sum(is_stuck(snapshot, job, p) for p in job.pods) for job in jobs}
    caps = Counter(needed)
    for job in jobs:
        caps[job.trainer] += max(0, tops[job.key] - stuck[job.key])
    kinds = list(caps)
    for way in ways(bins_of(snapshot, jobs), kinds, tuple(caps[s] for s in kinds)):
        slots = {s: n - needed[s] for s, n in zip(kinds, way, strict=True)}
        if min(slots.values(), default=0) < 0:
            continue
        counts = {job.key: max(stuck[job.key], low_of(job)) for job in jobs}
        for job in jobs:
            slots[job.trainer] = slots.get(job.trainer, 0) - (counts[job.key] - stuck[job.key])
        if min(slots.values(), default=0) < 0:
            continue
        while growing := [job for job in jobs if slots[job.trainer] > 0 and counts[job.key] < tops[job.key]]:
            job = min(growing, key=lambda job: (fulfilment(job, counts[job.key], tops[job.key]), job.key))
            counts[job.key] += 1
            slots[job.trainer] -= 1
        yield [fulfilment(job, counts[job.key], tops[job.key]) for job in jobs]


def top_of(snapshot: ClusterSnapshot, job: Job, serving: Counter[PodShape]) -> int:
    """The trainers at which a job's fulfilment is 1: its maximum, capped at what fits alone or exists already."""
    if job.pinned:
        return job.pinned
    alone = max(cap_of(snapshot, job, serving), len(job.live_trainers))
    return max(job.min_trainers, min(job.max_trainers, alone))


def fulfilment(job: Job, count: int, top: int) -> float:
    """(n - min) / (max - min); 1 if both bounds are equal."""
    low = low_of(job)
    return (count - low) / (top - low) if top > low else 1.0


def most_fulfilment(
    snapshot: ClusterSnapshot, jobs: Sequence[Job], serving: Counter[PodShape], least: Mapping[JobKey, int]
) -> float:
    """The largest weighted sum of fulfilments over all plans that give each job at least these trainers."""
    tops = {job.key: top_of(snapshot, job, serving) for job in jobs}
    wanted = Counter(serving)
    for job in jobs:
        wanted += lacking(snapshot, job, least[job.key])
    bins = bins_of(snapshot, jobs)
    best = -1.0
    order = sorted(jobs, key=lambda job: -job.weight / max(1, tops[job.key] - low_of(job)))

    def grow(depth: int, now: Counter[PodShape], value: float) -> None:
        nonlocal best
        if depth == len(order):
            best = max(best, value)
            return
        job = order[depth]
        for more in range(tops[job.key] - least[job.key], -1, -1):
            grown = now + Counter({job.trainer: more})
            if fits(bins, grown):
                grow(depth + 1, grown, value + job.weight * fulfilment(job, least[job.key] + more, tops[job.key]))

    if fits(bins, wanted):
        grow(0, wanted, 0.0)
    return best


def fewest_victims(snapshot: ClusterSnapshot, jobs: Sequence[Job], serving: Counter[PodShape]) -> int | None:
    """The fewest trainers to delete so that serving fits and each job still reaches its minimum on any nodes."""
    total = sum(len(_movable(snapshot, job)) for job in jobs)
    for stays in sorted(_stays(snapshot, jobs), key=lambda stays: -sum(map(len, stays))):
        wanted = Counter(serving)
        for job, staying in zip(jobs, stays, strict=True):
            wanted += lacking(snapshot, job, low_of(job) - len(staying))
        if fits(_bins_beside(snapshot, jobs, stays), wanted):
            return total - sum(map(len, stays))
    return None


def could_rise(snapshot: ClusterSnapshot, jobs: Sequence[Job], serving: Counter[PodShape], level: float) -> bool:
    """True if every job can rise above a fulfilment while no job that loses trainers starts new ones."""
    goal = {job.key: _count_above(job, top_of(snapshot, job, serving), level) for job in jobs}
    if any(count is None for count in goal.values()):
        return False
    for stays in _stays(snapshot, jobs):
        wanted = Counter(serving)
        for job, staying in zip(jobs, stays, strict=True):
            more = lacking(snapshot, job, (goal[job.key] or 0) - len(staying))
            if len(staying) < len(_movable(snapshot, job)) and more != lacking(snapshot, job, 0):
                break
            wanted += more
        else:
            if fits(_bins_beside(snapshot, jobs, stays), wanted):
                return True
    return False


def _count_above(job: Job, top: int, level: float) -> int | None:
    return next((n for n in range(low_of(job), top + 1) if fulfilment(job, n, top) > level + 1e-9), None)


def _movable(snapshot: ClusterSnapshot, job: Job) -> list[Pod]:
    return [p for p in job.live_trainers if not is_stuck(snapshot, job, p)]


def _stays(snapshot: ClusterSnapshot, jobs: Sequence[Job]) -> list[tuple[list[Pod], ...]]:
    """Every choice of running trainers to keep; trainers of one job on one node are interchangeable."""
    choices = []
    for job in jobs:
        at: dict[str, list[Pod]] = {}
        for pod in _movable(snapshot, job):
            at.setdefault(pod.node, []).append(pod)
        counts = product(*(range(len(pods), -1, -1) for pods in at.values()))
        choices.append([[p for pods, n in zip(at.values(), way, strict=True) for p in pods[:n]] for way in counts])
    return list(product(*choices))


def _bins_beside(snapshot: ClusterSnapshot, jobs: Sequence[Job], stays: Sequence[list[Pod]]) -> list[Bin]:
    return [each.without(pod for staying in stays for pod in staying) for each in bins_of(snapshot, jobs)]


def leftover(snapshot: ClusterSnapshot, after: ClusterSnapshot) -> tuple[Bin, ...]:
    """What is free on each node after a plan is carried out; waiting serving pods are not placed."""
    pods = [*after.pods, *(p for job in after.jobs for p in job.pods)]
    return tuple(each.without(p for p in pods if p.job and not p.is_finished) for each in bins_of(snapshot))


def fulfilments(snapshot: ClusterSnapshot, plan: ScalePlan, serving: Counter[PodShape]) -> list[float]:
    """The sorted fulfilments of the admitted jobs of a plan."""
    pairs = zip(snapshot.jobs, plan.decisions, strict=True)
    return sorted(fulfilment(job, d.target, top_of(snapshot, job, serving)) for job, d in pairs if d.admitted)
