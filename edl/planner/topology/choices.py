"""Which domain each job may get: the one that its pods are in, else those that could hold its minimum.

A running job never changes its domain: its pods cannot move, and they may not be in two domains. A job that
starts from nothing may choose. The first guess goes by age; `search` improves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.resources import NodeTerm, Preference
from edl.model.topology import TOGETHER, Labels, Topology, domain_of, in_domain
from edl.planner.problem import JobDemand
from edl.planner.problem_reader import read_problem
from edl.planner.topology.domain_capacity import DomainCapacities, Offer

PREFERENCE_WEIGHT = 100  # the most that Kubernetes allows, so the preferences of a template decide between equals

Assignment = Mapping[JobKey, str]


@dataclass(frozen=True, slots=True)
class Choices:
    """The domains that the jobs of a cluster may get.

    Attributes:
        snapshot: the cluster as it was observed.
        domains: for each job with `spec.topology` that the planner may give pods, its domains; the best guess first.
            One empty name if no domain can hold any trainer.
        most: for jobs with `mode: Required`, trainers that the largest domain could hold beside the pservers of the
            job if no other training ran.
    """

    snapshot: ClusterSnapshot
    domains: Mapping[JobKey, Sequence[str]]
    most: Mapping[JobKey, int]

    @property
    def guess(self) -> dict[JobKey, str]:
        """The first domain of each job."""
        return {key: names[0] for key, names in self.domains.items()}

    def applied(self, assignment: Assignment) -> ClusterSnapshot:
        """The snapshot in which each job may only use, or prefers, its domain."""
        return replace(self.snapshot, jobs=tuple(self._placed(job, assignment) for job in self.snapshot.jobs))

    def _placed(self, job: Job, assignment: Assignment) -> Job:
        if job.topology is None or job.key not in assignment:
            return job
        topology = replace(job.topology, domain=assignment[job.key], most=self.most.get(job.key, 0))
        wish = _wish(topology)

        def placed(fixed: FixedPods) -> FixedPods:
            if fixed.role not in TOGETHER:
                return fixed
            if topology.is_required:
                return replace(fixed, shape=in_domain(fixed.shape, topology))
            return replace(fixed, preferred=(*fixed.preferred, wish))

        job = replace(job, topology=topology, fixed=tuple(map(placed, job.fixed)))
        if topology.is_required:
            return replace(job, trainer=in_domain(job.trainer, topology))
        return replace(job, preferred=(*job.preferred, wish))


def read_choices(snapshot: ClusterSnapshot, limits: Limits) -> Choices | None:
    """Find the domains of each job that has no domain yet; None if no job asks for one."""
    if not any(_is_open(job) for job in snapshot.jobs):
        return None
    problem = read_problem(snapshot, limits)
    capacities, labels = DomainCapacities(problem), {node.name: node.labels for node in snapshot.nodes}
    domains: dict[JobKey, Sequence[str]] = {}
    most: dict[JobKey, int] = {}
    for demand in sorted(problem.demands, key=_turn):
        job, topology = demand.job, demand.job.topology
        if topology is None or not _is_open(job):
            continue
        offers = capacities.offers(demand, topology)
        if topology.is_required:
            most[job.key] = max((offer.alone for offer in offers), default=0)
        if home := _home(job, topology, labels):
            domains[job.key] = (home,)
            continue
        domains[job.key] = _ranked(demand, offers, topology)
        capacities.reserve(demand, topology, domains[job.key][0])
    return Choices(snapshot, domains, most)


def _is_open(job: Job) -> bool:
    return job.topology is not None and not job.topology.domain and job.is_schedulable


def towards(job: Job, domain: str) -> Job:
    """The job as `Choices.applied` returned it, with `mode: Preferred`, if it preferred another domain."""
    if job.topology is None:
        return job
    topology = replace(job.topology, domain=domain)
    other = {_wish(job.topology): _wish(topology)}

    def changed(preferred: tuple[Preference, ...]) -> tuple[Preference, ...]:
        return tuple(other.get(wish, wish) for wish in preferred)

    fixed = tuple(replace(pods, preferred=changed(pods.preferred)) for pods in job.fixed)
    return replace(job, topology=topology, preferred=changed(job.preferred), fixed=fixed)


def _wish(topology: Topology) -> Preference:
    return Preference(PREFERENCE_WEIGHT, NodeTerm((topology.pin,)))


def _home(job: Job, topology: Topology, labels: Mapping[str, Labels]) -> str:
    """The domain of most of its trainers; without trainers, that of most of its pservers; empty if it has neither.

    Pods that have a node count before those that wait for one, which may still go elsewhere.
    """
    for has_node in (True, False):
        for role in TOGETHER:
            homes = Counter(
                domain_of(labels.get(pod.node or pod.nominated or pod.planned, ()), topology.key)
                for pod in job.pods
                if pod.role is role and pod.is_live and bool(pod.node) is has_node
            )
            homes.pop("", None)
            if homes:
                return max(sorted(homes), key=homes.__getitem__)
    return ""


def _turn(demand: JobDemand) -> tuple[bool, bool, int, float, JobKey]:
    """Sort key: the order of admission."""
    return demand.job.turn


def _ranked(demand: JobDemand, offers: Sequence[Offer], topology: Topology) -> tuple[str, ...]:
    """The domains that could hold the minimum, the best guess first; else the one that could hold most.

    The best has capacity for the minimum at the least cost to others, then for most trainers; of equal ones the
    fullest.
    """
    low, high = demand.min_trainers, demand.max_trainers

    def rank(offer: Offer) -> tuple[object, ...]:
        slots = (offer.free, offer.surplus, offer.alone)
        return (*(count < low for count in slots), *(-min(count, high) for count in slots), offer.free, offer.domain)

    ranked = sorted((offer for offer in offers if offer.alone), key=rank)
    enough = tuple(offer.domain for offer in ranked if offer.alone >= low)
    if not topology.is_required:
        return (enough or tuple(offer.domain for offer in ranked) or ("",))[:1]
    return enough or tuple(offer.domain for offer in ranked[:1]) or ("",)
