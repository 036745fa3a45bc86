"""The whole cluster in memory, kept up to date, with the moments at which it may be trusted.

Six collections are watched: nodes, our own pods in every phase (a pod that finishes would otherwise vanish with its
exit code), all other pods that are not finished, TrainingJobs, DaemonSets and PriorityClasses. A snapshot is refused
while one of them is not filled, has no contact, or does not show our own last writes: a decision on a stale world
would be worse than none. Followers keep a warm cache as well.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import Any, TypeVar

from edl.clock import Clock
from edl.errors import NotSyncedError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.expectations import OVERDUE_S, Expectations, Verb
from edl.kube.mirror.reflector import Pace, Reflector, Resource
from edl.kube.mirror.store import ObjectStore
from edl.kube.resource_log_line import resource_log_line
from edl.kube.translate.decoders import DAEMON_SETS, NODES, PODS, PRIORITY_CLASSES, TRAINING_JOBS, Decoder
from edl.kube.translate.objects import TRAINING_JOB_API, HasMetadata, JobObject, PodObject
from edl.kube.translate.snapshot import Translator
from edl.model.cluster import ClusterSnapshot
from edl.model.names import LABEL_JOB, JobKey

T = TypeVar("T", bound=HasMetadata)

JOBS_PATH = f"/apis/{TRAINING_JOB_API}"
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class ClusterCache:
    """Mirrors a cluster and takes snapshots of it.

    Args:
        session: the API server.
        clock: for pauses, ages and time-outs.
        namespaces: where TrainingJobs are watched; empty watches them everywhere. Pods are watched everywhere.
        default_master_image: of masters whose job names none.
        controller_namespace: where no job may be; empty where nobody knows.
        pace: of every reflector.
        overdue_s: how long one of our own writes may take to come back before everything is listed again.
    """

    def __init__(
        self,
        session: ApiSession,
        clock: Clock,
        *,
        namespaces: Sequence[str] = (),
        default_master_image: str = "",
        controller_namespace: str = "",
        pace: Pace | None = None,
        overdue_s: float = OVERDUE_S,
    ) -> None:
        self._session = session
        self._clock = clock
        self._pace = pace or Pace()
        self._changed = asyncio.Event()
        self._translator = Translator(
            default_master_image=default_master_image, controller_namespace=controller_namespace
        )
        arrivals = count()
        own = Resource("/api/v1/pods", label_selector=LABEL_JOB)
        others = Resource("/api/v1/pods", label_selector=f"!{LABEL_JOB}", field_selector=UNFINISHED)
        self._nodes = self._reflector(Resource("/api/v1/nodes"), NODES)
        self._pods = tuple(self._reflector(r, PODS, arrivals) for r in (own, others))
        places = [f"{JOBS_PATH}/namespaces/{name}/trainingjobs" for name in sorted(set(namespaces))]
        self._jobs = tuple(
            self._reflector(Resource(place), TRAINING_JOBS) for place in places or [f"{JOBS_PATH}/trainingjobs"]
        )
        self._daemonsets = self._reflector(Resource("/apis/apps/v1/daemonsets"), DAEMON_SETS)
        self._classes = self._reflector(Resource("/apis/scheduling.k8s.io/v1/priorityclasses"), PRIORITY_CLASSES)
        self._expectations = Expectations(self._mirrors, clock.monotonic_s, overdue_s=overdue_s)

    async def run(self) -> None:
        """Mirror forever; only a bug of ours or cancellation ends it."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._all():
                tasks.create_task(reflector.run(), name=f"reflector {reflector.resource}")
            tasks.create_task(self._freeze())

    @property
    def is_synced(self) -> bool:
        """True once every collection was listed."""
        return all(r.synced.is_set() for r in self._all())

    async def wait_until_synced(self) -> None:
        """Wait until every collection was listed."""
        for reflector in self._all():
            await reflector.synced.wait()

    def unready(self) -> list[str]:
        """Why no decision may be taken now; empty where one may. Overdue writes are looked for again by this."""
        lists = [f"{r.resource} is not listed yet" for r in self._all() if not (r.synced.is_set() or r.problem)]
        return self.problems() + lists + self.unmet()

    def problems(self) -> list[str]:
        """What the API server refuses, or why there is no contact."""
        return [r.problem for r in self._all() if r.problem]

    def unmet(self) -> list[str]:
        """Which of our own writes the cache does not show yet."""
        return self._expectations.unmet()

    def snapshot(self, now_s: float) -> ClusterSnapshot:
        """Take a snapshot.

        Raises:
            NotSyncedError: the cache may not be trusted now, and why.
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
            unread_nodes=[name for _, name in self._nodes.store.quarantined],
            now_s=now_s,
        )

    def resource_log_line(self) -> str:
        """The resources of the cluster as the line `Cluster.InquiryResource done` says them."""
        return resource_log_line(self._nodes.store.objects.values(), self.pods())

    def left_out(self) -> list[str]:
        """What could not be read: objects that could not be decoded, and those that could not be translated."""
        poison = chain.from_iterable(r.store.quarantined.values() for r in self._all())
        return [str(one) for one in (*poison, *self._translator.quarantined)]

    def silence_s(self) -> float:
        """For how long the quietest collection has heard nothing from the API server; infinite before the first."""
        master_view = [r.last_contact_s for r in self._all()]
        now_s = self._clock.monotonic_s()
        return max(float("inf") if at_s is None else now_s - at_s for at_s in master_view)

    def pods(self) -> Iterator[PodObject]:
        """Every pod once: one whose labels changed may be in both watches for a moment; the later arrival counts."""
        own, others = (r.store for r in self._pods)
        for key, pod in own.objects.items():
            if key not in others.objects or own.arrival(key) > others.arrival(key):
                yield pod
        for key, pod in others.objects.items():
            if key not in own.objects or others.arrival(key) > own.arrival(key):
                yield pod

    def jobs(self) -> Iterator[JobObject]:
        """Every TrainingJob that is watched."""
        return chain.from_iterable(r.store.objects.values() for r in self._jobs)

    def job_body(self, key: JobKey) -> dict[str, Any] | None:
        """The TrainingJob as it is stored, for whoever makes pods of it; None where there is none."""
        found = (r.store.objects.get((key.namespace, key.name)) for r in self._jobs)
        return next((job.body for job in found if job is not None), None)

    def priority_classes(self) -> frozenset[str]:
        """The names of all PriorityClasses."""
        return frozenset(name for _, name in self._classes.store.objects)

    def expect_created(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Take no decision before the cache shows the object that we created, or that it has left again."""
        self._expectations.expect(Verb.CREATED, kind, (namespace, name), uid)

    def expect_deleted(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Take no decision before the cache shows the object that we deleted as terminating or gone."""
        self._expectations.expect(Verb.DELETED, kind, (namespace, name), uid)

    def expect_patched(self, kind: str, namespace: str, name: str, uid: str, resource_version: str) -> None:
        """Take no decision before the cache has shown the object with the version that our patch gave it."""
        self._expectations.expect(Verb.PATCHED, kind, (namespace, name), uid, resource_version)

    async def wait_for_change(self, timeout_s: float, *, debounce_s: float = 0.5) -> bool:
        """Wait until something that a decision depends on has changed, and gather what changes right after it.

        Args:
            timeout_s: longest wait for the first change.
            debounce_s: how long to gather; a rollout changes a hundred objects at once.

        Returns:
            False on a time-out.
        """
        change = asyncio.ensure_future(self._changed.wait())
        alarm = asyncio.ensure_future(self._clock.sleep(timeout_s))
        try:
            await asyncio.wait({change, alarm}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
            alarm.cancel()
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
            pace=self._pace,
        )

    def _all(self) -> tuple[Reflector[Any], ...]:
        return (self._nodes, *self._pods, *self._jobs, self._daemonsets, self._classes)

    def _mirrors(self, kind: str) -> Sequence[Reflector[Any]]:
        mirrors: dict[str, Sequence[Reflector[Any]]] = {
            "Node": (self._nodes,),
            "Pod": self._pods,
            "TrainingJob": self._jobs,
        }
        return mirrors.get(kind, ())

    async def _freeze(self) -> None:
        """Keep the collector from walking the first lists, which mostly stay, again and again."""
        await self.wait_until_synced()
        gc.collect()
        gc.freeze()
