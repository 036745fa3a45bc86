"""A live cluster as the controller's `Cluster` port: the cache observes, the writer acts, if there is one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from edl.clock import Clock
from edl.errors import PermanentError
from edl.kube.discovery import KueueVersion, PodResizing
from edl.kube.mirror.cache import ClusterCache
from edl.kube.writer import Writer
from edl.model.actions import Action, Outcome
from edl.model.cluster import ClusterSnapshot


class WatchedCluster:
    """Implements `ports.Cluster` without a writer: every action is an error. The cache must be running.

    Args:
        cache: observes.
        clock: the time of a snapshot.
        resizing: asked whether running pods can be resized; None if edl shall not resize them.
        kueue: asked how old Kueue is, once a job names a queue of it; None takes any version.
    """

    def __init__(
        self,
        cache: ClusterCache,
        clock: Clock,
        resizing: PodResizing | None = None,
        kueue: KueueVersion | None = None,
    ) -> None:
        self._cache, self._clock, self._resizing, self._kueue = cache, clock, resizing, kueue
        self._observing = asyncio.Lock()

    async def observe(self) -> ClusterSnapshot:
        """Take a snapshot; `wait_for_change` then waits for changes after it.

        Raises:
            NotSyncedError: the cache is not complete enough for a decision; the message says why.
        """
        resizes_pods = self._resizing is not None and await self._resizing.is_there()
        if self._kueue is not None and self._cache.names_kueue:
            self._cache.note_kueue(await self._kueue.problem())
        async with self._observing:  # the cluster is looked at also while a plan is made
            await self._cache.translate(self._clock.now_s())
            await self._cache.wait_for_change(0.0, debounce_s=0.0)
            snapshot = self._cache.snapshot(self._clock.now_s())
        return replace(snapshot, resizes_pods=True) if resizes_pods else snapshot

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until something changes after the last snapshot; return False after a timeout."""
        return await self._cache.wait_for_change(timeout_s, debounce_s=0.0)

    def urgent_changes(self) -> frozenset[str]:
        """Return the namespaces of the changes since the last call that must not wait for the writes under way."""
        return self._cache.urgent_changes()

    async def apply(self, action: Action) -> Outcome:
        """Raise an error: there is no writer to carry out the action.

        Raises:
            PermanentError: always.
        """
        raise PermanentError(f"{action} was not sent: this process only reads the cluster")


class KubernetesCluster(WatchedCluster):
    """Implements `ports.Cluster` with a writer, which carries out the actions.

    Args:
        cache, clock, resizing, kueue: see `WatchedCluster`.
        writer: acts.
    """

    def __init__(
        self,
        cache: ClusterCache,
        writer: Writer,
        clock: Clock,
        resizing: PodResizing | None = None,
        kueue: KueueVersion | None = None,
    ) -> None:
        super().__init__(cache, clock, resizing, kueue)
        self._writer = writer
        self._uids: list[str] = []

    async def observe(self) -> ClusterSnapshot:
        """Take a snapshot, and let the writer forget the jobs that are gone.

        Raises:
            NotSyncedError: see `WatchedCluster.observe`.
        """
        snapshot = await super().observe()
        if (uids := [job.uid for job in snapshot.jobs]) != self._uids:
            self._writer.forget_all_but(set(uids))
            self._uids = uids
        return snapshot

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action on condition that the object is still the one that was observed."""
        return await self._writer.apply(action)
