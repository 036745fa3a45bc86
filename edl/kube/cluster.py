"""A live cluster as the controller's `Cluster` port: the cache observes, the writer acts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from edl.clock import Clock
from edl.kube.discovery import PodResizing
from edl.kube.mirror.cache import ClusterCache
from edl.kube.writer import Writer
from edl.model.actions import Action, Outcome
from edl.model.cluster import ClusterSnapshot


class KubernetesCluster:
    """Implements `ports.Cluster`; the cache must be running.

    Args:
        cache: observes.
        writer: acts.
        clock: the time of a snapshot.
        resizing: asked whether running pods can be resized; None if edl shall not resize them.
    """

    def __init__(
        self, cache: ClusterCache, writer: Writer, clock: Clock, resizing: PodResizing | None = None
    ) -> None:
        self._cache, self._writer, self._clock, self._resizing = cache, writer, clock, resizing
        self._observing = asyncio.Lock()
        self._uids: list[str] = []

    async def observe(self) -> ClusterSnapshot:
        """Take a snapshot; `wait_for_change` then waits for changes after it.

        Raises:
            NotSyncedError: the cache is not complete enough for a decision; the message says why.
        """
        resizes_pods = self._resizing is not None and await self._resizing.is_there()
        async with self._observing:  # the cluster is looked at also while a plan is made
            await self._cache.translate(self._clock.now_s())
            await self._cache.wait_for_change(0.0, debounce_s=0.0)
            snapshot = self._cache.snapshot(self._clock.now_s())
        if (uids := [job.uid for job in snapshot.jobs]) != self._uids:
            self._writer.forget_all_but(set(uids))
            self._uids = uids
        return replace(snapshot, resizes_pods=True) if resizes_pods else snapshot

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until something changes after the last snapshot; return False after a timeout."""
        return await self._cache.wait_for_change(timeout_s, debounce_s=0.0)

    def urgent_changes(self) -> int:
        """Return how many changes there have been that must not wait for the writes under way."""
        return self._cache.urgent_changes

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action, if the object is still the one that was observed."""
        return await self._writer.apply(action)
