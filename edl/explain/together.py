"""Sentences about jobs whose pods share domains: which domains these are, and what the best one is short of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScaleDecision
from edl.model.topology import Level, Path, Topology, path_of
from edl.model.units import count, listed, seconds
from edl.planner.findings.context import DecisionContext
from edl.planner.problem import JobDemand
from edl.planner.topology.domain_capacity import DomainCapacities
from edl.planner.waits import payback_s

NAMED = 8  # domains of a level in a line


class TogetherWriter:
    """Writes how topology domains limit the jobs of one plan; the capacity of each domain is computed once."""

    def __init__(self, context: DecisionContext) -> None:
        """Prepare to write; nothing is computed before a job is asked for."""
        self._context = context
        self._at_minimums: DomainCapacities | None = None  # with the minimums of all jobs that run
        self._as_planned: DomainCapacities | None = None  # as the plan leaves them

    def lacks(self, demand: JobDemand, *, alone: bool) -> str:
        """Say why the minimum of a job fits in no domain; empty if it fits, or if the job needs no domain.

        Args:
            demand: a job that does not run.
            alone: count the capacity that there would be without any other training.
        """
        topology = demand.job.topology
        if topology is None or not topology.pinned_depth:
            return ""
        packing = self._context.admission.packing
        self._at_minimums = self._at_minimums or DomainCapacities(self._context.problem, packing)
        if missing := self._missing_labels(demand, topology, self._at_minimums):
            return missing
        offers = self._at_minimums.offers(demand, topology)
        counts = {offer.domain: offer.alone if alone else offer.surplus for offer in offers}
        if not topology.is_required:
            return self._lacks_slices(demand, topology, sum(counts.values()))
        most, domain = max((n, domain) for domain, n in counts.items())
        return "" if most >= demand.min_trainers else _short_of(demand, topology, most, domain)

    def _missing_labels(self, demand: JobDemand, topology: Topology, capacities: DomainCapacities) -> str:
        """Say which labels the nodes lack that the job needs; empty if some node has them."""
        keys = topology.keys[: topology.pinned_depth]
        if not capacities.nodes_of(keys):
            return f"no node has {_labels(keys)}"
        companions = demand.job.companions if topology.is_required else ()
        role = next((fixed.role for fixed in companions if not capacities.takes(fixed.shape, topology)), None)
        return f"no node with {_labels(topology.keys[: topology.depth])} accepts its {role}s" if role else ""

    def _lacks_slices(self, demand: JobDemand, topology: Topology, most: int) -> str:
        """Say why the slices of a job's minimum do not fit in their domains, of which each slice may have another."""
        if topology.slices is None or most >= demand.min_trainers:
            return ""
        fitting = count(most // topology.slices.size, "slice") if most else "none"
        return f"needs {_trainers(demand, topology)}; there is capacity for {fitting}"

    def located(self, demand: JobDemand, short: str, full: str) -> tuple[str, str]:
        """Say what keeps a running job from more trainers in its domain."""
        topology, packing = demand.job.topology, self._context.shared.packing
        if topology is None or not topology.pinned_depth:
            return short, full
        if topology.slices is not None:
            short = full = f"no {topology.slice_word} has capacity for one more slice of {topology.slices.size}"
        if not topology.is_required:
            return short, full
        where = topology.said(topology.domain)
        self._as_planned = self._as_planned or DomainCapacities(self._context.problem, packing)
        larger = self._as_planned.larger(demand, topology, packing.count[demand.index])
        stay = f"its trainers stay in {where}"
        if larger is not None:
            stay += f", although {topology.said(larger.domain)} has free capacity for {larger.free}"
        return f"{short} (its {where})", f"{full}; {stay}"


def _short_of(demand: JobDemand, topology: Topology, most: int, domain: Path) -> str:
    """Say what the best domain is short of."""
    beside = "".join(f" and {count(fixed.count, fixed.role.value)}" for fixed in demand.job.companions)
    comma = "," if topology.slices else ""
    needs = f"needs {_trainers(demand, topology)}{beside}{comma} in one {topology.word}"
    if not most:
        any_of_them = "any slice" if topology.slices else "any"
        return f"{needs}, and no {topology.word} has capacity for {'all pservers' if beside else any_of_them}"
    fitting = f"{count(most, 'trainer')} beside the pservers" if beside else str(most)
    return f"{needs}; the best, {_named(domain)}, has capacity for {fitting}"


def _trainers(demand: JobDemand, topology: Topology) -> str:
    """The minimum of a job, in slices if it has any."""
    trainers = count(demand.min_trainers, "trainer")
    if topology.slices is None:
        return trainers
    slices = -(-demand.min_trainers // topology.slices.size)
    return f"{trainers} in {count(slices, 'slice')} of {topology.slices.size}, each in one {topology.slice_word}"


def _labels(keys: tuple[str, ...]) -> str:
    return f"the label {keys[0]}" if len(keys) == 1 else f"the labels {', '.join(keys)}"


def _named(path: Path) -> str:
    """Name a topology domain from the inside out, without the names of its levels: `r3 of b1`."""
    return " of ".join(reversed(path))


def in_larger_domain(demand: JobDemand, context: DecisionContext) -> list[str]:
    """Say how a job that must stay in one domain would get more trainers in another one."""
    job, topology, packing = demand.job, demand.job.topology, context.shared.packing
    if topology is None or not topology.is_required or not topology.domain:
        return []
    now = packing.count[demand.index]
    larger = DomainCapacities(context.problem, packing).larger(demand, topology, now)
    if larger is None:
        return []
    more = min(larger.free, demand.max_trainers) - now
    if more <= 0:
        return []
    lost_s = payback_s(job, more)
    after = f"; what it repeats is made up after {seconds(lost_s)}" if lost_s else ""
    return [
        f"start it again in {topology.said(larger.domain)}, which has free capacity for"
        f" {count(larger.free, 'trainer')}: set spec.suspend to true, and to false once its pods are gone{after}"
    ]


def domains_of(job: Job, decision: ScaleDecision, snapshot: ClusterSnapshot) -> Iterator[str]:
    """Yield the domains of each level, the widest first, with the trainers that a job will have there.

    Levels with more than NAMED domains are counted, as they would be by nodes.
    """
    topology = job.topology
    if topology is None:
        return
    labels = {node.name: node.labels for node in snapshot.nodes}
    trainers = Counter(dict(decision.nodes))
    trainers.update(pod.node for pod in job.live_trainers if pod.node and pod.name not in decision.victims)
    for depth, level in enumerate(topology.levels, start=1):
        found = Counter[Path]()
        for name, number in trainers.items():
            found[path_of(labels.get(name, ()), topology.keys[:depth])] += number
        if len(found) > NAMED:
            yield f"in {count(len(found), level.word)}"
        elif found:
            yield listed([f"{n} in {_domain(level, path)}" for path, n in sorted(found.items())])


def _domain(level: Level, path: Path) -> str:
    return f"{level.word} {_named(path)}" if path else f"no {level.word}"
