"""The objects of a cluster become a `ClusterSnapshot`: nodes here, pods in `pods` and `shapes`, jobs in `jobs`.

A decision must see the cluster as kube-scheduler does: the real request of each pod, its owner, and the nodes that
accept pods. An object that cannot be read is left out and reported, and the rest is still translated. Which jobs run
where is decided by the planner, not here. Objects that have not changed since the last snapshot are not translated
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import inf
from typing import Any

from edl.api.manifest import claim_name_of
from edl.api.priorities import PRIORITY_CLASSES
from edl.errors import ConfigError
from edl.kube.translate.books.full_queues import FullQueues
from edl.kube.translate.books.node_book import NodeBook, NodeChange
from edl.kube.translate.books.pod_book import PodBook, PodChange
from edl.kube.translate.books.sorted_values import SortedValues
from edl.kube.translate.daemonsets import DaemonReader
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.jobs import JobReader
from edl.kube.translate.kueue.objects import NO_KUEUE, KueueObjects
from edl.kube.translate.kueue.reader import KueueReader
from edl.kube.translate.learned import differs, tells_more
from edl.kube.translate.makers import Makers
from edl.kube.translate.objects import (
    DaemonSetObject,
    JobObject,
    NodeObject,
    ObjectMetadata,
    PodObject,
    PriorityClassObject,
    ResourceQuotaObject,
)
from edl.kube.translate.observed import ObservedPods
from edl.kube.translate.outlived import as_ended
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.priority_classes import by_name, default_class, never_preempting, priorities
from edl.kube.translate.queues import QueueObject, QueueReader
from edl.kube.translate.quotas.known_scopes import KnownScopes
from edl.kube.translate.quotas.resource_quotas import PodsOfNamespaces, charged_until_s, read_quotas
from edl.kube.translate.rules.apply import RuledSnapshots
from edl.kube.translate.rules.facts import NO_FACTS, Claim, RuleFacts
from edl.kube.translate.rules.role_rules import RoleRules
from edl.kube.translate.rules.terms import PodRules
from edl.kube.translate.shapes import limits_of
from edl.kube.translate.workload_reader import WorkloadObject, WorkloadReader
from edl.model.cluster import ClusterSnapshot, ResourceQuota
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod

JobChange = tuple[JobKey, JobObject | None]
"""A TrainingJob that came or changed, or None for one that is gone."""

_Elastic = dict[JobKey, tuple[WorkloadReader, Any]]


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of a cluster, decoded.

    Attributes:
        nodes: every node. None if `note_nodes` got them.
        pods: every pod, each at most once; finished pods of no job are optional. None if `note_pods` got them.
        jobs: every TrainingJob that the plan covers. None if `note_jobs` got them.
        workloads: every object of another kind that may ask to be resized, and those that make one; no others count.
        daemonsets: every DaemonSet.
        priority_classes: every PriorityClass; empty means that they are unknown, not that they are missing.
        resource_quotas: every ResourceQuota; empty if edl may not read them.
        queues: every Queue.
        unread_queues: the existing queues that cannot be decoded.
        unread_nodes: names of existing nodes that cannot be decoded.
        kueue: the objects of Kueue.
        facts: what rules depend on besides: volumes, claims, classes, attach limits and namespaces.
    """

    nodes: Iterable[NodeObject] | None
    pods: Iterable[PodObject] | None
    jobs: Iterable[JobObject] | None
    workloads: Iterable[WorkloadObject] = ()
    daemonsets: Iterable[DaemonSetObject] = ()
    priority_classes: Iterable[PriorityClassObject] = ()
    resource_quotas: Iterable[ResourceQuotaObject] = ()
    queues: Iterable[QueueObject] = ()
    unread_queues: Iterable[Quarantined] = ()
    unread_nodes: Iterable[str] = ()
    kueue: KueueObjects = NO_KUEUE
    facts: RuleFacts = NO_FACTS


class Translator:
    """Translates a cluster again and again, and reuses what has not changed.

    Args:
        default_master_image: the image of a master whose job names none.
        controller_namespace: jobs are invalid in this namespace; empty if it is unknown.

    Attributes:
        quarantined: the objects that the last snapshot leaves out.
        valid_until_s: until when the last snapshot holds if no object changes, in seconds since the epoch.
    """

    def __init__(self, *, default_master_image: str = "", controller_namespace: str = "") -> None:
        self.quarantined: tuple[Quarantined, ...] = ()
        self.valid_until_s = inf
        self._job_reader = JobReader(
            default_master_image=default_master_image, controller_namespace=controller_namespace
        )
        self._daemons, self._queues, self._kueue = DaemonReader(), QueueReader(), KueueReader()
        self._makers, self._scopes = Makers(), KnownScopes()
        self._pods, self._nodes, self._observed = PodBook(), NodeBook(), ObservedPods()
        self._sources: dict[JobKey, JobObject] = {}
        self._unprepared: dict[JobKey, None] = {}
        self._changed: set[JobKey] = set()  # jobs that are due for translation
        self._jobs: SortedValues[JobKey, Job] = SortedValues()  # TrainingJobs, and the workloads below
        self._workloads: dict[JobKey, object] = {}
        self._owners: dict[JobKey, ObjectMetadata] = {}  # of the last snapshot: workloads that are no TrainingJobs
        self._left_out: list[Quarantined] = []
        self._ruled, self._full_queues = RuledSnapshots(), FullQueues()
        self._role_rules = RoleRules(self._job_reader.manifest_of, self._pods.source_of, self._pods.share_rules)

    @property
    def names_kueue(self) -> bool:
        """True if a job of the last snapshot names a queue of Kueue."""
        return self._kueue.is_used

    def note_pods(self, changes: Iterable[PodChange], priority_classes: Iterable[PriorityClassObject]) -> None:
        """Note pods that came, changed or are gone; `translate_pods` translates them, or else the next snapshot.

        Args:
            changes: each pod at most once.
            priority_classes: every PriorityClass.
        """
        classes = by_name(priority_classes)
        self._pods.set_priorities(priorities(classes), never_preempting(classes))
        self._pods.note(changes)

    def translate_pods(self, now_s: float, at_most: int) -> bool:
        """Translate some of the pods that are due; False once none is left."""
        return self._pods.translate(now_s, at_most)

    def sort_pods(self, at_most: int) -> bool:
        """Sort some of the translated pods into jobs and others; False once none is left."""
        return self._pods.sort(at_most)

    def note_jobs(self, changes: Iterable[JobChange]) -> None:
        """Note TrainingJobs that came, changed or are gone; `prepare_jobs` or the next snapshot translates them."""
        for key, source in changes:
            if source is None:
                self._sources.pop(key, None)
                self._unprepared.pop(key, None)
            elif self._sources.get(key) is source:
                continue
            else:
                self._sources[key] = source
                self._unprepared[key] = None
            self._changed.add(key)
            self._pods.note_jobs([(key, None if source is None else _metadata(source))])

    def prepare_jobs(self, now_s: float, at_most: int) -> bool:
        """Translate some of the jobs that are due, without their pods; False once none is left."""
        for key in list(islice(self._unprepared, at_most)):
            del self._unprepared[key]
            self._job_reader.prepare(self._sources[key], key, now_s)
        return bool(self._unprepared)

    def note_nodes(self, changes: Iterable[NodeChange]) -> None:
        """Note nodes that came, changed or are gone; `translate_nodes` or the next snapshot translates them."""
        self._nodes.note(changes)

    def translate_nodes(self, at_most: int) -> bool:
        """Translate some of the nodes that are due; False once none is left. The snapshot reports unreadable ones."""
        return self._nodes.translate(at_most)

    def reserve_nodes(self, daemonsets: Iterable[DaemonSetObject], now_s: float, at_most: int) -> bool:
        """Find what DaemonSets reserve on some of the nodes that are due; False once none is left."""
        daemons, pods = self._daemons.read(daemonsets, []), self._pods.daemons
        return self._nodes.reserve(daemons, pods, pods.take_touched(), now_s, at_most)

    def read_jobs(self, now_s: float, at_most: int) -> bool:
        """Translate some of the jobs that are due, with their pods; False once none is left."""
        touched = {key for key in self._pods.touched if key in self._sources}
        self._pods.touched -= touched
        self._changed |= touched
        for key in list(islice(self._changed, at_most)):
            self._read_or_drop(key, now_s)
            self._changed.discard(key)  # what it learned from its own pods is in it already
        return bool(self._changed)

    def order_pods(self) -> bool:
        """Sort the pods of no job by name, else the next snapshot does it; True if that took long, after a list."""
        return self._pods.order()

    def snapshot(self, objects: ClusterObjects, now_s: float) -> ClusterSnapshot:
        """Translate a cluster.

        Args:
            objects: the objects of the cluster.
            now_s: when the objects were read, in seconds since the epoch.
        """
        self._left_out = []
        classes = by_name(objects.priority_classes)
        self._pods.set_priorities(priorities(classes), never_preempting(classes))
        self._note_listed(objects)
        self._pods.translate(now_s)
        elastic = self._elastic(objects.workloads)
        self._note_owners({key: source.metadata for key, (_, source) in elastic.items()})
        self._pods.sort()
        self._left_out += self._pods.left_out.values()
        daemons = self._daemons.read(objects.daemonsets, self._left_out)
        read_nodes = self._nodes.nodes(daemons, self._pods.daemons, self._pods.daemons.take_touched(), now_s)
        self._left_out += self._nodes.left_out.values()
        foreign = self._pods.foreign(self._nodes if len(self._nodes) else None)
        every, namespaces = self._read_all(elastic, now_s), objects.facts.namespaces
        known, quota_trees = self._kueue.read(every, objects.kueue, namespaces, now_s)
        snapshot = ClusterSnapshot(
            observed_at_s=now_s,
            nodes=read_nodes,
            pods=foreign,
            jobs=known,
            missing_priority_classes=tuple(
                name for name in sorted(PRIORITY_CLASSES) if classes and name not in classes
            ),
            unread_nodes=tuple(sorted({*objects.unread_nodes, *self._nodes.left_out})),
            resource_quotas=self._read_quotas(tuple(objects.resource_quotas), elastic, default_class(classes), now_s),
            queues=self._queues.read(objects.queues, objects.unread_queues, self._left_out),
            kueue=quota_trees,
            node_requests=self._pods.node_requests(),
            gangs=self._pods.gangs(objects.facts.gangs),
        )
        self.valid_until_s = min(self.valid_until_s, self._kueue.valid_until_s, self._nodes.valid_until_s)
        self.quarantined = tuple(self._left_out)
        self._role_rules.note(elastic)
        ruled = self._full_queues.apply(self._under_rules(snapshot, objects.facts), objects.facts.volcano)
        pods = self._pods.with_deferred(ruled.pods)
        return ruled if pods is ruled.pods else replace(ruled, pods=pods)

    def _note_listed(self, objects: ClusterObjects) -> None:
        """Note what differs between the objects that are given as a whole and those of the last snapshot."""
        if objects.pods is not None:
            self._pods.note(self._pods.changes_to(objects.pods))
        if objects.jobs is not None:
            self.note_jobs(self._changes_to(objects.jobs))
        if objects.nodes is not None:
            self._nodes.note(self._nodes.changes_to(objects.nodes))

    def _under_rules(self, snapshot: ClusterSnapshot, facts: RuleFacts) -> ClusterSnapshot:
        """Apply the rules between pods, of volumes and of devices; the snapshot itself if nothing has such a rule."""
        of_jobs, has_devices = (self._job_reader, self._role_rules), bool(facts.devices.classes)
        has_rules = self._pods.has_rules or has_devices or any(one.has_rules() for one in of_jobs)
        if not (has_rules or self._has_journal_claims(facts)):
            return snapshot
        self._pods.forget_rules()
        return self._ruled.apply(
            snapshot,
            facts,
            self._pods.rules_of,
            lambda job, role: self._rules_of_role(job, role, facts),
            None if self._pods.has_terms or any(one.has_terms() for one in of_jobs) else self._pods.ruled,
        )

    def _has_journal_claims(self, facts: RuleFacts) -> bool:
        """True if any job's journal has a claim of which something is known."""
        return bool(facts.claims) and any(
            _journal_claim(key, source) in facts.claims for key, source in self._sources.items()
        )

    def _rules_of_role(self, job: Job, role: Role, facts: RuleFacts) -> PodRules:
        """The rules of the pods that a job gets in a role; a master also has the claim of its journal."""
        source = self._sources.get(job.key)
        claim = _journal_claim(job.key, source) if role is Role.MASTER and source is not None else None
        return self._role_rules.of(job, role, claim if claim in facts.claims else None)

    def learn(self, key: JobKey, uid: str, role: Role, pod: PodObject, *, shows_nodes: bool = True) -> bool:
        """Read from a pod what admission makes of the pods of a role; see `JobReader.learn`."""
        try:
            has_learned = self._job_reader.learn(key, uid, role, pod, shows_nodes=shows_nodes)
        except ConfigError:
            return False
        if has_learned:
            self._changed.add(key)
        return has_learned

    def _elastic(self, workloads: Iterable[WorkloadObject]) -> _Elastic:
        """The objects that ask to be resized, by key, each with its reader."""
        found: _Elastic = {}
        for reader, source in self._makers.read(workloads):
            if not reader.is_elastic(source):
                continue
            key = reader.key(source)
            try:
                if self._workloads.get(key) is not source:
                    reader.read(source, (), self._pods.source_of, 0.0)
                found[key] = (reader, source)
            except ConfigError as error:
                self._left_out.append(
                    Quarantined(key.kind.value, key.namespace, key.object_name, source.metadata.uid or "", str(error))
                )
        return found

    def _changes_to(self, jobs: Iterable[JobObject]) -> Iterator[JobChange]:
        """Return the changes after which exactly these jobs are known."""
        listed = _named(jobs)
        yield from ((key, None) for key in list(self._sources) if key not in listed)
        yield from listed.items()

    def _note_owners(self, owners: dict[JobKey, ObjectMetadata]) -> None:
        before, self._owners = self._owners, owners
        self._pods.note_jobs((key, None) for key in before if key not in owners)
        self._pods.note_jobs((key, metadata) for key, metadata in owners.items() if before.get(key) is not metadata)

    def _read_all(self, elastic: _Elastic, now_s: float) -> tuple[Job, ...]:
        """Translate what has changed; a job whose object and pods have not remains the same Python object."""
        touched, self._pods.touched = self._pods.touched, set()
        for key in self._changed | {key for key in touched if key in self._sources}:
            self._read_or_drop(key, now_s)
        self._changed = set()  # what a job learned from its own pods is in it already
        before, self._workloads = self._workloads, {}
        for key, (reader, source) in elastic.items():
            self._workloads[key] = source
            is_due = key in touched or self._makers.has_changed(source.metadata)
            if before.pop(key, None) is not source or is_due:
                job = reader.read(source, self._pods.of_job(key), self._pods.source_of, now_s)
                job = self._makers.apply(job, source.metadata)
                self._jobs.put(key, self._observed.apply(job, self._pods.source_of))
        for key in before:
            self._jobs.drop(key)
            self._observed.forget(key)
        return self._jobs.all()

    def _read_or_drop(self, key: JobKey, now_s: float) -> None:
        source = self._sources.get(key)
        if source is None:
            self._jobs.drop(key)
            self._job_reader.forget(key)
            self._role_rules.forget(key)
        else:
            self._jobs.put(key, self._read_job(source, key, now_s))

    def _read_job(self, source: JobObject, key: JobKey, now_s: float) -> Job:
        """Translate a job; its newest pod of each role shows what admission makes of it, one that lends only last."""
        manifests = self._job_reader.prepare(source, key, now_s).manifests
        pods = [as_ended(pod, self._pods.source_of, manifests) for pod in self._pods.of_job(key)]
        job = self._job_reader.read(source, key, pods, now_s)
        newest: dict[Role, Pod] = {}
        for pod in job.pods:
            if pod.role is not None and (pod.role not in newest or tells_more(pod, newest[pod.role])):
                newest[pod.role] = pod
        usual = {f.role: f.shape for f in job.fixed} | {Role.TRAINER: job.trainer}
        has_learned = False
        for role, pod in newest.items():
            # Pods that Kueue admitted have the labels and tolerations of their flavors, which change with it.
            shows_nodes = not (pod.terminating or job.kueue)
            if role in usual and differs(pod.shape, usual[role], shows_nodes=shows_nodes):
                has_learned |= self.learn(key, job.uid, role, self._pods.source_of(pod), shows_nodes=shows_nodes)
        return self._job_reader.read(source, key, pods, now_s) if has_learned else job

    def _read_quotas(
        self, quotas: tuple[ResourceQuotaObject, ...], elastic: _Elastic, default: str, now_s: float
    ) -> tuple[ResourceQuota, ...]:
        """Translate the quotas; `default` is the PriorityClass of a pod that names none."""
        self.valid_until_s = inf
        self._scopes.begin()
        if not quotas:
            return ()
        limited = {(quota.metadata or ObjectMetadata()).namespace or DEFAULT_NAMESPACE for quota in quotas}
        namespaces = limited & {key.namespace for key in (*self._sources, *elastic)}
        here = {namespace: self._pods.foreign_in(namespace) for namespace in namespaces}
        of_jobs = (job.pods for job in self._jobs.all() if job.key.namespace in namespaces)
        uncharged_s = charged_until_s(chain.from_iterable((*here.values(), *of_jobs)), now_s)
        self.valid_until_s = min(self._pods.counts_until_s(), uncharged_s)
        pods = PodsOfNamespaces(
            here,
            lambda namespace: (
                (job.key, self._scopes.of_job(job, elastic.get(job.key), default))
                for job in self._jobs.between(JobKey(namespace, ""), JobKey(namespace + "\0", ""))
            ),
            lambda pod: self._scopes.of_pod(pod, self._pods.source_of(pod), self._pods.spec_of),
            lambda pod: limits_of(self._pods.spec_of(pod)),
            lambda namespace, exempt: self._pods.count_owned(namespace, now_s, exempt),
        )
        return read_quotas(quotas, pods, self._left_out, now_s=now_s)


def _journal_claim(key: JobKey, source: JobObject) -> Claim:
    uid = (source.metadata.uid or "") if source.metadata else ""
    return key.namespace, claim_name_of(key.object_name, uid)


def _key(metadata: ObjectMetadata) -> JobKey:
    return JobKey(metadata.namespace or DEFAULT_NAMESPACE, metadata.name or "")


def _named(jobs: Iterable[JobObject]) -> dict[JobKey, JobObject]:
    return {_key(metadata): job for job in jobs if (metadata := _metadata(job)).name}


def _metadata(job: JobObject) -> ObjectMetadata:
    return job.metadata or ObjectMetadata()
