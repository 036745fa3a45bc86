"""Every node as a `Node` value, with what DaemonSets reserve on it; only what changed is translated again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf

from edl.errors import ConfigError
from edl.kube.translate.books.sorted_values import SortedValues
from edl.kube.translate.daemonsets import COME_WITHIN_S, Daemon, DaemonPods, reserved_on
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.objects import NodeMetadata, NodeObject, NodeSpec, NodeStatus
from edl.kube.translate.scalars import text
from edl.kube.translate.shapes import parse_amounts
from edl.model.cluster import Node
from edl.model.resources import PODS, Resources, Taint
from edl.model.times import seconds_of

DEFAULT_MAX_PODS = 110
"""The kubelet's default, for hand-written nodes without an allocatable number of pods."""

NodeChange = tuple[str, NodeObject | None]
"""A node that came or changed, by name, or None for one that is gone."""


class NodeBook:
    """The nodes of one cluster.

    Attributes:
        left_out: the nodes that cannot be read, by name.
        valid_until_s: until when the last nodes hold if no object changes, in seconds since the epoch.
    """

    def __init__(self) -> None:
        self.left_out: dict[str, Quarantined] = {}
        self.valid_until_s = inf
        self._new: dict[str, float] = {}  # nodes to which daemon pods may still come, and until when
        self._sources: dict[str, NodeObject] = {}
        self._due: dict[str, None] = {}
        self._read: dict[str, Node] = {}  # without what is reserved
        self._nodes: SortedValues[str, Node] = SortedValues()
        self._unreserved: dict[str, None] = {}
        self._daemons: tuple[Daemon, ...] = ()

    def __contains__(self, name: object) -> bool:
        return name in self._read

    def __len__(self) -> int:
        return len(self._read)

    def note(self, changes: Iterable[NodeChange]) -> None:
        """Take changes; `translate` does the work."""
        for name, source in changes:
            if source is None:
                self._sources.pop(name, None)
                self._due[name] = None
            elif self._sources.get(name) is not source:
                self._sources[name] = source
                self._due[name] = None

    def changes_to(self, nodes: Iterable[NodeObject]) -> Iterator[NodeChange]:
        """Return the changes that make the book hold exactly these nodes."""
        listed = {(node.metadata or NodeMetadata()).name or "": node for node in nodes}
        yield from ((name, None) for name in list(self._sources) if name not in listed)
        yield from listed.items()

    def translate(self, at_most: int | None = None) -> bool:
        """Translate the changed nodes, at most `at_most` of them; return False once none is left."""
        for name in list(islice(self._due, at_most)):
            del self._due[name]
            self.left_out.pop(name, None)
            self._read.pop(name, None)
            self._unreserved[name] = None
            source = self._sources.get(name)
            if source is None:
                continue
            try:
                self._read[name] = read_node(source)
            except ConfigError as error:
                uid = (source.metadata or NodeMetadata()).uid or ""
                self.left_out[name] = Quarantined("Node", "", name, uid, str(error))
        return bool(self._due)

    def nodes(
        self, daemons: Sequence[Daemon], pods: DaemonPods, touched: Iterable[str], now_s: float
    ) -> tuple[Node, ...]:
        """Return every node that can be read, sorted by name; the same tuple as before if none has changed.

        Args:
            daemons: the DaemonSets.
            pods: their pods.
            touched: the nodes of which that may have changed since the last call.
            now_s: seconds since the epoch.
        """
        self.translate()
        self.reserve(daemons, pods, touched, now_s)
        self.valid_until_s = min(self._new.values(), default=inf) if self._daemons else inf
        return self._nodes.all()

    def reserve(
        self,
        daemons: Sequence[Daemon],
        pods: DaemonPods,
        touched: Iterable[str],
        now_s: float,
        at_most: int | None = None,
    ) -> bool:
        """Find what DaemonSets reserve on changed nodes, at most `at_most` of them; return False once none is left.

        Args:
            daemons: the DaemonSets.
            pods: their pods.
            touched: the nodes of which that may have changed since the last call.
            now_s: seconds since the epoch.
            at_most: so many nodes; all if it is None.
        """
        if tuple(daemons) != self._daemons:
            self._daemons = tuple(daemons)
            self._unreserved.update(dict.fromkeys(self._read))
        self._unreserved.update(dict.fromkeys(touched))
        self._unreserved.update((name, None) for name, until_s in self._new.items() if until_s <= now_s)
        for name in list(islice(self._unreserved, at_most)):
            del self._unreserved[name]
            if name in self._due:  # it is translated first, and then due here again
                continue
            node = self._read.get(name)
            if node is None:
                self._nodes.drop(name)
                self._new.pop(name, None)
                continue
            reserved = reserved_on(node, self._daemons, pods, is_new=self._is_new(name, now_s))
            new = replace(node, reserved=reserved) if reserved != Resources() else node
            if new != self._nodes.get(name):
                self._nodes.put(name, new)
        return bool(self._unreserved)

    def _is_new(self, name: str, now_s: float) -> bool:
        """True if the node came a short while ago, or nobody knows when, as in a file that somebody wrote."""
        created_s = seconds_of((self._sources[name].metadata or NodeMetadata()).creation_timestamp)
        until_s = inf if created_s is None else created_s + COME_WITHIN_S
        self._new.pop(name, None)
        if now_s < until_s:
            self._new[name] = until_s
        return now_s < until_s


def read_node(source: NodeObject) -> Node:
    """Translate a node; a hand-written one without conditions counts as ready.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    metadata, spec = source.metadata or NodeMetadata(), source.spec or NodeSpec()
    status = source.status or NodeStatus()
    allocatable = parse_amounts(status.allocatable or status.capacity)
    allocatable.setdefault(PODS, DEFAULT_MAX_PODS)
    readiness = [c.status == "True" for c in status.conditions or () if c.type == "Ready"]
    return Node(
        name=metadata.name or "",
        allocatable=Resources.of(allocatable),
        labels=tuple(sorted((key, text(value)) for key, value in (metadata.labels or {}).items())),
        taints=tuple(Taint(t.key or "", text(t.value), t.effect or "") for t in spec.taints or ()),
        ready=all(readiness),
        cordoned=bool(spec.unschedulable) or metadata.deletion_timestamp is not None,
    )
