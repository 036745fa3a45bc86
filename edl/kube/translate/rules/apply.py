"""Turns the rules between pods, and those of volumes, into requests and placements, which the planner understands.

A rule that limits how many pods share a node becomes a resource of every node: its name is the rule in words, and
each pod of the group requests it. A rule by pods or volumes that no plan moves becomes a requirement on the node. A
waiting serving pod that no eviction helps is marked. So the planner knows no further kind of rule.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from edl.kube.translate.devices.book import DeviceBook
from edl.kube.translate.rules.affinity import begin_together, require_neighbours
from edl.kube.translate.rules.anti_affinity import ONE, AntiAffinity, Capacity
from edl.kube.translate.rules.attachments import Attachments
from edl.kube.translate.rules.devices import Devices
from edl.kube.translate.rules.facts import RuleFacts
from edl.kube.translate.rules.free_capacity import FreeCapacity
from edl.kube.translate.rules.free_volumes import free_volumes_of_nodes
from edl.kube.translate.rules.sides import give_sides
from edl.kube.translate.rules.spread import Spread
from edl.kube.translate.rules.terms import PodRules, PodTerm
from edl.kube.translate.rules.view import Unit, View
from edl.kube.translate.rules.volume_places import require_volumes
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.resources import RULE_PREFIX, Placement, PodShape, Resources
from edl.model.units import count

T = TypeVar("T")

NO_DEVICE = "cannot allocate all claims"
"""kube-scheduler's message if other pods have the devices; edl can end trainers for them, preemption cannot."""

KINDS_AT_ONCE = 300
"""The rules of so many kinds of waiting pods, and of so many roles of jobs without pods, are read for one snapshot.

Each namespace has an equal part.
"""

RoleRules = Callable[[Job, Role], PodRules]


class RuledSnapshots:
    """Applies the rules to one snapshot after another; what has not changed remains the same Python object."""

    def __init__(self) -> None:
        self._devices = DeviceBook()
        self._nodes: dict[str, tuple[Node, Resources, Node]] = {}
        self._pods: dict[str, tuple[Pod, PodShape, str, Pod]] = {}
        self._jobs: dict[JobKey, tuple[Job, tuple[PodShape, ...], Job]] = {}
        self._last: tuple[tuple[Node, ...], tuple[Pod, ...], tuple[Job, ...]] = ((), (), ())

    def apply(
        self,
        snapshot: ClusterSnapshot,
        facts: RuleFacts,
        rules_of: Callable[[Pod], PodRules],
        rules_of_role: RoleRules,
        only: Container[tuple[str, str]] | None = None,
    ) -> ClusterSnapshot:
        """Return the snapshot with the rules of its pods.

        Args:
            snapshot: the cluster as it is without them.
            facts: volumes, classes, attach limits and namespaces.
            rules_of: the rules and labels of a pod; equal ones must be one object.
            rules_of_role: those of the pods that a job gets in a role.
            only: names of the pods that have rules, if no rule is about other pods.
        """
        view = View(snapshot, facts, rules_of, only)
        units = [*_bounded(_waiting_units(snapshot, facts, rules_of)), *_role_units(view, rules_of_role)]
        anti = AntiAffinity(view, units)
        capacities, free = _apply_rules(view, units, anti, self._devices)
        _block(view, units, anti, free)
        nodes = self._with_capacities(snapshot.nodes, capacities)
        pods = self._with_shapes(snapshot.pods, units)
        jobs = self._with_roles(snapshot.jobs, units)
        nodes, pods, jobs = self._last = (
            _same(nodes, self._last[0]),
            _same(pods, self._last[1]),
            _same(jobs, self._last[2]),
        )
        return replace(snapshot, nodes=nodes, pods=pods, jobs=jobs)

    def _with_capacities(self, nodes: tuple[Node, ...], capacities: list[Capacity]) -> tuple[Node, ...]:
        """Add to the nodes the resources that stand for rules; of a rule from two sources, the larger amount."""
        if not capacities:
            return nodes
        named: dict[str, list[Capacity]] = {}
        for capacity in capacities:
            named.setdefault(capacity.name, []).append(capacity)
        usual = {name: max(one.elsewhere for one in same) for name, same in named.items()}
        more: dict[int, dict[str, int]] = {}
        for name, same in named.items():
            for number in {number for one in same for number in one.of_node}:
                amount = max(one.of_node.get(number, one.elsewhere) for one in same)
                more.setdefault(number, {})[name] = amount
        known, self._nodes = self._nodes, {}
        found, common, ordered = [], Resources.of(usual), sorted(usual.items())
        for number, node in enumerate(nodes):
            extra = common
            if (own := more.get(number)) is not None:
                extra = Resources(tuple([(n, has) for n, most in ordered if (has := own.get(n, most))]))
            before = known.get(node.name)
            if before is None or before[0] is not node or before[1] != extra:
                before = (node, extra, replace(node, allocatable=node.allocatable + extra))
            self._nodes[node.name] = before
            found.append(before[2])
        return tuple(found)

    def _with_shapes(self, pods: tuple[Pod, ...], units: Sequence[Unit]) -> tuple[Pod, ...]:
        """Give the waiting pods the shapes and marks of their groups of equal pods."""
        if not any(unit.pods for unit in units):
            return pods
        ruled: dict[int, tuple[PodShape, str]] = {}
        shared: dict[PodShape, PodShape] = {}
        for unit in units:
            base = unit.ruled_shape
            for position, pod in enumerate(unit.pods):
                shape, own = base, unit.each.get(position)
                if own is not None:
                    placement = replace(base.placement, rules=(*base.placement.rules, own))
                    shape = PodShape(base.request, placement)
                why = "" if unit.counts_devices and NO_DEVICE in pod.blocked else pod.blocked
                if unit.blocked is not None and position >= unit.blocked[0]:
                    why = unit.blocked[1]
                ruled[id(pod)] = (shared.setdefault(shape, shape), why)
        known, self._pods = self._pods, {}
        return tuple([self._ruled(pod, ruled[id(pod)], known) if id(pod) in ruled else pod for pod in pods])

    def _ruled(self, pod: Pod, by: tuple[PodShape, str], known: dict[str, tuple[Pod, PodShape, str, Pod]]) -> Pod:
        before = known.get(pod.uid)
        if before is None or before[0] is not pod or before[1:3] != by:
            before = (pod, *by, replace(pod, shape=by[0], blocked=by[1]))
        self._pods[pod.uid] = before
        return before[3]

    def _with_roles(self, jobs: tuple[Job, ...], units: Iterable[Unit]) -> tuple[Job, ...]:
        by_job: dict[JobKey, dict[Role, Unit]] = {}
        for unit in units:
            if unit.job is not None and unit.role is not None:
                by_job.setdefault(unit.job.key, {})[unit.role] = unit
        known, self._jobs = self._jobs, {}
        found = []
        for job in jobs:
            roles = by_job.get(job.key)
            if roles is None or all(unit.ruled_shape is unit.shape for unit in roles.values()):
                found.append(job)
                continue
            shapes = tuple(unit.ruled_shape for unit in roles.values())
            before = known.get(job.key)
            if before is None or before[0] is not job or before[1] != shapes:
                before = (job, shapes, _ruled_job(job, roles))
            self._jobs[job.key] = before
            found.append(before[2])
        return tuple(found)


def _same(new: tuple[T, ...], old: tuple[T, ...]) -> tuple[T, ...]:
    """Return the old tuple if the new one has the same objects."""
    return old if len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True)) else new


def _apply_rules(
    view: View, units: list[Unit], anti: AntiAffinity, devices: DeviceBook
) -> tuple[list[Capacity], FreeCapacity]:
    """Apply every kind of rule; returns the resources that stand for rules, and the free capacity."""
    shared = require_volumes(view, units)
    attachments = Attachments(view, units)
    attachments.require_drivers()
    attachments.keep_to_attached()
    anti.exclude_fixed()
    anti.exclude_live()
    bare = FreeCapacity(view, units, ())
    capacities = [*anti.capacities(bare.slots), *free_volumes_of_nodes(view, units, bare.slots)]
    capacities += attachments.capacities()
    if _reads_devices(view, units):
        capacities += Devices(view, units, devices).capacities()
    free = FreeCapacity(view, units, capacities)
    give_sides(view, units, anti, free)
    beginning = require_neighbours(view, units, anti)
    shared.choose(free)
    attachments.choose_nodes(free)
    begin_together(view, beginning, free)
    capacities += Spread(view, units, anti, free).apply()
    return capacities, free


def _reads_devices(view: View, units: Sequence[Unit]) -> bool:
    """True if edl may read the classes of devices; else only kube-scheduler knows them."""
    facts = view.facts.devices
    has_none = "device_classes" in facts.complete and any(unit.rules.devices for unit in units)
    return bool(facts.classes) or has_none


def _block(view: View, units: list[Unit], anti: AntiAffinity, free: FreeCapacity) -> None:
    """Mark the waiting pods as blocked that rules keep from every node with capacity for them."""
    given: defaultdict[PodTerm, Counter[frozenset[int]]] = defaultdict(Counter)
    for unit in units:
        if not unit.pods or (unit.blocked is not None and not unit.blocked[0]):
            continue
        accepts, rules = view.taken(unit.shape.placement), unit.node_rules
        nodes, why = view.taken(unit.placement), "; ".join(dict.fromkeys(rule.why for rule in rules))
        left = len(nodes)
        if left and unit.required and not any(map(free.slots(unit)[1].__getitem__, nodes)):
            rest = f"{count(left, 'node')} that this leaves {'has' if left == 1 else 'have'}"
            unit.block(0, f"{why}; {rest} no capacity for it, even without training")
        if accepts and not left:
            is_shared = all(rule.why.startswith(ONE) for rule in rules)
            every = (
                "the node that accepts it has"
                if len(accepts) == 1
                else f"all {len(accepts)} nodes that accept it have"
            )
            rest = f"{every} one" if is_shared else "no node is left"
            unit.block(0, f"{why}; {rest}")
        for term in anti.one_a_node(unit):
            if not nodes.isdisjoint(view.unlabelled(term.key)):
                continue  # those take any number
            unused = left - sum(pods for there, pods in given[term].items() if there <= nodes)
            unit.block(unused, f"{anti.words(term, unit)}; all nodes that accept it have or get one")
            given[term][nodes] += min(unit.number, max(0, unused))


def _waiting_units(snapshot: ClusterSnapshot, facts: RuleFacts, rules_of: Callable[[Pod], PodRules]) -> list[Unit]:
    """Group the waiting serving pods that are alike; groups are in the order of placement.

    A pod that has devices already, on some node, is like no other.
    """
    found: dict[tuple[int, int, str], Unit] = {}
    for pod in sorted(snapshot.waiting_serving, key=lambda pod: (-pod.priority, pod.created_s)):
        rules = rules_of(pod)
        key = (id(rules), id(pod.shape), pod.uid if facts.devices.has_allocated(pod.uid) else "")
        unit = found.get(key)
        if unit is None:
            unit = found[key] = Unit(rules, pod.shape, 0)
        unit.pods.append(pod)
        unit.number += 1
    return list(found.values())


def _bounded(units: list[Unit]) -> list[Unit]:
    """Block waiting pods beyond the number of rules that edl reads per namespace; no trainer is evicted for them."""
    of_each, late = _late([unit for unit in units if not unit.rules.is_plain])
    for unit in late:
        unit.block(
            0, f"{RULE_PREFIX}edl reads the rules of {of_each} other kinds of waiting pods of its namespace first"
        )
    return units


def _bounded_roles(units: list[Unit]) -> list[Unit]:
    """Let jobs wait beyond the number of rules that edl reads per namespace; jobs with pods are always read."""
    waiting = [
        (unit.job.turn, unit) for unit in units if unit.job and not (unit.rules.is_plain or _has_pods(unit.job))
    ]
    of_each, late = _late([unit for _, unit in sorted(waiting, key=lambda one: one[0])])
    for unit in late:
        unit.refuse(
            f"{RULE_PREFIX}edl reads the rules of {of_each} other pods of waiting jobs of its namespace first"
        )
    return units


def _late(units: list[Unit]) -> tuple[int, list[Unit]]:
    """How many groups of each namespace are read now; and the groups after these, whose rules are not read."""
    of_each = max(1, KINDS_AT_ONCE // max(1, len({unit.rules.namespace for unit in units})))
    read: Counter[str] = Counter()
    late = []
    for unit in units:
        read[unit.rules.namespace] += 1
        if read[unit.rules.namespace] > of_each:
            unit.rules = PodRules(unit.rules.namespace, unit.rules.labels)
            late.append(unit)
    return of_each, late


def _has_pods(job: Job) -> bool:
    return any(pod.node and pod.is_live for pod in job.pods)


def _role_units(view: View, rules_of_role: RoleRules) -> list[Unit]:
    """Group the pods of each role of the jobs that get pods or have some."""
    found = []
    for job in view.snapshot.jobs:
        if job.is_left_alone or not (job.is_schedulable or _has_pods(job)):
            continue
        live: dict[Role | None, Counter[int]] = {}
        for pod in job.pods:
            if pod.is_live and (number := view.index.get(pod.node)) is not None:
                live.setdefault(pod.role, Counter())[number] += 1
        roles = [(Role.TRAINER, job.trainer, job.min_trainers), *((f.role, f.shape, f.count) for f in job.fixed)]
        for role, shape, needed in roles:
            rules = rules_of_role(job, role)
            found.append(Unit(rules, shape, needed, job, role, live=live.get(role, Counter())))
    return _bounded_roles(found)


def _ruled_job(job: Job, roles: dict[Role, Unit]) -> Job:
    """Give a job the shapes that rules make for its roles, and these shapes to its pods."""
    ruled = {role: unit.ruled_shape for role, unit in roles.items()}
    shapes: dict[tuple[Role | None, int], PodShape] = {}
    pods = []
    for pod in job.pods:
        if pod.role is None or (unit := roles.get(pod.role)) is None:
            pods.append(pod)
            continue
        key = (pod.role, id(pod.shape))
        if key not in shapes:
            is_usual = pod.shape == unit.shape
            shapes[key] = ruled[pod.role] if is_usual else _ruled_shape(pod.shape, unit)
        pods.append(replace(pod, shape=shapes[key]))
    fixed = tuple(replace(f, shape=ruled[f.role]) if f.role in ruled else f for f in job.fixed)
    return replace(job, trainer=ruled[Role.TRAINER], fixed=fixed, pods=tuple(pods))


def _ruled_shape(shape: PodShape, unit: Unit) -> PodShape:
    placement: Placement = replace(shape.placement, rules=unit.node_rules)
    return PodShape(shape.request + Resources.of(unit.request), placement)
