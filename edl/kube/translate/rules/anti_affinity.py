"""Required anti-affinity: pods that may not share a domain, both new pods and running ones.

Pods that no plan moves exclude their domains. Between pods that a plan places or ends, a rule by node becomes a
resource of the nodes. Domains of several nodes are given out in `spread`, and in `sides`, as are nodes to pods that
all wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edl.kube.translate.rules.namespaces import unknown_labels
from edl.kube.translate.rules.terms import PodRules, PodTerm
from edl.kube.translate.rules.view import LabelIndex, Unit, View, domain_words
from edl.model.names import Role
from edl.model.resources import APART, RULE_PREFIX

ONE = f"{RULE_PREFIX}one "
"""Begins a rule by which a domain has one pod of a group."""
EXCLUSIVE = 100_000
"""The capacity of a node for a rule under which many pods of one side exclude each pod of the other."""
_UNBOUNDED = EXCLUSIVE * EXCLUSIVE
FOLLOW = f"{RULE_PREFIX}it shares no node with those that it avoids, or that avoid it; it fits where"
"""Begins what is said of a pod that needs no node of its own."""

Slots = tuple[list[int], list[int]]
"""(nodes,) beside all that run there, and (nodes,) if no training ran there."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """A resource of the nodes that stands for a rule between pods: a node without any left takes no pod.

    Attributes:
        of_node: what nodes have of it, by index.
        elsewhere: what every other node has.
    """

    name: str
    of_node: dict[int, int]
    elsewhere: int = 0


class AntiAffinity:
    """The anti-affinity rules of one snapshot.

    Args:
        view: the snapshot.
        units: what a plan places.
    """

    def __init__(self, view: View, units: Sequence[Unit]) -> None:
        self._view, self._units = view, units
        self._index = LabelIndex((unit.rules, unit) for unit in units)
        self._order = {id(unit): number for number, unit in enumerate(units)}
        self._about: dict[tuple[PodTerm, int], bool | None] = {}
        self._doubts: dict[PodTerm, str] = {}
        self._fixed_carriers: dict[PodTerm, set[int]] = {}
        for rules, nodes in view.fixed.values():
            for term in rules.anti:
                self._fixed_carriers.setdefault(term, set()).update(nodes)
        self._carriers: dict[PodTerm, list[Unit]] = {}
        for unit in units:
            for term in dict.fromkeys(unit.rules.anti):
                self._carriers.setdefault(term, []).append(unit)

    def is_about(self, term: PodTerm, rules: PodRules) -> bool:
        """Return True if a term of an anti-affinity may be about the pods with these rules and labels."""
        return self._is_about(term, rules) is not False

    def is_surely_about(self, term: PodTerm, rules: PodRules) -> bool:
        """Return True if a term of an affinity is about these pods, also as far as their namespace is known."""
        return self._is_about(term, rules) is True

    def _is_about(self, term: PodTerm, rules: PodRules) -> bool | None:
        key = (term, id(rules))
        if key not in self._about:
            self._about[key] = term.is_about(rules, self._view.facts.namespaces)
        return self._about[key]

    def doubt(self, term: PodTerm) -> str:
        """Return what a term depends on that is not known, as the end of a sentence; empty if all is known."""
        if not term.namespace_selector:
            return ""
        if term not in self._doubts:
            candidates = (self._view.fixed_index.candidates(term.selector), self._index.candidates(term.selector))
            found = {r.namespace for c in candidates for r, _ in c if self._is_about(term, r) is None}
            self._doubts[term] = unknown_labels(found)
        return self._doubts[term]

    def units_about(self, term: PodTerm) -> list[Unit]:
        """Return the groups of equal pods, placed by a plan, that a term is about."""
        return [unit for rules, unit in self._index.candidates(term.selector) if self.is_about(term, rules)]

    def exclude_fixed(self) -> None:
        """Keep each pod from the domains of pods that it avoids, or that avoid it, and that no plan moves."""
        for term, carriers in self._carriers.items():
            here = self._domains_of(term)
            for unit in carriers:
                unit.exclude(term.key, here, self.words(term, unit))
        for term, nodes in self._fixed_carriers.items():
            here = self._view.values(term.key, nodes)
            for unit in self.units_about(term):
                unit.exclude(term.key, here, self.words(term, unit))

    def exclude_live(self) -> None:
        """Keep pods from the larger domains in which pods of jobs run that they avoid, or that avoid them.

        No plan clears such a domain: that would take the eviction of every one of them. Pods that avoid their like
        are counted in `spread`.
        """
        for term, carriers, targets in self.given_out():
            for carrier, target in ((c, t) for c in carriers for t in targets if not _are_alike(c, t, term, targets)):
                carrier.exclude(term.key, self._view.values(term.key, target.live), self.words(term, carrier))
                target.exclude(term.key, self._view.values(term.key, carrier.live), self.words(term, target))

    def given_out(self) -> Iterator[tuple[PodTerm, list[Unit], list[Unit]]]:
        """Yield the rules that `sides` handles: the pods that have a rule, and the pods that it is about.

        Those are domains of several nodes, and nodes if all these pods wait for one.
        """
        for term, carriers in self._carriers.items():
            targets = self.units_about(term)
            if not self._view.is_by_node(term.key) or _are_kinds_that_wait(carriers, targets):
                yield term, carriers, targets

    def words(self, term: PodTerm, unit: Unit) -> str:
        """Describe a rule for some pods in a message."""
        domain, doubt = domain_words(term.key), self.doubt(term)
        if not self.is_about(term, unit.rules):
            return f"{RULE_PREFIX}it may not share a {domain} with pods of {term.words()}{doubt}"
        if term in unit.rules.anti:
            return f"{ONE}{_kind(term)} a {domain}{doubt}"
        return f"{RULE_PREFIX}others may not share a {domain} with pods of {term.words()}{doubt}"

    def one_a_node(self, unit: Unit) -> Iterator[PodTerm]:
        """Yield the rules by which a node has at most one pod of a unit."""
        for term in dict.fromkeys(unit.rules.anti):
            if self._view.is_by_node(term.key) and self.is_about(term, unit.rules):
                yield term

    def capacities(self, slots: Callable[[Unit], Slots]) -> list[Capacity]:
        """Make a resource of each rule by node between pods that a plan places or ends.

        Args:
            slots: how many pods of a unit fit on each node, now and without training, if there were no rules.
        """
        found = []
        for term, carriers in self._carriers.items():
            if not self._view.is_by_node(term.key):
                continue
            targets = self.units_about(term)
            if targets and not _are_kinds_that_wait(carriers, targets):
                both = [unit for unit in carriers if unit in targets]
                found += [self._shared(term, carriers, targets, both)] if both else self._apart(term, targets, slots)
        return found

    def _shared(self, term: PodTerm, carriers: list[Unit], targets: list[Unit], both: list[Unit]) -> Capacity:
        """Make the resource for a rule by which equal pods avoid each other, and perhaps other pods."""
        avoiding = [unit for unit in carriers if unit not in both]
        avoided = [unit for unit in targets if unit not in both]
        whole = 1 if not (avoiding or avoided) else EXCLUSIVE
        light = avoided or avoiding
        name = f"{ONE}{_kind(term)} a {domain_words(term.key)}"
        used = Counter[int]()
        for unit in {id(u): u for u in (*carriers, *targets)}.values():
            amount = 1 if any(unit is one for one in light) else whole
            unit.request[name] = amount
            for node, pods in unit.live.items():
                used[node] += amount * pods
        of_node = {node: max(whole, amount) for node, amount in used.items()}
        of_node |= dict.fromkeys(self._view.unlabelled(term.key), _UNBOUNDED)
        return Capacity(name, of_node, whole)

    def _apart(self, term: PodTerm, avoided: list[Unit], slots: Callable[[Unit], Slots]) -> list[Capacity]:
        """Make the resources for a rule between two kinds of pods: a node has many of one kind, or one of the other.

        Which kind may be many is decided for each node. It is that of most pods, but on nodes with live pods of the
        other kind alone, and on as many free nodes as the waiting pods of the other kind need.
        """
        sides = (self._carriers[term], avoided)
        light = max(sides, key=self._weight)
        heavy = sides[0] if light is sides[1] else sides[1]
        held = self._view.values(term.key, self._fixed_carriers.get(term, ())) | self._domains_of(term)
        decided = {node for node, domain in enumerate(self._view.domains(term.key)) if domain in held}
        turned = self._turned(light, heavy, decided, slots) - set(self._view.unlabelled(term.key))
        free = dict.fromkeys((*decided, *self._view.unlabelled(term.key)), _UNBOUNDED)
        name = f"{RULE_PREFIX}pods of {term.words()} {APART} those that avoid them"
        used = _requested(name, light, heavy)
        of_node = {node: max(EXCLUSIVE, amount) for node, amount in used.items()}
        found = [Capacity(name, of_node | dict.fromkeys(turned, _UNBOUNDED) | free, EXCLUSIVE)]
        if turned:
            name = f"{RULE_PREFIX}those that avoid pods of {term.words()} {APART} them"
            used = _requested(name, heavy, light)
            found.append(Capacity(name, {node: max(EXCLUSIVE, used[node]) for node in turned}, _UNBOUNDED))
        return found

    def _follow(self, unit: Unit, known: int, slots: list[int]) -> None:
        """Limit how many nodes change to the other kind of pods: one changed node takes many waiting pods."""
        if (each := max(slots, default=0)) > 1:
            nodes = -(-(unit.number - known) // each)
            unit.block(known + nodes, f"{FOLLOW} those before it go")

    def _weight(self, side: list[Unit]) -> tuple[bool, int, int]:
        """Return a sort key of one side of a rule.

        The larger one is the light side, whose pods are counted on each node.

        If two kinds avoid each other, their two rules must choose alike, also if one is about masters, too.
        """
        pods = max(unit.live.total() + unit.number for unit in side)
        return any(unit.job is not None for unit in side), pods, -min(self._order[id(unit)] for unit in side)

    def _turned(
        self, light: list[Unit], heavy: list[Unit], decided: set[int], slots: Callable[[Unit], Slots]
    ) -> set[int]:
        """The nodes, by index, that may have many pods of the heavy kind."""
        busy = {node for unit in light for node in unit.live}
        found = {node for unit in heavy for node in unit.live} - busy - decided
        for unit in heavy:
            missing = unit.number - unit.live.total()
            accepting = self._view.taken(unit.placement) if missing > 0 else frozenset[int]()
            for each in slots(unit) if accepting else ():
                known = sum(each[node] for node in accepting if node in found or node in decided)
                free = accepting - busy - found - decided
                for has, node in sorted(((each[node], node) for node in free), key=lambda one: (-one[0], one[1])):
                    if known >= missing or not has:
                        break
                    found.add(node)
                    known += has
            if unit.pods and known < missing:
                self._follow(unit, known, [slots(unit)[1][node] for node in accepting & busy])
        return found | self._grown(light, heavy, busy | found | decided, slots)

    def _grown(
        self, light: list[Unit], heavy: list[Unit], used: set[int], slots: Callable[[Unit], Slots]
    ) -> set[int]:
        """Choose among the nodes that neither kind needs those on which jobs of the heavy kind may grow."""
        found: set[int] = set()
        for unit in (one for one in heavy if one.role is Role.TRAINER):
            without = slots(unit)[1]
            accepting = self._view.taken(unit.placement) - used - found
            free = [node for _, node in sorted((-without[node], node) for node in accepting)]
            mine = _wish(unit, free, without)
            if not mine:
                continue
            theirs = max((_wish(one, free, slots(one)[1]) for one in light), default=0)
            found.update(free[: max(len(free) - theirs, len(free) * mine // (mine + theirs))][:mine])
        return found

    def _domains_of(self, term: PodTerm) -> set[str]:
        """The domains with pods that a term is about and that no plan moves."""
        here: set[str] = set()
        for rules, nodes in self._view.fixed_index.candidates(term.selector):
            if self.is_about(term, rules):
                here |= self._view.values(term.key, nodes)
        return here


def _are_kinds_that_wait(carriers: list[Unit], targets: list[Unit]) -> bool:
    """True for waiting serving pods that avoid those of other kinds."""
    return not any(unit.job is not None or unit in carriers for unit in targets) and all(c.pods for c in carriers)


def _are_alike(carrier: Unit, target: Unit, term: PodTerm, targets: list[Unit]) -> bool:
    """True if the pods avoid each other by one rule about pods like themselves."""
    return carrier is target or (carrier in targets and term in target.rules.anti)


def _kind(term: PodTerm) -> str:
    """Name one of the pods that a term is about: `pod of app=web`, `trainer of job ctr`."""
    words = term.words()
    return words.removeprefix("role ") if words.startswith("role ") else f"pod of {words}"


def _requested(name: str, light: list[Unit], heavy: list[Unit]) -> Counter[int]:
    """Let a pod of the light side request 1 of a resource, and one of the heavy side all of it.

    Return what live pods use.
    """
    used = Counter[int]()
    for side, amount in ((light, 1), (heavy, EXCLUSIVE)):
        for unit in side:
            unit.request[name] = amount
            for node, pods in unit.live.items():
                used[node] += amount * pods
    return used


def _wish(unit: Unit, free: list[int], without: list[int]) -> int:
    """How many more nodes the trainers of a job, or waiting serving pods, could use.

    Args:
        unit: the pods.
        free: the nodes to choose from, the best first.
        without: (nodes,) how many of the pods fit on each node without training.
    """
    most = unit.job.max_trainers if unit.job is not None and unit.role is Role.TRAINER else unit.number
    missing = most - sum(max(pods, without[node]) for node, pods in unit.live.items())
    wanted = 0
    for node in free:
        if missing <= 0 or not without[node]:
            break
        missing -= without[node]
        wanted += 1
    return wanted
