"""Adds to jobs that name a queue of Kueue what Kueue has decided about them, and reads the quotas that limit them.

Kueue decides who runs, and edl how many trainers those have. For each larger size of a running job Kueue makes a
Workload that takes the place of the one before once it is admitted; until then all further pods are gated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from edl.errors import ConfigError
from edl.kube.translate.kueue.bases import Base, with_base
from edl.kube.translate.kueue.flavors import Flavor
from edl.kube.translate.kueue.growth import LateSizes, behind, blocked, closed, ungranted
from edl.kube.translate.kueue.loads import Load, Owner, Unreadable, load_of
from edl.kube.translate.kueue.never import CountedResources
from edl.kube.translate.kueue.objects import KueueObjects, WorkloadObject
from edl.kube.translate.kueue.owned import (
    as_waiting,
    is_owned,
    not_managed_twice,
    read_owned,
    state_of_left,
    stopped,
)
from edl.kube.translate.kueue.sized import SizedJob, quota_trees, sized_jobs
from edl.kube.translate.kueue.trees import Quotas, read_quotas
from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.rules.namespaces import NamespaceLabels
from edl.model.jobs import Job
from edl.model.names import ANNOTATION_KUEUE_QUEUE, KUEUE_QUEUE, JobKey, Role
from edl.model.quota_trees import NO_TREES, KueueState, OwnedWorkload, QuotaTrees
from edl.model.resources import PodShape


@dataclass(frozen=True, slots=True)
class _Scene:
    """The Kueue objects of one moment, indexed for the reader.

    Attributes:
        waiting: Workloads that may be admitted.
        stuck: those that never are, and that nobody of their ClusterQueue gets past.
    """

    quotas: Quotas
    waiting: Sequence[Load]
    stuck: Sequence[Load]
    now_s: float


class KueueReader:
    """Translates the objects of Kueue for one snapshot after the other.

    Attributes:
        is_used: a job of the last result names a queue of Kueue, or has Workloads that edl has made.
        valid_until_s: until when the last result holds if no object changes, in seconds since the epoch.
    """

    def __init__(self) -> None:
        self.is_used = False
        self.valid_until_s = inf
        self._late = LateSizes()
        self._loads: dict[
            str, tuple[WorkloadObject, Load | Unreadable | None, tuple[Owner, OwnedWorkload] | None]
        ] = {}
        self._known: dict[str, Job] = {}
        self._counted = CountedResources()

    def read(
        self, jobs: tuple[Job, ...], objects: KueueObjects, namespaces: NamespaceLabels, now_s: float
    ) -> tuple[tuple[Job, ...], QuotaTrees]:
        """The jobs with what Kueue has decided about them, and the quotas.

        Args:
            jobs: all jobs; those without `kueue` are returned as they are.
            objects: the objects of the cluster.
            namespaces: the labels of those that edl may read.
            now_s: seconds since the epoch.
        """
        self.valid_until_s = inf
        self.is_used = any(job.kueue is not None for job in jobs) or any(map(is_owned, objects.workloads))
        if not self.is_used:
            self._loads, self._known, self._counted = {}, {}, CountedResources()
            self._late.begin(())
            return jobs, NO_TREES
        quotas, loads, problem = self._read(objects, namespaces)
        quotas.counted = self._counted.read(loads, now_s)
        owned = self._owned(quotas) if not problem else {}
        unreadable = self._unreadable() if not problem else {}
        of_kueue = {load.owner: load for load in loads if load.index is None}
        found: dict[JobKey, Job] = {}
        for job in jobs:
            owner = job.key.namespace, job.uid
            wrong = problem or unreadable.get(owner, "")
            single = not_managed_twice(job, of_kueue.get(owner))
            found[job.key] = _found(single, job.kueue, quotas, wrong, owned.get(owner, ()))
        sized = sized_jobs(found.values(), quotas, loads)
        waiting, stuck = list(filter(quotas.waits, loads)), list(filter(quotas.blocks, loads))
        scene = _Scene(quotas, waiting, stuck, now_s)
        trees = quota_trees(sized, quotas, loads, waiting)
        self._late.begin({one.job.uid for one in sized.values()})
        for one in sized.values():
            decided = _decided(one, scene, is_pending=self._late.is_pending(one, now_s))
            found[one.job.key] = self._with_refusal(one, decided, scene)
        self.valid_until_s = min(self._late.valid_until_s, self._counted.valid_until_s)
        uids = {job.uid for job in found.values()}
        self._known = {uid: job for uid, job in self._known.items() if uid in uids}
        return tuple(self._kept(job) for job in found.values()), trees

    def _read(self, objects: KueueObjects, namespaces: NamespaceLabels) -> tuple[Quotas, list[Load], str]:
        """Read the quotas and the Workloads that have not ended.

        The text is the problem if they cannot be read, else empty.
        """
        if objects.problem:
            return Quotas(), [], objects.problem
        try:
            quotas = read_quotas(objects, namespaces)
            return quotas, [quotas.without_lost(load) for load in self._read_loads(objects.workloads)], ""
        except ConfigError as error:
            return Quotas(), [], f"an object of Kueue cannot be read: {error}; correct it"

    def _read_loads(self, workloads: Iterable[WorkloadObject]) -> list[Load]:
        """The Workloads that have not ended; one that has not changed is not translated again.

        Of a Workload that cannot be read, nothing counts: anybody may have written it, and nobody else waits for it.
        """
        before, self._loads = self._loads, {}
        for source in workloads:
            key = f"{(source.metadata or ObjectMetadata()).namespace}/{_name(source)}"
            known = before.get(key)
            is_same = known is not None and known[0] is source
            again = known if known is not None and is_same else (source, load_of(source), read_owned(source))
            self._loads[key] = again
        return [load for _, load, _ in self._loads.values() if isinstance(load, Load)]

    def _unreadable(self) -> dict[Owner, str]:
        """What is wrong with Workloads of jobs, by namespace and UID of the job."""
        found = (load for _, load, _ in self._loads.values() if isinstance(load, Unreadable))
        return {one.owner: f"Workload {one.owner[0]}/{one.name}: {one.problem}; correct it" for one in found}

    def _owned(self, quotas: Quotas) -> dict[Owner, tuple[OwnedWorkload, ...]]:
        """The Workloads that edl has made, by namespace and UID of the job, with why Kueue never admits them."""
        found: dict[Owner, list[OwnedWorkload]] = {}
        for _, load, one in self._loads.values():
            if one is not None:
                waits = isinstance(load, Load) and not load.is_reserved
                why = quotas.rules_of(load).refusal(load) if isinstance(load, Load) and waits else ""
                found.setdefault(one[0], []).append(replace(one[1], message=why) if why else one[1])
        return {owner: tuple(sorted(own, key=lambda one: (one.index, one.name))) for owner, own in found.items()}

    def _with_refusal(self, one: SizedJob, job: Job, scene: _Scene) -> Job:
        refusal = (
            closed(one, scene.quotas)
            or ungranted(one)
            or self._late.refusal(one, scene.now_s)
            or blocked(one, scene.quotas, scene.waiting)
            or behind(one, scene.quotas, scene.stuck)
        )
        if refusal is None and one.state.is_owned:
            refusal = stopped(job, one.state)
        return job if refusal is None else replace(job, refusal=refusal)

    def _kept(self, job: Job) -> Job:
        """Return the same Python object as before for an equal job, so that the last plan stays valid."""
        if job.kueue is None:
            return job
        known = self._known.get(job.uid)
        if known != job:
            self._known[job.uid] = known = job
        return known


def _decided(one: SizedJob, scene: _Scene, *, is_pending: bool) -> Job:
    """Add to a job its reservation, its queue, and the nodes of its flavors."""
    job, latest = one.job, one.waiting or one.holding
    reserved = None if one.trainers is None else one.trainers.held
    state = replace(one.state, reserved=reserved, is_pending=is_pending)
    is_stopped = state.is_suspended and latest is not None and not latest.active
    if state.is_owned:
        return _owned_on_flavors(replace(job, kueue=state, queue=one.queue, refusal=None), one, scene.quotas.flavors)
    names = {flavor for _, flavor in one.flavors}
    trainer = job.trainer if one.holding is not None else _on_flavors(job.trainer, names, scene.quotas.flavors)
    return replace(job, kueue=state, queue=one.queue, suspended=is_stopped, trainer=trainer)


def _owned_on_flavors(job: Job, one: SizedJob, flavors: Mapping[str, Flavor]) -> Job:
    """Let the pods of a job require the nodes of the flavors with which its base was admitted."""

    def placed(shape: PodShape, role: Role) -> PodShape:
        pods = one.holding.pod_set(role.value) if one.holding is not None else None
        return shape if pods is None else _on_flavors(shape, {flavor for _, flavor in pods.flavors}, flavors)

    fixed = tuple(replace(fixed, shape=placed(fixed.shape, fixed.role)) for fixed in job.fixed)
    return replace(job, trainer=placed(job.trainer, Role.TRAINER), fixed=fixed)


def _on_flavors(shape: PodShape, names: Collection[str], flavors: Mapping[str, Flavor]) -> PodShape:
    """Add to a pod shape the node labels of some flavors, and tolerations of their taints."""
    selector, tolerations = dict(shape.placement.node_selector), {*shape.placement.tolerations}
    for name in sorted(names):
        flavor = flavors.get(name, Flavor())
        selector |= dict(flavor.labels)
        tolerations |= {*flavor.tolerations}
    placement = replace(
        shape.placement, node_selector=tuple(sorted(selector.items())), tolerations=tuple(sorted(tolerations))
    )
    return replace(shape, placement=placement)


def _found(
    job: Job, state: KueueState | None, quotas: Quotas, problem: str, workloads: tuple[OwnedWorkload, ...]
) -> Job:
    """Add to a job what is wrong with its queue."""
    if state is None:
        return replace(job, kueue=state_of_left(workloads)) if workloads else job
    if state.is_owned and (job.problem or problem):
        if job.problem:
            return replace(job, kueue=replace(state, workloads=workloads))
        return as_waiting(job, replace(state, is_unknown=True), problem)
    name = f"LocalQueue {state.local_queue} of namespace {job.key.namespace}"
    node = quotas.queues.get((job.key.namespace, state.local_queue))
    if not problem and node is None:
        is_annotated = state.is_owned and job.owner_count is not None
        where = f"annotation {ANNOTATION_KUEUE_QUEUE}" if is_annotated else f"label {KUEUE_QUEUE}"
        problem = f"{name} does not exist; create it, or correct {where}"
    elif not problem and not node:
        problem = f"{name} names a ClusterQueue that does not exist; create it, or correct spec.clusterQueue"
    if state.is_owned:
        problem = problem or quotas.closed(node or "", job.key.namespace, state.local_queue)
        state = replace(state, workloads=workloads)
        base = Base(state) if problem else with_base(job, state, quotas)
        return as_waiting(job, base.state, problem or base.never)
    return replace(job, problem=job.problem or problem)


def _name(source: WorkloadObject) -> str:
    return (source.metadata or ObjectMetadata()).name or ""
