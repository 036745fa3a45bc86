"""Pods of different kinds that avoid each other in topology domains: divides the domains between the kinds.

Where pods run, those that avoid them are excluded already. In a domain that is free of both, kube-scheduler lets in
those that come first and keeps the others away; so a plan gives each such domain to one of them. Waiting serving pods
come first and get what they need, then the masters and minimums of jobs. The rest goes to jobs by turns. As soon as
pods run, the next plan goes by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from edl.kube.translate.rules.anti_affinity import AntiAffinity
from edl.kube.translate.rules.free_capacity import FreeCapacity
from edl.kube.translate.rules.terms import PodTerm
from edl.kube.translate.rules.view import Unit, View
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.planner.quota import QuotaMeter, QuotaTable, all_quotas, quota_uses_of

_BOTH, _CARRIER, _TARGET = range(3)
MOST_LOOKS = 100_000
"""The most looks at nodes and domains for the rules of one label; pods that come later get no domain."""
_Slots = dict[str, tuple[int, int]]


@dataclass(slots=True)
class _Member:
    """Equal pods to be placed, as one label's rules see them.

    Attributes:
        needed: how many of its pods need a node.
        sides: the rules that it obeys or that are about it, with its side of each.
        slots: for each domain that takes its pods, how many fit now, and how many if no training ran.
        has: the domains that it was given, and those in which its pods run.
    """

    unit: Unit
    needed: int
    sides: list[tuple[PodTerm, int]] = field(default_factory=list)
    slots: _Slots = field(default_factory=dict)
    has: set[str] = field(default_factory=set)

    @property
    def avoids_its_like(self) -> bool:
        """True if a domain takes at most one of these pods."""
        return any(side == _BOTH for _, side in self.sides)


def give_sides(view: View, units: Sequence[Unit], anti: AntiAffinity, capacity: FreeCapacity) -> None:
    """Give each free domain to one of the kinds of pods that avoid each other, and keep the other kinds out of it.

    Args:
        view: the snapshot.
        units: what a plan places, the waiting serving pods first.
        anti: the rules, which have excluded pods from domains in which others run.
        capacity: the free capacity of the nodes.
    """
    by_key: dict[str, dict[int, _Member]] = {}
    beyond: frozenset[JobKey] | None = None
    for term, carriers, targets in anti.given_out():
        both = {id(unit) for unit in carriers} & {id(unit) for unit in targets}
        for side, side_units in ((_CARRIER, carriers), (_TARGET, targets)):
            for unit in side_units:
                members = by_key.setdefault(term.key, {})
                if beyond is None and unit.job is not None and unit.job.status is None:
                    beyond = _beyond_quotas(view.snapshot)
                member = members.setdefault(id(unit), _Member(unit, _needed(unit, beyond or frozenset())))
                where = (term, _BOTH if id(unit) in both else side)
                if where not in member.sides:
                    member.sides.append(where)
    position = {id(unit): number for number, unit in enumerate(units)}
    for key, members in by_key.items():
        ordered = sorted(members.values(), key=lambda member: _order(member.unit, position[id(member.unit)]))
        _Domains(view, key, ordered, capacity).give(anti)


class _Domains:
    """Divides the domains of one label between kinds of pods.

    Args:
        view: the snapshot.
        key: the label.
        members: those that avoid others or that others avoid, in the order in which they get domains.
        capacity: the free capacity of the nodes.
    """

    def __init__(self, view: View, key: str, members: Sequence[_Member], capacity: FreeCapacity) -> None:
        self._view, self._key, self._members, self._capacity = view, key, members, capacity
        self._given: dict[tuple[PodTerm, int], set[str]] = {}
        self._read: dict[tuple[int, int], _Slots] = {}
        self._looks = 0
        for member in members:
            self._give(member, view.values(key, member.unit.live))

    def give(self, anti: AntiAffinity) -> None:
        """Give each kind of pods its domains, and exclude the others from these."""
        for member in self._members:
            if member.needed and self._looks < MOST_LOOKS:
                member.slots = self._slots_of(member)
                self._give(member, self._chosen(member))
        self._give_rest()
        for member in self._members:
            for term, side in member.sides:
                others = set[str]().union(*self._of_others(term, side)) - member.has
                member.unit.exclude(self._key, others, anti.words(term, member.unit))

    def _give_rest(self) -> None:
        """Give the domains that no kind needs to jobs in turn, up to a limit of computing time."""
        got = {id(member): self._got(member) for member in self._members}
        growing = [member for member in self._members if _wants_more(member, got[id(member)])]
        for domain in sorted({domain for member in growing for domain in member.slots}):
            self._looks += len(growing)
            if self._looks >= MOST_LOOKS:
                return
            takers = [
                m for m in growing if domain in m.slots and not any(domain in others for others in self._barred(m))
            ]
            takers = [m for m in takers if _wants_more(m, got[id(m)])]
            if takers:
                first = min(takers, key=lambda m: got[id(m)] / m.needed)
                self._give(first, {domain})
                got[id(first)] += first.slots[domain][1]

    def _give(self, member: _Member, domains: Iterable[str]) -> None:
        member.has |= set(domains)
        for where in member.sides:
            self._given.setdefault(where, set()).update(member.has)

    def _own(self, member: _Member) -> set[str]:
        """The domains given to all sides of this kind; if its pods avoid each other, the domains that have one."""
        if member.avoids_its_like:
            return member.has
        return set.intersection(*(self._given[where] for where in member.sides))

    def _got(self, member: _Member) -> int:
        """How many pods of the kind fit in its domains."""
        return sum(member.slots[domain][1] for domain in self._own(member) if domain in member.slots)

    def _of_others(self, term: PodTerm, side: int) -> list[set[str]]:
        sides = ((term, other) for other in (_BOTH, _CARRIER, _TARGET) if other != side)
        return [self._given[where] for where in sides if where in self._given]

    def _barred(self, member: _Member) -> list[set[str]]:
        """The domains with pods that this kind avoids, or that avoid it."""
        return [others for where in member.sides for others in self._of_others(*where) if others]

    def _chosen(self, member: _Member) -> set[str]:
        """Choose the further domains that the kind needs; none if the free ones do not suffice for a job."""
        missing, own = member.needed - self._got(member), self._own(member)
        self._looks += len(member.slots)
        closed = own.union(*self._barred(member))
        open_to = {domain: slots for domain, slots in member.slots.items() if domain not in closed}
        if missing <= 0 or (member.unit.job is not None and sum(most for _, most in open_to.values()) < missing):
            return set()
        found = set[str]()
        for domain in sorted(open_to, key=lambda d: (-open_to[d][1], d)):
            if open_to[domain][1] >= missing:
                enough = (d for d, (_, most) in open_to.items() if most >= missing and d not in found)
                return {*found, min(enough, key=lambda d: (open_to[d][0] < missing, open_to[d][1], d))}
            found.add(domain)
            missing -= open_to[domain][1]
        return found

    def _slots_of(self, member: _Member) -> _Slots:
        """How many pods of the kind fit in each domain; one in each if they avoid each other."""
        (now, without), nodes = self._capacity.slots(member.unit), self._view.taken(member.unit.placement)
        same = (id(without), id(nodes))
        if same not in self._read:
            domains, found = self._view.domains(self._key), self._read.setdefault(same, {})
            self._looks += len(nodes)
            for node in nodes:
                if (domain := domains[node]) is not None and without[node]:
                    free, most = found.get(domain, (0, 0))
                    found[domain] = (free + now[node], most + without[node])
        found = self._read[same]
        return {d: (min(1, free), 1) for d, (free, _) in found.items()} if member.avoids_its_like else found


def _needed(unit: Unit, beyond: frozenset[JobKey]) -> int:
    """How many pods of the kind need a node; 0 for a job that waits for something else.

    Args:
        unit: the pods.
        beyond: new jobs whose quotas are too small; of others an earlier plan has said so.
    """
    job = unit.job
    if job is None:
        return sum(pod.needs_capacity for pod in unit.pods)
    may_start = _has_begun(job) or (job.status is None and job.key not in beyond)
    return unit.number if job.is_schedulable and may_start else 0


def _has_begun(job: Job) -> bool:
    return job.was_admitted or _runs(job)


def _runs(job: Job) -> bool:
    return any(pod.node and pod.is_live for pod in job.pods)


def _beyond_quotas(snapshot: ClusterSnapshot) -> frozenset[JobKey]:
    """The new jobs whose minimums exceed a quota, counted after the jobs before them."""
    table = QuotaTable(all_quotas(snapshot, ()))
    meter, beyond = QuotaMeter({}, {}), set()
    jobs = [job for job in snapshot.jobs if job.is_schedulable and (job.status is None or _has_begun(job))]
    for job in sorted(jobs, key=lambda job: (not _has_begun(job), job.turn)):
        uses = quota_uses_of(job, table)
        if not _has_begun(job) and meter.short_of_start(uses, job.min_trainers) is not None:
            beyond.add(job.key)
        else:
            meter.start(uses, job.min_trainers)
    return frozenset(beyond)


def _wants_more(member: _Member, got: int) -> bool:
    """True for trainers of a job that has its minimum and may have more than fits in its domains."""
    job = member.unit.job
    return job is not None and member.unit.role is Role.TRAINER and 0 < member.needed <= got < job.max_trainers


def _order(unit: Unit, position: int) -> tuple[object, ...]:
    """Sort key: serving pods in the order of placement, then jobs in the order of admission, trainers last."""
    if unit.job is None:
        return (0, position)
    return (1, not _runs(unit.job), unit.job.turn, unit.role is Role.TRAINER, position)
