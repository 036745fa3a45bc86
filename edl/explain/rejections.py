"""Why nodes reject a pod, however much room they have: in words, counted over the nodes."""

from __future__ import annotations

from edl.model.cluster import Node
from edl.model.resources import PodShape, Toleration
from edl.model.units import count, listed
from edl.planner.eligibility import UNSCHEDULABLE, first_untolerated
from edl.planner.findings.scarcity import NodeKinds
from edl.planner.problem import BoolArray, Problem


class Rejections:
    """Why the nodes of one cluster reject pods; each set of tolerations is judged once."""

    def __init__(self, problem: Problem) -> None:
        """Group the nodes."""
        self._problem = problem
        self._number = {shape: index for index, shape in enumerate(problem.shapes)}
        self._kinds = NodeKinds(problem.snapshot.nodes)
        self._of_all: dict[tuple[Toleration, ...], str] = {}

    def of_all(self, shape: PodShape) -> str:
        """Why no node accepts a pod: `of 5 nodes: 3 not ready and 2 cordoned`."""
        nodes = len(self._problem.snapshot.nodes)
        if not nodes:
            return "the cluster has no nodes"
        tolerations = shape.placement.tolerations
        if tolerations not in self._of_all:
            closed = ~self._problem.opened[self._number[shape]]
            self._of_all[tolerations] = f"of {count(nodes, 'node')}: {self._counted(closed, tolerations)}"
        return self._of_all[tolerations]

    def of_larger(self, shape: PodShape) -> str:
        """Which nodes are large enough for a pod and reject it, with the reason; empty if there are none."""
        problem, number = self._problem, self._number[shape]
        large = ~problem.opened[number] & (problem.empty >= problem.request[number]).all(axis=1)
        nodes = int(large.sum())
        if not nodes:
            return ""
        return f"; {count(nodes, 'larger node')}: {self._counted(large, shape.placement.tolerations)}"

    def _counted(self, chosen: BoolArray, tolerations: tuple[Toleration, ...]) -> str:
        """How many of some nodes reject a pod for which reason, the reason of the first node first."""
        found: dict[str, int] = {}
        for node, number in self._kinds.among(chosen):
            why = _why(node, tolerations)
            found[why] = found.get(why, 0) + number
        return listed([f"{number} {why}" for why, number in found.items()])


def _why(node: Node, tolerations: tuple[Toleration, ...]) -> str:
    """Why a node rejects a pod."""
    if not node.ready:
        return "not ready"
    taint = first_untolerated(node, tolerations)
    if taint is None:
        return "excluded by its node selector or affinity"
    return "cordoned" if taint.key == UNSCHEDULABLE.key else f"tainted {taint.key}:{taint.effect}"
