"""Where the quota of a ClusterQueue is: who borrows it, and how much of that comes back now."""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot
from edl.model.quota_trees import Pool, QuotaNode, SizedQueue
from edl.model.units import amount
from edl.planner.queues.kueue_quotas import allotted, sized_uses
from edl.planner.queues.pool_tree import PoolTree
from edl.planner.quota import QuotaRow, QuotaShortage

NAMED = 2
"""So many borrowers are named at most: those that borrow most."""


class KueueQuotas:
    """The quotas of Kueue in one snapshot."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        """Remember the snapshot."""
        self._snapshot = snapshot
        self._queues: dict[str, SizedQueue] = {queue.name: queue for queue in snapshot.kueue.queues}

    def limits(self, row: QuotaRow) -> bool:
        """True if the limit is one of Kueue's."""
        return not row.namespace and row.queue in self._queues

    def now(self, row: QuotaRow) -> str:
        """The use that a ClusterQueue may reach now, and the most if no other queue used anything."""
        limit, whole = amount(row.resource, row.limit), amount(row.resource, row.whole)
        return f"{row.owner} may use {limit} now" + (f", and {whole} at most" if row.others else "")

    def reached(self, shortage: QuotaShortage) -> tuple[str, str]:
        """Write the short and the full explanation of a job that a quota keeps from one more trainer."""
        row, needs = shortage.row, f"a trainer requests {amount(shortage.row.resource, shortage.needs)}"
        left = amount(row.resource, max(0, row.limit - shortage.used))
        short = f"{row.owner} has {left} left now; {needs}"
        used = f"jobs that edl sizes use {amount(row.resource, shortage.used)} of that"
        return short, f"{self.now(row)}; {used}; {needs}{self.holders(row)}"

    def holders(self, row: QuotaRow) -> str:
        """Name the borrowers in a ClusterQueue's tree: `; ClusterQueue green borrows 6 cores and gives back 4 cores`.

        Args:
            row: a limit of Kueue's.

        Returns:
            A part of a sentence; empty if nobody borrows.
        """
        queue = self._queues[row.queue]
        flavor = dict(queue.flavors).get(row.resource)
        if flavor is None:
            return ""
        borrowers = self._borrowers(queue, Pool(flavor, row.resource))
        return "".join(
            f"; {name} borrows {amount(row.resource, borrowed)}"
            + (f" and gives back {amount(row.resource, back)}" if back else "")
            for borrowed, name, back in borrowers[:NAMED]
        )

    def _borrowers(self, queue: SizedQueue, pool: Pool) -> list[tuple[int, str, int]]:
        """(what it borrows, its name, what it gives back now) of the others in the tree, the largest first."""
        nodes: tuple[QuotaNode, ...] = self._snapshot.kueue.nodes
        uses = sized_uses(self._snapshot).get(pool, ())
        shares, tree = allotted(nodes, pool, uses), PoolTree(nodes, pool)
        used = {node.name: dict(node.held).get(pool, 0) for node in nodes if node.name.startswith("ClusterQueue ")}
        back = dict.fromkeys(used, 0)
        for use in uses:
            used[use.node] += use.reserved
            back[use.node] += max(0, use.reserved - shares[use.queue])
        found = [
            (borrowed, name, min(borrowed, back[name]))
            for name, amount_used in used.items()
            if name != queue.node
            and tree.top(name) == tree.top(queue.node)
            and (borrowed := amount_used - tree.nominal(name)) > 0
        ]
        return sorted(found, key=lambda one: (-one[0], one[1]))
