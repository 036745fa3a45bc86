"""The rules under which a certificate bounds what any plan can reach, as numbers.

They are weaker than the planner's own rules, so that a stranger can read them from the Kubernetes objects alone: no
quota, no capacity for DaemonSet pods to come, no cap on a job but its maximum and what its domains hold, no rule
between pods or of volumes, and trainers that have no slot of their job count without one. Where trainers lend CPU,
serving pods take no place: they may use what others declare. A weaker rule allows more plans, so a bound under these
rules holds for edl's plans too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

from edl.errors import ConfigError
from edl.explain.certificates.trees import Tree
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.resources import DEVICE_PREFIX, PodShape, is_amount, without_rules
from edl.model.status import Reason
from edl.model.topology import TOGETHER, in_any_domain
from edl.planner.decide import Study
from edl.planner.eligibility import takes_each
from edl.planner.speedup import worth_knots
from edl.planner.topology.gathering import moves_trainers
from edl.planner.trial_packing import SERVING

Amounts = dict[str, int]

CERTIFIED = {"maxmin": "fulfilment", "utility": "speed", "goodput": "goodput"}
"""Policies whose plans can be proved, and what trainers are worth under each."""

ROUNDED_WORTH = Fraction(1, 10**12)
"""A bound on the rounding error of a job's worth: a logarithm of a speed, below 100."""


@dataclass(frozen=True, slots=True)
class JobRule:
    """The trainer counts that a plan may give an admitted job.

    Attributes:
        low, high: bounds of its trainers.
        cap: the count at which its fulfilment is 1; it is `low` for a job that cannot grow.
        floor: what every plan must give it under the rule `promised`.
        immovable: live trainers that count without a slot: new ones of the job could not be where they are.
        kept: live trainers that the plan does not delete.
        starts: nodes of the masters and pservers that it lacks.
        knots: (trainers, worth) between which the worth is linear, ascending from `low`, if speeds count; empty if
            fulfilment does.
    """

    key: JobKey
    shape: PodShape
    low: int
    high: int
    cap: int
    floor: int
    target: int
    immovable: int
    kept: int
    starts: Mapping[Role, tuple[str, ...]]
    knots: tuple[tuple[int, float], ...] = ()

    @property
    def span(self) -> int:
        """The number of trainers between fulfilment 0 and fulfilment 1; 0 for a job that cannot grow."""
        return max(0, self.cap - self.low)

    @property
    def gain(self) -> float:
        """How much one more trainer of the job adds to the objective."""
        return 1 / self.span if self.span else 0.0

    def fulfilment(self, count: int) -> Fraction:
        """The fulfilment of the job with `count` trainers; a job that cannot grow has 1."""
        return Fraction(count - self.low, self.span) if self.span else Fraction(1)

    def most(self, count: int) -> Fraction:
        """The most that `count` trainers add to the objective: their fulfilment, or their value rounded up."""
        if not self.knots:
            return self.fulfilment(count)
        for (a, less), (b, more) in pairwise(self.knots):
            if count <= b:
                part = Fraction(count - a, b - a)
                return Fraction(less) + part * (Fraction(more) - Fraction(less)) + ROUNDED_WORTH
        return Fraction(self.knots[-1][1]) + ROUNDED_WORTH

    def pieces(self, start: int) -> list[tuple[int, float]]:
        """Divide the trainers above `start` into segments within which each trainer adds the same to the objective.

        Returns:
            (number of trainers, what each of them adds) for each segment; what one adds never rises from segment
            to segment.
        """
        if not self.knots:
            return [(max(0, self.high - start), self.gain)]
        ends = [*(n for n, _ in self.knots if n > start)]
        values = [(n, float(self.most(n))) for n in (start, *ends)]
        return [(b - a, max(0.0, (more - less) / (b - a))) for (a, less), (b, more) in pairwise(values)]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes with equal capacity that take pods of the same shapes, so that the bound counts them together.

    Attributes:
        capacity: what pods that a plan may place can use together, by resource; never negative.
        taken: for each shape, whether the nodes take its pods.
        names: the nodes, sorted.
    """

    capacity: tuple[int, ...]
    taken: tuple[bool, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything that a bound depends on.

    Attributes:
        resources: the names of what `capacity` and `request` count.
        shapes: what plans place: trainers, missing masters and pservers, and waiting serving pods.
        labels: for each shape, a pod that has it: `ads/ctr trainer`, or the name of a serving pod.
        request: for each shape, what one pod requests.
        needs: for each shape, the pods that every plan places besides trainers. Serving pods are left out where
            trainers lend CPU.
        kinds: the nodes, with the capacity of all that a plan may repack.
        left: the nodes, with what is left beside the trainers that the plan keeps.
        serving: the node of each waiting serving pod that the plan places.
        worth: what trainers are worth: `fulfilment`, or the logarithm of `speed` or `goodput`.
    """

    resources: tuple[str, ...]
    shapes: tuple[PodShape, ...]
    labels: tuple[str, ...]
    request: tuple[tuple[int, ...], ...]
    needs: tuple[int, ...]
    jobs: tuple[JobRule, ...]
    kinds: tuple[NodeKind, ...]
    left: tuple[NodeKind, ...]
    serving: Mapping[str, str]
    worth: str = "fulfilment"

    def row(self, job: JobRule) -> int:
        """The index of the shape of a job's trainers."""
        return self.shapes.index(job.shape)

    @property
    def staying(self) -> Rules:
        """The rules for plans that leave all those trainers on their nodes that this plan leaves on theirs."""
        return replace(self, kinds=self.left, jobs=tuple(replace(job, immovable=job.kept) for job in self.jobs))


@dataclass(slots=True)
class _Shapes:
    """The shapes that plans place, with a label and how many pods are needed in any case."""

    labels: dict[PodShape, str] = field(default_factory=dict)
    needs: Counter[PodShape] = field(default_factory=Counter)

    def add(self, shape: PodShape, label: str, needed: int = 0) -> None:
        self.labels.setdefault(shape, label)
        self.needs[shape] += needed


def rules_of(study: Study) -> Rules:
    """Read the rules from a finished decision.

    Raises:
        ConfigError: the certificate does not cover such a plan; the message names the cause.
    """
    plan, problem = study.plan, study.context.problem
    snapshot = study.observed or problem.snapshot
    if plan.policy not in CERTIFIED:
        raise ConfigError(
            f"--certificate: policy {plan.policy} has no certificate in rationals; choose one of"
            f" {', '.join(CERTIFIED)}"
        )
    if any(decision.moves for decision in plan.decisions) or moves_trainers(plan):
        raise ConfigError("--certificate: pods move in this plan; leave out --consolidate-after-s")
    if others := [job.key for job in snapshot.jobs if job.key.kind is not WorkloadKind.TRAINING_JOB]:
        raise ConfigError(
            f"--certificate: edl resizes {others[0]}, and a certificate covers TrainingJobs only; plan without"
            " --certificate"
        )
    shapes = _Shapes()
    jobs = tuple(_job_rules(study, snapshot, shapes))
    serving = _serving_places(study, shapes)
    known = tuple(shapes.labels)
    for shape in known:
        if not all(is_amount(name) and not name.startswith(DEVICE_PREFIX) for name in shape.request):
            raise ConfigError(
                f"--certificate: pod {shapes.labels[shape]} uses host ports or devices by claim, which a certificate"
                " does not cover; plan without --certificate"
            )
    resources = tuple(sorted({name for shape in known for name in shape.request}))
    return Rules(
        resources=resources,
        shapes=known,
        labels=tuple(shapes.labels[shape] for shape in known),
        request=tuple(tuple(shape.request[name] for name in resources) for shape in known),
        needs=tuple(shapes.needs[shape] for shape in known),
        jobs=jobs,
        kinds=_node_kinds(snapshot, plan, resources, known, stays=False),
        left=_node_kinds(snapshot, plan, resources, known, stays=True),
        serving=serving,
        worth=CERTIFIED[plan.policy],
    )


def lends(snapshot: ClusterSnapshot) -> bool:
    """Return True if a trainer lends CPU: then a plan may place serving pods on CPU that trainers still declare."""
    return any(pod.lent_cpu_milli for job in snapshot.jobs for pod in job.live_trainers)


def _job_rules(study: Study, snapshot: ClusterSnapshot, shapes: _Shapes) -> Iterable[JobRule]:
    context = study.context
    problem, level = context.problem, context.shared.level
    nodes, jobs = {node.name: node for node in snapshot.nodes}, {job.key: job for job in snapshot.jobs}
    targets, tree = {decision.job: decision for decision in study.plan.decisions}, Tree(snapshot)
    for j in context.shared.packing.members:
        demand = problem.demands[j]
        job, decision = jobs[demand.job.key], targets[demand.job.key]
        if job.refusal is not None and job.refusal.reason is Reason.UNSCHEDULABLE:
            raise ConfigError(
                f"--certificate: {job.key} runs without a pod of its minimum ({job.refusal.message}), which a"
                " certificate does not cover; plan without --certificate"
            )
        starts: dict[Role, list[str]] = {Role.MASTER: [], Role.PSERVER: []}
        for role, node in decision.fixed_nodes:
            starts[role].append(node)
        trainer = rule_of(job, Role.TRAINER, job.trainer)
        shapes.add(trainer, f"{job.key} {Role.TRAINER}")
        for fixed in job.fixed:
            if starts[fixed.role]:
                shapes.add(rule_of(job, fixed.role, fixed.shape), f"{job.key} {fixed.role}", len(starts[fixed.role]))
        low, high = replace(job, slowed_beyond=0).bounds  # the objects do not say up to where more trainers help
        high = max(low, tree.most(job, trainer, high))
        cap = min(high, max(low, demand.max_trainers))
        yield JobRule(
            key=job.key,
            shape=trainer,
            low=low,
            high=high,
            cap=cap,
            floor=max(low, min(int(level[j] + 1e-7), decision.target)),
            target=decision.target,
            immovable=_count_immovable(job, nodes),
            kept=len(job.live_trainers) - len(decision.victims),
            starts={role: tuple(names) for role, names in starts.items()},
            knots=() if CERTIFIED[study.plan.policy] == "fulfilment" else worth_knots(job, low, cap, high),
        )


def rule_of(job: Job, role: Role, shape: PodShape) -> PodShape:
    """Return a pod shape without its rules between pods; pods that must share a domain may be in any domain."""
    shape = without_rules(shape)
    if job.topology is None or role not in TOGETHER:
        return shape
    return in_any_domain(shape, job.topology if role is Role.TRAINER else job.topology.of_pservers)


def _count_immovable(job: Job, nodes: Mapping[str, Node]) -> int:
    """Count live trainers whose slot no new trainer could use: of another size, unbound, or on a closed node."""
    used = [nodes[pod.node or pod.nominated] for pod in job.live_trainers if (pod.node or pod.nominated) in nodes]
    trainer = rule_of(job, Role.TRAINER, job.trainer)
    placement = trainer.placement
    taken = {node.name: ok for node, ok in zip(used, takes_each(used, [placement])[placement], strict=True)}
    return sum(
        without_rules(pod.shape).request != trainer.request or not taken.get(pod.node or pod.nominated, False)
        for pod in job.live_trainers
    )


def _serving_places(study: Study, shapes: _Shapes) -> dict[str, str]:
    """The node of each pending serving pod that the plan places; reserved headroom has no pods and no nodes."""
    context = study.context
    problem, served = context.problem, context.served
    waiting: dict[PodShape, list[Pod]] = defaultdict(list)
    for pod in problem.snapshot.pods:
        if pod.needs_capacity:
            waiting[pod.shape].append(pod)
    needed = 0 if lends(problem.snapshot) else 1
    left = {
        shape: served.due.get(shape, 0) + served.in_grace.get(shape, 0) for shape in {*served.due, *served.in_grace}
    }
    found: dict[str, str] = {}
    for place in context.shared.packing.placed:
        shape = problem.shapes[place.shape]
        if place.owner != SERVING or not left.get(place.shape) or len(found) == study.plan.serving.placed:
            continue
        left[place.shape] -= 1
        pod = waiting[shape].pop(0)
        shapes.add(without_rules(shape), f"{pod.namespace}/{pod.name}", needed)
        found[f"{pod.namespace}/{pod.name}"] = problem.snapshot.nodes[place.node].name
    return found


def _node_kinds(
    snapshot: ClusterSnapshot,
    plan: ScalePlan,
    resources: tuple[str, ...],
    shapes: tuple[PodShape, ...],
    *,
    stays: bool,
) -> tuple[NodeKind, ...]:
    """Group the nodes by what they take and by the capacity that trainers and new pods have there.

    With `stays`, the trainers that the plan keeps are no part of it.
    """
    admitted = {decision.job for decision in plan.decisions if decision.admitted}
    victims = {(decision.job, name) for decision in plan.decisions for name in decision.victims}
    foreign: dict[str, Counter[str]] = defaultdict(Counter)
    held: dict[str, Counter[str]] = defaultdict(Counter)
    fixed: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in snapshot.pods:
        if not pod.is_finished:
            foreign[pod.node or pod.nominated].update(pod.shape.request.as_dict())
    for job in snapshot.jobs:
        for pod in job.pods:
            if pod.is_live:
                held[pod.node or pod.nominated].update(pod.shape.request.as_dict())
                is_fixed = pod.role is not Role.TRAINER or (stays and (job.key, pod.name) not in victims)
                if is_fixed and job.key in admitted:
                    fixed[pod.node or pod.nominated].update(pod.shape.request.as_dict())
    placements = tuple(dict.fromkeys(shape.placement for shape in shapes))
    rows = takes_each(snapshot.nodes, placements)
    kinds: dict[tuple[tuple[int, ...], tuple[bool, ...]], list[str]] = defaultdict(list)
    for index, node in enumerate(snapshot.nodes):
        have, name = node.allocatable.as_dict(), node.name
        capacity = tuple(
            max(0, max(have.get(r, 0) - foreign[name][r], held[name][r]) - fixed[name][r]) for r in resources
        )
        kinds[capacity, tuple(rows[shape.placement][index] for shape in shapes)].append(name)
    return tuple(NodeKind(capacity, taken, tuple(names)) for (capacity, taken), names in sorted(kinds.items()))
