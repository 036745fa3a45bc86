"""A live cluster as the controller's `Cluster` port: the cache observes, the writer acts."""

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
        """Take a snapshot; `wait_for_change` then waits for changes after it.

        Raises:
            NotSyncedError: the cache is not complete enough for a decision; the message says why.
        """
        await self._cache.wait_for_change(0.0, debounce_s=0.0)
        snapshot = self._cache.snapshot(self._clock.now_s())
        self._writer.forget_all_but({job.uid for job in snapshot.jobs})
        return snapshot

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until something changes after the last snapshot; return False after a timeout."""
        return await self._cache.wait_for_change(timeout_s, debounce_s=0.0)

    def urgent_changes(self) -> int:
        """Return how many changes there have been that must not wait for the writes under way."""
        return self._cache.urgent_changes

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action, if the object is still the one that was observed."""
        return await self._writer.apply(action)
