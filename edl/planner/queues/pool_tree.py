"""Computes what is left of one pool in a tree of Cohorts, by Kueue's rules for lending and borrowing.

Source: sigs.k8s.io/kueue/pkg/cache/scheduler/resource_node.go, funcs available, potentialAvailable and addUsage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edl.model.quota_trees import Pool, PoolLimits, QuotaNode

_NOTHING = PoolLimits(0)


class PoolTree:
    """One pool of all trees; amounts are in the units of `Resources`.

    A node that names a missing parent, or is part of a circle, is the top of a tree of its own: it borrows from
    nobody, so no sum of the results exceeds what really is there.
    """

    def __init__(self, nodes: Iterable[QuotaNode], pool: Pool) -> None:
        by_name = {node.name: node for node in nodes}
        self._limits = {name: dict(node.limits).get(pool, _NOTHING) for name, node in by_name.items()}
        self._parent = {name: _parent(node, by_name) for name, node in by_name.items()}
        self._whole = {name: limits.nominal for name, limits in self._limits.items()}
        self._used = dict.fromkeys(by_name, 0)
        for name in sorted(by_name, key=self._depth, reverse=True):
            if parent := self._parent[name]:
                self._whole[parent] += self._whole[name] - self._kept(name)

    def nominal(self, node: str) -> int:
        """The quota that the node itself owns."""
        return self._limits[node].nominal

    def used(self, node: str) -> int:
        """The amount in use at the node: its own, and that of its children beyond what each child does not lend."""
        return self._used[node]

    def take(self, node: str, amount: int) -> None:
        """Count an amount as used at a node, whether it is available or not."""
        spare = max(0, self._kept(node) - self._used[node])
        self._used[node] += amount
        if (parent := self._parent[node]) and amount > spare:
            self.take(parent, amount - spare)

    def available(self, node: str) -> int:
        """How much more a node may use; negative if it uses too much."""
        parent, limits = self._parent[node], self._limits[node]
        if not parent:
            return self._whole[node] - self._used[node]
        kept, above = self._kept(node), self.available(parent)
        if limits.borrowing is not None:
            above = min(above, self._whole[node] - max(kept, self._used[node]) + limits.borrowing)
        return max(0, kept - self._used[node]) + above

    def most(self, node: str) -> int:
        """The quota available at a node if no queue used anything."""
        parent, limits = self._parent[node], self._limits[node]
        if not parent:
            return self._whole[node]
        most = self._kept(node) + self.most(parent)
        return most if limits.borrowing is None else min(most, self._whole[node] + limits.borrowing)

    def top(self, node: str) -> str:
        """The root of the tree that a node belongs to."""
        return self.top(parent) if (parent := self._parent[node]) else node

    def _kept(self, node: str) -> int:
        """The quota that a node does not lend."""
        lending = self._limits[node].lending
        return 0 if lending is None else max(0, self._whole[node] - lending)

    def _depth(self, node: str) -> int:
        parent = self._parent[node]
        return 1 + self._depth(parent) if parent else 0


def _parent(node: QuotaNode, nodes: Mapping[str, QuotaNode]) -> str:
    """The name of the node above; empty at the top, and in a circle."""
    seen, above = {node.name}, node.parent
    while above in nodes and above not in seen:
        seen.add(above)
        above = nodes[above].parent
    return node.parent if node.parent in nodes and above not in seen else ""
