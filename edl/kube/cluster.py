"""The cluster behind its API server, as the controller's port wants it: caches to observe, a writer to act."""

from __future__ import annotations

from edl.clock import Clock
from edl.kube.mirror.cache import ClusterCache
from edl.kube.writer import Writer
from edl.model.actions import Action, Outcome
from edl.model.cluster import ClusterSnapshot


class KubernetesCluster:
    """Implements `ports.Cluster`; the cache must be running."""

    def __init__(self, cache: ClusterCache, writer: Writer, clock: Clock) -> None:
        self._cache, self._writer, self._clock = cache, writer, clock

    async def observe(self) -> ClusterSnapshot:
        """Take a snapshot; whatever changed before it is no news any more.

        Raises:
            NotSyncedError: the cache may not be trusted now, and why.
        """
        await self._cache.wait_for_change(0.0, debounce_s=0.0)
        snapshot = self._cache.snapshot(self._clock.now_s())
        self._writer.forget_all_but({job.uid for job in snapshot.jobs})
        return snapshot

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until something has changed since the last snapshot; False if it has not."""
        return await self._cache.wait_for_change(timeout_s, debounce_s=0.0)

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action, conditionally on the object still being the one that was observed."""
        return await self._writer.apply(action)
