"""Quotas that Kueue manages, as values: ClusterQueues and Cohorts in trees, and the queues of edl's jobs below them.

A ClusterQueue or Cohort has amounts of its own for each resource of each flavor of nodes. It lends what it does not
use to the others below the same Cohort, as far as its lending limit allows, and borrows from them up to its borrowing
limit. Who runs is decided by Kueue; edl sizes what runs, within what is unused and claimed by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edl.model.queues import Amounts


class Pool(NamedTuple):
    """One resource on one ResourceFlavor; Kueue has a quota for each such pair."""

    flavor: str
    resource: str


PoolAmounts = tuple[tuple[Pool, int], ...]
"""(pool, amount) sorted by pool, in the units of `Resources`."""


class PoolLimits(NamedTuple):
    """Quota and limits of one pool at one node of the tree.

    Attributes:
        nominal: its own.
        borrowing: the most beyond its own; None without a limit.
        lending: the most of its own that others may use; None without a limit.
    """

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaNode:
    """A ClusterQueue or a Cohort.

    Attributes:
        name: its kind and name: `ClusterQueue blue`, `Cohort all`.
        parent: the name of the Cohort above; empty at the top of a tree.
        limits: what it has of each pool, sorted.
        weight: its part of what others leave, > 0.
        held: what workloads have reserved that edl does not size.
        leaving: what evicted workloads still have reserved: it comes back once their pods are gone.
        claimed: what waiting workloads would have of its own: those that edl does not size.
    """

    name: str
    parent: str = ""
    limits: tuple[tuple[Pool, PoolLimits], ...] = ()
    weight: float = 1.0
    held: PoolAmounts = ()
    claimed: PoolAmounts = ()
    leaving: PoolAmounts = ()


@dataclass(frozen=True, slots=True)
class SizedQueue:
    """The jobs of one ClusterQueue that edl sizes and that have the same flavors.

    Attributes:
        name: as `Job.queue` has it: the ClusterQueue and the flavors, `blue/gpu-a`.
        node: the ClusterQueue, as `QuotaNode.name` has it.
        flavors: (resource, flavor) sorted: where each of its resources comes from.
        reserved: what Kueue has reserved for its jobs, by resource.
        elsewhere: what it has reserved for them on other flavors, by resource.
    """

    name: str
    node: str
    flavors: tuple[tuple[str, str], ...]
    reserved: Amounts = ()
    elsewhere: Amounts = ()


@dataclass(frozen=True, slots=True)
class QuotaTrees:
    """All quotas of Kueue that limit jobs which edl sizes.

    Attributes:
        nodes: every ClusterQueue and Cohort, sorted by name.
        queues: the queues of the jobs that edl sizes, sorted by name.
    """

    nodes: tuple[QuotaNode, ...] = ()
    queues: tuple[SizedQueue, ...] = ()


NO_TREES = QuotaTrees()
"""The quota trees of a cluster without jobs of Kueue."""


@dataclass(frozen=True, slots=True)
class OwnedWorkload:
    """A Workload of Kueue that edl has made for a job, and what Kueue says about it.

    Attributes:
        name, uid: of the object.
        index: 0 for the base: master, pservers and the minimum. From 1 on for trainers above that.
        trainers: how many trainers it is for.
        digest: what edl asked for when it made it; see `edl.lifecycle.kueue.workloads`.
        is_reserved: it holds quota.
        is_admitted: its pods may run.
        is_ready: its pods have been ready since it was admitted.
        is_active: nobody has stopped it (`spec.active`).
        is_finished: it has ended.
        evicted: why Kueue takes back what it holds, in one word; empty if it does not.
        message: what Kueue says about its admission, or about its eviction.
        flavors: (name of its pods, flavors of their nodes) if it holds quota.
    """

    name: str
    uid: str
    index: int
    trainers: int
    digest: str = ""
    is_reserved: bool = False
    is_admitted: bool = False
    is_ready: bool = False
    is_active: bool = True
    is_finished: bool = False
    evicted: str = ""
    message: str = ""
    flavors: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class KueueState:
    """Kueue's decision about a job.

    Attributes:
        local_queue: the name of its LocalQueue; empty for a job that has left Kueue and still has Workloads.
        pod_set: the name of its trainers in the Workload.
        reserved: for how many trainers it holds quota; None while it waits.
        is_pending: Kueue makes its Workloads, and may be admitting another size than it asks for, or a first one.
        is_suspended: it is suspended: by Kueue, as long as its Workload is active.
        is_owned: edl makes its Workloads: those of a TrainingJob, and of a workload that asks for it. Kueue makes
            those of any other job.
        priority_class: the WorkloadPriorityClass that such a job names; empty for none.
        workloads: those that edl has made, by index.
        is_unknown: the objects of Kueue cannot be read, so such a job keeps what it has.
        cluster_queue: of a job whose base holds no quota: its ClusterQueue, as `QuotaNode.name` has it.
        needs: what that base needs of the flavors that Kueue would try first, sorted.
    """

    local_queue: str
    pod_set: str
    reserved: int | None = None
    is_suspended: bool = False
    is_owned: bool = False
    priority_class: str = ""
    workloads: tuple[OwnedWorkload, ...] = ()
    is_unknown: bool = False
    cluster_queue: str = ""
    needs: PoolAmounts = ()
    is_pending: bool = False

    @property
    def base(self) -> OwnedWorkload | None:
        """The Workload of the master, the pservers and the minimum; None if there is none that has not ended."""
        return next((one for one in self.workloads if not one.index and not one.is_finished), None)
