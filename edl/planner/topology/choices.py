"""Which domains each job may get: those that its pods are in, else those that could hold its minimum.

A running job never changes the domain that all its pods must share: they cannot move, and they may not be in two
domains. A job that starts from nothing may choose. The first guess goes by age; `search` improves it. On Preferred
levels, the order in which domains are filled is a preference of nodes. A job of one size that starts from nothing is
first tried on the fewest domains alone, because victims would otherwise be chosen anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.resources import Preference, Requirement
from edl.model.topology import TOGETHER, Labels, Path, Topology, home_of, in_domain, path_of
from edl.planner.admission.pins import as_it_runs, may_have_fewer
from edl.planner.problem import JobDemand
from edl.planner.problem_reader import read_problem
from edl.planner.topology.domain_capacity import DomainCapacities, Offer
from edl.planner.topology.fill_order import count_domains, fill_order, used_domains
from edl.planner.topology.slices import Layout, SlicePlanner, with_layouts

PREFERENCE_WEIGHT = 100  # the most that Kubernetes allows, so the preferences of a template decide between equals
MOST_ORDERED = 64  # domains whose order counts; pods that need more than these are beyond any preference
MOST_VALUES = 1_000  # of a label that the choice limits trainers to


@dataclass(frozen=True, slots=True)
class Choice:
    """What a job is given before the plan is made.

    Attributes:
        domain: where all its trainers and pservers must be; empty if they may be anywhere, or if no domain can hold
            any trainer.
        order: domains of the narrowest level, the first to fill first; empty without a Preferred level.
        area: the only ones of these that new trainers may use; empty for all.
        layout: the places of its slices; None without slices.
    """

    domain: Path = ()
    order: tuple[Path, ...] = ()
    area: tuple[Path, ...] = ()
    layout: Layout | None = None


Assignment = Mapping[JobKey, Choice]


@dataclass(frozen=True, slots=True)
class Choices:
    """The domains that the jobs of a cluster may get.

    Attributes:
        snapshot: the cluster as it was observed.
        options: for each job with `spec.topology` that the planner may give pods, its choices; the best guess first.
        most: for jobs with a Required level or slices, trainers that they could have if no other training ran.
    """

    snapshot: ClusterSnapshot
    options: Mapping[JobKey, Sequence[Choice]]
    most: Mapping[JobKey, int]

    @property
    def guess(self) -> dict[JobKey, Choice]:
        """The first choice of each job."""
        return {key: choices[0] for key, choices in self.options.items()}

    def applied(self, assignment: Assignment) -> ClusterSnapshot:
        """The snapshot in which each job may only use, or prefers, its domains."""
        jobs = tuple(self._placed(job, assignment) for job in self.snapshot.jobs)
        layouts = {key: choice.layout for key, choice in assignment.items() if choice.layout is not None}
        return with_layouts(replace(self.snapshot, jobs=jobs), layouts)

    def _placed(self, job: Job, assignment: Assignment) -> Job:
        if job.topology is None or job.key not in assignment:
            return job
        choice = assignment[job.key]
        topology = replace(job.topology, domain=choice.domain, most=self.most.get(job.key, 0), order=choice.order)
        limited = replace(topology, within=_limits_to(topology, choice.area))
        wishes = _wishes(topology)

        def placed(fixed: FixedPods) -> FixedPods:
            if fixed.role not in TOGETHER:
                return fixed
            shape = in_domain(fixed.shape, topology.of_pservers)
            return replace(fixed, shape=shape, preferred=(*fixed.preferred, *wishes))

        return replace(
            job,
            topology=limited,
            trainer=in_domain(job.trainer, limited),
            preferred=(*job.preferred, *wishes),
            fixed=tuple(map(placed, job.fixed)),
        )


def read_choices(snapshot: ClusterSnapshot, limits: Limits) -> Choices | None:
    """Find the domains of each job that has none yet; None if no job asks for one."""
    if not any(_is_open(job) for job in snapshot.jobs):
        return None
    problem = read_problem(snapshot, limits)
    capacities, labels = DomainCapacities(problem), {node.name: node.labels for node in snapshot.nodes}
    planner = SlicePlanner(problem, capacities)
    options: dict[JobKey, Sequence[Choice]] = {}
    most: dict[JobKey, int] = {}
    for demand in map(_lowered, sorted(problem.demands, key=_turn)):
        job, topology = demand.job, demand.job.topology
        if topology is None or not _is_open(job):
            continue
        found = _Options(demand, topology, capacities, labels)
        if topology.slices is not None:
            slices = demand.max_trainers // topology.slices.size
            layouts = [(domain, planner.layout(demand, domain, slices)) for domain in found.domains]
            options[job.key] = [Choice(domain, layout=layout) for domain, layout in layouts]
            if layouts[0][1].slices * topology.slices.size >= demand.min_trainers:
                planner.reserve(demand, layouts[0][1])
        else:
            options[job.key] = tuple(found.choices)
            if not found.home and found.most >= demand.min_trainers:
                capacities.reserve(demand, topology, found.reserved)
        if topology.is_required or topology.slices is not None:
            most[job.key] = found.most
    return Choices(snapshot, options, most)


def _is_open(job: Job) -> bool:
    return job.topology is not None and not (job.topology.domain or job.topology.order) and job.is_schedulable


class _Options:
    """The choices of one job.

    Attributes:
        home: the domain that all its pods share, or that most of them are in; empty if it has none.
        domains: those that all its pods may share, the best guess first; one empty path if there is none, or if they
            need not share any.
        most: trainers that it could have if no other training ran.
    """

    def __init__(
        self, demand: JobDemand, topology: Topology, capacities: DomainCapacities, labels: Mapping[str, Labels]
    ) -> None:
        """Read what the domains offer to the job."""
        self._demand, self._topology, self._capacities = demand, topology, capacities
        self._offers = capacities.offers(demand, topology)
        self._narrowest: list[Offer] | None = None
        self._held = _held(demand.job, topology, labels)
        self.home = _home(demand.job, topology, labels)
        alone = [offer.alone for offer in self._offers]
        self.most = (max(alone, default=0) if topology.is_required else sum(alone)) if alone else 0
        self.domains = self._domains()

    def _domains(self) -> tuple[Path, ...]:
        if not self._topology.is_required:
            return ((),)
        return (self.home,) if self.home else self._ranked()

    def _ranked(self) -> tuple[Path, ...]:
        """The domains that could hold the minimum, the best guess first; else the one that could hold most.

        The best has capacity for the minimum at the least cost to others, then for most trainers, then in fewest
        domains of the narrower levels; of equal ones the fullest. To a domain that could hold a pinned count, that is
        the minimum, and it comes before all others.
        """
        low, high, pinned = self._demand.min_trainers, self._demand.max_trainers, self._demand.job.pinned

        def rank(offer: Offer) -> tuple[object, ...]:
            slots, is_short = (offer.free, offer.surplus, offer.alone), offer.alone < pinned
            wanted = low if is_short else max(low, pinned)
            counts = (*(count < wanted for count in slots), *(-min(count, high) for count in slots))
            return (is_short, *counts, self._parts(offer.domain), offer.free, offer.domain)

        ranked = sorted((offer for offer in self._offers if offer.alone), key=rank)
        enough = tuple(offer.domain for offer in ranked if offer.alone >= low)
        return enough or tuple(offer.domain for offer in ranked[:1]) or ((),)

    def _parts(self, domain: Path) -> tuple[int, ...]:
        """How many domains of each level the job would need there."""
        if not self._topology.is_preferred or self._topology.slices is not None:
            return ()
        return count_domains(self._order(domain).first)

    @property
    def choices(self) -> Iterable[Choice]:
        """The choices of a job without slices, the best guess first."""
        for domain in self.domains:
            if not self._topology.is_preferred:
                yield Choice(domain)
                continue
            found = self._order(domain)
            first = tuple(found.paths[:MOST_ORDERED])
            if area := self._area(found):
                yield Choice(domain, first, area)
            yield Choice(domain, first)

    @property
    def reserved(self) -> tuple[Path, ...]:
        """The domains in which the minimum of the job is reserved while others choose."""
        domain = self.domains[0]
        return tuple(self._order(domain).first) if self._topology.is_preferred else (domain,)

    def _order(self, domain: Path) -> _Order:
        """The order in which the narrowest domains inside of one are filled.

        Free capacity decides if it suffices for the minimum, else also that of trainers above the minimum of their
        jobs; then domains with free capacity come first.
        """
        if self._narrowest is None:
            self._narrowest = self._capacities.narrowest(self._demand, self._topology)
        offers = [offer for offer in self._narrowest if offer.domain[: len(domain)] == domain]
        free = {offer.domain: offer.free for offer in offers}
        have = sum(self._held.values())
        low, high = (max(0, n - have) for n in (self._demand.min_trainers, self._demand.max_trainers))
        if (total := sum(free.values())) >= low:
            need = min(high, total)
            return _Order(fill_order(free, need, self._held), free, need, ())
        surplus = {offer.domain: offer.surplus for offer in offers}
        slots = surplus if sum(surplus.values()) >= low else {offer.domain: offer.alone for offer in offers}
        paths = fill_order(slots, low, self._held or free)
        return _Order(paths, slots, low, tuple(path for path in paths if free[path] > 0))

    def _area(self, found: _Order) -> tuple[Path, ...]:
        """The few domains to which a job of one size that starts from nothing is limited; empty for no limit.

        No more trainers of others go than must: where some must, all free capacity is used.
        """
        low, high = self._demand.job.bounds
        if self.home or self._held or low < high:
            return ()
        area = tuple(dict.fromkeys((*found.first, *found.used_first)))
        is_enough = sum(found.slots[path] for path in area) >= low
        return area if is_enough and len(area) < len(found.slots) and len(area) <= MOST_VALUES else ()


class _Order(NamedTuple):
    """An order of domains.

    Attributes:
        paths: the narrowest domains, the first to fill first.
        slots: how many trainers each of them holds.
        need: how many have to be placed.
        used_first: those with free capacity, if that does not suffice for the minimum.
    """

    paths: list[Path]
    slots: Mapping[Path, int]
    need: int
    used_first: tuple[Path, ...]

    @property
    def first(self) -> list[Path]:
        """As many of the first domains as are needed for the trainers."""
        return used_domains(self.paths, self.slots, self.need)


def _limits_to(topology: Topology, area: Sequence[Path]) -> tuple[Requirement, ...]:
    """The labels that the nodes of some domains have on the levels that the job may choose on."""
    levels = range(topology.depth, len(topology.levels)) if area else ()
    return tuple(
        Requirement(topology.keys[level], "In", tuple(sorted({path[level] for path in area}))) for level in levels
    )


def towards(job: Job, domain: Path) -> Job:
    """The job as `Choices.applied` returned it, if it preferred a domain of some level to all others."""
    topology = job.topology
    if topology is None:
        return job
    inside = [path for path in topology.order if path[: len(domain)] == domain]
    others = [path for path in topology.order if path not in inside]
    after = replace(topology, order=(*(inside or [domain]), *others))
    known = _wishes(topology)

    def changed(preferred: tuple[Preference, ...]) -> tuple[Preference, ...]:
        return (*(wish for wish in preferred if wish not in known), *_wishes(after))

    fixed = tuple(
        replace(pods, preferred=changed(pods.preferred)) if pods.role in TOGETHER else pods for pods in job.fixed
    )
    return replace(job, topology=after, preferred=changed(job.preferred), fixed=fixed)


def _wishes(topology: Topology) -> tuple[Preference, ...]:
    """Turn an order of domains into node preferences that outweigh any preference of a pod template."""
    count = len(topology.order)
    return tuple(
        Preference(PREFERENCE_WEIGHT * (count - rank), topology.wishes(path))
        for rank, path in enumerate(topology.order)
    )


def _home(job: Job, topology: Topology, labels: Mapping[str, Labels]) -> Path:
    """The domain of most of its trainers; without trainers, that of most of its pservers; empty if it has neither.

    Pods that have a node count before those that wait for one, which may still go elsewhere.
    """
    keys = topology.keys[: topology.depth] or topology.keys
    for has_node in (True, False):
        for role in TOGETHER:
            pods = [p for p in job.pods if p.role is role and p.is_live and bool(p.node) is has_node]
            if home := home_of(pods, labels, keys):
                return home
    return ()


def _held(job: Job, topology: Topology, labels: Mapping[str, Labels]) -> Counter[Path]:
    """Return how many live trainers each of the narrowest domains has; a waiting one counts where it may go."""
    found = Counter(
        path_of(labels.get(pod.node or pod.nominated or pod.planned, ()), topology.keys) for pod in job.live_trainers
    )
    found.pop((), None)
    return found


def _lowered(demand: JobDemand) -> JobDemand:
    """The demand; of a pinned job that may have fewer trainers, one that what runs of it would meet."""
    return replace(demand, min_trainers=as_it_runs(demand.job)) if may_have_fewer(demand.job) else demand


def _turn(demand: JobDemand) -> tuple[bool, bool, int, float, JobKey]:
    """Sort key: the order of admission."""
    return demand.job.turn
