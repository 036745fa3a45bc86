"""What quota the base of a job (the Workload for its minimum) needs, and whether Kueue could ever admit it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from edl.kube.translate.kueue.flavors import PodPlace
from edl.kube.translate.kueue.loads import Load, PodSet
from edl.kube.translate.kueue.trees import Quotas
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.quota_trees import KueueState, Pool
from edl.model.resources import PodShape, is_amount


class Base(NamedTuple):
    """What Kueue would say of a job's base (the Workload for its minimum) before it has reserved quota for it.

    Attributes:
        state: what is known of the job, with what its base needs.
        never: why Kueue would never admit it, and the remedy; empty if it may.
    """

    state: KueueState
    never: str = ""


def with_base(job: Job, state: KueueState, quotas: Quotas) -> Base:
    """Compute what a job's base (the Workload for its minimum) needs, and whether Kueue could ever admit it.

    Args:
        job: as its reader made it; it names a LocalQueue of an existing ClusterQueue.
        state: with the Workloads of the job.
        quotas: what the objects of Kueue say.
    """
    base = state.base
    if base is not None and (base.is_reserved or not base.is_active):
        return Base(state)
    roles = [(fixed.role, fixed.shape, fixed.count) for fixed in job.fixed]
    pod_sets = tuple(_pods(*one) for one in (*roles, (Role.TRAINER, job.trainer, job.min_trainers)) if one[2])
    name = job.key.object_name if base is None else base.name
    load = Load(
        namespace=job.key.namespace,
        name=name,
        owner=(job.key.namespace, job.uid),
        created_s=job.created_s,
        priority=0,
        local_queue=state.local_queue,
        cluster_queue="",
        active=True,
        replaces="",
        pod_sets=pod_sets,
    )
    if never := quotas.rules_of(load).refusal(load):
        return Base(state, never if base is None else "")  # of a base that exists its reader says it
    return Base(replace(state, cluster_queue=quotas.node_of(load), needs=_needs(load, quotas)))


def _pods(role: Role, shape: PodShape, count: int) -> PodSet:
    each = tuple((name, n) for name, n in shape.request.amounts if is_amount(name))
    return PodSet(role.value, count, 0, each, PodPlace(shape.placement), count)


def _needs(load: Load, quotas: Quotas) -> tuple[tuple[Pool, int], ...]:
    """Find what a Workload needs from the first flavors that take its pods and have enough quota at all."""
    node, rules, found = quotas.node_of(load), quotas.rules_of(load), dict[Pool, int]()
    for pods in load.pod_sets:
        for resources, names in rules.groups:
            wanted = {name: n * pods.count for name, n in pods.each if n and name in resources}
            taking = [*rules.taking(pods, names)] if wanted else []
            fits = (
                one
                for one in taking
                if all(quotas.tree(Pool(one, name)).most(node) >= n for name, n in wanted.items())
            )
            if taking:
                flavor = next(fits, taking[0])
                for name, n in wanted.items():
                    found[Pool(flavor, name)] = found.get(Pool(flavor, name), 0) + n
    return tuple(sorted(found.items()))
