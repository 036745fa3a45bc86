"""What a controller remembers of expected nodes: groups that brought none in time, and how long nodes have been idle.

Losing this memory costs time and never correctness: a request lasts longer, and a node is emptied later.
"""

from __future__ import annotations

from dataclasses import replace

from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.node_groups import NodeGroup
from edl.planner.nodes.idle import idle_nodes

LONGEST_PAUSE_S = 3600.0


class NodeMemory:
    """Adds to each snapshot the node groups that are paused and the nodes that are emptied."""

    def __init__(self, limits: Limits) -> None:
        """Begin with these node groups and time limit."""
        self._limits = limits
        self._groups = {group.name: group for group in limits.nodes.expected}
        self._pauses: dict[str, tuple[float, float]] = {}  # (until when, how long) by group
        self._idle_since_s: dict[str, float] = {}

    def use(self, limits: Limits) -> None:
        """Replace the node groups and the time limit; forget groups that no longer exist."""
        self._limits = limits
        self._groups = {group.name: group for group in limits.nodes.expected}
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in self._groups}

    def update(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return the snapshot with paused groups and nodes to empty; the same object if no nodes are expected."""
        if not self._groups:
            return snapshot
        now_s = snapshot.observed_at_s
        self._note_requests(snapshot, now_s)
        resting = tuple(sorted((name, until_s) for name, (until_s, _) in self._pauses.items() if now_s < until_s))
        return replace(snapshot, resting_groups=resting, idle_nodes=self._to_empty(snapshot, now_s))

    def _note_requests(self, snapshot: ClusterSnapshot, now_s: float) -> None:
        """Pause a group that brought no node in time, twice as long each time; the next new node ends the pause."""
        for request in snapshot.node_requests:
            group = self._groups.get(request.group)
            if group is None or not request.pod.is_live:
                continue
            if not request.is_open:
                self._pauses.pop(group.name, None)
            elif now_s - request.pod.created_s >= group.give_up_s:
                self._pause(group, now_s)

    def _pause(self, group: NodeGroup, now_s: float) -> None:
        until_s, last_s = self._pauses.get(group.name, (0.0, 0.0))
        if now_s >= until_s:
            pause_s = min(LONGEST_PAUSE_S, max(group.give_up_s, 2 * last_s))
            self._pauses[group.name] = (now_s + pause_s, pause_s)

    def _to_empty(self, snapshot: ClusterSnapshot, now_s: float) -> tuple[str, ...]:
        if not self._limits.nodes.drain_idle_s:
            return ()
        idle, before = idle_nodes(snapshot, self._limits), self._idle_since_s
        self._idle_since_s = {name: before.get(name, now_s) for name in idle}
        due_s = now_s - self._limits.nodes.drain_idle_s
        return tuple(name for name, since_s in self._idle_since_s.items() if since_s <= due_s)
