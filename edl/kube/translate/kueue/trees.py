"""Translates ClusterQueues and Cohorts, with what Workloads hold of them, into `QuotaNode` values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from edl.errors import ConfigError
from edl.kube.translate.kueue.flavors import Flavor, flavor_of
from edl.kube.translate.kueue.loads import Load, in_order
from edl.kube.translate.kueue.never import Group, QueueRules
from edl.kube.translate.kueue.objects import (
    KueueObjects,
    QuotaObject,
    QuotaSpec,
    QuotaStatus,
    ResourceQuotaObject,
)
from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.rules.namespaces import NamespaceLabels, chooses
from edl.kube.translate.rules.terms import Selector, read_selector
from edl.kube.translate.scalars import Scalar
from edl.kube.translate.shapes import parse_amounts
from edl.model.quota_trees import Pool, PoolAmounts, PoolLimits, QuotaNode
from edl.model.resources import CPU
from edl.planner.queues.pool_tree import PoolTree
from edl.printable import one_line

_LEAST_WEIGHT = 0.001
_NO_POLICY = {None, "", "None"}
_MOST_QUOTED = 300


@dataclass(slots=True)
class Quotas:
    """The quotas as the objects declare them, without any use by Workloads.

    Attributes:
        nodes: ClusterQueues and Cohorts by their names, such as `ClusterQueue blue`.
        groups: for each ClusterQueue, by the same name.
        queues: (namespace, LocalQueue) -> the name of its ClusterQueue's node; empty if that does not exist.
        stopped: the ClusterQueues and (namespace, LocalQueue) that admit nothing now.
        chosen: (ClusterQueue, namespace with a LocalQueue of it) -> whether its selector chooses the namespace; None
            if that depends on labels that are not known.
        inactive: what Kueue says of a ClusterQueue that admits nothing, such as one whose flavors do not exist.
        strict: the ClusterQueues in which nobody is admitted before those ahead of them (StrictFIFO).
        flavors: every ResourceFlavor, by name.
        counted: resources of which it is known that they count for Kueue.
    """

    nodes: dict[str, QuotaNode] = field(default_factory=dict)
    groups: dict[str, tuple[Group, ...]] = field(default_factory=dict)
    queues: dict[tuple[str, str], str] = field(default_factory=dict)
    stopped: set[str | tuple[str, str]] = field(default_factory=set)
    chosen: dict[tuple[str, str], bool | None] = field(default_factory=dict)
    inactive: dict[str, str] = field(default_factory=dict)
    strict: set[str] = field(default_factory=set)
    flavors: dict[str, Flavor] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    _trees: dict[Pool, PoolTree] = field(default_factory=dict)
    _most: dict[tuple[str, Pool], int] = field(default_factory=dict)
    _pools: dict[int, tuple[Load, set[Pool]]] = field(default_factory=dict)

    def node_of(self, load: Load) -> str:
        """The node whose quota a Workload holds, or asks for; empty if its queue does not exist."""
        if load.is_reserved:
            return node_of_cluster_queue(load.cluster_queue)
        return self.queues.get((load.namespace, load.local_queue), "")

    def without_lost(self, load: Load) -> Load:
        """Return the Workload without a reservation in a ClusterQueue that no longer exists."""
        is_lost = load.is_reserved and self.node_of(load) not in self.nodes
        return replace(load, cluster_queue="") if is_lost else load

    def waits(self, load: Load) -> bool:
        """True if the Workload is pending and Kueue may admit it."""
        return self._is_queued(load) and not self.rules_of(load).refusal(load)

    def blocks(self, load: Load) -> bool:
        """True if Kueue never admits the Workload, nor any behind it while it is the first of its ClusterQueue."""
        is_ahead = self.node_of(load) in self.strict and not load.gated and self._is_queued(load)
        return is_ahead and bool(self.rules_of(load).refusal(load))

    def _is_queued(self, load: Load) -> bool:
        node = self.node_of(load)
        is_waiting = load.active and not load.is_reserved and node in self.nodes
        return is_waiting and not self.closed(node, load.namespace, load.local_queue)

    def closed(self, node: str, namespace: str, local_queue: str) -> str:
        """Why a ClusterQueue admits nothing from a LocalQueue now, and the remedy; empty if it does."""
        if node in self.stopped or (namespace, local_queue) in self.stopped:
            return f"{node} or LocalQueue {local_queue} is stopped (spec.stopPolicy) and admits no size"
        if self.chosen.get((node, namespace)) is False:
            return (
                f"{node} admits no Workloads of namespace {namespace}: its spec.namespaceSelector does not choose it"
                " ({} chooses all); correct the selector or the labels of the namespace, or name a LocalQueue of"
                " another ClusterQueue"
            )
        if message := self.inactive.get(node):
            return f"{node} is inactive ({message}) and admits no size; correct what it names, or the ClusterQueue"
        return ""

    def tree(self, pool: Pool) -> PoolTree:
        """The quota tree of a pool, with nothing in use."""
        if pool not in self._trees:
            self._trees[pool] = PoolTree(self.nodes.values(), pool)
        return self._trees[pool]

    def rules_of(self, load: Load) -> QueueRules:
        """The rules of the ClusterQueue that a Workload belongs to."""
        node = self.node_of(load)
        return QueueRules(
            node,
            self.groups.get(node, ()),
            self.flavors,
            self.counted,
            lambda pool: self._most_of(node, pool),
        )

    def _most_of(self, node: str, pool: Pool) -> int:
        if (node, pool) not in self._most:
            self._most[node, pool] = self.tree(pool).most(node)
        return self._most[node, pool]

    def pools_of(self, load: Load) -> set[Pool]:
        """The pools from which a waiting Workload may be admitted; every job that edl sizes asks."""
        known = self._pools.get(id(load))
        if known is None or known[0] is not load:
            self._pools[id(load)] = known = load, self._pools_of(load)
        return known[1]

    def _pools_of(self, load: Load) -> set[Pool]:
        rules = self.rules_of(load)
        return {
            Pool(flavor, resource)
            for pods in load.pod_sets
            for resources, names in rules.groups
            for flavor in rules.taking(pods, names)
            for resource, n in pods.each
            if resource in resources and n * pods.count
        }


def node_of_cluster_queue(name: str) -> str:
    """The name of the node of a ClusterQueue."""
    return f"ClusterQueue {name}"


def read_quotas(objects: KueueObjects, namespaces: NamespaceLabels) -> Quotas:
    """Translate ClusterQueues, Cohorts and LocalQueues.

    Args:
        objects: the objects of the cluster.
        namespaces: the labels of those that are known; a selector that asks for others excludes nothing.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    found, selectors = Quotas(), dict[str, Selector | None]()
    found.flavors = {(one.metadata or ObjectMetadata()).name or "": flavor_of(one.spec) for one in objects.flavors}
    for source in objects.cluster_queues:
        node = _node("ClusterQueue", source, (source.spec or QuotaSpec()).cohort_name)
        found.nodes[node.name] = node
        found.groups[node.name] = _groups(source)
        if message := _inactive(source):
            found.inactive[node.name] = message
        if (source.spec or QuotaSpec()).queueing_strategy == "StrictFIFO":
            found.strict.add(node.name)
        selectors[node.name] = read_selector((source.spec or QuotaSpec()).namespace_selector)
        if (source.spec or QuotaSpec()).stop_policy not in _NO_POLICY:
            found.stopped.add(node.name)
    for source in objects.cohorts:
        node = _node("Cohort", source, (source.spec or QuotaSpec()).parent_name)
        found.nodes[node.name] = node
    for parent in {node.parent for node in found.nodes.values() if node.parent} - {*found.nodes}:
        found.nodes[parent] = QuotaNode(parent)  # a Cohort needs no object to exist
    for local in objects.local_queues:
        metadata, spec = local.metadata or ObjectMetadata(), local.spec
        key = metadata.namespace or DEFAULT_NAMESPACE, metadata.name or ""
        node_name = node_of_cluster_queue((spec.cluster_queue if spec else None) or "")
        found.queues[key] = node_name if node_name in selectors else ""
        if spec is not None and spec.stop_policy not in _NO_POLICY:
            found.stopped.add(key)
    for pair in {(queue, namespace) for (namespace, _), queue in found.queues.items() if queue}:
        selector = selectors[pair[0]]
        found.chosen[pair] = False if selector is None else chooses(selector, pair[1], namespaces)
    return found


def with_held(
    nodes: Mapping[str, QuotaNode], held: Iterable[tuple[str, Pool, int]], leaving: Iterable[tuple[str, Pool, int]]
) -> dict[str, QuotaNode]:
    """Add to the nodes what Workloads hold, and what evicted ones still hold: (node, pool, amount)."""
    stays, goes = _by_node(held), _by_node(leaving)
    return {name: replace(node, held=stays.get(name, ()), leaving=goes.get(name, ())) for name, node in nodes.items()}


def _by_node(amounts: Iterable[tuple[str, Pool, int]]) -> dict[str, PoolAmounts]:
    total: dict[str, dict[Pool, int]] = {}
    for node, pool, amount in amounts:
        pools = total.setdefault(node, {})
        pools[pool] = pools.get(pool, 0) + amount
    return {node: _sorted(pools) for node, pools in total.items()}


def with_claims(
    quotas: Quotas, nodes: dict[str, QuotaNode], waiting: Iterable[Load], used: Mapping[str, Mapping[Pool, int]]
) -> dict[str, QuotaNode]:
    """Add to the nodes what pending Workloads ask for, as far as it fits the nominal quota of their queue.

    A Workload that fits only if its queue borrows claims nothing.

    Args:
        quotas: what the objects say.
        nodes: the nodes with what is held.
        waiting: Workloads that edl does not size.
        used: what jobs that edl sizes keep of each node whatever happens: their minimums.
    """
    found = dict(nodes)
    for load in in_order(waiting):
        node = found[quotas.node_of(load)]
        claim = _claim(load, node, quotas.rules_of(load), used.get(node.name, {}))
        if claim is not None:
            total = dict(node.claimed)
            for pool, amount in claim.items():
                total[pool] = total.get(pool, 0) + amount
            found[node.name] = replace(node, claimed=_sorted(total))
    return found


def _claim(load: Load, node: QuotaNode, rules: QueueRules, used: Mapping[Pool, int]) -> dict[Pool, int] | None:
    """The quota that a Workload would take from its own queue; None if it does not fit."""
    limits, found = dict(node.limits), dict[Pool, int]()
    taken = (dict(node.held), dict(node.claimed), used, found)

    def has_room(pool: Pool, amount: int) -> bool:
        return sum(one.get(pool, 0) for one in taken) + amount <= limits.get(pool, PoolLimits(0)).nominal

    for pods in load.pod_sets:
        for resources, names in rules.groups:
            wanted = {
                resource: n * pods.count for resource, n in pods.each if resource in resources and pods.count > 0
            }
            if not wanted:
                continue
            fitting = (
                flavor
                for flavor in rules.taking(pods, names)
                if all(has_room(Pool(flavor, resource), amount) for resource, amount in wanted.items())
            )
            chosen = next(fitting, None)
            if chosen is None:
                return None
            for resource, amount in wanted.items():
                found[Pool(chosen, resource)] = found.get(Pool(chosen, resource), 0) + amount
    return found


def _inactive(source: QuotaObject) -> str:
    """Why Kueue says that a ClusterQueue admits nothing; empty if it does not say so."""
    conditions = (source.status or QuotaStatus()).conditions or ()
    found = next((one for one in conditions if one.type == "Active" and one.status == "False"), None)
    return "" if found is None else one_line(found.message or found.reason or "Active is False", _MOST_QUOTED)


def _node(kind: str, source: QuotaObject, parent: str | None) -> QuotaNode:
    metadata, spec = source.metadata or ObjectMetadata(), source.spec or QuotaSpec()
    limits = {
        Pool(flavor.name or "", quota.name or ""): _limits(quota)
        for group in spec.resource_groups or ()
        for flavor in group.flavors or ()
        for quota in flavor.resources or ()
    }
    weight = spec.fair_sharing.weight if spec.fair_sharing else None
    return QuotaNode(
        name=f"{kind} {metadata.name or ''}",
        parent=f"Cohort {parent}" if parent else "",
        limits=tuple(sorted(limits.items())),
        weight=1.0 if weight is None else max(_LEAST_WEIGHT, parse_amounts({CPU: weight})[CPU] / 1000),
    )


def _groups(source: QuotaObject) -> tuple[Group, ...]:
    return tuple(
        (frozenset(group.covered_resources or ()), tuple(flavor.name or "" for flavor in group.flavors or ()))
        for group in (source.spec or QuotaSpec()).resource_groups or ()
    )


def _limits(quota: ResourceQuotaObject) -> PoolLimits:
    def amount(value: Scalar) -> int | None:
        return None if value is None else sum(parse_amounts({quota.name or "": value}).values())

    nominal = amount(quota.nominal_quota)
    if nominal is None:
        raise ConfigError(f"nominalQuota of {quota.name} is missing")
    return PoolLimits(nominal, amount(quota.borrowing_limit), amount(quota.lending_limit))


def _sorted(amounts: Mapping[Pool, int]) -> PoolAmounts:
    return tuple(sorted(amounts.items()))
