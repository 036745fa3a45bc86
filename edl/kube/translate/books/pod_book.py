"""Every pod as a `Pod` value, sorted into jobs and others; only what changed is translated and sorted again.

A cluster has many thousands of pods, and a few of them change between two snapshots. So the book receives changes,
and keeps everything else: the same pod remains the same Python object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from math import inf

from edl.errors import ConfigError
from edl.kube.translate.books.daemon_book import DaemonBook, Place
from edl.kube.translate.books.deferred_resizes import split
from edl.kube.translate.books.sorted_values import SortedValues
from edl.kube.translate.daemonsets import daemon_of
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.groups.gangs import Minimums, counts_succeeded, gangs_of
from edl.kube.translate.lending import declared_spec, running_request
from edl.kube.translate.objects import ObjectMetadata, PodMetadata, PodObject, PodSpec
from edl.kube.translate.ownership import is_of_this_set, is_owned_by
from edl.kube.translate.pods import KnownPod, pinned_node, read_pod
from edl.kube.translate.rules.terms import PodRules, has_rules, has_terms, rules_of
from edl.kube.translate.shapes import limits_of, shape_of, with_timed_tolerations
from edl.model.cluster import Gang, NodeRequest, is_moving, remember_moving
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.model.resources import PodShape, Resources

PodKey = tuple[str, str]
"""Namespace (empty if the object has none) and name."""

PodChange = tuple[PodKey, PodObject | None]
"""A pod that came or changed, or None for one that is gone."""

STILL_COUNTED_S = 30.0
"""How long the quota of a namespace may still count a pod that is gone."""

MAX_SHARED_SHAPES = 100_000


class PodBook:
    """The pods of one cluster.

    Attributes:
        left_out: the pods that cannot be read.
        touched: the jobs whose pods have changed; the reader clears them.
        daemons: the pods of DaemonSets.
    """

    def __init__(self) -> None:
        self.left_out: dict[PodKey, Quarantined] = {}
        self.touched: set[JobKey] = set()
        self.daemons = DaemonBook()
        self._priorities: Mapping[str, int] = {}
        self._never_preempting: frozenset[str] = frozenset()
        self._shapes: dict[PodShape, PodShape] = {}
        self._limits: dict[Resources, Resources] = {}
        self._due: dict[PodKey, PodObject | None] = {}
        self._known: dict[PodKey, KnownPod] = {}
        self._labelled: dict[JobKey, dict[PodKey, None]] = {}
        self._askers: dict[JobKey, dict[PodKey, None]] = {}  # of each job, the pods that ask for nodes in its name
        self._jobs: dict[JobKey, ObjectMetadata] = {}
        self._unsorted: dict[PodKey, None] = {}
        self._own: dict[JobKey, dict[PodKey, Pod]] = {}
        self._owners: dict[str, set[JobKey]] = {}  # those with pods, by namespace
        self._gone: dict[PodKey, float] = {}  # when pods were found to be gone
        self._foreign: SortedValues[Place, Pod] = SortedValues()
        self._moving: SortedValues[Place, Pod] = SortedValues()  # the few of them that `is_moving` is true of
        self._requests: dict[PodKey, NodeRequest] = {}
        self._shown: tuple[tuple[Pod, ...], set[int], tuple[Pod, ...]] = ((), set(), ())  # without lost nominations
        self._nominated: dict[Place, None] = {}
        self._ganged: dict[Place, PodKey] = {}  # those without a node that start only in a group
        self._succeeded: dict[Place, tuple[str, str]] = {}  # the groups of those that count for it though they ended
        self._deferred: dict[PodKey, Pod] = {}  # what running pods wait for on their node
        self._extended: tuple[tuple[Pod, ...], tuple[Pod, ...], tuple[Pod, ...]] = ((), (), ())  # with these
        self._ruled: dict[PodKey, bool] = {}  # pods with rules about others (True), or with claims alone
        self._terms = 0  # how many of them have rules about others
        self._rules: dict[PodKey, tuple[PodObject, PodRules]] = {}
        self._shared_rules: dict[PodRules, PodRules] = {}

    def set_priorities(self, priorities: Mapping[str, int], never_preempting: frozenset[str] = frozenset()) -> None:
        """Set the priority of each class by name; if one has changed, every pod is due for translation again.

        Args:
            priorities: by the name of the class.
            never_preempting: the classes whose pods do not preempt others.
        """
        if (priorities, never_preempting) != (self._priorities, self._never_preempting):
            self._priorities, self._never_preempting = priorities, never_preempting
            known: dict[PodKey, PodObject | None] = {key: pod.source for key, pod in self._known.items()}
            self._due = known | self._due

    def note(self, changes: Iterable[PodChange]) -> None:
        """Take changes, each pod at most once; `translate` does the work."""
        for key, source in changes:
            known = self._known.get(key)
            if key in self._due or known is None or known.source is not source:
                self._due[key] = source

    def translate(self, now_s: float, at_most: int | None = None) -> bool:
        """Translate the pods that are due; False once none is left.

        Args:
            now_s: the creation time of a pod without one, in seconds since the epoch.
            at_most: so many of them; all if it is None.
        """
        self._forget_gone(now_s)
        for key in list(islice(self._due, at_most)):
            source = self._due.pop(key)
            if source is None and self._is_own(key):
                self._gone.pop(key, None)
                self._gone[key] = now_s  # the last ones are the newest
            self._drop(key)
            known = None if source is None else self._translate(key, source, now_s)
            if known is not None:
                self._known[key] = known
                self._note_rules(key, known.source.spec)
                self._unsorted[key] = None
                if known.labelled is not None:
                    self._labelled.setdefault(known.labelled[0], {})[key] = None
                if known.asks is not None:
                    self._askers.setdefault(known.asks[0], {})[key] = None
        return bool(self._due)

    def changes_to(self, pods: Iterable[PodObject]) -> Iterator[PodChange]:
        """Return the changes that make the book hold exactly these pods."""
        listed = {_key(pod): pod for pod in pods}
        gone = [key for key in (*self._known, *self.left_out) if key not in listed]
        yield from ((key, None) for key in gone)
        yield from listed.items()

    def note_jobs(self, changes: Iterable[tuple[JobKey, ObjectMetadata | None]]) -> None:
        """Note the metadata of jobs that came or changed, and None for one that is gone; `sort` does the work."""
        for key, metadata in changes:
            if _identity(self._jobs.get(key)) != _identity(metadata):
                self._unsorted.update(self._labelled.get(key, {}))
                self._unsorted.update(self._askers.get(key, {}))
            if metadata is None:
                self._jobs.pop(key, None)
            else:
                self._jobs[key] = metadata

    def sort(self, at_most: int | None = None) -> bool:
        """Assign each new or changed pod to its job, or to the pods of no job; and all pods of changed jobs.

        Args:
            at_most: so many pods; all if it is None.

        Returns:
            True if pods are left to sort.
        """
        for pod in list(islice(self._unsorted, at_most)):
            del self._unsorted[pod]
            self._sort_in(pod, self._known[pod])
        return bool(self._unsorted)

    def of_job(self, key: JobKey) -> Collection[Pod]:
        """The pods of a job, in any order."""
        return self._own.get(key, {}).values()

    def foreign(self, nodes: Container[str] | None) -> tuple[Pod, ...]:
        """The pods of no job that occupy a node or wait for one, sorted by (namespace, name).

        Args:
            nodes: has the names of all nodes; a nomination for another one is left out. None if they are unknown.
        """
        pods = self._foreign.all()
        remember_moving(pods, self._moving.all())
        waiting = [pod for place in self._nominated if (pod := self._foreign.get(place)) is not None]
        lost = [] if nodes is None else [pod for pod in waiting if pod.nominated not in nodes]
        if not lost:
            return pods
        ids = {id(pod) for pod in lost}
        if self._shown[0] is not pods or self._shown[1] != ids:
            shown = tuple(replace(pod, nominated="") if id(pod) in ids else pod for pod in pods)
            self._shown = (pods, ids, shown)
        return self._shown[2]

    def with_deferred(self, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        """Add to the pods of no job, as pods of their own, the larger requests for which some wait on their node."""
        if not self._deferred:
            return pods
        waits = tuple(self._deferred.values())
        if self._extended[0] is not pods or self._extended[1] != waits:
            every = sorted((*pods, *waits), key=lambda pod: (pod.namespace, pod.name))
            self._extended = (pods, waits, tuple(every))
        return self._extended[2]

    def gangs(self, known: Minimums) -> tuple[Gang, ...]:
        """The groups of pods that wait for nodes, sorted; `known` has the minimums of those with a PodGroup."""
        if not self._ganged:
            return ()
        waiting = (self._known[key].source for key in self._ganged.values())
        return gangs_of(waiting, known, Counter(self._succeeded.values()))

    def foreign_in(self, namespace: str) -> list[Pod]:
        """The pods of no job in one namespace."""
        return self._foreign.between((namespace, "", ""), (namespace + "\0", "", ""))

    def count_owned(self, namespace: str, now_s: float, exempt: Container[JobKey] = ()) -> int:
        """How many pods of jobs the API server may count in one namespace: finished ones, too, and those just gone.

        A quota follows a deletion some time later, and its watch is not that of the pods.

        Args:
            namespace: the namespace.
            now_s: seconds since the epoch.
            exempt: jobs whose pods do not count, but for those just gone.
        """
        self._forget_gone(now_s)
        gone = sum(of == namespace and (of, name) not in self._known for of, name in self._gone)
        return gone + sum(len(self._own[key]) for key in self._owners.get(namespace, ()) if key not in exempt)

    def counts_until_s(self) -> float:
        """Until when `count_owned` returns the same number without a change of pods, in seconds since the epoch."""
        return min(self._gone.values(), default=inf) + STILL_COUNTED_S

    def node_requests(self) -> tuple[NodeRequest, ...]:
        """The request pods of the jobs, sorted by (job, name)."""
        return tuple(sorted(self._requests.values(), key=lambda request: (request.job, request.pod.name)))

    def order(self) -> bool:
        """Sort the pods of no job by (namespace, name); True if so many had changed that all were sorted again."""
        return self._foreign.order()

    def source_of(self, pod: Pod) -> PodObject:
        """The pod as the API server stores it; empty for a pod that is not in the book."""
        known = self._known.get((pod.namespace, pod.name))
        return known.source if known is not None else PodObject()

    def spec_of(self, pod: Pod) -> PodSpec:
        """The spec of a pod with the CPU that it declares; empty for a pod that is not in the book."""
        known = self._known.get((pod.namespace, pod.name))
        return declared_spec(known.source) if known is not None else PodSpec()

    @property
    def has_rules(self) -> bool:
        """True if any pod requires something of the pods or the volumes beside it."""
        return bool(self._ruled)

    @property
    def has_terms(self) -> bool:
        """True if any pod requires something of the pods beside it."""
        return self._terms > 0

    @property
    def ruled(self) -> Container[PodKey]:
        """The pods that require something of the pods or the volumes beside them."""
        return self._ruled

    def _note_rules(self, key: PodKey, spec: PodSpec | None) -> None:
        if spec is not None and has_rules(spec):
            self._ruled[key] = is_about_others = has_terms(spec)
            self._terms += is_about_others

    def rules_of(self, pod: Pod) -> PodRules:
        """The rules and the labels of a pod; equal ones are one object."""
        key = (pod.namespace, pod.name)
        known, source = self._rules.get(key), self.source_of(pod)
        if known is None or known[0] is not source:
            self._rules[key] = known = (source, self.share_rules(rules_of(source, pod.namespace)))
        return known[1]

    def share_rules(self, rules: PodRules) -> PodRules:
        """Return one object for equal rules."""
        return self._shared_rules.setdefault(rules, rules)

    def forget_rules(self) -> None:
        """Forget the rules of pods that are gone."""
        if len(self._rules) > 2 * len(self._known) + 1000:
            self._rules = {key: known for key, known in self._rules.items() if key in self._known}
            shared = (rules for _, rules in self._rules.values())
            self._shared_rules = {rules: rules for rules in shared}

    def _translate(self, key: PodKey, source: PodObject, now_s: float) -> KnownPod | None:
        """Translate a pod; None if it cannot be read."""
        metadata, spec = source.metadata or PodMetadata(), source.spec or PodSpec()
        try:
            shape = self._share(shape_of(spec, source.status, pinned_to=pinned_node(metadata)))
            declares = declared_spec(source)
            declared = (
                None
                if declares is spec
                else self._share(shape_of(declares, source.status, pinned_to=pinned_node(metadata)))
            )
            running = running_request(source)
            limits = self._share_limits(limits_of(spec))
        except ConfigError as error:
            self.left_out[key] = Quarantined("Pod", *key, metadata.uid or "", str(error))
            return None
        known = read_pod(source, shape, self._priority(spec), now_s, limits)
        known.declared, known.running_request = declared, running
        if spec.preemption_policy is None and (spec.priority_class_name or "") in self._never_preempting:
            known.foreign = replace(known.foreign, may_preempt=False)
        if known.labelled is None:
            own = with_timed_tolerations(shape, spec)
            pod = known.foreign if own is shape else replace(known.foreign, shape=self._share(own))
            known.foreign, waits = split(source, pod)
            if waits is not None:
                self._deferred[key] = waits
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

    def _share_limits(self, limits: Resources) -> Resources:
        """Return one object for equal limits."""
        if len(self._limits) >= MAX_SHARED_SHAPES:
            self._limits.clear()
        return self._limits.setdefault(limits, limits)

    def _is_own(self, key: PodKey) -> bool:
        """True if the pod belongs to a job."""
        known = self._known.get(key)
        return known is not None and known.labelled is not None and key in self._own.get(known.labelled[0], {})

    def _forget_gone(self, now_s: float) -> None:
        while self._gone and now_s - self._gone[oldest := next(iter(self._gone))] >= STILL_COUNTED_S:
            del self._gone[oldest]

    def _drop(self, key: PodKey) -> None:
        """Remove a pod from the book."""
        self.left_out.pop(key, None)
        self._unsorted.pop(key, None)
        self._terms -= self._ruled.pop(key, False)
        self._deferred.pop(key, None)
        known = self._known.pop(key, None)
        if known is None:
            return
        self._take_out(key, known)
        for named, job in ((self._labelled, known.labelled), (self._askers, known.asks)):
            if job is not None:
                named[job[0]].pop(key)
                if not named[job[0]]:
                    del named[job[0]]

    def _take_out(self, key: PodKey, known: KnownPod) -> None:
        """Remove a pod from the pods of its job, or from the pods of no job."""
        if known.labelled is not None and key in self._own.get(job := known.labelled[0], {}):
            del self._own[job][key]
            self.touched.add(job)
            if not self._own[job]:
                del self._own[job]
                self._owners[job.namespace].discard(job)
                if not self._owners[job.namespace]:
                    del self._owners[job.namespace]
        self._requests.pop(key, None)
        place = _place(key, known.foreign)
        self._foreign.drop(place)
        self._moving.drop(place)
        self._nominated.pop(place, None)
        self._ganged.pop(place, None)
        self._succeeded.pop(place, None)
        self.daemons.drop(place)

    def _sort_in(self, key: PodKey, known: KnownPod) -> None:
        self._take_out(key, known)
        job = known.labelled[0] if known.labelled else None
        if job is not None and (owner := self._jobs.get(job)) and _belongs_to(known, owner):
            self._own.setdefault(job, {})[key] = known.as_owned()
            self._owners.setdefault(job.namespace, set()).add(job)
            self.touched.add(job)
            return
        pod = known.foreign
        asker = self._jobs.get(known.asks[0]) if known.asks else None
        if known.asks and asker and is_owned_by(known.owners, asker):
            self._requests[key] = NodeRequest(*known.asks, pod)
            return
        place = _place(key, pod)
        if counts_succeeded(pod):
            self._succeeded[place] = (pod.namespace, pod.gang)
        if pod.is_finished or known.is_orphan:
            return
        self._foreign.put(place, pod)
        if is_moving(pod):
            self._moving.put(place, pod)
        if pod.nominated:
            self._nominated[place] = None
        if pod.gang and not pod.node:
            self._ganged[place] = key
        daemon = daemon_of(pod.namespace, known.owners) if pod.daemon else None
        if daemon is not None:
            self.daemons.put(place, daemon, pod)


def _key(pod: PodObject) -> PodKey:
    metadata = pod.metadata or PodMetadata()
    return (metadata.namespace or "", metadata.name or "")


def _belongs_to(known: KnownPod, job: ObjectMetadata) -> bool:
    """Return True if the pod really belongs to the job that its labels name, by its owner reference or its time."""
    if known.by_name:
        return is_of_this_set(known.foreign.created_s, job)
    return is_owned_by(known.owners, job)


def _place(key: PodKey, pod: Pod) -> Place:
    return (pod.namespace, pod.name, key[0])


def _identity(job: ObjectMetadata | None) -> tuple[str | None, str | None] | None:
    """The fields of a job by which its pods are recognised."""
    return None if job is None else (job.uid, job.name)
