"""A snapshot as rules read it: the pods that stay, the pods to be placed, and the domains of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Generic, TypeVar

from edl.kube.translate.rules.facts import Claim, RuleFacts
from edl.kube.translate.rules.terms import PodRules, Selector
from edl.kube.translate.rules.volumes import uses_alone
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod
from edl.model.resources import NodeRule, NodeTerm, Placement, PodShape, Requirement, Resources
from edl.planner.eligibility import BoolArray, Eligibility

T = TypeVar("T")

HOSTNAME = "kubernetes.io/hostname"
_SHORT = {
    HOSTNAME: "node",
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "region",
    "failure-domain.beta.kubernetes.io/zone": "zone",
    "failure-domain.beta.kubernetes.io/region": "region",
}


def domain_words(key: str, *, is_plural: bool = False) -> str:
    """Name the domains of a label: `node`, `zone`, `value of example.com/rack`; also in the plural."""
    ending = "s" if is_plural else ""
    return f"{_SHORT[key]}{ending}" if key in _SHORT else f"value{ending} of {key}"


@dataclass(slots=True)
class Unit:
    """Equal pods to be placed: waiting serving pods that are alike, or the pods of one role of a job.

    Attributes:
        rules: what decides about each of them.
        shape: their request and placement without the rules.
        number: how many wait; for a role, how many the job needs at least.
        job, role: None for serving pods.
        pods: the waiting serving pods, the first to be placed first.
        live: for a role, how many live pods each node has, by index.
        request: what one of them requests of the resources that stand for rules.
        excluded: the values that a label of its node must not have, by the label and the words of the rule.
        required: what else its node must match.
        each: what the node of each waiting pod must match, by position.
        blocked: why waiting pods from a position on cannot be placed; None if all can.
        counts_devices: devices that its claims ask for are among what it requests.
    """

    rules: PodRules
    shape: PodShape
    number: int
    job: Job | None = None
    role: Role | None = None
    pods: list[Pod] = field(default_factory=list)
    live: Counter[int] = field(default_factory=Counter)
    request: dict[str, int] = field(default_factory=dict)
    excluded: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    required: list[NodeRule] = field(default_factory=list)
    each: dict[int, NodeRule] = field(default_factory=dict)
    blocked: tuple[int, str] | None = None
    counts_devices: bool = False

    def exclude(self, key: str, values: Iterable[str], why: str) -> None:
        """Keep the pods away from nodes whose label has one of these values."""
        if found := set(values):
            self.excluded.setdefault((key, why), set()).update(found)

    def require(self, key: str, values: Iterable[str], why: str) -> None:
        """Let the pods run only on nodes whose label has one of these values."""
        self.required.append(NodeRule((NodeTerm((Requirement(key, "In", tuple(sorted(values))),)),), why))

    def require_rule(self, rule: NodeRule) -> None:
        """Keep the pods to the nodes that match a rule; a rule without terms excludes every node."""
        if rule.terms:
            self.required.append(rule)
        else:
            self.refuse(rule.why)

    def refuse(self, why: str) -> None:
        """Exclude every node for the pods, even if all other pods ended."""
        self.required.append(NodeRule((), why))
        if self.pods:
            self.block(0, why)

    def block(self, position: int, why: str) -> None:
        """Note that the waiting pods from a position on cannot be placed, even if all other pods ended."""
        if self.blocked is None or position < self.blocked[0]:
            self.blocked = (position, why)

    @property
    def node_rules(self) -> tuple[NodeRule, ...]:
        """All rules that the pods' nodes must satisfy."""
        apart = (
            NodeRule((NodeTerm((Requirement(key, "NotIn", tuple(sorted(values))),)),), why)
            for (key, why), values in self.excluded.items()
        )
        return tuple(sorted((*apart, *self.required), key=lambda rule: (rule.why, rule.terms)))

    @property
    def placement(self) -> Placement:
        """The nodes on which the pods may run, by their own placement and the rules."""
        return replace(self.shape.placement, rules=self.node_rules)

    @property
    def ruled_shape(self) -> PodShape:
        """The shape of the pods with the rules added."""
        rules = self.node_rules
        if not self.request and not rules:
            return self.shape
        placement = self.placement if rules else self.shape.placement
        return PodShape(self.shape.request + Resources.of(self.request), placement)


class LabelIndex(Generic[T]):
    """Finds the items that a selector may match by a label that the selector requires, without testing all.

    Args:
        items: each with its rules and labels.
    """

    def __init__(self, items: Iterable[tuple[PodRules, T]]) -> None:
        self._all = list(items)
        self._by_label: dict[tuple[str, str], list[tuple[PodRules, T]]] = {}
        for item in self._all:
            for label in item[0].labels:
                self._by_label.setdefault(label, []).append(item)

    def candidates(self, selector: Selector | None) -> list[tuple[PodRules, T]]:
        """Return the items that a selector may match; the others do not match."""
        if selector is None:
            return []
        equal = [(one.key, one.values[0]) for one in selector if one.operator == "In" and len(one.values) == 1]
        found = (self._by_label.get(label, []) for label in equal)
        return min(found, key=len, default=self._all)


class View:
    """One snapshot as rules read it.

    Args:
        snapshot: the cluster without rules.
        facts: volumes, classes and namespaces.
        rules_of: the rules and labels of a pod; equal ones are one object.
        only: names of the pods that have rules, if no rule is about other pods; None reads all.

    Attributes:
        fixed: the pods that no plan moves, by the identity of their rules: the rules, and how many each node has.
        leaving: how many of these terminate, by the identity of their rules and by node.
        fixed_index: the same, by labels.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        facts: RuleFacts,
        rules_of: Callable[[Pod], PodRules],
        only: Container[tuple[str, str]] | None = None,
    ) -> None:
        self.snapshot, self.facts, self.nodes = snapshot, facts, snapshot.nodes
        self.index = {node.name: number for number, node in enumerate(snapshot.nodes)}
        self.fixed: dict[int, tuple[PodRules, Counter[int]]] = {}
        self.leaving: dict[int, Counter[int]] = {}
        self._judge: Eligibility | None = None
        self._by_node: dict[str, bool] = {}
        self._unlabelled: dict[str, list[int]] = {}
        self._domains: dict[str, list[str | None]] = {}
        self._taken: dict[Placement, frozenset[int]] = {}
        self._selected: dict[Placement, frozenset[int]] = {}
        for pod in self.fixed_pods():
            if only is None or (pod.namespace, pod.name) in only:
                rules = rules_of(pod)
                group = self.fixed.get(id(rules))
                if group is None:
                    group = self.fixed[id(rules)] = (rules, Counter())
                number = self.index[pod.node or pod.nominated]
                group[1][number] += 1
                if pod.terminating:
                    self.leaving.setdefault(id(rules), Counter())[number] += 1
        self.fixed_index = LabelIndex(self.fixed.values())

    def fixed_pods(self) -> Iterator[Pod]:
        """Yield the pods on a node that no plan moves; those that terminate count until they are gone."""
        for pod in chain(self.snapshot.pods, self.snapshot.pods_left_alone):
            if (pod.node or pod.nominated) in self.index and not pod.is_finished:
                yield pod

    def domains(self, key: str) -> list[str | None]:
        """Return the value of a label for each node; None for a node without it."""
        found = self._domains.get(key)
        if found is None:
            values = (next((value for name, value in node.labels if name == key), None) for node in self.nodes)
            found = self._domains[key] = list(values)
        return found

    def lacks_label(self, key: str) -> str:
        """Return the end of a sentence: that no node has the label which a rule needs; empty if one has it."""
        return f", and no node has label {key}" if not any(value is not None for value in self.domains(key)) else ""

    def is_by_node(self, key: str) -> bool:
        """Return True if each domain of a label is one node."""
        if key not in self._by_node:
            values = [value for value in self.domains(key) if value is not None]
            self._by_node[key] = len(values) == len(set(values))
        return self._by_node[key]

    def unlabelled(self, key: str) -> list[int]:
        """Return the nodes without a label."""
        if key not in self._unlabelled:
            self._unlabelled[key] = [number for number, value in enumerate(self.domains(key)) if value is None]
        return self._unlabelled[key]

    def values(self, key: str, nodes: Iterable[int]) -> set[str]:
        """Return the domains of some nodes."""
        domains = self.domains(key)
        return {value for number in nodes if (value := domains[number]) is not None}

    def taken(self, placement: Placement) -> frozenset[int]:
        """Return the nodes that take pods of a placement."""
        found = self._taken.get(placement)
        if found is None:
            found = self._taken[placement] = frozenset(self.takes(placement).nonzero()[0].tolist())
        return found

    def takes(self, placement: Placement) -> BoolArray:
        """Return (nodes,) which nodes take pods of a placement."""
        return self._judged.takes(placement)

    def selected(self, placement: Placement) -> frozenset[int]:
        """Return the nodes that match the selector and the affinity of a placement, whatever their taints are."""
        found = self._selected.get(placement)
        if found is None:
            found = self._selected[placement] = frozenset(self._judged.selects(placement).nonzero()[0].tolist())
        return found

    @property
    def _judged(self) -> Eligibility:
        if self._judge is None:
            self._judge = Eligibility(self.nodes)
        return self._judge

    def is_alone(self, claim: Claim) -> bool:
        """Return True if only one pod may use a claim."""
        return uses_alone(claim, self.facts)

    def fixed_users(self, claim: Claim) -> int:
        """Return how many pods that no plan moves use a claim."""
        users = (n.total() for r, n in self.fixed.values() if r.namespace == claim[0] and claim[1] in r.claims)
        return sum(users)
