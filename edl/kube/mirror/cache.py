"""The whole cluster in memory, kept up to date; it knows when it is complete enough for a decision.

There is no snapshot while a collection (`watched`) is not listed, cannot be watched, or must be listed again: a
decision from a stale state is worse than none; Queues, ResourceQuotas, volumes, the workloads of others and Kueue
alone may be out of reach. Replicas that do not lead keep their caches up to date too.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from edl.clock import Clock
from edl.errors import NotSyncedError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.fresh_lists import FreshLists
from edl.kube.mirror.kueue_mirror import kueue_objects
from edl.kube.mirror.mirrored import EVERYTHING, Mirrored
from edl.kube.mirror.reflector import Reflector, ReflectorCalls, ReflectorPace
from edl.kube.mirror.store import Key, is_later
from edl.kube.mirror.urgency import group_of, is_urgent
from edl.kube.mirror.watched import Watched
from edl.kube.resource_log_line import resource_log_line
from edl.kube.translate.decoders import PODS
from edl.kube.translate.kueue.objects import FlavorSpec
from edl.kube.translate.objects import HasMetadata, JobObject, NodeObject, PodObject
from edl.kube.translate.rules.facts import RuleFacts, RuleObjects, read_facts
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey, Role
from edl.waiting import wait_for_first

OVERDUE_S = 10.0
"""If a watch does not show within this time what the API server answered, edl lists the collection again."""

SLICE, SLICE_OF_JOBS, SLICE_OF_NODES = 100, 5, 500
"""Pods or jobs, specs of jobs, and nodes that are translated before anything else may be done: some 10 ms each."""
SLICE_TO_NOTE, SLICE_TO_SORT = 5000, 1000
"""Changed pods that are noted, and translated pods that are sorted, before anything else may be done."""


class ClusterCache:
    """Mirrors a cluster and takes snapshots of it.

    Args:
        session: the API server.
        clock: for pauses, ages and timeouts.
        mirrored: which jobs and workloads count; by default all.
        default_master_image: the image of a master whose job names none.
        controller_namespace: jobs are invalid in this namespace; empty if it is unknown.
        pace: sizes and times of every reflector.
        on_event: called with the object before and after each change that a watch brings; see `Reflector`.
    """

    def __init__(
        self,
        session: ApiSession,
        clock: Clock,
        *,
        mirrored: Mirrored = EVERYTHING,
        default_master_image: str = "",
        controller_namespace: str = "",
        pace: ReflectorPace | None = None,
        on_event: Callable[[HasMetadata | None, HasMetadata | None], None] = lambda _before, _after: None,
    ) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._last: ClusterSnapshot | None = None
        self._has_snapshot = False
        self._fresh_lists: FreshLists[Reflector[Any]] = FreshLists()
        self._urgent: set[str] = set()
        self._readers, self._on_event = mirrored.workloads, on_event
        self._translator = Translator(
            default_master_image=default_master_image, controller_namespace=controller_namespace
        )
        calls = ReflectorCalls(on_change=self._changed.set, on_event=self._note, on_part=self._freeze_first_parts)
        self._watched = Watched(session, clock, mirrored, pace or ReflectorPace(), calls)
        self._kueue_problem = ""
        self._facts: RuleFacts | None = None  # as long as nothing has changed that rules depend on
        self._namespaces = frozenset(mirrored.namespaces)

    async def run(self) -> None:
        """Mirror forever; only cancellation or a bug ends it."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._watched.all():
                tasks.create_task(reflector.run(), name=f"reflector {reflector.resource}")

    @property
    def is_synced(self) -> bool:
        """True once every collection is listed that a decision needs."""
        return all(r.synced.is_set() for r in self._watched.needed())

    async def wait_until_synced(self) -> None:
        """Wait until every collection is listed that a decision needs."""
        for reflector in self._watched.needed():
            await reflector.synced.wait()

    def unready(self) -> list[str]:
        """Return the reasons against a decision now; empty if there are none. Lists again if a watch seems lost."""
        watched, queues = self._watched.all(), self._watched.queues
        for reflector in watched:
            reflector.list_if_deaf(OVERDUE_S)
        lists = [f"edl is still listing {r.resource}" for r in watched if not (r.synced.is_set() or r.problem)]
        if queues.problem and not (queues.synced.is_set() or queues.refusal):
            lists.append(queues.problem)  # without the quotas of existing queues jobs would grow too much
        return self.problems() + lists + self._outdated()

    def list_anew(self) -> None:
        """Permit no decision before jobs and pods are listed again, because another process wrote until now.

        A new leader calls this when it takes over. A watch proves nothing then: it may be silent, or come from an API
        server that lags behind. A list shows every write that ended before the list began.
        """
        self._fresh_lists.require(self._watched.written(names_kueue=self.names_kueue))

    def _outdated(self) -> list[str]:
        return [f"edl lists {r.resource} again before it decides" for r in self._fresh_lists.missing()]

    def problems(self) -> list[str]:
        """Return a line for each collection that cannot be listed or watched now."""
        return [r.problem for r in self._watched.needed() if r.problem]

    def unread(self) -> dict[str, int]:
        """Return the collections that edl cannot read: the API server lacks them (404) or forbids them (403)."""
        return {r.resource.path: r.refusal for r in self._watched.all() if r.refusal}

    @property
    def lists_done(self) -> int:
        """How many lists of nodes and pods are complete; each may have brought changes without an event."""
        return self._watched.nodes.lists_done + sum(r.lists_done for r in self._watched.pods)

    def nodes(self) -> Iterator[NodeObject]:
        """Return every node that can be decoded."""
        return iter(self._watched.nodes.store.objects.values())

    def snapshot(self, now_s: float) -> ClusterSnapshot:
        """Take a snapshot.

        Raises:
            NotSyncedError: the cache is not complete enough for a decision; the message says why.
        """
        reasons = self.unready()
        if reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            raise NotSyncedError(reasons[0] + more)
        self._note_changes()
        if self._last is None or now_s >= self._translator.valid_until_s:
            self._last = self._translate(now_s)
            self._freeze_first_parts()
            self._has_snapshot = True
        return replace(self._last, observed_at_s=now_s)

    async def translate(self, now_s: float) -> None:
        """Translate what has changed, a little at a time, so that nothing else on the event loop has to wait.

        Args:
            now_s: the time now, in seconds since the epoch.
        """
        translator, daemonsets = self._translator, self._watched.daemonsets.store.objects
        parts: tuple[Callable[[], bool], ...] = (
            lambda: (
                self._note_changes(SLICE_TO_NOTE)
                or translator.translate_pods(now_s, SLICE)
                or translator.prepare_jobs(now_s, SLICE_OF_JOBS)
                or translator.translate_nodes(SLICE_OF_NODES)
            ),
            lambda: translator.sort_pods(SLICE_TO_SORT),
            translator.order_pods,
            lambda: translator.reserve_nodes(daemonsets.values(), now_s, SLICE_OF_NODES),
            lambda: translator.read_jobs(now_s, SLICE),
        )
        for part in parts:
            while part():
                self._freeze_first_parts()
                await asyncio.sleep(0)

    def _note_changes(self, at_most: int | None = None) -> bool:
        """Give changed pods to the translator; after any change the last snapshot is stale.

        Args:
            at_most: so many pods of each watch; all if it is None.

        Returns:
            True if changed pods are left.
        """
        if not any(r.store.changed for r in self._watched.all()):
            return False
        self._last = None
        if any(r.store.changed for r in self._watched.rule_objects.values()):
            self._facts = None
        names = dict.fromkeys(key for r in self._watched.pods for key in islice(r.store.changed, at_most))
        classes = self._watched.classes.store.objects.values()
        self._translator.note_pods(((key, self._pod(key)) for key in names), classes)
        self._translator.note_jobs(
            (JobKey(*key), r.store.objects.get(key)) for r in self._watched.jobs for key in r.store.changed
        )
        nodes = self._watched.nodes.store
        self._translator.note_nodes((key[1], nodes.objects.get(key)) for key in nodes.changed)
        for reflector in self._watched.all():
            if reflector not in self._watched.pods:
                reflector.store.changed.clear()
                continue
            for key in names:
                reflector.store.changed.pop(key, None)
        return any(r.store.changed for r in self._watched.pods)

    def _pod(self, key: Key) -> PodObject | None:
        """Return the pod of that name; if a change of labels put it in both watches, the later one counts."""
        own, others = (r.store for r in self._watched.pods)
        return (own if is_later(own, others, key) else others).objects.get(key)

    def has_pod(self, namespace: str, name: str) -> bool:
        """Return True if a pod of that name exists that the watches show."""
        return any((namespace, name) in reflector.store.objects for reflector in self._watched.pods)

    def _translate(self, now_s: float) -> ClusterSnapshot:
        return self._translator.snapshot(
            now_s=now_s,
            objects=ClusterObjects(
                nodes=None,
                pods=None,
                jobs=None,
                workloads=[
                    (self._readers[kind], source)
                    for kind, reflector in self._watched.workloads.items()
                    for (namespace, _), source in reflector.store.objects.items()
                    if not self._namespaces or namespace in self._namespaces
                ],
                daemonsets=self._watched.daemonsets.store.objects.values(),
                priority_classes=self._watched.classes.store.objects.values(),
                resource_quotas=self._watched.quotas.store.objects.values(),
                queues=self._watched.queues.store.objects.values(),
                unread_queues=self._watched.queues.store.quarantined.values(),
                unread_nodes=[name for _, name in self._watched.nodes.store.quarantined],
                kueue=kueue_objects(self._watched.kueue, self._kueue_problem),
                facts=self.rule_facts(),
            ),
        )

    def rule_facts(self) -> RuleFacts:
        """Return the volumes, devices and other objects that rules read, which change seldom, and there are many."""
        mirrored = self._watched.rule_objects.items()
        read = (name for name, r in mirrored if r.synced.is_set() and not (r.refusal or r.store.quarantined))
        complete = frozenset(read)
        has_changed = any(r.store.changed for _, r in mirrored)  # and nobody has taken a snapshot since
        if self._facts is None or self._facts.complete != complete or has_changed:
            found: dict[str, Any] = {name: r.store.objects.values() for name, r in mirrored}
            self._facts = read_facts(RuleObjects(**found, complete=complete))
        return self._facts

    def resource_log_line(self) -> str:
        """Return the resources of the cluster for the log line `Cluster.InquiryResource done`."""
        return resource_log_line(self._watched.nodes.store.objects.values(), self.pods())

    def left_out(self) -> list[str]:
        """Return a line for each object that cannot be decoded or translated, and one if known queues may be old."""
        undecoded = chain.from_iterable(r.store.quarantined.values() for r in self._watched.all())
        queues = self._watched.queues
        outdated = [self.queues_problem()] if queues.store.objects and queues.refusal else []
        return [
            *map(str, undecoded),
            *map(str, self._translator.quarantined),
            *outdated,
            *self._watched.unseen_rules(),
        ]

    def queues_problem(self) -> str:
        """Say that edl may not read Queue objects any more, and which quotas count meanwhile; empty if it can.

        Queues that were read before stay, because jobs would grow too much without the quotas of queues that exist.
        """
        if not self._watched.queues.refusal:
            return ""
        known = "the last known quotas count" if self._watched.queues.store.objects else "no quota is counted"
        return f"queues cannot be read ({self._watched.queues.refusal}): {known}"

    def flavors(self, names: Collection[str]) -> list[FlavorSpec]:
        """Return the ResourceFlavors of these names that exist, sorted by name."""
        found = self._watched.kueue["flavors"].store.objects
        return [found["", name].spec or FlavorSpec() for name in sorted(names) if ("", name) in found]

    @property
    def names_kueue(self) -> bool:
        """True if a job of the last snapshot names a queue of Kueue."""
        return self._translator.names_kueue

    def note_kueue(self, problem: str) -> None:
        """Note why edl cannot size the jobs of Kueue; empty if it can."""
        if problem != self._kueue_problem:
            self._kueue_problem, self._last = problem, None

    def silence_s(self) -> float:
        """Return how long the API server has sent nothing for one of the collections; infinite before the first."""
        contacts_s = [r.last_contact_s for r in self._watched.needed()]
        now_s = self._clock.monotonic_s()
        return max(float("inf") if at_s is None else now_s - at_s for at_s in contacts_s)

    def pods(self) -> Iterator[PodObject]:
        """Yield every pod once; if a change of labels put it in both watches, the later one counts."""
        own, others = (r.store for r in self._watched.pods)
        for key, pod in own.objects.items():
            if key not in others.objects or is_later(own, others, key):
                yield pod
        for key, pod in others.objects.items():
            if key not in own.objects or not is_later(own, others, key):
                yield pod

    def jobs(self) -> Iterator[JobObject]:
        """Return every watched TrainingJob."""
        return chain.from_iterable(r.store.objects.values() for r in self._watched.jobs)

    def job_body(self, key: JobKey) -> dict[str, Any] | None:
        """Return the TrainingJob as the API server stores it; None if it does not exist."""
        found = (r.store.objects.get((key.namespace, key.name)) for r in self._watched.jobs)
        return next((job.body for job in found if job is not None), None)

    def workload(self, key: JobKey) -> Any | None:  # noqa: ANN401 - the decoded object of any kind
        """Return a workload that is no TrainingJob as the cache shows it; None if it does not exist."""
        return self._watched.workloads[key.kind].store.objects.get((key.namespace, key.object_name))

    def learn(self, key: JobKey, uid: str, role: Role, pod: Mapping[str, Any]) -> bool:
        """Read what admission adds from a pod as the API server would store it; True if it changes the shape."""
        decoded = PODS.from_dict(dict(pod))
        if not (isinstance(decoded, PodObject) and self._translator.learn(key, uid, role, decoded)):
            return False
        self._last = None
        return True

    def priority_classes(self) -> frozenset[str]:
        """Return the names of all PriorityClasses."""
        return frozenset(name for _, name in self._watched.classes.store.objects)

    def answered(self, kind: str, body: dict[str, Any]) -> None:
        """Store an object as the API server has answered to a write or a read of edl: the next snapshot shows it.

        If its version is not a number, nobody can tell it from an older state. Then no decision is made before a list
        that began after the answer.
        """
        metadata = body.get("metadata") or {}
        reflector = self._watched.mirror(kind, metadata)
        if reflector is not None:
            reflector.take_answer(body)
            if not str(metadata.get("resourceVersion") or "").isdecimal():
                self._fresh_lists.require([reflector])

    def deleted(self, kind: str, key: Key, uid: str, answer: dict[str, Any]) -> None:
        """Store what the API server has answered to a deletion: the object is terminating, or it is gone."""
        metadata = answer.get("metadata") or {}
        is_there = metadata.get("uid") == uid and metadata.get("deletionTimestamp")
        if is_there and (metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers")):
            self.answered(kind, answer)
            return
        for reflector in self._watched.mirrors(kind):
            reflector.take_absence(key, uid)

    async def wait_for_change(self, timeout_s: float, *, debounce_s: float = 0.5) -> bool:
        """Wait until something changes that a decision depends on, and then for the changes that follow at once.

        Args:
            timeout_s: longest wait for the first change.
            debounce_s: how long to wait after it; a rollout changes a hundred objects at once.

        Returns:
            False after a timeout.
        """
        if timeout_s > 0 and not self._changed.is_set():  # else beside a busy planner each step costs milliseconds
            await wait_for_first(self._changed.wait(), self._clock.sleep(timeout_s))
        if not self._changed.is_set():
            return False
        if debounce_s > 0:
            await self._clock.sleep(debounce_s)
        self._changed.clear()
        return True

    def urgent_changes(self) -> frozenset[str]:
        """The groups of the urgent changes since the last call; see `urgency.group_of`."""
        urgent, self._urgent = frozenset(self._urgent), set()
        return urgent

    def _note(self, before: HasMetadata | None, after: HasMetadata | None) -> None:
        changed = after or before
        if changed is not None and is_urgent(before, after):
            self._urgent.add(group_of(changed))
        self._on_event(before, after)

    def _freeze_first_parts(self) -> None:
        """Exclude the first lists, and what is made of them, from garbage collection: most of it remains for long.

        This is done part by part, because a look at all objects takes long. Lists leave few cycles behind.
        """
        if not self._has_snapshot:
            gc.collect(1)  # the young objects
            gc.freeze()
