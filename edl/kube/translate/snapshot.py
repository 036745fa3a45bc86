"""The objects of a cluster become a `ClusterSnapshot`: nodes here, pods in `pods` and `shapes`, jobs in `jobs`.

A decision must see the cluster as kube-scheduler does: the real request of each pod, its owner, and the nodes that
accept pods. An object that cannot be read is left out and reported, and the rest is still translated. Which jobs run
where is decided by the planner, not here. Objects that have not changed since the last snapshot are not translated
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from edl.api.priorities import PRIORITY_CLASSES
from edl.errors import ConfigError
from edl.kube.translate.daemonsets import DaemonReader, reserve
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.jobs import JobReader
from edl.kube.translate.objects import (
    DaemonSetObject,
    JobObject,
    NodeMetadata,
    NodeObject,
    NodeSpec,
    NodeStatus,
    ObjectMetadata,
    PodObject,
    PodSpec,
    PriorityClassObject,
    ResourceQuotaObject,
    text,
)
from edl.kube.translate.pod_book import PodBook, PodChange
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.queues import QueueObject, QueueReader
from edl.kube.translate.resource_quotas import read_quotas
from edl.kube.translate.shapes import limits_of, parse_amounts
from edl.kube.translate.workload_reader import WorkloadObject, WorkloadReader
from edl.model.cluster import ClusterSnapshot, Node, ResourceQuota
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.resources import PODS, Resources, Taint

DEFAULT_MAX_PODS = 110
"""The kubelet's default, for hand-written nodes without an allocatable number of pods."""

SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


_Elastic = dict[JobKey, tuple[WorkloadReader, Any, str]]


class Translator:
    """Translates a cluster again and again, and reuses what has not changed.

    Args:
        default_master_image: the image of a master whose job names none.
        controller_namespace: jobs are invalid in this namespace; empty if it is unknown.

    Attributes:
        quarantined: the objects that the last snapshot leaves out.
    """

    def __init__(self, *, default_master_image: str = "", controller_namespace: str = "") -> None:
        self.quarantined: tuple[Quarantined, ...] = ()
        self._job_reader = JobReader(
            default_master_image=default_master_image, controller_namespace=controller_namespace
        )
        self._daemons, self._queues = DaemonReader(), QueueReader()
        self._pods = PodBook()
        self._jobs: dict[JobKey, tuple[JobObject, Job]] = {}
        self._workloads: dict[JobKey, tuple[object, Job]] = {}
        self._owners: dict[JobKey, ObjectMetadata] = {}  # of the last snapshot: workloads that are no TrainingJobs
        self._nodes: dict[str, tuple[NodeObject, Node]] = {}
        self._all_nodes: tuple[Node, ...] = ()
        self._left_out: list[Quarantined] = []

    def note_pods(self, changes: Iterable[PodChange], priority_classes: Iterable[PriorityClassObject]) -> None:
        """Note pods that came, changed or are gone; `translate_pods` translates them, or else the next snapshot.

        Args:
            changes: each pod at most once.
            priority_classes: every PriorityClass.
        """
        self._pods.set_priorities(_priorities(_by_name(priority_classes)))
        self._pods.note(changes)

    def translate_pods(self, now_s: float, at_most: int) -> bool:
        """Translate some of the pods that are due; False once none is left."""
        return self._pods.translate(now_s, at_most)

    def sort_pods(self, jobs: Iterable[JobObject], at_most: int) -> bool:
        """Sort some of the translated pods into jobs and others; False once none is left."""
        own = {key: _metadata(job) for key, job in _named(jobs).items()}
        return self._pods.sort({**own, **self._owners}, at_most)

    def prepare_job(self, source: JobObject, now_s: float) -> None:
        """Translate one job without its pods, which costs milliseconds; else the next snapshot does it."""
        metadata = _metadata(source)
        if metadata.name:
            self._job_reader.prepare(source, _key(metadata), now_s)

    def prepare_node(self, source: NodeObject) -> None:
        """Translate one node; one that cannot be read is reported by the next snapshot."""
        metadata = source.metadata or NodeMetadata()
        with suppress(ConfigError):
            self._nodes[metadata.name or ""] = (source, _node(source))

    def order_pods(self) -> None:
        """Sort the pods of no job by name, which takes long after a list; else the next snapshot does it."""
        self._pods.order()

    def snapshot(
        self,
        *,
        nodes: Iterable[NodeObject],
        pods: Iterable[PodObject] | None,
        jobs: Iterable[JobObject],
        workloads: Iterable[WorkloadObject] = (),
        daemonsets: Iterable[DaemonSetObject] = (),
        priority_classes: Iterable[PriorityClassObject] = (),
        resource_quotas: Iterable[ResourceQuotaObject] = (),
        queues: Iterable[QueueObject] = (),
        unread_queues: Iterable[Quarantined] = (),
        unread_nodes: Iterable[str] = (),
        now_s: float,
    ) -> ClusterSnapshot:
        """Translate a cluster.

        Args:
            nodes: every node.
            pods: every pod, each at most once; finished pods of no job are optional. None if `note_pods` got them.
            jobs: every TrainingJob that the plan covers.
            workloads: every object of another kind that may ask to be resized; the others are left out.
            daemonsets: every DaemonSet.
            priority_classes: every PriorityClass; empty means that they are unknown, not that they are missing.
            resource_quotas: every ResourceQuota; empty if edl may not read them.
            queues: every Queue.
            unread_queues: the existing queues that cannot be decoded.
            unread_nodes: names of existing nodes that cannot be decoded.
            now_s: when the objects were read, in seconds since the epoch.
        """
        self._left_out = []
        classes = _by_name(priority_classes)
        self._pods.set_priorities(_priorities(classes))
        if pods is not None:
            self._pods.note(self._pods.changes_to(pods))
        self._pods.translate(now_s)
        by_key = _named(jobs)
        elastic = self._elastic(workloads)
        self._owners = {key: source.metadata for key, (_, source, problem) in elastic.items() if not problem}
        self._pods.sort({**{key: _metadata(job) for key, job in by_key.items()}, **self._owners})
        self._left_out += self._pods.left_out.values()
        daemons = self._daemons.read(daemonsets, self._left_out)
        read_nodes = self._as_before(reserve(self._read_nodes(nodes), daemons, self._pods.reached()))
        foreign = self._pods.foreign({node.name for node in read_nodes})
        snapshot = ClusterSnapshot(
            observed_at_s=now_s,
            nodes=read_nodes,
            pods=foreign,
            jobs=self._read_all(by_key, elastic, now_s),
            missing_priority_classes=tuple(
                name for name in sorted(PRIORITY_CLASSES) if classes and name not in classes
            ),
            unread_nodes=tuple(sorted({*unread_nodes, *(q.name for q in self._left_out if q.kind == "Node")})),
            resource_quotas=self._read_quotas(tuple(resource_quotas), foreign, (*by_key, *elastic)),
            queues=self._queues.read(queues, unread_queues, self._left_out),
            node_requests=self._pods.node_requests(),
        )
        self.quarantined = tuple(self._left_out)
        return snapshot

    def learn(self, key: JobKey, uid: str, role: Role, pod: PodSpec) -> bool:
        """Read from a pod what admission adds to the pods of a role; see `JobReader.learn`."""
        try:
            has_learned = self._job_reader.learn(key, uid, role, pod)
        except ConfigError:
            return False
        if has_learned:
            self._jobs.pop(key, None)
        return has_learned

    def _elastic(self, workloads: Iterable[WorkloadObject]) -> _Elastic:
        """The objects that ask to be resized, by key, each with its reader and what keeps edl from resizing it."""
        found: _Elastic = {}
        for reader, source in workloads:
            if not reader.is_elastic(source):
                continue
            key = reader.key(source)
            try:
                found[key] = (reader, source, reader.problem(source))
            except ConfigError as error:
                self._left_out.append(
                    Quarantined(key.kind.value, key.namespace, key.object_name, source.metadata.uid or "", str(error))
                )
        return found

    def _read_all(self, by_key: Mapping[JobKey, JobObject], elastic: _Elastic, now_s: float) -> tuple[Job, ...]:
        """Translate the TrainingJobs and the workloads, sorted by key."""
        touched, self._pods.touched = self._pods.touched, set()
        jobs = self._read_jobs(by_key, touched, now_s)
        if not (elastic or self._workloads):
            return jobs
        before, self._workloads = self._workloads, {}
        for key, (reader, source, problem) in elastic.items():
            known = before.get(key)
            if known is None or known[0] is not source or key in touched:
                pods = () if problem else self._pods.of_job(key)
                known = (source, reader.read(source, pods, self._pods.source_of, now_s))
            self._workloads[key] = known
        return tuple(sorted((*jobs, *(job for _, job in self._workloads.values())), key=lambda job: job.key))

    def _read_jobs(self, by_key: Mapping[JobKey, JobObject], touched: set[JobKey], now_s: float) -> tuple[Job, ...]:
        """Translate the jobs; one whose object and pods have not changed remains the same Python object."""
        self._job_reader.forget_all_but(by_key)
        before, self._jobs = self._jobs, {}
        for key in sorted(by_key):
            source, known = by_key[key], before.get(key)
            if known is None or known[0] is not source or key in touched:
                known = (source, self._read_job(source, key, now_s))
            self._jobs[key] = known
        return tuple(job for _, job in self._jobs.values())

    def _read_job(self, source: JobObject, key: JobKey, now_s: float) -> Job:
        """Translate a job; its newest pod of each role shows what admission adds."""
        pods = self._pods.of_job(key)
        job = self._job_reader.read(source, key, pods, now_s)
        newest: dict[Role, Pod] = {}
        for pod in job.pods:
            if pod.role is not None and (pod.role not in newest or pod.created_s > newest[pod.role].created_s):
                newest[pod.role] = pod
        usual = {f.role: f.shape for f in job.fixed} | {Role.TRAINER: job.trainer}
        has_learned = False
        for role, pod in newest.items():
            if role in usual and pod.shape.request != usual[role].request:
                has_learned |= self.learn(key, job.uid, role, self._pods.spec_of(pod))
        return self._job_reader.read(source, key, pods, now_s) if has_learned else job

    def _read_quotas(
        self, quotas: tuple[ResourceQuotaObject, ...], foreign: Iterable[Pod], jobs: Iterable[JobKey]
    ) -> tuple[ResourceQuota, ...]:
        if not quotas:
            return ()
        here: dict[str, list[Pod]] = {key.namespace: [] for key in jobs}
        for pod in foreign:
            if pod.namespace in here:
                here[pod.namespace].append(pod)
        return read_quotas(quotas, here, lambda pod: limits_of(self._pods.spec_of(pod)), self._left_out)

    def _as_before(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The tuple of the last snapshot if it has the same nodes: what depends on nodes alone is computed once."""
        if nodes != self._all_nodes:  # the same objects are equal at once
            self._all_nodes = nodes
        return self._all_nodes

    def _read_nodes(self, nodes: Iterable[NodeObject]) -> list[Node]:
        before, self._nodes = self._nodes, {}
        for source in nodes:
            metadata = source.metadata or NodeMetadata()
            name = metadata.name or ""
            known = before.get(name)
            if known is None or known[0] is not source:
                try:
                    known = (source, _node(source))
                except ConfigError as error:
                    self._left_out.append(Quarantined("Node", "", name, metadata.uid or "", str(error)))
                    continue
            self._nodes[name] = known
        return [self._nodes[name][1] for name in sorted(self._nodes)]


def snapshot(
    *,
    nodes: Iterable[NodeObject],
    pods: Iterable[PodObject],
    jobs: Iterable[JobObject],
    daemonsets: Iterable[DaemonSetObject] = (),
    priority_classes: Iterable[PriorityClassObject] = (),
    resource_quotas: Iterable[ResourceQuotaObject] = (),
    now_s: float,
) -> ClusterSnapshot:
    """Translate a cluster once; see `Translator.snapshot`."""
    return Translator().snapshot(
        nodes=nodes,
        pods=pods,
        jobs=jobs,
        daemonsets=daemonsets,
        priority_classes=priority_classes,
        resource_quotas=resource_quotas,
        now_s=now_s,
    )


def _node(source: NodeObject) -> Node:
    """Translate a node; a hand-written one without conditions counts as ready.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    metadata, spec = source.metadata or NodeMetadata(), source.spec or NodeSpec()
    status = source.status or NodeStatus()
    allocatable = parse_amounts(status.allocatable or status.capacity)
    allocatable.setdefault(PODS, DEFAULT_MAX_PODS)
    readiness = [c.status == "True" for c in status.conditions or () if c.type == "Ready"]
    return Node(
        name=metadata.name or "",
        allocatable=Resources.of(allocatable),
        labels=tuple(sorted((key, text(value)) for key, value in (metadata.labels or {}).items())),
        taints=tuple(Taint(t.key or "", text(t.value), t.effect or "") for t in spec.taints or ()),
        ready=all(readiness),
        cordoned=bool(spec.unschedulable) or metadata.deletion_timestamp is not None,
    )


def _by_name(classes: Iterable[PriorityClassObject]) -> dict[str, PriorityClassObject]:
    return {(c.metadata or ObjectMetadata()).name or "": c for c in classes}


def _priorities(classes: Mapping[str, PriorityClassObject]) -> dict[str, int]:
    """Return the priority of each class by name; that of a pod without a class has the empty name."""
    values = {name: c.value or 0 for name, c in classes.items()}
    defaults = [c.value or 0 for c in classes.values() if c.global_default]
    return SYSTEM_PRIORITIES | values | {"": min(defaults, default=0)}


def _key(metadata: ObjectMetadata) -> JobKey:
    return JobKey(metadata.namespace or DEFAULT_NAMESPACE, metadata.name or "")


def _named(jobs: Iterable[JobObject]) -> dict[JobKey, JobObject]:
    return {_key(metadata): job for job in jobs if (metadata := _metadata(job)).name}


def _metadata(job: JobObject) -> ObjectMetadata:
    return job.metadata or ObjectMetadata()
