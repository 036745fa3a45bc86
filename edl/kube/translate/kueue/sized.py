"""The jobs that edl sizes with their Workloads, and the quota trees with all that is reserved or asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edl.kube.translate.kueue.loads import Load, Owner, PodSet
from edl.kube.translate.kueue.owned import holding_of, waiting_of
from edl.kube.translate.kueue.trees import Quotas, with_claims, with_held
from edl.model.jobs import Job
from edl.model.quota_trees import KueueState, Pool, QuotaTrees, SizedQueue

Amounts = dict[Pool, int]


@dataclass(frozen=True, slots=True)
class SizedJob:
    """A job of Kueue that edl sizes, with its Workloads.

    Attributes:
        job: as its adapter read it.
        state: what the object itself says about Kueue.
        node: its ClusterQueue.
        holding: its Workload that holds a reservation; None while it waits.
        waiting: its newest Workload without a reservation: of a larger size, or of a job that waits.
        flavors: the flavor of each resource: of the reservation, or that Kueue would try first.
    """

    job: Job
    state: KueueState
    node: str
    holding: Load | None
    waiting: Load | None
    flavors: tuple[tuple[str, str], ...]

    @property
    def queue(self) -> str:
        """The name of the job's queue, in the form of `SizedQueue.name`."""
        names = dict.fromkeys(flavor for _, flavor in self.flavors)
        return f"{self.node.removeprefix('ClusterQueue ')}/{'+'.join(names)}"

    @property
    def trainers(self) -> PodSet | None:
        """The job's trainers in the Workload that holds a reservation; None without one."""
        return None if self.holding is None else self.holding.pod_set(self.state.pod_set)

    @property
    def wished(self) -> PodSet | None:
        """The job's trainers in the pending Workload; None without one, or if somebody has deactivated it."""
        return self.waiting.pod_set(self.state.pod_set) if self.waiting is not None and self.waiting.active else None

    def least(self) -> Amounts:
        """The quota that the job needs for its minimum."""
        low = self.job.bounds.min_trainers
        return {
            Pool(flavor, resource): self.job.trainer.request[resource] * low
            + sum(fixed.shape.request[resource] * fixed.count for fixed in self.job.fixed)
            for resource, flavor in self.flavors
        }


def sized_jobs(jobs: Iterable[Job], quotas: Quotas, loads: Iterable[Load]) -> dict[Owner, SizedJob]:
    """The jobs that edl sizes: they name an existing queue of Kueue, and nothing is wrong with them."""
    owned: dict[Owner, list[Load]] = {}
    for load in sorted(loads, key=lambda load: (load.created_s, load.key)):
        owned.setdefault(load.owner, []).append(load)
    found: dict[Owner, SizedJob] = {}
    for job in jobs:
        if job.kueue is None or not job.kueue.local_queue or job.problem or job.finished or job.deleting:
            continue
        own = owned.get((job.key.namespace, job.uid), ())
        if job.kueue.is_owned:
            holding, waiting = holding_of(own), waiting_of(own)
            if holding is None:
                continue  # its base waits like anybody else's Workload
        else:
            holding = next((load for load in reversed(own) if load.is_reserved), None)
            waiting = next((load for load in reversed(own) if not load.is_reserved), None)
        node = quotas.queues.get((job.key.namespace, job.kueue.local_queue), "")
        if holding is not None:
            node = quotas.node_of(holding)
        pods = None if holding is None else holding.pod_set(job.kueue.pod_set)
        flavors = dict(pods.flavors) if pods is not None else _tried_first(job, node, quotas, waiting)
        found[job.key.namespace, job.uid] = SizedJob(
            job, job.kueue, node, holding, waiting, tuple(sorted(flavors.items()))
        )
    return found


def quota_trees(
    sized: Mapping[Owner, SizedJob], quotas: Quotas, loads: Sequence[Load], waiting: Sequence[Load]
) -> QuotaTrees:
    """Build the quota trees: with what jobs that edl sizes have reserved, and what others hold or ask for."""
    queues: dict[str, SizedQueue] = {}
    reserved: dict[str, dict[str, int]] = {}
    elsewhere: dict[str, dict[str, int]] = {}
    least: dict[str, Amounts] = {}
    lowest: dict[str, int] = {}
    held: list[tuple[str, Pool, int]] = []
    leaving: list[tuple[str, Pool, int]] = []
    for load in loads:
        is_of_job = load.owner in sized and not (load.index is not None and load.evicted)
        if load.is_reserved and not is_of_job:
            (leaving if load.evicted else held).extend((quotas.node_of(load), *one) for one in load.held())
    for one in sized.values():
        queues.setdefault(one.queue, SizedQueue(one.queue, one.node, one.flavors))
        if one.holding is None:
            continue
        flavors, total = dict(one.flavors), reserved.setdefault(one.queue, {})
        for pool, used in one.holding.held():
            if flavors.get(pool.resource) == pool.flavor:
                total[pool.resource] = total.get(pool.resource, 0) + used
            else:  # such as the head of a RayCluster on nodes of another flavor
                held.append((one.node, pool, used))
                others = elsewhere.setdefault(one.queue, {})
                others[pool.resource] = others.get(pool.resource, 0) + used
        lowest[one.node] = min(lowest.get(one.node, one.holding.priority), one.holding.priority)
        of_node = least.setdefault(one.node, {})
        for pool, used in one.least().items():
            of_node[pool] = of_node.get(pool, 0) + used
    untold = untold_of(waiting, quotas, loads)
    claiming = [
        load
        for load in waiting
        if load.owner not in sized
        and load.key not in untold
        and load.priority >= lowest.get(quotas.node_of(load), load.priority)
    ]
    nodes = with_claims(quotas, with_held(quotas.nodes, held, leaving), claiming, least)
    return QuotaTrees(
        tuple(nodes[name] for name in sorted(nodes)),
        tuple(
            replace(
                queue,
                reserved=tuple(sorted(reserved.get(name, {}).items())),
                elsewhere=tuple(sorted(elsewhere.get(name, {}).items())),
            )
            for name, queue in sorted(queues.items())
        ),
    )


def untold_of(waiting: Iterable[Load], quotas: Quotas, loads: Iterable[Load]) -> set[str]:
    """The pending Workloads, as namespace and name, that Kueue may never admit, so that no job shrinks for them yet.

    They request a resource that their ClusterQueue does not cover. Whether it counts is known once Kueue has tried
    the Workload, or an earlier one in that ClusterQueue: of those that are alike it tries one only.
    """
    free: dict[str, set[str]] = {}
    for load in loads:
        if load.is_tried and not load.is_reserved:
            free.setdefault(quotas.node_of(load), set()).update(quotas.rules_of(load).uncovered(load))
    return {
        load.key
        for load in waiting
        if not load.is_tried and quotas.rules_of(load).uncovered(load) - free.get(quotas.node_of(load), set())
    }


def _tried_first(job: Job, node: str, quotas: Quotas, waiting: Load | None) -> dict[str, str]:
    """By resource, the first flavor that takes the pods and whose quota could hold the minimum."""
    found: dict[str, str] = {}
    request, pods = job.trainer.request, waiting.pod_set(job.kueue.pod_set) if waiting and job.kueue else None
    for resources, every in quotas.groups.get(node, ()):
        wanted = {resource: request[resource] * job.min_trainers for resource in resources if request[resource]}
        names = [*quotas.rules_of(waiting).taking(pods, every)] if waiting and pods else []
        fitting = (
            name
            for name in names or every
            if all(quotas.tree(Pool(name, resource)).most(node) >= need for resource, need in wanted.items())
        )
        if every:
            found |= dict.fromkeys(wanted, next(fitting, (names or every)[0]))
    return found
