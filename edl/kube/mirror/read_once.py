"""One snapshot of a live cluster, as the controller would take it. This module only reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from edl.clock import Clock
from edl.errors import NotSyncedError, TemporaryError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.cache import ClusterCache
from edl.model.cluster import ClusterSnapshot

PATIENCE_S = 5.0
"""How long an error of the API server must last before the command fails."""

TIMEOUT_S = 60.0
_PAUSE_S = 0.05
_REMEDY = (
    "check the API server and your right to list nodes, pods, trainingjobs, daemonsets and priorityclasses in all"
    " namespaces, or give a saved cluster with -f FILE"
)


async def look(
    session: ApiSession, clock: Clock, *, patience_s: float = PATIENCE_S, timeout_s: float = TIMEOUT_S
) -> tuple[ClusterSnapshot, Sequence[str]]:
    """Read a cluster once.

    Args:
        session: the API server.
        clock: for the time of the snapshot, pauses and timeouts.
        patience_s: how long an error of the API server may last.
        timeout_s: how long a list without errors may take.

    Returns:
        The snapshot, and a line for each object that it leaves out, and for queues that cannot be read.

    Raises:
        TemporaryError: the API server cannot be reached, or refuses the request; the message says which request.
    """
    cache = ClusterCache(session, clock)
    mirror = asyncio.create_task(cache.run())
    try:
        found = await first_snapshot(cache, mirror, clock, patience_s=patience_s, timeout_s=timeout_s)
        return found, list(dict.fromkeys(one for one in (*cache.left_out(), cache.queues_problem()) if one))
    finally:
        mirror.cancel()
        await asyncio.gather(mirror, return_exceptions=True)


async def first_snapshot(
    cache: ClusterCache,
    mirror: asyncio.Task[None],
    clock: Clock,
    *,
    patience_s: float = PATIENCE_S,
    timeout_s: float = TIMEOUT_S,
    remedy: str = _REMEDY,
) -> ClusterSnapshot:
    """Wait for the first snapshot of a cache.

    Args:
        cache: what is filled.
        mirror: the task that fills it.
        clock: for the time of the snapshot, pauses and timeouts.
        patience_s: how long an error of the API server may last.
        timeout_s: how long a list without errors may take.
        remedy: what the message tells a person to do.

    Raises:
        TemporaryError: the API server cannot be reached, or refuses the request; the message says which request.
    """
    started_s = clock.monotonic_s()
    while not mirror.done():
        waited_s = clock.monotonic_s() - started_s
        try:
            return cache.snapshot(clock.now_s())
        except NotSyncedError as error:
            if waited_s >= (patience_s if cache.problems() else timeout_s):
                raise TemporaryError(f"the cluster cannot be read: {error}; {remedy}") from error
        await clock.sleep(_PAUSE_S)
    mirror.result()
    raise TemporaryError("the cluster cannot be read: the watches ended before the first snapshot; try again")
