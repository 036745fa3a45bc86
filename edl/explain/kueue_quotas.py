"""Where the quota of a ClusterQueue is: who borrows it, and how much of that comes back now."""

from __future__ import annotations

from dataclasses import replace

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.quota_trees import KueueState, Pool, QuotaNode, SizedQueue
from edl.model.sizes import at_most
from edl.model.units import amount, count
from edl.planner.queues.kueue_quotas import allotted, sized_uses
from edl.planner.queues.pool_tree import PoolTree
from edl.planner.quota import QuotaRow, QuotaShortage

NAMED = 2
"""The most borrowers that are named: those that borrow most."""


class KueueQuotas:
    """The quotas of Kueue in one snapshot."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        """Prepare to look up the Kueue quotas of one snapshot."""
        self._snapshot = snapshot
        self._queues: dict[str, SizedQueue] = {queue.name: queue for queue in snapshot.kueue.queues}

    def limits(self, row: QuotaRow) -> bool:
        """True if the limit is one of Kueue's."""
        return not row.namespace and row.queue in self._queues

    def now(self, row: QuotaRow) -> str:
        """Say how much of a resource a ClusterQueue may use now, and how much if no other queue used any."""
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
        pool = Pool(flavor, row.resource)
        return _named(pool, self._borrowers(queue.node, pool, self._snapshot.kueue.nodes))

    def of_base(self, job: Job) -> str:
        """Say what keeps Kueue from admitting a job whose Workloads edl makes, or how many of its pods would fit now.

        Args:
            job: any job.

        Returns:
            A part of a sentence; empty for a job whose base holds quota, or whose ClusterQueue is not known.
        """
        state = job.kueue
        if state is None or not state.needs:
            return ""
        fits: list[int] = []
        for pool, need in state.needs:
            if (unused := self._unused(state.cluster_queue, pool)) < need:
                return self._lacks(state, pool, need, unused)
            if each := job.trainer.request[pool.resource]:
                fits.append((unused - need) // each)
        pods = at_most(job.sizes, min(job.max_trainers, job.min_trainers + min(fits, default=0)))
        quotas = ", ".join(dict.fromkeys(pool.flavor for pool, _ in state.needs))
        unused_for = f"{state.cluster_queue} has unused quota {quotas} for {count(pods, 'pod')} of it"
        return f"{unused_for}, and it asks for {job.min_trainers} to {job.max_trainers}"

    def _lacks(self, state: KueueState, pool: Pool, need: int, unused: int) -> str:
        """Say how much quota a job's first Workload lacks, whether it is lent to others, and to which queues."""
        nodes, name = self._snapshot.kueue.nodes, state.cluster_queue
        own, used = PoolTree(nodes, pool).nominal(name), self._used(pool).get(name, 0)
        lacking = amount(pool.resource, need - max(0, unused))
        is_own = used + need <= own
        if is_own and state.base is None:  # else Kueue has a Workload that claims it
            nodes = tuple(_claiming(node, pool, need) if node.name == name else node for node in nodes)
        borrowed = f"and can only borrow it (nominalQuota {amount(pool.resource, own)})"
        whose = "which is its own" if is_own else borrowed
        waits = f"waits for {lacking} of quota {pool.flavor} in {name}, {whose}"
        return waits + _named(pool, self._borrowers(name, pool, nodes))

    def _unused(self, name: str, pool: Pool) -> int:
        """How much more of a pool a ClusterQueue may use now; negative if it uses too much."""
        tree = PoolTree(self._snapshot.kueue.nodes, pool)
        for node, used in self._used(pool).items():
            tree.take(node, used)
        return tree.available(name)

    def _used(self, pool: Pool) -> dict[str, int]:
        """How much of a pool is reserved at each node of the quota tree, by the name of the node."""
        used = {
            node.name: dict(node.held).get(pool, 0) + dict(node.leaving).get(pool, 0)
            for node in self._snapshot.kueue.nodes
        }
        for use in sized_uses(self._snapshot).get(pool, ()):
            used[use.node] += use.reserved
        return used

    def _borrowers(self, node: str, pool: Pool, nodes: tuple[QuotaNode, ...]) -> list[tuple[int, str, int]]:
        """Return (borrowed, name, given back now) of the other queues in the tree, the largest borrower first."""
        uses = sized_uses(self._snapshot).get(pool, ())
        shares, tree = allotted(nodes, pool, uses), PoolTree(nodes, pool)
        used = {one.name: dict(one.held).get(pool, 0) for one in nodes if one.name.startswith("ClusterQueue ")}
        back = dict.fromkeys(used, 0)
        for use in uses:
            used[use.node] += use.reserved
            back[use.node] += max(0, use.reserved - shares[use.queue])
        found = [
            (borrowed, name, min(borrowed, back[name]))
            for name, amount_used in used.items()
            if name != node
            and tree.top(name) == tree.top(node)
            and (borrowed := amount_used - tree.nominal(name)) > 0
        ]
        return sorted(found, key=lambda one: (-one[0], one[1]))


def _named(pool: Pool, borrowers: list[tuple[int, str, int]]) -> str:
    """The largest borrowers as a part of a sentence."""
    return "".join(
        f"; {name} borrows {amount(pool.resource, borrowed)}"
        + (f" and gives back {amount(pool.resource, back)}" if back else "")
        for borrowed, name, back in borrowers[:NAMED]
    )


def _claiming(node: QuotaNode, pool: Pool, more: int) -> QuotaNode:
    """Return a node of the quota tree that asks for `more` of a pool."""
    claimed = dict(node.claimed)
    claimed[pool] = claimed.get(pool, 0) + more
    return replace(node, claimed=tuple(sorted(claimed.items())))
