"""How many nodes of a group some pods need: first fit, the largest first."""

from __future__ import annotations

from collections.abc import Sequence

from edl.model.cluster import Node
from edl.model.node_groups import NodeGroup
from edl.model.resources import PodShape, Resources, is_amount
from edl.planner.eligibility import takes


def expected_node(group: NodeGroup, number: int) -> Node:
    """Make a node of the group for a plan, before it exists; no real node has such a name."""
    return Node(f"expected/{group.name}/{number:05}", group.allocatable, group.labels, group.taints)


def fill_nodes(pods: Sequence[PodShape], group: NodeGroup, at_most: int) -> tuple[Resources, ...]:
    """Put pods on new nodes of a group.

    Args:
        pods: what to place, at least one; pods of one shape are equal.
        group: the nodes.
        at_most: so many nodes; pods that do not fit on them are left out.

    Returns:
        For each node what its pods request together; a pod that no node of the group could take is left out.
    """
    sample, once = expected_node(group, 0), dict[str, int]()
    for name, amount in (one for pod in pods for one in pod.request.amounts):
        if not is_amount(name):
            once[name] = max(amount, once.get(name, 0))
    capacity = group.allocatable + Resources.of(once)
    fit = [pod for pod in dict.fromkeys(pods) if takes(sample, pod.placement) and pod.request.fits(capacity)]
    shapes = sorted(fit, key=lambda pod: (-_size(pod.request, capacity), pod.request.amounts))
    used: list[Resources] = []
    for shape in shapes:
        node = 0  # a node that is full for a shape stays full for it
        for _ in range(sum(pod == shape for pod in pods)):
            while node < len(used) and not shape.request.fits(capacity - used[node]):
                node += 1
            if node == at_most:
                break
            if node == len(used):
                used.append(Resources())
            used[node] += shape.request
    return tuple(used)


def _size(request: Resources, capacity: Resources) -> float:
    """The largest part of a node that a pod takes of any resource."""
    return max((amount / capacity[name] for name, amount in request.amounts if capacity[name] > 0), default=0.0)
