"""A standby takes over while its watches lag behind: what its cache must show before it may be read."""

from __future__ import annotations

from dataclasses import dataclass

from edl.kube.mirror.fresh_lists import FreshLists
from tests.worlds.small_scope.cluster import Stream, World

LISTED = (Stream.JOBS, Stream.PODS)
"""What the predecessor wrote, which `ClusterCache.list_anew` lists. The watches of the others stay late."""


@dataclass(eq=False)
class Collection:
    """A collection of the standby; a list of it is under way that began while the predecessor wrote."""

    stream: Stream
    lists_begun: int = 1
    lists_done: int = 0

    def request_list(self) -> None:
        """The standby asks for a list; it begins when the one under way is complete."""


def taken_over(world: World) -> World:
    """The world in which the standby leads: of each list that it waits for, the cache must show all that is true now.

    The wait itself is decided by edl's own `FreshLists`. A collection that it does not wait for is read as it is.
    """
    collections = [Collection(stream) for stream in LISTED]
    fresh: FreshLists[Collection] = FreshLists()
    fresh.require(collections)
    for one in collections:
        one.lists_done = one.lists_begun
    awaited = {one.stream for one in fresh.missing()}
    own = world.standby
    owed = [len(versions) - 1 if s in awaited else 0 for s, versions in zip(Stream, own, strict=True)]
    streams = (own[0], own[1], own[2], own[3])
    return world._replace(streams=streams, owed=(owed[0], owed[1], owed[2], owed[3]), standby=())
