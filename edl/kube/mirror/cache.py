"""The whole cluster in memory, kept up to date; it knows when it is complete enough for a decision.

It watches seven collections: nodes, the jobs' pods in every phase (a finished pod would otherwise disappear with its
exit code), all other pods that are not finished, TrainingJobs, DaemonSets, PriorityClasses and ResourceQuotas. There
is no snapshot while one of them is not listed, cannot be watched, or does not show edl's own last writes: a decision
from an outdated state is worse than none. Replicas that do not lead keep their caches up to date too.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, TypeVar

from edl.clock import Clock
from edl.errors import NotSyncedError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.expectations import OVERDUE_S, Expectations, Verb
from edl.kube.mirror.reflector import Reflector, ReflectorPace, Resource
from edl.kube.mirror.store import ObjectStore
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
from edl.kube.translate.objects import TRAINING_JOB_API, HasMetadata, JobObject, PodObject, PodSpec
from edl.kube.translate.snapshot import Translator
from edl.model.cluster import ClusterSnapshot
from edl.model.names import LABEL_JOB, JobKey, Role
from edl.waiting import wait_for_first

T = TypeVar("T", bound=HasMetadata)

JOBS_PATH = f"/apis/{TRAINING_JOB_API}"
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class ClusterCache:
    """Mirrors a cluster and takes snapshots of it.

    Args:
        session: the API server.
        clock: for pauses, ages and timeouts.
        namespaces: TrainingJobs are watched in these; if empty, in all. Pods are watched in all namespaces.
        default_master_image: the image of a master whose job names none.
        controller_namespace: jobs are invalid in this namespace; empty if it is unknown.
        pace: sizes and times of every reflector.
        overdue_s: how long the event of edl's own write may take before everything of that kind is listed again.

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
        overdue_s: float = OVERDUE_S,
    ) -> None:
        self._session = session
        self._clock = clock
        self._pace = pace or ReflectorPace()
        self._changed = asyncio.Event()
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
        self._expectations = Expectations(self._mirrors, clock.monotonic_s, overdue_s=overdue_s)

    async def run(self) -> None:
        """Mirror forever; only cancellation or a bug ends it."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._all():
                tasks.create_task(reflector.run(), name=f"reflector {reflector.resource}")
            tasks.create_task(self._freeze_first_lists())

    @property
    def is_synced(self) -> bool:
        """True once every collection is listed that a decision needs."""
        return all(r.synced.is_set() for r in self._needed())

    async def wait_until_synced(self) -> None:
        """Wait until every collection is listed that a decision needs."""
        for reflector in self._needed():
            await reflector.synced.wait()

    def unready(self) -> list[str]:
        """Return the reasons against a decision now; empty if there are none. Requests a list for overdue writes."""
        lists = [f"edl is still listing {r.resource}" for r in self._all() if not (r.synced.is_set() or r.problem)]
        return self.problems() + lists + self.unmet()

    def problems(self) -> list[str]:
        """Return a line for each collection that cannot be listed or watched now."""
        return [r.problem for r in self._needed() if r.problem]

    def unmet(self) -> list[str]:
        """Return a line for each of edl's own writes that the cache does not show yet."""
        return self._expectations.unmet()

    def snapshot(self, now_s: float) -> ClusterSnapshot:
        """Take a snapshot.

        Raises:
            NotSyncedError: the cache is not complete enough for a decision; the message says why.
        """
        reasons = self.unready()
        if reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            raise NotSyncedError(reasons[0] + more)
        return self._translator.snapshot(
            nodes=self._nodes.store.objects.values(),
            pods=self.pods(),
            jobs=self.jobs(),
            daemonsets=self._daemonsets.store.objects.values(),
            priority_classes=self._classes.store.objects.values(),
            resource_quotas=self._quotas.store.objects.values(),
            unread_nodes=[name for _, name in self._nodes.store.quarantined],
            now_s=now_s,
        )

    def resource_log_line(self) -> str:
        """Return the resources of the cluster for the log line `Cluster.InquiryResource done`."""
        return resource_log_line(self._nodes.store.objects.values(), self.pods())

    def left_out(self) -> list[str]:
        """Return a line for each object that cannot be decoded or translated."""
        undecoded = chain.from_iterable(r.store.quarantined.values() for r in self._all())
        return [str(one) for one in (*undecoded, *self._translator.quarantined)]

    def silence_s(self) -> float:
        """Return how long the API server has sent nothing for one of the collections; infinite before the first."""
        contacts_s = [r.last_contact_s for r in self._needed()]
        now_s = self._clock.monotonic_s()
        return max(float("inf") if at_s is None else now_s - at_s for at_s in contacts_s)

    def pods(self) -> Iterator[PodObject]:
        """Yield every pod once; if a change of labels put it in both watches, the later arrival counts."""
        own, others = (r.store for r in self._pods)
        for key, pod in own.objects.items():
            if key not in others.objects or own.arrival(key) > others.arrival(key):
                yield pod
        for key, pod in others.objects.items():
            if key not in own.objects or others.arrival(key) > own.arrival(key):
                yield pod

    def jobs(self) -> Iterator[JobObject]:
        """Return every watched TrainingJob."""
        return chain.from_iterable(r.store.objects.values() for r in self._jobs)

    def job_body(self, key: JobKey) -> dict[str, Any] | None:
        """Return the TrainingJob as the API server stores it; None if it does not exist."""
        found = (r.store.objects.get((key.namespace, key.name)) for r in self._jobs)
        return next((job.body for job in found if job is not None), None)

    def learn(self, key: JobKey, uid: str, role: Role, pod: Mapping[str, Any]) -> bool:
        """Read what admission adds from a pod as the API server would store it; True if it changes the shape."""
        decoded = PODS.from_dict(dict(pod))
        return isinstance(decoded, PodObject) and self._translator.learn(key, uid, role, decoded.spec or PodSpec())

    def priority_classes(self) -> frozenset[str]:
        """Return the names of all PriorityClasses."""
        return frozenset(name for _, name in self._classes.store.objects)

    def expect_created(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Make no decision before the cache shows the object that edl created, or that it was deleted again."""
        self._expectations.expect(Verb.CREATED, kind, (namespace, name), uid)

    def expect_deleted(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Make no decision before the cache shows that the object is terminating or deleted."""
        self._expectations.expect(Verb.DELETED, kind, (namespace, name), uid)

    def expect_patched(self, kind: str, namespace: str, name: str, uid: str, resource_version: str) -> None:
        """Make no decision before the cache has shown the object with the version of edl's patch."""
        self._expectations.expect(Verb.PATCHED, kind, (namespace, name), uid, resource_version)

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
            pace=self._pace,
        )

    def _note(self, before: HasMetadata | None, after: HasMetadata | None) -> None:
        self.urgent_changes += is_urgent(before, after)

    def _all(self) -> tuple[Reflector[Any], ...]:
        return (*self._needed(), self._quotas)

    def _needed(self) -> tuple[Reflector[Any], ...]:
        """What no decision is made without. Without ResourceQuotas edl goes by what the API server refuses."""
        return (self._nodes, *self._pods, *self._jobs, self._daemonsets, self._classes)

    def _mirrors(self, kind: str) -> Sequence[Reflector[Any]]:
        mirrors: dict[str, Sequence[Reflector[Any]]] = {
            "Node": (self._nodes,),
            "Pod": self._pods,
            "TrainingJob": self._jobs,
        }
        return mirrors.get(kind, ())

    async def _freeze_first_lists(self) -> None:
        """Exclude the first lists from garbage collection: most of their objects remain for long."""
        await self.wait_until_synced()
        gc.collect()
        gc.freeze()
