"""Says why nodes reject a pod whatever capacity they have, and how many nodes do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from edl.explain.rejected.remedies import ALLOWED, against_names, on_nodes_of_volumes
from edl.model.cluster import Node
from edl.model.resources import RULE_PREFIX, STORAGE_LEFT, NodeRule, Placement, PodShape, Toleration
from edl.model.units import count, listed
from edl.planner.eligibility import UNSCHEDULABLE, Eligibility, first_untolerated
from edl.planner.findings.scarcity import NodeKinds, scarce_of, slots_without_training
from edl.planner.problem import BoolArray, Problem

_MOST_REMEDIES = 3
_FREE_STORAGE = "free storage of the StorageClass that the line names, or let the claim name another class"
_CREATED = "create or change what the line names: a claim, its class or its template, or the devices that it asks for"


class Rejections:
    """Why the nodes of one cluster reject pods; each set of tolerations is judged once."""

    def __init__(self, problem: Problem) -> None:
        """Group the nodes of the cluster by state and taints."""
        self._problem = problem
        self._number = {shape: index for index, shape in enumerate(problem.shapes)}
        self._kinds = NodeKinds(problem.snapshot.nodes)
        self._of_all: dict[Placement | tuple[Toleration, ...], str] = {}

    def of_all(self, shape: PodShape) -> str:
        """Why no node accepts a pod: `of 5 nodes: 3 not ready and 2 cordoned`."""
        nodes = len(self._problem.snapshot.nodes)
        if not nodes:
            return "the cluster has no nodes"
        place = shape.placement
        kind = place if place.rules else place.tolerations
        if kind not in self._of_all:
            closed = ~self._problem.opened[self._number[shape]]
            self._of_all[kind] = f"of {count(nodes, 'node')}: {self._counted(closed, place)}"
        return self._of_all[kind]

    def by_rule(self, shape: PodShape) -> str:
        """The one rule that excludes every node whose state and taints accept a pod; empty if there are others."""
        place = shape.placement
        if not place.rules:
            return ""
        nodes = self._problem.snapshot.nodes
        each = zip(nodes, self._broken(place), strict=True)
        broken = {rule for node, rule in each if node.ready and first_untolerated(node, place.tolerations) is None}
        (only, *others) = broken or {None}
        return only.why if only is not None and not others else ""

    def of_larger(self, shape: PodShape) -> str:
        """Name the nodes that are large enough for a pod but reject it, with the reason; empty if there are none."""
        problem, number = self._problem, self._number[shape]
        large = ~problem.opened[number] & (problem.empty >= problem.request[number]).all(axis=1)
        nodes = int(large.sum())
        if not nodes:
            return ""
        return f"; {count(nodes, 'larger node')}: {self._counted(large, shape.placement)}"

    def _counted(self, chosen: BoolArray, placement: Placement) -> str:
        """How many of some nodes reject a pod for which reason, the reason of the first node first."""
        found: dict[str, int] = {}
        each = self._one_by_one if placement.rules else self._in_kinds
        for why, number in each(chosen, placement):
            found[why] = found.get(why, 0) + number
        return listed([f"{number} {why}" for why, number in found.items()])

    def _in_kinds(self, chosen: BoolArray, placement: Placement) -> Iterator[tuple[str, int]]:
        return ((_why(node, placement, None), number) for node, number in self._kinds.among(chosen))

    def _one_by_one(self, chosen: BoolArray, placement: Placement) -> Iterator[tuple[str, int]]:
        """Yield why each chosen node rejects the pod.

        Node by node, because rules read labels, which differ within a kind.
        """
        nodes, broken = self._problem.snapshot.nodes, self._broken(placement)
        return ((_why(nodes[at], placement, broken[at]), 1) for at in chosen.nonzero()[0].tolist())

    def _broken(self, placement: Placement) -> Sequence[NodeRule | None]:
        """Find for each node the first rule that excludes it for the pod."""
        return Eligibility(self._problem.snapshot.nodes).first_broken(placement)


def against_rules(problem: Problem, shape: PodShape, least: int = 1) -> list[str]:
    """Say what helps pods for which rules leave fewer than `least` nodes even without training; else nothing.

    Args:
        problem: the arrays.
        shape: of the pods.
        least: how many pods the job needs.
    """
    number = problem.shapes.index(shape)
    if refused := [rule.why for rule in shape.placement.rules if not rule.terms]:
        return [_FREE_STORAGE if any(STORAGE_LEFT in why for why in refused) else _CREATED]
    if not problem.opened[number].any():
        is_by_rule = bool(Rejections(problem).by_rule(shape))
        return on_nodes_of_volumes(shape.placement.rules, "bring back") or [ALLOWED] if is_by_rule else []
    rules = [name for name in shape.request if name.startswith(RULE_PREFIX)]
    on_nodes = on_nodes_of_volumes(shape.placement.rules)
    slots = slots_without_training(problem, number) if rules or on_nodes else least
    if slots >= least or not ((scarce := scarce_of(problem, number, rules)) or on_nodes):
        return []
    lower = ["lower spec.trainer.min-instance of this job"] if slots else []
    return [*(against_names(scarce) or on_nodes), *lower]


def against_nodes(problem: Problem, shape: PodShape) -> list[str]:
    """Say what helps pods that all nodes reject by their state, taints or labels; nothing if a node takes them.

    Args:
        problem: the arrays.
        shape: of the pods.
    """
    place, nodes = shape.placement, problem.snapshot.nodes
    if not nodes or problem.opened[problem.shapes.index(shape)].any():
        return []
    broken = Eligibility(nodes).first_broken(place)
    found = Counter(_remedy(node, place, rule) for node, rule in zip(nodes, broken, strict=True))
    remedies = [remedy for remedy, _ in sorted(found.items(), key=lambda one: (-one[1], one[0]))[:_MOST_REMEDIES]]
    return [", ".join([*remedies, "or add a node that accepts them"])]


def _remedy(node: Node, placement: Placement, broken: NodeRule | None) -> str:
    """Say what would let a node take a pod that it rejects; `broken` is the first rule that excludes the node."""
    if not node.ready:
        return "make a node ready for its pods"
    taint = first_untolerated(node, placement.tolerations)
    if taint is not None and taint.key == UNSCHEDULABLE.key:
        return "uncordon a node for its pods"
    if taint is not None:
        for_good = " without tolerationSeconds" if taint.effect == "NoExecute" else ""
        return f"let its pods tolerate taint {taint.key}:{taint.effect}{for_good}"
    return (
        "change the rule or the volume that the line names"
        if broken is not None
        else "relax the node selector or affinity of its pods"
    )


def _why(node: Node, placement: Placement, broken: NodeRule | None) -> str:
    """Why a node rejects a pod; `broken` is the first rule that excludes the node."""
    if not node.ready:
        return "not ready"
    taint = first_untolerated(node, placement.tolerations)
    if taint is None and broken is not None:
        return f"excluded, because {broken.why}"
    if taint is None:
        return "excluded by its node selector or affinity"
    return "cordoned" if taint.key == UNSCHEDULABLE.key else f"tainted {taint.key}:{taint.effect}"
