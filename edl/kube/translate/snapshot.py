"""The objects of a cluster become a `ClusterSnapshot`: nodes here, pods in `pods` and `shapes`, jobs in `jobs`.

A decision must see the cluster as kube-scheduler does: the real request of each pod, its owner, and the nodes that
accept pods. An object that cannot be read is left out and reported, and the rest is still translated. Which jobs run
where is decided by the planner, not here. Objects that have not changed since the last snapshot are not translated
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from edl.api.manifest import PRIORITY_CLASSES
from edl.errors import ConfigError
from edl.kube.translate.daemonsets import DaemonKey, DaemonReader, daemon_of, reserve
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
    PodMetadata,
    PodObject,
    PodSpec,
    PriorityClassObject,
    ResourceQuotaObject,
    text,
)
from edl.kube.translate.pods import DEFAULT_NAMESPACE, KnownPod, is_owned_by, pinned_node, read_pod
from edl.kube.translate.resource_quotas import read_quotas
from edl.kube.translate.shapes import limits_of, parse_amounts, shape_of
from edl.model.cluster import ClusterSnapshot, Node, ResourceQuota
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.resources import PODS, PodShape, Resources, Taint

DEFAULT_MAX_PODS = 110
"""The kubelet's default, for hand-written nodes without an allocatable number of pods."""

SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}

MAX_SHARED_SHAPES = 100_000


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
        self._jobs = JobReader(default_master_image=default_master_image, controller_namespace=controller_namespace)
        self._daemons = DaemonReader()
        self._pods: dict[tuple[str, str], KnownPod] = {}
        self._nodes: dict[str, tuple[NodeObject, Node]] = {}
        self._priorities: dict[str, int] = {}
        self._shapes: dict[PodShape, PodShape] = {}
        self._left_out: list[Quarantined] = []

    def snapshot(
        self,
        *,
        nodes: Iterable[NodeObject],
        pods: Iterable[PodObject],
        jobs: Iterable[JobObject],
        daemonsets: Iterable[DaemonSetObject] = (),
        priority_classes: Iterable[PriorityClassObject] = (),
        resource_quotas: Iterable[ResourceQuotaObject] = (),
        unread_nodes: Iterable[str] = (),
        now_s: float,
    ) -> ClusterSnapshot:
        """Translate a cluster.

        Args:
            nodes: every node.
            pods: every pod, each at most once; finished pods of no job are optional.
            jobs: every TrainingJob that the plan covers.
            daemonsets: every DaemonSet.
            priority_classes: every PriorityClass; empty means that they are unknown, not that they are missing.
            resource_quotas: every ResourceQuota; empty if edl may not read them.
            unread_nodes: names of existing nodes that cannot be decoded.
            now_s: when the objects were read, in seconds since the epoch.
        """
        self._left_out = []
        classes = {(c.metadata or ObjectMetadata()).name or "": c for c in priority_classes}
        self._set_priorities(classes)
        by_key = {_key(metadata): job for job in jobs if (metadata := job.metadata or ObjectMetadata()).name}
        own: dict[JobKey, list[Pod]] = {key: [] for key in by_key}
        foreign, reached = self._assign(pods, by_key, own, now_s)
        self._jobs.forget_all_but(by_key)
        daemons = self._daemons.read(daemonsets, self._left_out)
        read_nodes = reserve(self._read_nodes(nodes), daemons, reached)
        names = {node.name for node in read_nodes}
        snapshot = ClusterSnapshot(
            observed_at_s=now_s,
            nodes=read_nodes,
            pods=tuple(
                sorted((_with_existing_node(p, names) for p in foreign), key=lambda pod: (pod.namespace, pod.name))
            ),
            jobs=tuple(self._read_job(by_key[key], key, own[key], now_s) for key in sorted(by_key)),
            missing_priority_classes=tuple(
                name for name in sorted(PRIORITY_CLASSES) if classes and name not in classes
            ),
            unread_nodes=tuple(sorted({*unread_nodes, *(q.name for q in self._left_out if q.kind == "Node")})),
            resource_quotas=self._read_quotas(resource_quotas, foreign, by_key),
        )
        self.quarantined = tuple(self._left_out)
        return snapshot

    def learn(self, key: JobKey, uid: str, role: Role, pod: PodSpec) -> bool:
        """Read from a pod what admission adds to the pods of a role; see `JobReader.learn`."""
        try:
            return self._jobs.learn(key, uid, role, pod)
        except ConfigError:
            return False

    def _read_job(self, source: JobObject, key: JobKey, pods: list[Pod], now_s: float) -> Job:
        """Translate a job; its newest pod of each role shows what admission adds."""
        job = self._jobs.read(source, key, pods, now_s)
        newest: dict[Role, Pod] = {}
        for pod in job.pods:
            if pod.role is not None and (pod.role not in newest or pod.created_s > newest[pod.role].created_s):
                newest[pod.role] = pod
        usual = {f.role: f.shape for f in job.fixed} | {Role.TRAINER: job.trainer}
        has_learned = False
        for role, pod in newest.items():
            known = self._pods.get((pod.namespace, pod.name))
            if role in usual and pod.shape.request != usual[role].request and known is not None:
                has_learned |= self.learn(key, job.uid, role, known.source.spec or PodSpec())
        return self._jobs.read(source, key, pods, now_s) if has_learned else job

    def _read_quotas(
        self, quotas: Iterable[ResourceQuotaObject], foreign: Iterable[Pod], jobs: Iterable[JobKey]
    ) -> tuple[ResourceQuota, ...]:
        here: dict[str, list[Pod]] = {key.namespace: [] for key in jobs}
        for pod in foreign:
            if pod.namespace in here:
                here[pod.namespace].append(pod)
        return read_quotas(quotas, here, self._limits_of, self._left_out)

    def _limits_of(self, pod: Pod) -> Resources:
        known = self._pods.get((pod.namespace, pod.name))
        return limits_of(known.source.spec or PodSpec()) if known is not None else Resources()

    def _set_priorities(self, classes: Mapping[str, PriorityClassObject]) -> None:
        """Store the priority of each class by name; that of a pod without a class has the empty name."""
        values = {name: c.value or 0 for name, c in classes.items()}
        defaults = [c.value or 0 for c in classes.values() if c.global_default]
        priorities = SYSTEM_PRIORITIES | values | {"": min(defaults, default=0)}
        if priorities != self._priorities:
            self._priorities = priorities
            self._pods.clear()

    def _assign(
        self,
        pods: Iterable[PodObject],
        jobs: Mapping[JobKey, JobObject],
        own: Mapping[JobKey, list[Pod]],
        now_s: float,
    ) -> tuple[list[Pod], set[tuple[DaemonKey, str]]]:
        """Assign the pods to their jobs.

        Args:
            pods: every pod.
            jobs: by key.
            own: the list of each job; its pods are added.
            now_s: the creation time of a pod without one.

        Returns:
            The foreign pods that occupy a node or wait for one, and (DaemonSet, node) of each placed daemon pod.
        """
        foreign: list[Pod] = []
        reached: set[tuple[DaemonKey, str]] = set()
        before, self._pods = self._pods, {}
        for source in pods:
            known = self._translate_pod(source, before, now_s)
            if known is None:
                continue
            key = known.labelled[0] if known.labelled else None
            if key is not None and (job := jobs.get(key)) and is_owned_by(known.owners, _metadata(job)):
                own[key].append(known.as_owned())
            elif not known.foreign.is_finished and not known.is_orphan:
                foreign.append(known.foreign)
                node = known.foreign.node or known.foreign.nominated
                if known.foreign.daemon and node:
                    daemon = daemon_of(known.foreign.namespace, known.owners)
                    if daemon is not None:
                        reached.add((daemon, node))
        return foreign, reached

    def _translate_pod(
        self, source: PodObject, before: Mapping[tuple[str, str], KnownPod], now_s: float
    ) -> KnownPod | None:
        """Translate a pod, unless `before` has it unchanged; None if it cannot be read."""
        metadata = source.metadata or PodMetadata()
        key = (metadata.namespace or "", metadata.name or "")
        known = before.get(key)
        if known is None or known.source is not source:
            spec = source.spec or PodSpec()
            try:
                shape = self._share(shape_of(spec, source.status, pinned_to=pinned_node(metadata)))
            except ConfigError as error:
                self._left_out.append(Quarantined("Pod", *key, metadata.uid or "", str(error)))
                return None
            known = read_pod(source, shape, self._priority(spec), now_s)
        self._pods[key] = known
        return known

    def _priority(self, spec: PodSpec) -> int:
        if spec.priority is not None:
            return spec.priority
        return self._priorities.get(spec.priority_class_name or "", 0)

    def _share(self, shape: PodShape) -> PodShape:
        """Return one object for equal shapes: thousands of pods have only a few different ones."""
        if len(self._shapes) >= MAX_SHARED_SHAPES:
            self._shapes.clear()
        return self._shapes.setdefault(shape, shape)

    def _read_nodes(self, nodes: Iterable[NodeObject]) -> list[Node]:
        before, self._nodes = self._nodes, {}
        for source in nodes:
            metadata = source.metadata or NodeMetadata()
            name = metadata.name or ""
            known = before.get(name)
            if known is None or known[0] is not source:
                try:
                    known = (source, _node(metadata, source.spec or NodeSpec(), source.status or NodeStatus()))
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


def _node(metadata: NodeMetadata, spec: NodeSpec, status: NodeStatus) -> Node:
    """Translate a node; a hand-written one without conditions counts as ready.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
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


def _with_existing_node(pod: Pod, nodes: Collection[str]) -> Pod:
    """Return the pod without its nominated node if that node no longer exists (and the nodes are known)."""
    return replace(pod, nominated="") if pod.nominated and nodes and pod.nominated not in nodes else pod


def _key(metadata: ObjectMetadata) -> JobKey:
    return JobKey(metadata.namespace or DEFAULT_NAMESPACE, metadata.name or "")


def _metadata(job: JobObject) -> ObjectMetadata:
    return job.metadata or ObjectMetadata()
