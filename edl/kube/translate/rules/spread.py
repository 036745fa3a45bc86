"""Rules that count pods in domains: topology spread, anti-affinity in large domains, claims for one pod.

kube-scheduler places pods one by one, and after each pod the emptiest domain may be another one. Waiting serving pods
are given their domains in the same way. Of a role of a job, each domain gets as many pods as keep its skew in bounds
until the role has the pods that it needs; more come once those are bound and the emptiest domain has grown.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread, filtering.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from edl.kube.translate.rules.anti_affinity import AntiAffinity, Capacity
from edl.kube.translate.rules.free_capacity import FreeCapacity
from edl.kube.translate.rules.tally import Tally
from edl.kube.translate.rules.terms import PodTerm, SpreadTerm
from edl.kube.translate.rules.view import LabelIndex, Unit, View, domain_words
from edl.model.resources import ONE_POD, RULE_PREFIX, SKEW, NodeRule, NodeTerm, Placement, Requirement
from edl.planner.eligibility import is_tolerated

_WHOLE_CLUSTER = ""
MOST_LOOKS = 50_000
"""The most looks at nodes for waiting pods of one kind; the pods after that get domains in a later plan."""
LOOKS_IN_ALL = 500_000
"""The most looks at nodes for all waiting pods, some 0.5 s; each namespace gets an equal part."""


class Spread:
    """The rules of one snapshot that count pods in domains.

    Args:
        view: the snapshot.
        units: what a plan places.
        anti: the rules that exclude pods from domains.
        capacity: the free capacity of the nodes.
    """

    def __init__(self, view: View, units: Sequence[Unit], anti: AntiAffinity, capacity: FreeCapacity) -> None:
        self._view, self._units, self._anti, self._free = view, units, anti, capacity
        self._index = LabelIndex((unit.rules, unit) for unit in units)
        self._names: dict[str, list[str]] = {}
        self._counts: dict[tuple[tuple[str, ...], bool, bool, Placement], frozenset[int]] = {}
        self._values: dict[tuple[str, frozenset[int]], frozenset[str]] = {}
        self._tallies: dict[object, Tally] = {}
        self._obeyed: dict[int, list[Tally]] = {}
        for unit in units:
            self._obeyed[id(unit)] = [*self._spread_of(unit), *self._apart_of(unit), *self._alone_of(unit)]
        for tally in self._tallies.values():
            for unit in tally.units:
                for node, pods in unit.live.items():
                    if (domain := self._domain(tally, node)) is not None:
                        tally.have[domain] += pods

    def apply(self) -> Iterator[Capacity]:
        """Choose domains for waiting pods by rules that count pods; yield the rules of jobs as resources of nodes."""
        self._give_domains()
        for tally in self._tallies.values():
            if tally.capacity is not None:
                capacity = tally.given if tally.is_beyond else Counter(tally.capacity)
                domains = enumerate(self._view.domains(tally.key))
                yield Capacity(tally.words, {n: max(0, capacity[d]) for n, d in domains if d is not None})
        for tally in self._tallies.values():
            roles = [unit for unit in tally.units if unit.job is not None]
            if roles:
                yield self._capacity(tally, roles)
        for unit in self._units:
            if unit.job is not None:
                for tally in self._obeyed[id(unit)]:
                    if unit not in tally.units:
                        open_here = tally.admitting(self._all(tally), is_counted=False)
                        unit.require(tally.key, open_here, tally.words)

    def _give_domains(self) -> None:
        """Give waiting pods their domains, as many as there is work for."""
        waiting = [unit for unit in self._units if unit.pods and self._obeyed[id(unit)]]
        of_each = LOOKS_IN_ALL // max(1, len({unit.rules.namespace for unit in waiting}))
        looks: Counter[str] = Counter()
        for unit in self._units:
            obeyed = self._obeyed[id(unit)] = self._beside_trainers(unit)
            if not (unit.pods and obeyed):
                continue
            if looks[unit.rules.namespace] > of_each:
                unit.block(0, f"{self._why(unit)}; it waits until others of its namespace have nodes")
                continue
            obeyed = self._obeyed[id(unit)] = self._counting(unit, obeyed)
            if not obeyed:
                continue
            looks[unit.rules.namespace] += min(unit.number * len(self._view.nodes), MOST_LOOKS)
            if unit.number > 1:
                self._give_out(unit, obeyed)
            else:
                self._keep_to_admitted(unit, obeyed)

    def _spread_of(self, unit: Unit) -> Iterator[Tally]:
        for term in unit.rules.spread:
            placement = replace(unit.shape.placement, rules=())
            counted = self._counted(term, unit, placement)
            key = (term, counted)
            if key not in self._tallies:
                domains_counted = self._values_of(term.key, counted)
                tally = Tally(
                    term.key,
                    _words(term, len(domains_counted)) + self._view.lacks_label(term.key),
                    skew=term.max_skew,
                    min_domains=term.min_domains,
                    counted=domains_counted,
                    units=[u for rules, u in self._index.candidates(term.selector) if term.is_about(rules)],
                )
                domains = self._view.domains(term.key)
                for rules, nodes in self._view.fixed_index.candidates(term.selector):
                    if term.is_about(rules):
                        leaving = self._view.leaving.get(id(rules), Counter[int]())  # kube-scheduler leaves them out
                        for node in counted & nodes.keys():
                            if (domain := domains[node]) is not None:
                                tally.have[domain] += nodes[node] - leaving[node]
                self._tallies[key] = tally
            labelled = NodeTerm((Requirement(term.key, "Exists"),))
            unit.required.append(NodeRule((labelled,), self._tallies[key].words))
            yield self._tallies[key]

    def _values_of(self, key: str, nodes: frozenset[int]) -> frozenset[str]:
        """Return the domains of some nodes."""
        if (key, nodes) not in self._values:
            self._values[key, nodes] = frozenset(self._view.values(key, nodes))
        return self._values[key, nodes]

    def _counted(self, term: SpreadTerm, unit: Unit, placement: Placement) -> frozenset[int]:
        """The nodes whose domains count: those with every label that the pod spreads by."""
        keys = tuple(one.key for one in unit.rules.spread)
        kind = (keys, term.honors_affinity, term.honors_taints, placement)
        if (known := self._counts.get(kind)) is not None:
            return known
        labelled = set(range(len(self._view.nodes)))
        for key in keys:
            labelled = {node for node in labelled if self._view.domains(key)[node] is not None}
        if term.honors_affinity:
            labelled &= self._view.selected(placement)
        if term.honors_taints:
            nodes = self._view.nodes
            labelled = {node for node in labelled if is_tolerated(nodes[node], placement.tolerations)}
        self._counts[kind] = frozenset(labelled)
        return self._counts[kind]

    def _apart_of(self, unit: Unit) -> Iterator[Tally]:
        """The counts of pods by domain for a pod's anti-affinity to pods like itself."""
        for term in dict.fromkeys(unit.rules.anti):
            if self._view.is_by_node(term.key) or not self._anti.is_about(term, unit.rules):
                continue
            yield self._apart(term, unit)

    def _apart(self, term: PodTerm, unit: Unit) -> Tally:
        if term not in self._tallies:
            words = self._anti.words(term, unit)
            self._tallies[term] = Tally(term.key, words, most=1, units=self._anti.units_about(term))
        return self._tallies[term]

    def _alone_of(self, unit: Unit) -> Iterator[Tally]:
        for name in unit.rules.claims:
            claim = (unit.rules.namespace, name)
            if not self._view.is_alone(claim):
                continue
            if claim not in self._tallies:
                words = f"{RULE_PREFIX}one pod uses claim {name}, which is {ONE_POD}"
                users = [one for one in self._units if one.rules.namespace == claim[0] and name in one.rules.claims]
                tally = Tally(_WHOLE_CLUSTER, words, most=1, units=users)
                tally.have[_WHOLE_CLUSTER] = self._view.fixed_users(claim)
                self._tallies[claim] = tally
            yield self._tallies[claim]

    def _domain(self, tally: Tally, node: int) -> str | None:
        return self._view.domains(tally.key)[node] if tally.key else _WHOLE_CLUSTER

    def _all(self, tally: Tally) -> list[str]:
        """Return every domain of a rule."""
        if tally.key not in self._names:
            domains = (self._domain(tally, node) for node in range(len(self._view.nodes)))
            self._names[tally.key] = sorted({domain for domain in domains if domain is not None})
        return self._names[tally.key]

    def _admitting(self, unit: Unit, nodes: Sequence[int]) -> list[int]:
        """Keep of some nodes those that the counting rules let take one more pod now."""
        found = list(nodes)
        for tally in self._obeyed[id(unit)]:
            is_counted = unit in tally.units
            open_here: set[str | None] = {*tally.admitting(self._all(tally), is_counted=is_counted)}
            if tally.most is not None:
                open_here.add(None)  # a node without the label is in no domain
            if tally.key:
                domains = self._view.domains(tally.key)
                found = [node for node in found if domains[node] in open_here]
            elif _WHOLE_CLUSTER not in open_here:
                return []
        return found

    def _beside_trainers(self, unit: Unit) -> list[Tally]:
        """Drop the rules about claims that only pods of jobs use: evicting these satisfies the rules.

        The node of such a pod then has capacity for one user of the claim, a waiting serving pod, too.
        """
        found = []
        for tally in self._obeyed[id(unit)]:
            users = sum(one.live.total() for one in tally.units)
            if unit.pods and not tally.key and users and users == tally.have.total():
                unit.request[tally.words] = 1
            else:
                found.append(tally)
        return found

    def _counting(self, unit: Unit, obeyed: Sequence[Tally]) -> list[Tally]:
        """Keep the rules that count the pods themselves; the other rules only limit the domains of all of them."""
        found = []
        for tally in obeyed:
            if unit in tally.units:
                found.append(tally)
            else:
                unit.require(tally.key, tally.admitting(self._all(tally), is_counted=False), tally.words)
        return found

    def _is_by_node(self, tally: Tally) -> bool:
        return bool(tally.key) and self._view.is_by_node(tally.key)

    def _keep_to_admitted(self, unit: Unit, obeyed: Sequence[Tally]) -> None:
        """Keep the only waiting pod of its kind to the domains that take it now."""
        open_to = sorted(self._view.taken(unit.placement))
        admitted = self._admitting(unit, open_to)
        if open_to and not admitted:
            unit.block(0, self._why(unit))
            return
        for tally in obeyed:
            if tally.key:
                closed = self._view.values(tally.key, open_to) - self._view.values(tally.key, admitted)
                unit.exclude(tally.key, closed, tally.words)
        if admitted and any(tally.units != [unit] for tally in obeyed):
            rank = self._ranks(unit)
            node = min(admitted, key=lambda n: rank(n, 0))
            for tally in obeyed:  # pods of another kind that obey the same rule come after it
                if unit in tally.units and (domain := self._domain(tally, node)) is not None:
                    tally.have[domain] += 1

    def _give_out(self, unit: Unit, obeyed: Sequence[Tally]) -> None:
        """Give each waiting pod its domains, as kube-scheduler would one by one.

        A rule by node becomes a resource, so that the plan chooses the node among all that take a pod; in larger
        domains each pod is kept to its own.
        """
        open_to = sorted(self._view.taken(unit.placement))
        for tally in obeyed:
            if self._is_by_node(tally):
                unit.request[tally.words] = 1
                if tally.capacity is None:
                    level = tally.level()
                    tally.capacity = {d: level - tally.have[d] for d in self._all(tally)}
        if all(map(self._is_by_node, obeyed)) and self._slots_now(obeyed, open_to) >= unit.number:
            return  # whatever nodes the plan chooses
        rank = self._ranks(unit)
        used: Counter[int] = Counter()
        for position in range(unit.number):
            if position * len(open_to) > MOST_LOOKS:
                unit.block(position, f"{self._why(unit)}; it waits until those before it have nodes")
                return
            admitted = self._admitting(unit, open_to)
            if not admitted:
                if open_to:
                    unit.block(position, self._why(unit))
                return
            node = min(admitted, key=lambda n: rank(n, used[n]))
            is_full, *_ = rank(node, used[node])
            used[node] += 1
            self._give(unit, position, node, is_placed=not is_full)

    def _slots_now(self, obeyed: Sequence[Tally], nodes: Sequence[int]) -> int:
        """How many pods the nodes take by rules by node, before any domain has grown."""
        capacities = [(tally.capacity or {}, self._view.domains(tally.key)) for tally in obeyed]
        return sum(max(0, min(capacity.get(domains[n] or "", 0) for capacity, domains in capacities)) for n in nodes)

    def _give(self, unit: Unit, position: int, node: int, *, is_placed: bool) -> None:
        """Keep a waiting pod to the domains of a node; one that finds no capacity there makes none for others."""
        terms = []
        for tally in self._obeyed[id(unit)]:
            domain = self._domain(tally, node)
            if domain is None:  # such nodes are in no domain; the pod is not to be in one either
                terms.append(Requirement(tally.key, "DoesNotExist"))
                continue
            if tally.capacity is not None:
                tally.given[domain] += is_placed
                tally.is_beyond |= tally.given[domain] > tally.capacity.get(domain, 0)
            elif tally.key:
                terms.append(Requirement(tally.key, "In", (domain,)))
            if unit in tally.units:
                tally.have[domain] += is_placed
        if terms:
            unit.each[position] = NodeRule((NodeTerm(tuple(terms)),), self._obeyed[id(unit)][0].words)

    def _ranks(self, unit: Unit) -> Callable[[int, int], tuple[bool, bool, int, int]]:
        """Return a sort key of nodes by how many pods of the unit each was given.

        Nodes with free capacity come first, then those that have it without training, then those with fewer pods.
        """
        now, without = self._free.slots(unit)
        tables = [(t.have, self._view.domains(t.key)) for t in self._obeyed[id(unit)] if t.key]

        def rank(node: int, used: int) -> tuple[bool, bool, int, int]:
            pods = sum(have[domain] for have, of in tables if (domain := of[node]) is not None)
            return used >= without[node], used >= now[node], pods, node

        return rank

    def _why(self, unit: Unit) -> str:
        return "; ".join(f"{tally.words}{self._closed(tally, unit)}" for tally in self._obeyed[id(unit)])

    def _closed(self, tally: Tally, unit: Unit) -> str:
        """Explain why the emptiest domains do not help a rule, as the end of a sentence.

        Empty if that is not known.
        """
        if tally.most is not None:
            return "; every one that accepts it has one" if tally.most == 1 and tally.key else ""
        emptiest = {domain for domain in tally.counted if tally.have[domain] <= tally.lowest}
        if not emptiest.isdisjoint(self._view.values(tally.key, self._view.taken(unit.placement))):
            return ""
        first = min(emptiest, default="")
        return f"; {domain_words(tally.key)} {first} has {tally.lowest} of them and takes none" if first else ""

    def _capacity(self, tally: Tally, roles: list[Unit]) -> Capacity:
        """The resource of a rule that roles of jobs obey: what each node has of it."""
        live: Counter[int] = Counter()
        for unit in roles:
            live.update(unit.live)
        here: Counter[str] = Counter()
        for node, pods in live.items():
            if (domain := self._domain(tally, node)) is not None:
                here[domain] += pods
        nodes: dict[str, list[int]] = {}
        open_to = frozenset[int]().union(*(self._view.taken(unit.placement) for unit in roles))
        for node in sorted(open_to | live.keys()):
            if (domain := self._domain(tally, node)) is not None:
                nodes.setdefault(domain, []).append(node)
        _, slots = self._free.slots(roles[0])
        most = {domain: sum(slots[n] for n in each) for domain, each in nodes.items()}
        final = {domain: tally.have[domain] - here[domain] + most.get(domain, 0) for domain in tally.counted}
        level = self._level(tally, roles, here, most, min(final.values(), default=0))
        is_shared = any(unit.pods and tally in self._obeyed[id(unit)] for unit in self._units)
        name = tally.words if is_shared else tally.words_at(level, final)
        for unit in roles:
            unit.request[name] = 1
        of_node: dict[int, int] = {}
        for domain, each in nodes.items():
            here_most = max(0, level - (tally.have[domain] - here[domain]))
            of_node.update(self._shared_out(each, here_most, live, roles[0]))
        for node in range(len(self._view.nodes)):
            if self._domain(tally, node) is None and tally.most is not None:
                of_node[node] = max(of_node.get(node, 0), slots[node])
        return Capacity(name, of_node)

    def _shared_out(self, nodes: list[int], most: int, live: Counter[int], role: Unit) -> dict[int, int]:
        """Choose the nodes of a domain that may have its pods: nodes with some, then nodes with free capacity."""
        now, without = self._free.slots(role)
        order = sorted(nodes, key=lambda n: (-live[n], -without[n], n))
        of_node = {node: live[node] for node in nodes}
        left = most - sum(of_node.values())
        for is_free in (True, False):
            for node in order:
                capacity = min(without[node], live[node] + now[node]) if is_free else without[node]
                more = max(0, min(left, capacity - of_node[node]))
                of_node[node] += more
                left -= more
        return of_node

    def _level(self, tally: Tally, roles: list[Unit], here: Counter[str], most: dict[str, int], final: int) -> int:
        """Return the lowest number of pods per domain at which all pods of the roles fit, within the allowed skew."""
        level = tally.level()
        if tally.most is not None:
            return level
        needed = sum(unit.number for unit in roles)
        others = {domain: tally.have[domain] - here[domain] for domain in most}
        highest = (final if len(tally.counted) >= tally.min_domains else 0) + tally.skew
        if len(tally.counted) == 1 and tally.min_domains <= 1:
            return max(level, highest)  # it never differs from itself
        while level < highest:
            if sum(max(0, min(level - others[d], most[d])) for d in most) >= needed:
                break
            level += 1
        return level


def _words(term: SpreadTerm, counted: int) -> str:
    """Describe a rule for a message, given how many domains count."""
    domain, several = domain_words(term.key), domain_words(term.key, is_plural=True)
    if 0 < counted < term.min_domains:
        why = f"minDomains is {term.min_domains} and only {counted} {'counts' if counted == 1 else 'count'}"
        return f"{RULE_PREFIX}pods of {term.words()}: at most {term.max_skew} a {domain}, because {why}"
    return f"{RULE_PREFIX}pods of {term.words()} {SKEW} {term.max_skew} between {several}"
