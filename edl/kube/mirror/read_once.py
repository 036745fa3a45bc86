"""One look at a live cluster: a snapshot as the controller would take it, and then no more. It only reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from edl.clock import Clock
from edl.errors import NotSyncedError, TemporaryError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.cache import ClusterCache
from edl.model.cluster import ClusterSnapshot

PATIENCE_S = 5.0
"""How long a refusal must last before it is believed."""

TIMEOUT_S = 60.0
_PAUSE_S = 0.05


async def look(
    session: ApiSession, clock: Clock, *, patience_s: float = PATIENCE_S, timeout_s: float = TIMEOUT_S
) -> tuple[ClusterSnapshot, Sequence[str]]:
    """Read a cluster once.

    Returns:
        The snapshot, and what had to be left out of it.

    Raises:
        TemporaryError: the API server cannot be reached, or refuses; the message says what.
    """
    cache = ClusterCache(session, clock)
    mirror = asyncio.create_task(cache.run())
    try:
        return await _filled(cache, mirror, clock, patience_s, timeout_s), cache.left_out()
    finally:
        mirror.cancel()
        await asyncio.gather(mirror, return_exceptions=True)


async def _filled(
    cache: ClusterCache, mirror: asyncio.Task[None], clock: Clock, patience_s: float, timeout_s: float
) -> ClusterSnapshot:
    started_s = clock.monotonic_s()
    while not mirror.done():
        waited_s = clock.monotonic_s() - started_s
        try:
            return cache.snapshot(clock.now_s())
        except NotSyncedError as error:
            if waited_s >= (patience_s if cache.problems() else timeout_s):
                raise TemporaryError(
                    f"the cluster cannot be read: {error}; check the server and your rights (to list nodes, pods,"
                    " trainingjobs, daemonsets and priorityclasses everywhere), or give a saved cluster by -f FILE"
                ) from error
        await clock.sleep(_PAUSE_S)
    mirror.result()
    raise TemporaryError("the cluster cannot be read: the watch ended; try again")
