"""The whole cluster in memory, kept up to date; it knows when it is complete enough for a decision.

It watches these collections: nodes, the jobs' pods in every phase (a finished pod would otherwise disappear with its
exit code), all other pods that are not finished, TrainingJobs, DaemonSets, PriorityClasses, Queues, ResourceQuotas,
and the workloads of others that edl can resize. There is no snapshot while one of them is not listed, cannot be
watched, or must be listed again: a decision from an outdated state is worse than none; Queues,
ResourceQuotas and the workloads of others alone may be out of reach. Replicas that do not lead keep their caches up
to date too.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any, TypeVar

from edl.clock import Clock
from edl.errors import NotSyncedError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.fresh_lists import FreshLists
from edl.kube.mirror.reflector import Reflector, ReflectorPace, Resource
from edl.kube.mirror.store import Key, ObjectStore, is_later
from edl.kube.mirror.urgency import is_urgent
from edl.kube.resource_log_line import resource_log_line
from edl.kube.translate.decoders import (
    DAEMON_SETS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    Decoder,
)
from edl.kube.translate.objects import TRAINING_JOB_API, HasMetadata, JobObject, PodObject
from edl.kube.translate.queues import QUEUES
from edl.kube.translate.snapshot import Translator
from edl.kube.workloads.registry import ADAPTERS
from edl.model.cluster import ClusterSnapshot
from edl.model.names import LABEL_JOB, JobKey, Role, WorkloadKind
from edl.waiting import wait_for_first

T = TypeVar("T", bound=HasMetadata)

JOBS_PATH = f"/apis/{TRAINING_JOB_API}"
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
OVERDUE_S = 10.0
"""If a watch does not show within this time what the API server answered, edl lists the collection again."""

SLICE, SLICE_OF_JOBS, SLICE_OF_NODES = 100, 5, 500
"""Pods, jobs and nodes that are translated before anything else may be done: some 10 ms each."""
SLICE_TO_NOTE, SLICE_TO_SORT = 5000, 1000
"""Changed pods that are noted, and translated pods that are sorted, before anything else may be done."""


class ClusterCache:
    """Mirrors a cluster and takes snapshots of it.

    Args:
        session: the API server.
        clock: for pauses, ages and timeouts.
        namespaces: TrainingJobs are watched in these, and other workloads count only there; if empty, in all. Pods
            are watched in all namespaces.
        default_master_image: the image of a master whose job names none.
        controller_namespace: jobs are invalid in this namespace; empty if it is unknown.
        pace: sizes and times of every reflector.

    Attributes:
        urgent_changes: how many urgent changes the watches have brought; see `urgency`.
    """

    def __init__(
        self,
        session: ApiSession,
        clock: Clock,
        *,
        namespaces: Sequence[str] = (),
        default_master_image: str = "",
        controller_namespace: str = "",
        pace: ReflectorPace | None = None,
    ) -> None:
        self._session = session
        self._clock = clock
        self._pace = pace or ReflectorPace()
        self._changed = asyncio.Event()
        self._last: ClusterSnapshot | None = None
        self._has_snapshot = False
        self._fresh_lists: FreshLists[Reflector[Any]] = FreshLists()
        self.urgent_changes = 0
        self._translator = Translator(
            default_master_image=default_master_image, controller_namespace=controller_namespace
        )
        arrivals = count()
        own = Resource("/api/v1/pods", label_selector=LABEL_JOB)
        others = Resource("/api/v1/pods", label_selector=f"!{LABEL_JOB}", field_selector=UNFINISHED)
        self._nodes = self._reflector(Resource("/api/v1/nodes"), NODES)
        self._pods = tuple(self._reflector(r, PODS, arrivals) for r in (own, others))
        paths = [f"{JOBS_PATH}/namespaces/{name}/trainingjobs" for name in sorted(set(namespaces))]
        self._jobs = tuple(
            self._reflector(Resource(path), TRAINING_JOBS) for path in paths or [f"{JOBS_PATH}/trainingjobs"]
        )
        self._daemonsets = self._reflector(Resource("/apis/apps/v1/daemonsets"), DAEMON_SETS)
        self._classes = self._reflector(Resource("/apis/scheduling.k8s.io/v1/priorityclasses"), PRIORITY_CLASSES)
        self._quotas = self._reflector(Resource("/api/v1/resourcequotas"), RESOURCE_QUOTAS)
        self._queues = self._reflector(Resource(f"{JOBS_PATH}/queues"), QUEUES)
        self._namespaces = frozenset(namespaces)
        self._workloads: dict[WorkloadKind, Reflector[Any]] = {
            kind: self._reflector(Resource(f"/apis/{adapter.api[0]}/{adapter.api[2]}"), adapter.decoder)
            for kind, adapter in ADAPTERS.items()
        }

    async def run(self) -> None:
        """Mirror forever; only cancellation or a bug ends it."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._all():
                tasks.create_task(reflector.run(), name=f"reflector {reflector.resource}")

    @property
    def is_synced(self) -> bool:
        """True once every collection is listed that a decision needs."""
        return all(r.synced.is_set() for r in self._needed())

    async def wait_until_synced(self) -> None:
        """Wait until every collection is listed that a decision needs."""
        for reflector in self._needed():
            await reflector.synced.wait()

    def unready(self) -> list[str]:
        """Return the reasons against a decision now; empty if there are none. Lists again if a watch seems lost."""
        for reflector in self._all():
            reflector.list_if_deaf(OVERDUE_S)
        lists = [f"edl is still listing {r.resource}" for r in self._all() if not (r.synced.is_set() or r.problem)]
        if self._queues.problem and not (self._queues.synced.is_set() or self._queues.refusal):
            lists.append(self._queues.problem)  # without the quotas of existing queues jobs would grow too much
        return self.problems() + lists + self._outdated()

    def list_anew(self) -> None:
        """Make no decision before jobs and their pods have been listed again: another process wrote until now.

        A new leader calls this when it takes over. A watch proves nothing then: it may be silent, or come from an API
        server that lags behind. A list shows every write that ended before the list began.
        """
        self._fresh_lists.require(self._written())

    def _outdated(self) -> list[str]:
        return [f"edl lists {r.resource} again before it decides" for r in self._fresh_lists.missing()]

    def problems(self) -> list[str]:
        """Return a line for each collection that cannot be listed or watched now."""
        return [r.problem for r in self._needed() if r.problem]

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
        if self._last is None:
            self._last = self._translate(now_s)
            self._freeze_first_parts()
            self._has_snapshot = True
        return replace(self._last, observed_at_s=now_s)

    async def translate(self, now_s: float) -> None:
        """Translate what has changed, a little at a time, so that nothing else on the event loop has to wait.

        Args:
            now_s: the time now, in seconds since the epoch.
        """
        while (
            self._note_changes(SLICE_TO_NOTE)
            or self._translator.translate_pods(now_s, SLICE)
            or self._translator.prepare_jobs(now_s, SLICE_OF_JOBS)
            or self._translator.translate_nodes(SLICE_OF_NODES)
        ):
            self._freeze_first_parts()
            await asyncio.sleep(0)
        while self._translator.sort_pods(SLICE_TO_SORT):  # noqa: ASYNC110 - each turn does a part
            await asyncio.sleep(0)
        self._translator.order_pods()
        await asyncio.sleep(0)

    def _note_changes(self, at_most: int | None = None) -> bool:
        """Hand changed pods to the translator; after any change the last snapshot is outdated.

        Args:
            at_most: so many pods of each watch; all if it is None.

        Returns:
            True if changed pods are left.
        """
        if not any(r.store.changed for r in self._all()):
            return False
        self._last = None
        names = dict.fromkeys(key for r in self._pods for key in islice(r.store.changed, at_most))
        self._translator.note_pods(((key, self._pod(key)) for key in names), self._classes.store.objects.values())
        self._translator.note_jobs(
            (JobKey(*key), r.store.objects.get(key)) for r in self._jobs for key in r.store.changed
        )
        nodes = self._nodes.store
        self._translator.note_nodes((key[1], nodes.objects.get(key)) for key in nodes.changed)
        for reflector in self._all():
            if reflector not in self._pods:
                reflector.store.changed.clear()
                continue
            for key in names:
                reflector.store.changed.pop(key, None)
        return any(r.store.changed for r in self._pods)

    def _pod(self, key: Key) -> PodObject | None:
        """Return the pod of that name; if a change of labels put it in both watches, the later one counts."""
        own, others = (r.store for r in self._pods)
        return (own if is_later(own, others, key) else others).objects.get(key)

    def _translate(self, now_s: float) -> ClusterSnapshot:
        return self._translator.snapshot(
            nodes=None,
            pods=None,
            jobs=None,
            workloads=[
                (ADAPTERS[kind], source)
                for kind, reflector in self._workloads.items()
                for (namespace, _), source in reflector.store.objects.items()
                if not self._namespaces or namespace in self._namespaces
            ],
            daemonsets=self._daemonsets.store.objects.values(),
            priority_classes=self._classes.store.objects.values(),
            resource_quotas=self._quotas.store.objects.values(),
            queues=self._queues.store.objects.values(),
            unread_queues=self._queues.store.quarantined.values(),
            unread_nodes=[name for _, name in self._nodes.store.quarantined],
            now_s=now_s,
        )

    def resource_log_line(self) -> str:
        """Return the resources of the cluster for the log line `Cluster.InquiryResource done`."""
        return resource_log_line(self._nodes.store.objects.values(), self.pods())

    def left_out(self) -> list[str]:
        """Return a line for each object that cannot be decoded or translated, and one if known queues may be old."""
        undecoded = chain.from_iterable(r.store.quarantined.values() for r in self._all())
        outdated = [self.queues_problem()] if self._queues.store.objects and self._queues.refusal else []
        return [*map(str, undecoded), *map(str, self._translator.quarantined), *outdated]

    def queues_problem(self) -> str:
        """Why the quotas of Queue objects are not those of now; empty if they are.

        What was read before a refusal stays: without the quotas of queues that may exist, jobs would grow too much.
        """
        if not self._queues.refusal:
            return ""
        known = "the last known quotas count" if self._queues.store.objects else "no quota is counted"
        return f"queues cannot be read ({self._queues.refusal}): {known}"

    def silence_s(self) -> float:
        """Return how long the API server has sent nothing for one of the collections; infinite before the first."""
        contacts_s = [r.last_contact_s for r in self._needed()]
        now_s = self._clock.monotonic_s()
        return max(float("inf") if at_s is None else now_s - at_s for at_s in contacts_s)

    def pods(self) -> Iterator[PodObject]:
        """Yield every pod once; if a change of labels put it in both watches, the later one counts."""
        own, others = (r.store for r in self._pods)
        for key, pod in own.objects.items():
            if key not in others.objects or is_later(own, others, key):
                yield pod
        for key, pod in others.objects.items():
            if key not in own.objects or not is_later(own, others, key):
                yield pod

    def jobs(self) -> Iterator[JobObject]:
        """Return every watched TrainingJob."""
        return chain.from_iterable(r.store.objects.values() for r in self._jobs)

    def job_body(self, key: JobKey) -> dict[str, Any] | None:
        """Return the TrainingJob as the API server stores it; None if it does not exist."""
        found = (r.store.objects.get((key.namespace, key.name)) for r in self._jobs)
        return next((job.body for job in found if job is not None), None)

    def workload(self, key: JobKey) -> Any | None:  # noqa: ANN401 - the decoded object of any kind
        """Return a workload that is no TrainingJob as the cache shows it; None if it does not exist."""
        return self._workloads[key.kind].store.objects.get((key.namespace, key.object_name))

    def learn(self, key: JobKey, uid: str, role: Role, pod: Mapping[str, Any]) -> bool:
        """Read what admission adds from a pod as the API server would store it; True if it changes the shape."""
        decoded = PODS.from_dict(dict(pod))
        if not (isinstance(decoded, PodObject) and self._translator.learn(key, uid, role, decoded)):
            return False
        self._last = None
        return True

    def priority_classes(self) -> frozenset[str]:
        """Return the names of all PriorityClasses."""
        return frozenset(name for _, name in self._classes.store.objects)

    def answered(self, kind: str, body: dict[str, Any]) -> None:
        """Store an object as the API server has answered to a write or a read of edl: the next snapshot shows it.

        If its version is not a number, nobody can tell it from an older state. Then no decision is made before a list
        that began after the answer.
        """
        metadata = body.get("metadata") or {}
        reflector = self._mirror(kind, metadata)
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
        for reflector in self._mirrors(kind):
            reflector.take_absence(key, uid)

    def _mirror(self, kind: str, metadata: Mapping[str, Any]) -> Reflector[Any] | None:
        """The reflector whose watch shows an object of that kind; None if there is none."""
        mirrors = self._mirrors(kind)
        if kind == "Pod":
            return mirrors[LABEL_JOB not in (metadata.get("labels") or {})]
        one = f"/namespaces/{metadata.get('namespace')}/"
        return next((r for r in mirrors if len(mirrors) == 1 or one in r.resource.path), None)

    async def wait_for_change(self, timeout_s: float, *, debounce_s: float = 0.5) -> bool:
        """Wait until something changes that a decision depends on, and then for the changes that follow at once.

        Args:
            timeout_s: longest wait for the first change.
            debounce_s: how long to wait after it; a rollout changes a hundred objects at once.

        Returns:
            False after a timeout.
        """
        await wait_for_first(self._changed.wait(), self._clock.sleep(timeout_s))
        if not self._changed.is_set():
            return False
        if debounce_s > 0:
            await self._clock.sleep(debounce_s)
        self._changed.clear()
        return True

    def _reflector(
        self, resource: Resource, decoder: Decoder[T], arrivals: Iterator[int] | None = None
    ) -> Reflector[T]:
        return Reflector(
            self._session,
            resource,
            decoder,
            ObjectStore[T](arrivals),
            self._clock,
            on_change=self._changed.set,
            on_event=self._note,
            on_part=self._freeze_first_parts,
            pace=self._pace,
        )

    def _note(self, before: HasMetadata | None, after: HasMetadata | None) -> None:
        self.urgent_changes += is_urgent(before, after)

    def _all(self) -> tuple[Reflector[Any], ...]:
        return (*self._needed(), self._quotas, self._queues, *self._workloads.values())

    def _needed(self) -> tuple[Reflector[Any], ...]:
        """What no decision is made without.

        Without ResourceQuotas edl goes by what the API server refuses, and without the right to read other workloads
        their pods are those of somebody else. A cluster may have no resource for Queues; see `unready`.
        """
        return (self._nodes, *self._pods, *self._jobs, self._daemonsets, self._classes)

    def _written(self) -> tuple[Reflector[Any], ...]:
        """What edl writes: pods of jobs, and the jobs themselves."""
        return (self._pods[0], *self._jobs)

    def _mirrors(self, kind: str) -> Sequence[Reflector[Any]]:
        mirrors: dict[str, Sequence[Reflector[Any]]] = {
            "Pod": self._pods,
            "TrainingJob": self._jobs,
            **{other.value: (reflector,) for other, reflector in self._workloads.items()},
        }
        return mirrors.get(kind, ())

    def _freeze_first_parts(self) -> None:
        """Exclude the first lists, and what is made of them, from garbage collection: most of it remains for long.

        This is done part by part, because a look at all objects takes long. Lists leave few cycles behind.
        """
        if not self._has_snapshot:
            gc.collect(1)  # the young objects
            gc.freeze()
